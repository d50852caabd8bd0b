//! Devices without a driver library.

use rdma_access::Cause;
use rdma_access::cm::Cm;
use rdma_access::mana::Mana;
use rdma_access::verbs::{Context, Device, devices};

use super::{ADDRESS, DEVICE, DOWN, NEIGHBOURLY};

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn without_driver_no_device_is_listed_and_each_is_explained() {
    assert!(devices().unwrap().is_empty());
    for name in [DEVICE, NEIGHBOURLY, DOWN] {
        let error = Context::open_by_name(name).unwrap_err();
        assert!(
            matches!(error.cause(), Cause::Unusable { device, .. } if device == name),
            "{error}"
        );
        for words in [
            name,
            "the kernel has",
            "no driver library for it",
            "ibverbs-providers",
        ] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    let error = Device::by_device_node("uverbs0").unwrap_err();
    assert!(
        matches!(error.cause(), Cause::Unusable { device, .. } if device == DEVICE),
        "{error}"
    );
    let error = Device::by_device_node("uverbs7").unwrap_err();
    assert!(
        matches!(error.cause(), Cause::NoDevice { present, .. } if present.len() == 3),
        "{error}"
    );
    assert!(error.to_string().contains("rxe0 (not usable: "), "{error}");
    // librdmacm lists devices first, and reports that there are none.
    let error = Cm::load()
        .unwrap()
        .local(&ADDRESS.parse().unwrap())
        .unwrap_err();
    assert_eq!(error.operation(), "rdma_create_id");
    assert!(
        matches!(error.cause(), Cause::NoDevice { present, .. } if present.len() == 3),
        "{error}"
    );
    assert!(
        error.to_string().contains("no driver library for it"),
        "{error}"
    );
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn without_driver_a_libmana_that_is_let_go_of_does_no_harm() {
    // A driver library registers with libibverbs when it is loaded, and libibverbs uses it from then on.
    for _ in 0..3 {
        drop(Mana::load().unwrap());
        assert!(devices().unwrap().is_empty());
    }
}
