//! Paths within a port's subnet for links of every width and speed.

use acm_prov_api::cache::own_path;
use acm_prov_api::path::{Selector, rate_mbps};
use acm_prov_api::prelude::*;
use acm_prov_api::provider_table;
use acm_prov_api::testing::{Request, TestCore};

/// Answers for a LID with `subnet_path`, and for its own address with the path to itself.
struct Subnet;

impl Provider for Subnet {
    const NAME: &CStr = c"subnet";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let handle = from.endpoint().handle();
        let path = match request.destination() {
            Address::Lid(lid) => handle.subnet_path(Gid::new(0xfe80 << 48, 7), lid),
            _ => own_path(handle),
        };
        let rate = path.map(|path| path.rate());
        assert_eq!(rate, handle.port().rate());
        match path {
            Some(path) => request.answer(&path),
            None => request.refuse(Status::ENODATA),
        }
    }
}

provider_table!(Subnet);

/// Width codes and their lanes.
const WIDTHS: [(u8, u32); 5] = [(1, 1), (2, 4), (4, 8), (8, 12), (16, 2)];

/// Speed codes and the nominal rate of a lane in Mb/s; FDR10 counts as QDR.
const SPEEDS: [(u8, u32); 8] = [
    (1, 2_500),
    (2, 5_000),
    (4, 10_000),
    (8, 10_000),
    (16, 14_062),
    (32, 25_781),
    (64, 53_125),
    (128, 106_250),
];

fn both(core: &mut TestCore) -> [Option<PathRecord>; 2] {
    [Address::Lid(Lid(7)), Address::Ip(TestCore::SOURCE)].map(|destination| {
        let id = core.resolve(&Request::destination(&destination));
        core.wait_for_answer(id).path
    })
}

#[test]
fn a_path_has_the_rate_of_the_link_whatever_its_width_and_speed() {
    let mut core = TestCore::load::<Subnet>("");
    core.open();
    for (width, lanes) in WIDTHS {
        for (speed, lane) in SPEEDS {
            core.change_port(|port| (port.active_width, port.active_speed) = (width, speed));
            for path in both(&mut core) {
                let path = path.unwrap_or_else(|| panic!("width {width}, speed {speed}"));
                assert_eq!(path.rate_selector(), Selector::Exactly);
                let rate = rate_mbps(path.rate()).unwrap();
                // IB's codes are named by rounded rates.
                assert!(
                    rate.abs_diff(lanes * lane) * 100 <= 4 * rate,
                    "width {width}, speed {speed}: {rate} Mb/s"
                );
            }
        }
    }
}

#[test]
fn an_unknown_link_has_no_path() {
    let mut core = TestCore::load::<Subnet>("");
    core.open();
    for (width, speed) in [(0, 1), (3, 1), (32, 1), (2, 0), (2, 3), (2, 192)] {
        core.change_port(|port| (port.active_width, port.active_speed) = (width, speed));
        assert_eq!(both(&mut core), [None; 2], "width {width}, speed {speed}");
    }
}
