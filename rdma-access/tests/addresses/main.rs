//! Lookups by address, with a stub of librdmacm, and with the real one without a device.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use libloading::os::unix::Library;
use rdma_access::cm::{Cm, ScopedIp};
use rdma_access::{Cause, Error, Gid, PKey};
use rustix::io::Errno;
use tempfile::TempDir;

const CREATE: i32 = 1;
const BIND: i32 = 2;
const RESOLVE: i32 = 3;
const DESTROY: i32 = 4;

struct Stub {
    cm: Cm,
    library: Library,
    _folder: TempDir,
}

impl Stub {
    fn new() -> Self {
        let (folder, path) = build("-DWHOLE");
        let cm = Cm::load_from(&path).unwrap();
        // SAFETY: the library has no constructors.
        let library = unsafe { Library::new(&path) }.unwrap();
        Self {
            cm,
            library,
            _folder: folder,
        }
    }

    fn fail(&self, call: i32, errno: Errno) {
        // SAFETY: the type of the function.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn(i32, i32)>("stub_fail")
                .unwrap()(call, errno.raw_os_error())
        };
    }

    fn number(&self, function: &str) -> i32 {
        // SAFETY: the type of these functions.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn() -> i32>(function)
                .unwrap()()
        }
    }
}

fn build(option: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("librdmacm.so.1");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/addresses/stub_librdmacm.c"
    );
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", option, source, "-o"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success(), "cc {source}: {status}");
    (folder, path)
}

fn address(text: &str) -> ScopedIp {
    text.parse().unwrap()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_result_is_reported_and_ends_with_the_handle() {
    let stub = Stub::new();
    let local = stub.cm.local(&address("192.0.2.1")).unwrap();
    let remote = stub
        .cm
        .remote(&address("fe80::7%lo"), Duration::from_micros(1500))
        .unwrap();
    assert_eq!(stub.number("stub_timeout"), 2);
    for found in [&local, &remote] {
        assert_eq!((found.device(), found.port()), ("stub0", 2));
        assert_eq!((found.gid(), found.pkey()), (Gid([0x11; 16]), PKey(0x8001)));
        assert!(!found.as_ptr().is_null());
    }
    assert_eq!(local.local_address(), Some("192.0.2.1".parse().unwrap()));
    assert_eq!(remote.local_address(), Some("fe80::7".parse().unwrap()));
    assert_eq!(stub.number("stub_alive"), 2);
    drop(local);
    remote.close().unwrap();
    assert_eq!(stub.number("stub_alive"), 0);
}

fn check(error: &Error, operation: &str, words: &[&str]) {
    assert_eq!(error.operation(), operation, "{error}");
    for word in words {
        assert!(
            error.to_string().contains(word),
            "{word:?} is not in: {error}"
        );
    }
}

#[test]
fn a_failing_call_is_named_and_leaves_nothing() {
    let stub = Stub::new();
    let ask = |call: i32| match call {
        RESOLVE => stub.cm.remote(&address("192.0.2.7"), SECOND),
        _ => stub.cm.local(&address("192.0.2.7")),
    };
    for (call, errno, operation, words) in [
        (
            BIND,
            Errno::ADDRNOTAVAIL,
            "rdma_bind_addr",
            &["os error 99", "no interface of this machine"][..],
        ),
        (
            BIND,
            Errno::NODEV,
            "rdma_bind_addr",
            &[
                "os error 19",
                "no interface of this machine has that address",
            ],
        ),
        (
            RESOLVE,
            Errno::NETUNREACH,
            "rdma_resolve_addr",
            &["os error 101", "route to that address"],
        ),
        (RESOLVE, Errno::IO, "rdma_resolve_addr", &["os error 5"]),
    ] {
        stub.fail(call, errno);
        let error = ask(call).unwrap_err();
        assert!(matches!(error.cause(), Cause::Io { .. }), "{error}");
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
        check(&error, operation, words);
        assert_eq!(stub.number("stub_alive"), 0, "{error}");
    }
    // Without the module or the device file, the error names what is missing, whatever librdmacm reports.
    for errno in [Errno::ACCESS, Errno::NODEV, Errno::NOMEM, Errno::PERM] {
        stub.fail(CREATE, errno);
        let error = ask(CREATE).unwrap_err();
        check(&error, "rdma_create_id", &["(192.0.2.7)", "run modprobe "]);
        assert!(!error.to_string().contains("out of memory"), "{error}");
        assert_eq!(stub.number("stub_alive"), 0, "{error}");
    }
    for (call, operation) in [(BIND, "rdma_bind_addr"), (RESOLVE, "rdma_resolve_addr")] {
        stub.fail(call, Errno::NOMEM);
        let error = ask(call).unwrap_err();
        assert!(matches!(error.cause(), Cause::OutOfMemory), "{error}");
        check(&error, operation, &["out of memory"]);
        assert_eq!(stub.number("stub_alive"), 0);
    }
    stub.fail(RESOLVE, Errno::TIMEDOUT);
    let error = ask(RESOLVE).unwrap_err();
    assert!(
        matches!(error.cause(), Cause::TimedOut { limit: SECOND, .. }),
        "{error}"
    );
    check(
        &error,
        "rdma_resolve_addr",
        &["within 1000 ms", "does not answer"],
    );
    assert_eq!(stub.number("stub_alive"), 0);
}

/// Addresses of the loopback interface, which every machine has.
#[test]
fn the_interface_that_has_no_device_is_named() {
    let stub = Stub::new();
    for (call, errno) in [
        (BIND, Errno::NODEV),
        (RESOLVE, Errno::NODEV),
        (RESOLVE, Errno::PERM),
    ] {
        stub.fail(call, errno);
        let error = match call {
            RESOLVE => stub.cm.remote(&address("127.0.0.1"), SECOND),
            _ => stub.cm.local(&address("127.0.0.1")),
        };
        let error = error.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
        assert!(error.to_string().contains(": lo, "), "{error}");
        assert!(error.to_string().contains("has no RDMA device"), "{error}");
    }
    stub.fail(RESOLVE, Errno::NODEV);
    let error = stub
        .cm
        .remote(&address("fe80::7%987654"), SECOND)
        .unwrap_err();
    check(
        &error,
        "rdma_resolve_addr",
        &["no interface with number 987654"],
    );
    // A refused local lookup is not the case in which librdmacm drops the kernel's answer.
    stub.fail(BIND, Errno::PERM);
    let error = stub.cm.local(&address("127.0.0.1")).unwrap_err();
    assert!(error.to_string().ends_with("(os error 1)"), "{error}");
    assert_eq!(stub.number("stub_alive"), 0);
}

#[test]
fn an_address_without_a_device_is_no_success() {
    let stub = Stub::new();
    // SAFETY: the type of the function.
    unsafe {
        stub.library
            .get::<unsafe extern "C" fn()>("stub_without_device")
            .unwrap()()
    };
    for found in [
        stub.cm.local(&address("127.0.0.1")),
        stub.cm.remote(&address("127.0.0.1"), SECOND),
    ] {
        let error = found.unwrap_err();
        assert!(matches!(error.cause(), Cause::NoDevice { .. }), "{error}");
    }
    assert_eq!(stub.number("stub_alive"), 0);
}

#[test]
fn an_address_that_cannot_lead_to_one_device_is_refused_first() {
    let stub = Stub::new();
    for text in ["0.0.0.0", "::", "224.0.0.1", "fe80::1"] {
        for found in [
            stub.cm.local(&address(text)),
            stub.cm.remote(&address(text), SECOND),
        ] {
            let error = found.unwrap_err();
            assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
            assert_eq!(error.inputs(), text);
        }
    }
    assert_eq!(stub.number("stub_alive"), 0);
}

#[test]
fn a_failing_end_is_an_error() {
    let stub = Stub::new();
    let found = stub.cm.local(&address("192.0.2.1")).unwrap();
    stub.fail(DESTROY, Errno::IO);
    let error = found.close().unwrap_err();
    check(&error, "rdma_destroy_id", &["os error 5"]);
}

#[test]
fn a_library_that_is_missing_or_lacks_a_function_is_named() {
    let error = Cm::load_from("/nonexistent/librdmacm.so.1").unwrap_err();
    assert!(matches!(error.cause(), Cause::NoLibrary { .. }), "{error}");
    check(
        &error,
        "load librdmacm",
        &["/nonexistent/librdmacm.so.1", "librdmacm1"],
    );
    let (_folder, path) = build("-Drdma_bind_addr=something_else");
    let error = Cm::load_from(&path).unwrap_err();
    assert!(
        matches!(
            error.cause(),
            Cause::NoSymbol {
                symbol: "rdma_bind_addr",
                ..
            }
        ),
        "{error}"
    );
}
