//! RDMA devices and ports from Rust: opened safely, and with the reason when that fails.
//!
//! | module | what it reaches | C library |
//! | --- | --- | --- |
//! | [`verbs`] | devices, contexts, ports | libibverbs |
//! | [`umad`] | management datagrams: SMI and GSI ports | libibumad, at run time |
//! | [`cm`] | the device behind an IP address | librdmacm, at run time |
//! | [`mana`] | buffer allocators of MANA adapters | libmana, at run time |
//! | [`ud`] | datagrams: queue pairs, completions, buffers, multicast | libibverbs |
//!
//! # Rules that hold everywhere
//! - An object holds what it was made from, so parents end after their children whatever the order of dropping.
//! - Ending can fail. `close` gives the error; dropping hands it to [`set_teardown_report`].
//! - Every [`Error`] names the operation, what it was given and the likely cause.
//! - Numbers are in host byte order; a [`Gid`] is bytes in the order of the wire.
//! - Every type may be sent to and shared with other threads unless its page says otherwise.

pub mod cm;
mod diagnosis;
mod error;
mod handle;
#[cfg(test)]
mod layout;
mod library;
pub mod mana;
mod teardown;
mod text;
mod types;
pub mod ud;
pub mod umad;
pub mod verbs;

pub use error::{Cause, Error, Result};
pub use teardown::set_teardown_report;
pub use types::{Gid, Guid, Lid, PKey, QKey, Qpn};

/// What the page above says of threads.
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
