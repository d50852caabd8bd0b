//! mcast-sa under the real daemon, with a real OpenSM on a simulated fabric, beside the stock provider and path-cache.
//!
//! Every answer is compared with the SA's response, field by field. If the stock provider fails, the test shows
//! that too.

mod changes;
mod counters;
mod files;
mod loss;
mod mixed;
mod partitions;
mod support;

#[path = "../../../loader-test/tests/on_fabric/descriptors.rs"]
mod descriptors;
#[path = "../../../loader-test/tests/shared/products.rs"]
mod products;
#[path = "../../../loader-test/tests/on_fabric/mod.rs"]
mod shared;

/// Parameters of the shared tests.
mod subject {
    use loader_test::rig::{Builder, Rig};

    pub fn builder() -> Builder {
        Rig::builder(crate::support::mcast_sa())
    }

    pub const IS_STOCK: bool = false;

    /// The option that says whether service IDs and QoS classes matter.
    pub const QOS_OPTION: &str = "mcast_sa_qos";
}
