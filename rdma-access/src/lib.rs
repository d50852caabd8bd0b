//! Safe access to RDMA devices and ports. Errors say why an operation failed.
//!
//! | module | what it reaches | C library | feature |
//! | --- | --- | --- | --- |
//! | [`address`] | addresses and identifiers: print, parse, compare | none | always |
//! | [`verbs`] | devices, contexts, ports | libibverbs | `verbs` |
//! | [`ud`] | datagrams: queue pairs, completions, buffers, multicast | libibverbs | `verbs` |
//! | [`umad`] | management datagrams: SMI and GSI ports | libibumad, at run time | `umad` |
//! | [`cm`] | finds the device of an IP address | librdmacm, at run time | `cm` |
//! | [`mana`] | buffer allocators of MANA adapters | libmana, at run time | `mana` |
//!
//! All features are on by default. Without them the crate needs no C library and depends on thiserror alone.
//!
//! # Rules for the whole crate
//! - An object keeps its parent alive, so you may drop objects in any order.
//! - Destroying an object can fail. `close` returns the error; `drop` passes it to [`set_teardown_report`].
//! - Every [`Error`] names the operation, its inputs and the likely cause.
//! - Numbers are in host byte order; a [`Gid`] holds its bytes in wire order.
//! - Every type is `Send` and `Sync` unless its page says otherwise.

// Some helpers are used by one feature only.
#![cfg_attr(
    not(all(feature = "cm", feature = "mana", feature = "umad")),
    allow(dead_code)
)]

pub mod address;
#[cfg(feature = "cm")]
pub mod cm;
#[cfg(any(feature = "umad", feature = "verbs"))]
mod diagnosis;
#[cfg(any(feature = "umad", feature = "verbs"))]
mod errno;
#[cfg(any(feature = "umad", feature = "verbs"))]
mod error;
#[cfg(feature = "verbs")]
mod handle;
#[cfg(all(test, feature = "cm", feature = "mana", feature = "umad"))]
mod layout;
#[cfg(any(feature = "cm", feature = "mana", feature = "umad"))]
mod library;
#[cfg(feature = "mana")]
pub mod mana;
mod port;
#[cfg(any(feature = "umad", feature = "verbs"))]
mod teardown;
#[cfg(any(feature = "umad", feature = "verbs"))]
mod text;
#[cfg(feature = "verbs")]
pub mod ud;
#[cfg(feature = "umad")]
pub mod umad;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use address::{Address, AddressError, Gid, Guid, Lid, Name, PKey, QKey, Qpn};
#[cfg(any(feature = "umad", feature = "verbs"))]
pub use error::{Cause, Error, Result};
pub use port::{LinkLayer, PortAttributes, PortState};
#[cfg(any(feature = "umad", feature = "verbs"))]
pub use teardown::set_teardown_report;

/// Checks what the crate's page says about threads.
#[cfg(all(feature = "cm", feature = "mana", feature = "umad"))]
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<verbs::Context>();
    any_thread::<verbs::Device>();
    any_thread::<umad::Umad>();
    any_thread::<umad::Port>();
    any_thread::<umad::Agent>();
    any_thread::<cm::Cm>();
    any_thread::<cm::AddressDevice>();
    any_thread::<mana::Mana>();
    any_thread::<mana::Buffer>();
    any_thread::<ud::ProtectionDomain>();
    any_thread::<ud::CompletionChannel>();
    any_thread::<ud::CompletionQueue>();
    any_thread::<ud::Completion>();
    any_thread::<ud::MemoryRegion>();
    any_thread::<ud::Slot>();
    any_thread::<ud::AddressHandle>();
    any_thread::<ud::UdQueuePair>();
    any_thread::<ud::MulticastAttachment>();
    any_thread::<Error>();
};
