//! Sending and receiving MADs, with a stub of libibumad.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use libloading::os::unix::Library;
use rdma_access::umad::{Agent, MadAddress, Methods, Port, Umad};
use rdma_access::{Cause, Guid, Lid, Qpn};
use rustix::io::Errno;
use tempfile::TempDir;

const SA: u8 = 0x03;

struct Stub {
    umad: Umad,
    library: Library,
    _folder: TempDir,
}

fn build(option: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libibumad.so.3");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mads/stub_libibumad.c");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", option, source, "-o"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success(), "cc {source}: {status}");
    (folder, path)
}

impl Stub {
    fn new() -> Self {
        Self::with("-DWHOLE")
    }

    fn with(option: &str) -> Self {
        let (folder, path) = build(option);
        let umad = Umad::load_from(&path).unwrap();
        // SAFETY: the library has no constructors.
        let library = unsafe { Library::new(&path) }.unwrap();
        Self {
            umad,
            library,
            _folder: folder,
        }
    }

    fn agent(&self) -> (Arc<Port>, Agent) {
        let port = Arc::new(self.umad.open_port(None, None).unwrap());
        let agent = port.register(SA, 2, Methods::NONE).unwrap();
        (port, agent)
    }

    fn put(&self, agent: u32, status: u32, mad: &[u8]) {
        type Put = unsafe extern "C" fn(i32, u32, *const u8, i32);
        let (agent, length) = (agent.cast_signed(), i32::try_from(mad.len()).unwrap());
        // SAFETY: the type of the function; the bytes are readable.
        unsafe {
            self.library.get::<Put>("stub_put").unwrap()(agent, status, mad.as_ptr(), length)
        };
    }

    /// Returns LID, MAD, timeout and retries of the last sent MAD.
    fn sent(&self) -> (i32, [u8; 256], u32, u32) {
        type Sent = unsafe extern "C" fn(*mut u8, *mut u32, *mut u32) -> i32;
        let (mut mad, mut timeout, mut retries) = ([0; 256], 0, 0);
        // SAFETY: the type of the function; all arguments are writable.
        let lid = unsafe {
            self.library.get::<Sent>("stub_sent").unwrap()(
                mad.as_mut_ptr(),
                &raw mut timeout,
                &raw mut retries,
            )
        };
        (lid, mad, timeout, retries)
    }

    fn number(&self, function: &str) -> i32 {
        // SAFETY: the type of these functions.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn() -> i32>(function)
                .unwrap()()
        }
    }

    fn set(&self, function: &str, number: i32) {
        // SAFETY: the type of these functions.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn(i32)>(function)
                .unwrap()(number)
        };
    }

    fn fail_send(&self, errno: Errno) {
        self.set("stub_fail_send", errno.raw_os_error());
    }
}

fn mad(length: usize, transaction: u64) -> Vec<u8> {
    let mut mad: Vec<u8> = (0..length).map(|index| index as u8).collect();
    mad[8..16].copy_from_slice(&transaction.to_be_bytes());
    mad
}

#[test]
fn devices_and_ports_are_read_whole() {
    let stub = Stub::new();
    let [device] = stub.umad.devices().try_into().unwrap();
    assert_eq!((device.name.as_str(), device.is_switch), ("stub0", false));
    let [port] = device.ports.try_into().unwrap();
    assert_eq!(
        (port.number, port.lid, port.guid),
        (1, Lid(7), Guid(0x1122_3344_5566_7788))
    );
    assert!(port.is_infiniband() && !port.is_smi_disabled());
    // A number that is not a LID.
    assert_eq!(port.sm_lid, Lid(0));
    assert!(!stub.umad.has_smi_open());
}

#[test]
fn the_smi_port_is_opened_by_its_own_function_where_there_is_one() {
    for (option, opens) in [("-DWITH_SMI_OPEN", 1), ("-DWHOLE", 0)] {
        let stub = Stub::with(option);
        assert_eq!(stub.umad.has_smi_open(), opens == 1);
        let port = stub.umad.open_smi_port(None, None).unwrap();
        stub.umad.open_port(None, None).unwrap();
        assert_eq!((port.device(), port.number()), ("stub0", 1));
        assert_eq!(stub.number("stub_smi_opens"), opens);
        assert_eq!(stub.number("stub_open_ports"), 1);
    }
}

#[test]
fn a_mad_is_sent_as_it_is_with_its_time() {
    let stub = Stub::new();
    let (_, agent) = stub.agent();
    let request = mad(256, 5);
    agent
        .send(
            &MadAddress::gsi(Lid(9), 0),
            &request,
            Some(Duration::from_micros(1001)),
            3,
        )
        .unwrap();
    let (lid, sent, timeout, retries) = stub.sent();
    assert_eq!((lid, timeout, retries), (9, 2, 3));
    assert_eq!(sent[..], request);
    agent
        .send(&MadAddress::gsi(Lid(9), 0), &request, None, 0)
        .unwrap();
    assert_eq!(stub.sent().2, 0);
    // A timeout of zero still expects a response.
    let none = Some(Duration::ZERO);
    agent
        .send(&MadAddress::gsi(Lid(9), 0), &request, none, 0)
        .unwrap();
    assert_eq!(stub.sent().2, 1);

    let error = agent
        .send(&MadAddress::gsi(Lid(9), 0), &request[..23], None, 0)
        .unwrap_err();
    assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
    stub.fail_send(Errno::INVAL);
    let error = agent
        .send(&MadAddress::gsi(Lid(9), 0), &request, None, 0)
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    assert!(
        error
            .to_string()
            .starts_with("umad_send(stub0 port 1, class 0x03, 256 bytes to LID 9)"),
        "{error}"
    );
}

#[test]
fn mads_of_any_length_come_whole() {
    let stub = Stub::new();
    let (port, agent) = stub.agent();
    for length in [24, 256, 257, 4000] {
        stub.put(agent.id(), 0, &mad(length, 1));
        let received = port.receive(None).unwrap().unwrap();
        assert_eq!(received.mad, mad(length, 1), "{length}");
        assert_eq!((received.from.lid, received.from.qpn), (Lid(9), Qpn(1)));
        assert!(!received.is_returned());
    }
    stub.put(agent.id(), 0, &[]);
    let received = port.receive(None).unwrap().unwrap();
    assert_eq!((received.mad.len(), received.transaction_id()), (0, None));
}

#[test]
fn a_timeout_returns_none() {
    let stub = Stub::new();
    let (port, _agent) = stub.agent();
    assert_eq!(port.receive(Some(Duration::from_millis(50))).unwrap(), None);
    assert!((1..=50).contains(&stub.number("stub_waited")));
    assert_eq!(port.receive(Some(Duration::ZERO)).unwrap(), None);
    assert_eq!(stub.number("stub_waited"), 0);
    // A timeout too long for the clock means no limit.
    stub.put(0, 0, &mad(256, 1));
    assert!(port.receive(Some(Duration::MAX)).unwrap().is_some());
    assert_eq!(stub.number("stub_waited"), -1);
}

#[test]
fn a_signal_does_not_end_the_waiting() {
    let stub = Stub::new();
    let (port, agent) = stub.agent();
    for wait in [None, Some(Duration::from_secs(60))] {
        stub.put(agent.id(), 0, &mad(256, 1));
        stub.set("stub_interrupt", 3);
        assert!(port.receive(wait).unwrap().is_some(), "{wait:?}");
    }
    stub.set("stub_interrupt", 1);
    assert_eq!(port.receive(Some(Duration::ZERO)).unwrap(), None);
}

#[test]
fn a_response_is_matched_by_agent_and_transaction() {
    let stub = Stub::new();
    let (_, agent) = stub.agent();
    let second = Duration::from_secs(1);
    let to = MadAddress::gsi(Lid(9), 0);
    // Another agent's MAD, another response, one too short to tell, and then ours: the kernel has set the high
    // half.
    stub.put(agent.id() + 1, 0, &mad(256, 0x77));
    stub.put(agent.id(), 0, &mad(256, 0x78));
    stub.put(agent.id(), 0, &mad(256, 0x77)[..12]);
    stub.put(agent.id(), 0, &mad(256, 0x0009_0000_0000_0077));
    let answer = agent.exchange(&to, &mad(256, 0x77), second, 0).unwrap();
    assert_eq!(answer.transaction_id(), Some(0x0009_0000_0000_0077));

    stub.put(agent.id(), 110, &mad(256, 0x79));
    let error = agent.exchange(&to, &mad(256, 0x79), second, 2).unwrap_err();
    assert!(
        matches!(error.cause(), Cause::TimedOut { limit, .. } if *limit == second * 3),
        "{error}"
    );
    // A limit too long for the clock is no limit.
    stub.put(agent.id(), 0, &mad(256, 0x7b));
    let answer = agent.exchange(&to, &mad(256, 0x7b), Duration::MAX, u32::MAX);
    assert_eq!(answer.unwrap().transaction_id(), Some(0x7b));

    stub.put(agent.id(), 5, &mad(256, 0x7a));
    let error = agent.exchange(&to, &mad(256, 0x7a), second, 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
}

#[test]
fn a_request_that_never_comes_back_is_given_up() {
    let stub = Stub::new();
    let (_, agent) = stub.agent();
    let error = agent
        .exchange(
            &MadAddress::gsi(Lid(9), 0),
            &mad(256, 1),
            Duration::from_millis(10),
            1,
        )
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the kernel did not return the request either"),
        "{error}"
    );
}

#[test]
fn agents_and_ports_end() {
    let stub = Stub::new();
    let (port, agent) = stub.agent();
    assert_eq!(
        (stub.number("stub_open_ports"), stub.number("stub_agents")),
        (1, 1)
    );
    // An agent holds its port.
    let port = port.close().unwrap_err();
    let other = port.register(SA, 2, Methods::NONE.and(0x01)).unwrap();
    agent.unregister().unwrap();
    drop(other);
    assert_eq!(
        (stub.number("stub_open_ports"), stub.number("stub_agents")),
        (1, 0)
    );
    port.close().unwrap();
    assert_eq!(stub.number("stub_open_ports"), 0);
}

#[test]
fn why_an_agent_is_refused_is_looked_up() {
    let stub = Stub::new();
    let (port, _agent) = stub.agent();
    let refused = |methods| port.register(0x01, 1, methods).unwrap_err().to_string();
    // The port has an SMI, and the agent registers for no methods that another agent could have.
    let text = refused(Methods::NONE);
    assert!(
        text.contains("does not accept agents for class 0x01, version 1"),
        "{text}"
    );
    let text = refused(Methods::NONE.and(0x01));
    assert!(
        text.contains("another agent") && !text.contains("SMI"),
        "{text}"
    );
    stub.set("stub_capabilities", 0x0251_4c68);
    for methods in [Methods::NONE, Methods::NONE.and(0x01)] {
        let text = refused(methods);
        assert!(
            text.contains("port 1 of stub0 has its SMI disabled"),
            "{text}"
        );
    }
    // No cause that applies only to subnet management.
    let agents: Vec<_> = (0..31)
        .map(|_| port.register(SA, 2, Methods::NONE).unwrap())
        .collect();
    stub.set("stub_most_agents", 32);
    let error = port.register(SA, 2, Methods::NONE).unwrap_err();
    assert!(error.to_string().contains("has 32 agents"), "{error}");
    drop(agents);
    // With a free agent slot, the cause is the system's memory.
    stub.set("stub_most_agents", 1);
    let error = port.register(SA, 2, Methods::NONE).unwrap_err();
    assert!(error.to_string().ends_with("(os error 12)"), "{error}");
}

#[test]
fn a_missing_response_on_a_port_without_a_link_names_the_link() {
    let stub = Stub::new();
    let (port, agent) = stub.agent();
    let to = MadAddress::gsi(Lid(9), 0);
    let directed = port.register(0x81, 1, Methods::NONE).unwrap();
    let silence = |agent: &Agent, state: i32, physical_state: i32| {
        stub.set("stub_state", state);
        stub.set("stub_physical_state", physical_state);
        stub.put(agent.id(), 110, &mad(256, 0x79));
        let second = Duration::from_secs(1);
        let error = agent.exchange(&to, &mad(256, 0x79), second, 0).unwrap_err();
        error.to_string()
    };
    let text = silence(&agent, 4, 5);
    assert!(text.contains("the destination does not exist"), "{text}");
    let text = silence(&agent, 1, 2);
    assert!(
        text.contains("port 1 of stub0 has no link (physical state 2)"),
        "{text}"
    );
    let text = silence(&agent, 2, 5);
    assert!(text.contains("not active (state 2)"), "{text}");
    // A directed route needs no subnet manager.
    let text = silence(&directed, 2, 5);
    assert!(text.contains("the destination does not exist"), "{text}");
}

#[test]
fn a_library_that_is_missing_or_lacks_a_function_is_named() {
    let error = Umad::load_from("/nonexistent/libibumad.so.3").unwrap_err();
    assert!(matches!(error.cause(), Cause::NoLibrary { .. }), "{error}");
    assert!(error.to_string().contains("libibumad3"), "{error}");
    let (_folder, path) = build("-Dumad_get_ca_device_list=something_else");
    let error = Umad::load_from(&path).unwrap_err();
    assert!(
        matches!(
            error.cause(),
            Cause::NoSymbol {
                symbol: "umad_get_ca_device_list",
                ..
            }
        ),
        "{error}"
    );
}
