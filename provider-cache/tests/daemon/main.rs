//! path-cache under the real daemon, with a real OpenSM on a simulated fabric.
//!
//! Every answer is compared with the SA's response, field by field; some tests also count the SA queries in
//! OpenSM's log.

mod answers;
mod clients;
mod documents;
mod fat_tree;
mod files;
mod flapping;
mod memory;
mod port_changes;
mod sa_silence;
mod support;
mod warm;

#[path = "../../../loader-test/tests/on_fabric/descriptors.rs"]
mod descriptors;
#[path = "../../../loader-test/tests/shared/products.rs"]
mod products;
#[path = "../../../loader-test/tests/on_fabric/mod.rs"]
mod shared;

/// Parameters of the shared tests.
mod subject {
    pub use crate::support::rig as builder;

    pub const IS_STOCK: bool = false;

    /// The option that says whether service IDs and QoS classes matter.
    pub const QOS_OPTION: &str = "path_cache_qos";
}
