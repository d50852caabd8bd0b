//! Verbs devices and contexts: `ibv_get_device_list(3)`, `ibv_open_device(3)`, `ibv_query_port(3)`.
//!
//! # Differences from libibverbs
//! | case | libibverbs | here | why |
//! | --- | --- | --- | --- |
//! | `ibv_open_device` fails | NULL; `errno` of the last attempt (it tries a second file for 5 seconds) | [`Cause::Io`] with the error number of the first attempt, and its likely cause | the first one can be fixed |
//! | ib_uverbs not loaded, or of an unknown version | `ENOSYS`, a line on stderr; or no devices | [`Cause::NotSupported`] naming the reason | the remedies differ |
//! | no driver library for a device | omits the device silently | a lookup by name returns [`Cause::Unusable`]; other errors list the device as unusable | otherwise it looks as if there were no adapter |
//! | two devices with one node GUID | the caller takes the first | [`Cause::Ambiguous`] | physical and virtual functions can share it |
//! | `ibv_close_device` with objects left | closes, and leaks their memory | cannot happen: they hold the context | callers need not keep an order |
//! | `ibv_query_port` | leaves fields newer than the exported function uninitialised | [`PortAttributes`] omits them | their values are undefined |
//!
//! A context opens whether or not a port is active. Each opening makes a separate context: objects of one
//! cannot be used in another, even on the same device.

mod context;
mod device;
pub(crate) mod diagnosis;
mod port;

#[cfg(doc)]
use crate::Cause;
pub use crate::port::{LinkLayer, PortAttributes, PortState};
pub use context::Context;
pub use device::{Device, devices};
