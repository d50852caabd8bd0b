//! path-cache under the real daemon, with a real OpenSM on a simulated fabric.
//!
//! Every answer is compared with what the SA says, field by field, and where it matters with what OpenSM's log says that
//! the SA was asked.

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

/// What the shared tests are about.
mod subject {
    pub use crate::support::rig as builder;

    pub const IS_STOCK: bool = false;

    /// The option that says whether service IDs and QoS classes count.
    pub const QOS_OPTION: &str = "path_cache_qos";
}
