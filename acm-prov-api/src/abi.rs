//! The C side of a provider, item for item.
//!
//! This is a mirror of rdma-core's `<infiniband/acm_prov.h>` and `<infiniband/acm.h>` and of what
//! these two use from `sa.h`, `umad.h`, `umad_types.h`, `umad_sa.h`, `umad_sa_mcm.h` and `verbs.h`,
//! one file a header, with the names that C gives to types, fields and constants. It holds no
//! logic beyond byte order; the safe layer is built on top of it.
//!
//! Three rules tell how C became Rust:
//!
//! - A field that C declares as `__be16`, `__be32` or `__be64`, or describes as being in network
//!   byte order, is a [`Be16`], [`Be32`] or [`Be64`]. All other numbers are in host byte order.
//! - A code that comes from outside (status, opcode, event, rate, ...) is a newtype with associated
//!   constants, never an enum: a value that nobody named passes through unharmed.
//! - A callback is an `Option`, because C code may leave a slot NULL.
//!
//! The layout is that of x86-64 and every other LP64 Linux; it has not changed since the headers
//! were first installed in rdma-core 13.

#![allow(non_camel_case_types)]

#[macro_use]
mod codes;

mod acm;
mod acm_prov;
mod be;
mod sa;
mod umad;
mod umad_sa;
mod umad_sa_mcm;
mod umad_types;
mod verbs;

pub use self::acm::*;
pub use self::acm_prov::*;
pub use self::be::*;
pub use self::sa::*;
pub use self::umad::*;
pub use self::umad_sa::*;
pub use self::umad_sa_mcm::*;
pub use self::umad_types::*;
pub use self::verbs::*;
