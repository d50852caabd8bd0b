//! MAD ports on RoCE, which has a GSI but no SMI.

use std::ffi::{CString, c_char, c_int};
use std::ptr::null;
use std::sync::Arc;

use libloading::os::unix::Library;
use rdma_access::Cause;
use rdma_access::umad::{Methods, Umad};

use super::DEVICE;

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_port_opens_by_name_and_number() {
    let umad = Umad::load().unwrap();
    let port = umad.open_port(Some(DEVICE), Some(1)).unwrap();
    assert_eq!((port.device(), port.number()), (DEVICE, 1));
    assert!(port.raw_fd() >= 0);
    // RoCE's queue pair 1 serves the communication manager's class.
    let agent = Arc::new(port).register(0x07, 2, Methods::NONE).unwrap();
    agent.unregister().unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn missing_ports_are_invalid() {
    let umad = Umad::load().unwrap();
    for (name, port) in [(DEVICE, 2), ("rxe9", 1)] {
        let error = umad.open_port(Some(name), Some(port)).unwrap_err();
        assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn there_is_no_smi_on_ethernet() {
    let umad = Umad::load().unwrap();
    let error = umad.open_smi_port(Some(DEVICE), Some(1)).unwrap_err();
    assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
    assert!(
        error.to_string().contains("not an InfiniBand port"),
        "{error}"
    );
    for (name, port) in [(Some(DEVICE), None), (None, None), (None, Some(1))] {
        let error = umad.open_smi_port(name, port).unwrap_err();
        assert!(matches!(error.cause(), Cause::NoDevice { .. }), "{error}");
        assert!(error.to_string().contains("port 1 Ethernet"), "{error}");
    }
}

/// Returns the file that libibumad itself opens, or its error number.
fn libibumad(library: &Library, name: Option<&str>, port: u8) -> Result<String, c_int> {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    let name = name.map(|name| CString::new(name).unwrap());
    let name = name.as_ref().map_or(null(), |name| name.as_ptr());
    // SAFETY: the type of the function; the name ends in NUL.
    let opened = unsafe { library.get::<Open>("umad_open_port").unwrap()(name, port.into()) };
    if opened < 0 {
        return Err(-opened);
    }
    let file = file_of(opened);
    // SAFETY: the type of the function; the port is open.
    unsafe {
        library
            .get::<unsafe extern "C" fn(c_int) -> c_int>("umad_close_port")
            .unwrap()(opened)
    };
    Ok(file)
}

fn file_of(descriptor: c_int) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap();
    link.display().to_string()
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn the_port_that_is_chosen_is_libibumads() {
    let umad = Umad::load().unwrap();
    // SAFETY: a library of the distribution, whose constructors are harmless.
    let library = unsafe { Library::new("libibumad.so.3") }.unwrap();
    for name in [None, Some("rxe0"), Some("rxe1"), Some("rxe2"), Some("rxe9")] {
        for port in [0, 1, 2] {
            let theirs = libibumad(&library, name, port);
            let ours = umad.open_port(name, Some(port));
            match (&theirs, &ours) {
                (Ok(theirs), Ok(ours)) => {
                    assert_eq!(theirs, &file_of(ours.raw_fd()), "{name:?} {port}")
                }
                (Err(_), Err(_)) => {}
                _ => panic!("{name:?} {port}: {theirs:?}, {ours:?}"),
            }
        }
    }
    // With a free choice libibumad takes RoCE's port; with a number it considers InfiniBand ports only.
    assert!(libibumad(&library, None, 0).is_ok());
    assert!(libibumad(&library, Some("rxe0"), 0).is_ok());
    assert!(libibumad(&library, None, 1).is_err());
}
