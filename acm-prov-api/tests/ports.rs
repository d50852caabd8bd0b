//! What a provider has of its port: threads that end with it, and what differs from its last opening.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use acm_prov_api::prelude::*;
use acm_prov_api::sync::{Arc, Mutex};
use acm_prov_api::testing::TestCore;
use acm_prov_api::{
    Device, EndpointContext, EndpointHandle, Port, PortContext, PortHandle, SpawnError, StopSignal,
    provider_table,
};

struct Threaded {
    what: String,
}

/// Holds the thread that is stuck until the test lets it go.
static STUCK: Mutex<Option<Receiver<()>>> = Mutex::new(None);

impl Provider for Threaded {
    const NAME: &CStr = c"threaded";
    type Endpoint = OfEndpoint;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        let what = options.named("thread").optional_path().unwrap_or_default();
        Ok(Self {
            what: what.display().to_string(),
        })
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
        request.refuse(Status::ENODATA);
    }
}

struct OfEndpoint;

impl EndpointContext<Threaded> for OfEndpoint {
    type Port = OfPort;
    type Address = NoContext;

    fn open(_: &Arc<Port<Threaded>>, _: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self)
    }
}

struct OfPort(PortHandle);

impl PortContext<Threaded> for OfPort {
    type Device = NoContext;

    fn open(device: &Arc<Device<Threaded>>, port: &PortHandle) -> Result<Self, Error> {
        let host = *port.host();
        let changes = port.changes()?;
        assert_eq!(port.changes()?, changes, "the same for all of an opening");
        host.log(LogLevel::ALWAYS, format_args!("{changes:?}"));
        let waits = move |signal: &StopSignal| {
            while !signal.wait(Duration::from_secs(3600)) {}
            host.log(LogLevel::ALWAYS, format_args!("asked to stop"));
        };
        match &*device.provider().what {
            "waits" => port.spawn("waits", waits)?,
            "panics" => port.spawn("panics", |_| panic!("on purpose"))?,
            "stuck" => {
                let held = STUCK.lock().take().expect("the test has put it there");
                port.spawn("stuck", move |_| {
                    let _ = held.recv();
                })?;
            }
            "fails" => {
                port.spawn("waits", waits)?;
                return Err("told to fail".into());
            }
            _ => {}
        }
        Ok(Self(port.clone()))
    }

    fn close(&self) {
        let Self(port) = self;
        port.host().log(LogLevel::ALWAYS, format_args!("closing"));
    }
}

impl Drop for OfPort {
    fn drop(&mut self) {
        if let Err(error @ SpawnError::Closed { .. }) = self.0.spawn("late", |_| ()) {
            let host = self.0.host();
            host.log(LogLevel::ALWAYS, format_args!("{error}"));
        }
    }
}

provider_table!(Threaded);

/// Where in the log a line with this text is.
#[track_caller]
fn position(core: &TestCore, text: &str) -> usize {
    let log = core.log();
    let position = log.iter().position(|line| line.contains(text));
    position.unwrap_or_else(|| panic!("{text:?} is not in the log: {log:?}"))
}

#[test]
fn a_thread_is_asked_to_stop_and_waited_for_when_its_port_closes() {
    let mut core = TestCore::load::<Threaded>("thread waits");
    core.open();
    core.close();
    assert!(position(&core, "closing") < position(&core, "asked to stop"));
}

#[test]
fn a_thread_ends_with_a_port_that_does_not_open() {
    let mut core = TestCore::load::<Threaded>("thread fails");
    assert!(core.try_open().is_err());
    position(&core, "asked to stop");
}

#[test]
fn a_panic_of_a_thread_is_logged_with_its_name_and_ends_the_thread_only() {
    let mut core = TestCore::load::<Threaded>("thread panics");
    core.expect_panics();
    core.open();
    let line = core.wait_for_log("on purpose");
    assert!(line.contains("thread panics/1: panic"), "{line}");
    core.close();
    assert!(core.log().iter().all(|line| !line.contains("in time")));
}

#[test]
fn a_thread_that_does_not_end_is_left_behind() {
    let (lets_go, held): (Sender<()>, _) = channel();
    let mut core = TestCore::load::<Threaded>("thread stuck");
    *STUCK.lock() = Some(held);
    core.open();
    core.close();
    position(&core, "thread stuck/1 did not end in time");
    drop(lets_go);
}

#[test]
fn no_thread_starts_on_a_closed_port() {
    let mut core = TestCore::load::<Threaded>("");
    core.open();
    core.close();
    position(&core, "cannot start thread \"late/1\": the port is closed");
}

#[test]
fn an_opening_says_what_differs_from_the_last_one() {
    let mut core = TestCore::load::<Threaded>("");
    let mut differs = |change: &dyn Fn(&TestCore)| {
        change(&core);
        core.open();
        core.close();
        let log = core.log();
        let last = log.iter().rfind(|line| line.contains("PortChanges"));
        let facts = last.expect("the provider logs it").split(['{', '}']).nth(1);
        let facts = facts.unwrap().split(',').map(str::trim);
        let set = facts.filter_map(|fact| fact.strip_suffix(": true"));
        set.map(str::to_owned).collect::<Vec<_>>()
    };
    // Another test's port may have been at the same place in memory.
    differs(&|_| ());
    assert_eq!(differs(&|_| ()), [""; 0]);
    let port = |change: fn(&mut _)| move |core: &TestCore| core.change_port(change);
    assert_eq!(differs(&port(|port| port.lid += 1)), ["lid"]);
    assert_eq!(differs(&port(|port| port.lmc += 1)), ["lmc"]);
    assert_eq!(differs(&port(|port| port.sm_lid += 1)), ["sm_lid"]);
    let gid = Gid::new(0xfec0_0000_0000_0000, 0x0010_0001);
    assert_eq!(differs(&|core| core.set_gids(&[gid])), ["gid"]);
    assert_eq!(
        differs(&|core| core.set_pkeys(&[0xffff, 0x8001])),
        ["pkeys"]
    );
    assert_eq!(
        differs(&|core| core.set_pkeys(&[0x8001, 0xffff])),
        ["pkeys"]
    );
    assert_eq!(differs(&|_| ()), [""; 0]);
}
