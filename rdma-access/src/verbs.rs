//! Verbs devices and contexts: `ibv_get_device_list(3)`, `ibv_open_device(3)`, `ibv_query_port(3)`.
//!
//! A context opens whether or not a port is active, and each opening gives a context of its own: what is made in one
//! cannot be used in another, even of the same device.

mod context;
mod device;
mod port;

pub use context::Context;
pub use device::{Device, devices};
pub use port::{LinkLayer, PortAttributes, PortState};
