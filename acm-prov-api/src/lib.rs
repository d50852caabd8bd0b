//! Write providers for `ibacm` in safe Rust.
//!
//! `ibacm`, the InfiniBand address and route resolver of rdma-core, loads *providers*: libraries whose `provider_query`
//! hands it a table of twelve callbacks. This crate is the door between that C interface and a provider in safe Rust.
//!
//! - Implement [`Provider`] and name the type in [`export_provider!`]; build a `cdylib`; put it where ibacm looks.
//! - A client's request is a [token](ResolveRequest) that is consumed by its one answer, in the callback or, if it is
//!   [kept](ResolveRequest::keep), later.
//! - [`EndpointHandle`] asks the SA and counts, [`PortHandle`] knows the port, [`Host`] logs.
//! - [`check`] judges a table as the core does; [`abi`] is the C interface itself.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `cache` | the path cache engine, module `cache` |
//! | `verbs` | `DeviceHandle::open_verbs`, a verbs context of the provider's own, and `rdma_access` for what to do with it; example `smi_port` |
//!
//! Unit tests of a provider run it under the package `acm-stand-in`, ibacm's core in the process.

#[cfg(panic = "abort")]
compile_error!(
    "acm-prov-api needs panic = \"unwind\": with \"abort\" a panic would end the ibacm daemon"
);

pub mod abi;
pub mod address;
#[cfg(feature = "cache")]
pub mod cache;
mod callbacks;
pub mod check;
pub mod clock;
mod counters;
mod door;
pub mod dump;
mod export;
pub mod followed;
mod handle;
mod host;
pub mod hosts;
pub mod introspection;
mod link_rate;
mod load;
mod log_limit;
#[cfg(feature = "cache")]
pub mod lookups;
mod message;
pub mod options;
mod ordered;
pub mod path;
mod pin;
mod provider;
mod query;
mod registry;
mod request;
pub mod sa;
mod subnet_path;
pub mod sync;
#[cfg(any(test, feature = "own-tests"))]
#[doc(hidden)]
pub mod testing;

pub use abi::AcmStatus as Status;
pub use counters::Counters;
pub use door::{CAUGHT_PANIC, guard};
#[cfg(feature = "verbs")]
pub use handle::OpenVerbsError;
pub use handle::{Closed, DeviceHandle, EndpointHandle, PortAttributes, PortError, PortHandle};
pub use host::{Host, HostTable, LogLevel, LogWriter, MissingHostFunctions};
pub use load::{Exported, Turn, load, turn, unload};
pub use provider::{
    AddressState, Device, DeviceState, Endpoint, EndpointState, Error, LocalAddress, NotInfiniBand,
    Plain, Port, PortState, Provider,
};
#[cfg(feature = "verbs")]
pub use rdma_access;
pub use request::{DROPPED_REQUEST, KeptRequest, QueryRequest, ResolveRequest};

#[doc(hidden)]
pub use abi_stable as __abi_stable;
#[doc(hidden)]
pub use load::{Slot as __Slot, provider_query as __provider_query};

/// What a provider usually needs: `use acm_prov_api::prelude::*;`.
pub mod prelude {
    pub use crate::address::{Address, Gid, Lid, Name, PKey};
    pub use crate::options::Options;
    pub use crate::path::PathRecord;
    pub use crate::{
        Error, Host, KeptRequest, LocalAddress, LogLevel, Plain, Provider, ResolveRequest, Status,
        export_provider,
    };
    pub use std::ffi::CStr;
}
