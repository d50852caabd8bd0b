//! Verbs devices and contexts: `ibv_get_device_list(3)`, `ibv_open_device(3)`, `ibv_query_port(3)`.
//!
//! # Where this differs from libibverbs
//! | case | libibverbs | here | why |
//! | --- | --- | --- | --- |
//! | `ibv_open_device` fails | NULL; `errno` of whatever came last (it tries a second file for 5 seconds first) | [`Cause::Io`] with the error number of the first, and its likely cause | it is the one that can be mended |
//! | ib_uverbs not loaded, or of an unknown version | `ENOSYS`, a line on stderr; or no devices | [`Cause::NotSupported`] that says which | the remedies differ |
//! | no driver library for a device | it is not listed, silently | looking it up by name gives [`Cause::Unusable`], and others see it as unusable | it looks as if there were no adapter |
//! | two devices with one node GUID | the caller takes the first | [`Cause::Ambiguous`] | physical and virtual functions can share it |
//! | `ibv_close_device` with objects left | closes, their memory leaks | cannot happen: they hold the context | order is then nobody's task |
//! | `ibv_query_port` | fields newer than the exported function are the caller's garbage | left out of [`PortAttributes`] | their values would be anything |
//!
//! A context opens whether or not a port is active, and each opening gives a context of its own: what is made in one
//! cannot be used in another, even of the same device.

mod context;
mod device;
pub(crate) mod diagnosis;
mod port;

#[cfg(doc)]
use crate::Cause;
pub use crate::port::{LinkLayer, PortAttributes, PortState};
pub use context::Context;
pub use device::{Device, devices};
