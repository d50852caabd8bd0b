//! Ports for MADs on RoCE, which has a GSI and no SMI.

use std::sync::Arc;

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
    // The communication manager's class is served on RoCE's queue pair 1.
    let agent = Arc::new(port).register(0x07, 2, Methods::NONE).unwrap();
    agent.unregister().unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn what_is_not_there_is_invalid() {
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
