//! Management datagrams: libibumad as a program sees it, with the kernel's time-outs.
//!
//! [`lower`] is the libibumad below (on umad2sim, hence ibsim); [`port`] sits on one of its ports, shares it between all
//! who open it and keeps [`transactions`]; [`joins`] learns multicast memberships from the SA's answers; [`exports`] are the
//! `umad_*` functions that programs call.

pub mod exports;
pub mod joins;
pub mod lower;
pub mod packet;
pub mod port;
pub mod registry;
pub mod transactions;
// One declaration for this crate and rdma-access, which compares it with the header; this crate depends on none of the
// workspace's.
#[path = "../../rdma-access/src/umad/user_mad.rs"]
mod user_mad;
