//! A provider that panics in every method, destructor and closure. The core must not notice.

use acm_prov_api::prelude::*;
use acm_prov_api::sa::{PathQuery, Target};
use acm_prov_api::sync::Arc;
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::{
    AddressContext, Device, DeviceContext, Endpoint, EndpointContext, EndpointHandle, Port,
    PortContext, PortHandle, provider_table,
};

struct Panicking;

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{} dropped", self.0);
    }
}

struct State {
    _bomb: Bomb,
}

fn state(whose: &'static str) -> State {
    State { _bomb: Bomb(whose) }
}

fn path_to_seven() -> PathQuery {
    PathQuery::to(Target::Lid(Lid(7)))
}

impl Provider for Panicking {
    const NAME: &CStr = c"panicking";
    type Endpoint = State;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let bomb = Bomb("a closure");
        let handle = from.endpoint().handle();
        let request = request.keep();
        handle.ask_path(&path_to_seven(), move |_| {
            let _bomb = bomb;
            drop(request);
        });
    }
}

impl DeviceContext<Panicking> for State {
    fn open(_: &Arc<Panicking>, _: &acm_prov_api::DeviceHandle) -> Result<Self, Error> {
        Ok(state("a device"))
    }

    fn close(&self) {
        panic!("a device closed");
    }
}

impl PortContext<Panicking> for State {
    type Device = State;

    fn open(_: &Arc<Device<Panicking>>, _: &PortHandle) -> Result<Self, Error> {
        Ok(state("a port"))
    }

    fn reregister(&self, _: &PortHandle) {
        panic!("registered");
    }

    fn close(&self) {
        panic!("a port closed");
    }
}

impl EndpointContext<Panicking> for State {
    type Port = State;
    type Address = State;

    fn open(_: &Arc<Port<Panicking>>, endpoint: &EndpointHandle) -> Result<Self, Error> {
        if endpoint.pkey() == PKey(0x8001) {
            // Both closures are called with the end of their endpoint while the panic below unwinds.
            let bomb = Bomb("a closure of an endpoint that does not open");
            endpoint.ask_path(&path_to_seven(), move |_| drop(bomb));
            endpoint.ask_path(&path_to_seven(), |_| panic!("a closure was called"));
            panic!("an endpoint opened");
        }
        Ok(state("an endpoint"))
    }

    fn close(&self) {
        panic!("an endpoint closed");
    }
}

impl AddressContext<Panicking> for State {
    fn add(_: &Arc<Endpoint<Panicking>>, address: &Address) -> Result<Self, Error> {
        assert!(!matches!(address, Address::Name(_)), "a name added");
        Ok(state("an address"))
    }

    fn remove(&self, _: &Address) {
        panic!("an address removed");
    }
}

provider_table!(Panicking);

#[test]
fn the_core_goes_on_whatever_panics_where() {
    let mut core = TestCore::load::<Panicking>("");
    core.expect_panics();
    for round in 0..3 {
        core.open();
        assert_eq!(core.open_endpoint(0x8001), None);
        core.wait_for_log("an endpoint opened");
        let name = Address::Name(Name::new("name").unwrap());
        assert_eq!(core.add_address(&name), None);
        let id = core.resolve(&Request::destination(&Address::Lid(Lid(7))));
        core.close();
        assert_eq!(core.wait_for_answer(id).status, Status::ENODATA, "{round}");
        assert_eq!(core.answers(id).len(), 1);
        while !core.sa_mads().is_empty() {
            core.sa_answers_with(|_| ());
        }
        assert_eq!(core.mads(), 0);
    }
}
