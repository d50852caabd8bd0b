//! The memory for reading the dump of a large fabric. The dump is generated while it is read.

use std::io::{BufRead, BufReader, Read};

use acm_prov_api::address::Lid;
use acm_prov_api::dump::Routes;
use acm_prov_api::testing::Allocations;

#[global_allocator]
static ALLOCATOR: Allocations = Allocations;

const HOSTS: u16 = 10_000;
const OWN: u16 = 5_000;

/// The most bytes per kept route.
const ROUTE: usize = 100;

/// The most bytes in addition to the kept routes.
const LIMIT: usize = 16 << 20;

fn guid(lid: u16) -> u64 {
    0x0010_0000 + u64::from(lid)
}

/// Returns a section per port, with the paths to all ports; in other ports' sections only to every `step`th port.
fn dump(step: usize) -> impl BufRead {
    let paths = |step: usize| {
        let lids = (1..=HOSTS).step_by(step);
        let lines = lids.map(|lid| format!("0x{lid:04X} : 0  : 4   : 3   \n"));
        lines.collect::<String>().leak().as_bytes()
    };
    let (own, others) = (paths(1), paths(step));
    let sections = (1..=HOSTS).map(move |lid| {
        let heading = format!(
            "Channel Adapter 0x{:016x}, base LID {lid}, \"host{lid}\", port 1\n# LID  : SL : MTU : RATE\n",
            guid(lid)
        );
        let paths = if lid == OWN { own } else { others };
        std::io::Cursor::new(heading.into_bytes()).chain(paths)
    });
    BufReader::new(Chained {
        current: None,
        rest: sections,
    })
}

struct Chained<I: Iterator> {
    current: Option<I::Item>,
    rest: I,
}

impl<I: Iterator<Item: Read>> Read for Chained<I> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(current) = &mut self.current {
                match current.read(into)? {
                    0 => self.current = None,
                    length => return Ok(length),
                }
            }
            match self.rest.next() {
                Some(next) => self.current = Some(next),
                None => return Ok(0),
            }
        }
    }
}

/// Other ports' sections have a tenth of the paths: if even these were kept, the test would fail.
#[test]
fn other_ports_paths_take_no_memory() {
    let dump = dump(10);
    let before = Allocations::bytes();
    let (routes, peak) = Allocations::peak_of(|| Routes::parse("dump", dump, guid(OWN), Lid(OWN)));
    let kept = Allocations::bytes().wrapping_sub(before);
    assert_eq!((routes.len(), routes.reports()), (HOSTS.into(), &[][..]));
    for lid in 1..=HOSTS {
        assert_eq!(routes.lid_of(guid(lid)), Some(Lid(lid)));
    }
    println!("{HOSTS} hosts: {kept} bytes kept, {peak} at the most");
    assert!(kept <= ROUTE * routes.len(), "{kept} bytes kept");
    assert!(peak <= kept + LIMIT, "{peak} bytes, {kept} of them kept");
}
