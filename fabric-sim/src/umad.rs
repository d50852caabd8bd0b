//! Management datagrams: libibumad's functions, with the kernel's timeouts.
//!
//! [`lower`] is the libibumad below (on umad2sim, hence ibsim). [`port`] shares one of its ports between all
//! openers, and keeps [`transactions`]. [`joins`] learns multicast memberships from the SA's responses.
//! [`exports`] are the `umad_*` functions that programs call.

pub mod exports;
pub mod joins;
pub mod lower;
pub mod packet;
pub mod port;
pub mod registry;
pub mod transactions;
// One declaration for this crate and rdma-access, which compares it with the header. This crate depends on no
// other of the workspace.
#[path = "../../rdma-access/src/umad/user_mad.rs"]
mod user_mad;
