//! Before any RDMA module is loaded.

use std::time::Duration;

use rdma_access::Cause;
use rdma_access::cm::Cm;
use rdma_access::umad::Umad;
use rdma_access::verbs::{Device, devices};

use super::DEVICE;

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn without_modules_verbs_name_ib_uverbs() {
    for error in [devices().unwrap_err(), Device::by_name(DEVICE).unwrap_err()] {
        assert!(matches!(error.cause(), Cause::NotSupported(_)), "{error}");
        assert!(error.to_string().contains("modprobe ib_uverbs"), "{error}");
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn without_modules_mads_name_ib_umad() {
    let umad = Umad::load().unwrap();
    for error in [
        umad.open_port(None, None).unwrap_err(),
        umad.open_port(Some(DEVICE), Some(1)).unwrap_err(),
        umad.open_smi_port(None, None).unwrap_err(),
        umad.open_smi_port(Some(DEVICE), Some(1)).unwrap_err(),
    ] {
        assert!(matches!(error.cause(), Cause::NotSupported(_)), "{error}");
        assert!(error.to_string().contains("modprobe ib_umad"), "{error}");
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn without_modules_addresses_name_what_they_need_first() {
    let cm = Cm::load().unwrap();
    let address = "10.7.0.1".parse().unwrap();
    for found in [
        cm.local(&address),
        cm.remote(&address, Duration::from_secs(1)),
    ] {
        let error = found.unwrap_err();
        assert_eq!(error.operation(), "rdma_create_id");
        // The first missing module.
        assert!(error.to_string().contains("modprobe ib_uverbs"), "{error}");
    }
}
