//! The end of contexts: devices whose port did not open, and closes during a callback.

use std::sync::{Arc, Mutex};

use acm_prov_api::prelude::*;
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::{
    AddressContext, Closed, Device, DeviceContext, DeviceHandle, Endpoint, EndpointContext,
    EndpointHandle, Port, PortContext, PortHandle, provider_table,
};

/// Its device and port contexts count their live instances. Ports with numbers in [`BAD_PORTS`] do not open.
struct Ports;

struct LivingDevice;

struct LivingPort;

/// Live devices, closed devices, and live ports.
static DEVICES: Mutex<[i32; 3]> = Mutex::new([0; 3]);
static BAD_PORTS: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn count(index: usize, change: i32) {
    DEVICES.lock().unwrap()[index] += change;
}

impl DeviceContext<Ports> for LivingDevice {
    fn open(_: &Arc<Ports>, _: &DeviceHandle) -> Result<Self, Error> {
        count(0, 1);
        Ok(Self)
    }

    fn close(&self) {
        count(1, 1);
    }
}

impl Drop for LivingDevice {
    fn drop(&mut self) {
        count(0, -1);
    }
}

impl PortContext<Ports> for LivingPort {
    type Device = LivingDevice;

    fn open(_: &Arc<Device<Ports>>, port: &PortHandle) -> Result<Self, Error> {
        if BAD_PORTS.lock().unwrap().contains(&port.number()) {
            return Err("told to fail".into());
        }
        count(2, 1);
        Ok(Self)
    }
}

impl Drop for LivingPort {
    fn drop(&mut self) {
        count(2, -1);
    }
}

impl EndpointContext<Ports> for OnPort {
    type Port = LivingPort;
    type Address = NoContext;

    fn open(_: &Arc<Port<Ports>>, _: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self)
    }
}

struct OnPort;

impl Provider for Ports {
    const NAME: &CStr = c"ports";
    type Endpoint = OnPort;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        *DEVICES.lock().unwrap() = [0; 3];
        BAD_PORTS.lock().unwrap().clear();
        Ok(Self)
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        request.refuse(Status::ENODATA);
    }
}

provider_table!(Ports);

fn ports_fail(numbers: &[u8]) {
    numbers.clone_into(&mut BAD_PORTS.lock().unwrap());
}

/// ibacm opens the device again for the next port that comes up, and never closes the one whose port did not open.
#[test]
fn a_device_whose_only_port_does_not_open_ends() {
    let mut core = TestCore::load::<Ports>("");
    ports_fail(&[1]);
    // Few enough for the log's rate limit.
    for round in 1..=3 {
        assert_eq!(core.try_open(), Err("open_port"));
        assert_eq!(*DEVICES.lock().unwrap(), [0, round, 0]);
        core.forget_device();
    }
    ports_fail(&[]);
    core.open();
    assert_eq!(*DEVICES.lock().unwrap(), [1, 3, 1]);
    core.close();
    assert_eq!(*DEVICES.lock().unwrap(), [0, 4, 0]);
    assert!(
        !core.log().iter().any(|line| line.contains("not open")),
        "{:?}",
        core.log()
    );
}

#[test]
fn a_device_that_has_another_open_port_stays_when_a_port_does_not_open() {
    let mut core = TestCore::load::<Ports>("");
    ports_fail(&[2]);
    core.open();
    assert_eq!(core.open_another_port(2), None);
    assert_eq!(*DEVICES.lock().unwrap(), [1, 0, 1]);
    ports_fail(&[]);
    assert!(core.open_another_port(2).is_some());
    assert_eq!(*DEVICES.lock().unwrap(), [1, 0, 2], "the same device");
    core.close();
    assert_eq!(*DEVICES.lock().unwrap(), [0, 1, 0]);
}

/// Another core may keep the context of a device whose port did not open.
#[test]
fn a_device_that_ended_opens_again_with_its_next_port_or_is_closed() {
    let mut core = TestCore::load::<Ports>("");
    ports_fail(&[1]);
    assert_eq!(core.try_open(), Err("open_port"));
    assert!(core.open_another_port(2).is_some());
    assert_eq!(*DEVICES.lock().unwrap(), [1, 1, 1]);
    core.close();
    assert_eq!(*DEVICES.lock().unwrap(), [0, 2, 0]);
    assert_eq!(core.try_open(), Err("open_port"));
    core.close();
    assert_eq!(*DEVICES.lock().unwrap(), [0, 3, 0], "not closed twice");
    assert!(
        !core.log().iter().any(|line| line.contains("not open")),
        "{:?}",
        core.log()
    );
}

#[test]
fn a_forgotten_device_that_ended_is_refused_once_the_core_has_opened_it_anew() {
    let mut core = TestCore::load::<Ports>("");
    ports_fail(&[1]);
    assert_eq!(core.try_open(), Err("open_port"));
    let forgotten = core.forget_device();
    ports_fail(&[]);
    core.open();
    assert_eq!(*DEVICES.lock().unwrap(), [1, 1, 1]);
    core.close_virtual_function(forgotten);
    core.wait_for_log("close_device: the core passed a device context that is not open");
    assert_eq!(*DEVICES.lock().unwrap(), [1, 1, 1]);
}

/// Its addresses note their end. A request for [`CLOSING`] makes the core close the request's own contexts.
struct Closing;

const CLOSING: Lid = Lid(0xc105);

/// The action of a request for [`CLOSING`].
type Close = Box<dyn FnOnce() + Send>;

static CLOSE: Mutex<Option<Close>> = Mutex::new(None);
/// Removed addresses, and dropped ones.
static ENDED: Mutex<[i32; 2]> = Mutex::new([0; 2]);

struct Ending;

impl EndpointContext<Closing> for Ending {
    type Port = NoContext;
    type Address = EndingAddress;

    fn open(_: &Arc<Port<Closing>>, _: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self)
    }
}

struct EndingAddress;

impl AddressContext<Closing> for EndingAddress {
    fn add(_: &Arc<Endpoint<Closing>>, _: &Address) -> Result<Self, Error> {
        Ok(Self)
    }

    fn remove(&self, _: &Address) {
        ENDED.lock().unwrap()[0] += 1;
    }
}

impl Drop for EndingAddress {
    fn drop(&mut self) {
        ENDED.lock().unwrap()[1] += 1;
    }
}

impl Provider for Closing {
    const NAME: &CStr = c"closing";
    type Endpoint = Ending;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        *ENDED.lock().unwrap() = [0; 2];
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        let close = CLOSE.lock().unwrap().take();
        if let Some(close) = close {
            close();
            assert_eq!(*ENDED.lock().unwrap(), [1, 0], "closed, but not gone");
            // The request's contexts are still alive.
            let own = Address::Ip(TestCore::SOURCE);
            assert_eq!(*from.address(), own);
            assert!(!from.endpoint().has_address(&own));
            let port = from.endpoint().handle().port();
            assert_eq!(port.attributes(), Err(Closed.into()));
        }
        request.refuse(Status::ENODATA);
    }
}

provider_table!(Closing);

/// The core closes a request's contexts while the provider handles it.
#[test]
fn a_close_during_a_request_ends_its_context_after_it() {
    for on_another_thread in [false, true] {
        let mut core = TestCore::load::<Closing>("");
        core.open();
        let close = core.closer();
        *CLOSE.lock().unwrap() = Some(if on_another_thread {
            Box::new(move || std::thread::spawn(close).join().unwrap())
        } else {
            Box::new(close)
        });
        let id = core.resolve(&Request::destination(&Address::Lid(CLOSING)));
        assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
        assert_eq!(*ENDED.lock().unwrap(), [1, 1]);
        let late = core.resolve(&Request::destination(&Address::Lid(CLOSING)));
        assert_eq!(core.wait_for_answer(late).status, Status::ESRCADDR);
    }
}
