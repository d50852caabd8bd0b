//! Write providers for `ibacm` in safe Rust.
//!
//! `ibacm`, the InfiniBand address and route resolver of rdma-core, loads *providers*: libraries whose `provider_query`
//! hands it a table of twelve callbacks. This crate translates between that C interface and a provider in safe Rust.
//!
//! - Implement `policy::Policy` (feature `cache`), name the type in `export_policy!`, build a `cdylib`, and copy it to ibacm's
//!   provider folder. The example `names_and_sa` is such a provider in 20 lines.
//! - Or implement [`Provider`], the level below, and name the type in [`export_provider!`]: example `static_table`.
//! - A client's request is a [token](ResolveRequest). Its one answer consumes it: in the callback, or later if the
//!   provider [keeps](ResolveRequest::keep) it.
//! - [`EndpointHandle`] queries the SA and counts, [`PortHandle`] gives the port's attributes, [`Host`] logs.
//! - [`check`] validates a table as the core does; [`abi`] is the C interface itself.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `cache` | the path cache engine, module `cache` |
//! | `verbs` | `DeviceHandle::open_verbs` (the provider's own verbs context) and all of [`rdma_access`] to use it; example `smi_port` |
//!
//! Unit tests run a provider in the test's own process: the package `acm-stand-in` plays ibacm's core.

#[cfg(panic = "abort")]
compile_error!(
    "acm-prov-api needs panic = \"unwind\": with \"abort\" a panic would end the ibacm daemon"
);

// The modules in order of dependency, each with the modules that it may use. tests/rooms.rs reads this list.
//
//     clock
//     sync
//     ordered
//     abi
//     address    abi
//     text       clock sync address
//     path       abi address
//     host       clock sync abi text
//     lookups    clock sync ordered host
//     handles    clock sync abi address path host
//     sa         clock sync ordered abi address text path host handles
//     request    abi address path host handles sa
//     cache      clock sync abi address text path host lookups handles sa request
//     provider   sync address text host handles sa request
//     door       clock sync abi address text host handles request provider
//     policy     sync abi address path host handles sa request cache provider door text
//     testing    sync abi address text path host request provider door
//
// Unit tests of a module may use `testing`, too.

pub mod abi;
pub mod address;
#[cfg(feature = "cache")]
pub mod cache;
pub mod clock;
mod door;
mod handles;
mod host;
#[cfg(feature = "cache")]
pub mod lookups;
mod ordered;
pub mod path;
#[cfg(feature = "cache")]
pub mod policy;
mod provider;
mod request;
pub mod sa;
pub mod sync;
#[cfg(any(test, feature = "own-tests"))]
#[doc(hidden)]
pub mod testing;
mod text;

pub use abi::AcmStatus as Status;
pub use door::load::{Turn, load, turn, unload};
pub use door::slot::Exported;
pub use door::{check, introspection};
#[cfg(feature = "verbs")]
pub use handles::OpenVerbsError;
pub use handles::{
    Closed, DeviceHandle, EndpointHandle, PortAttributes, PortChanges, PortError, PortHandle,
    SpawnError, StopSignal,
};
pub use host::counters::Counters;
pub use host::guard::guard;
pub use host::own_counters::Counter;
pub use host::{
    Host, HostTable, LogLevel, LogWriter, MissingHostFunctions, ProviderFault,
    acm_provider_fault_fn,
};
pub use provider::{
    AddressContext, Device, DeviceContext, Endpoint, EndpointContext, Error, LocalAddress,
    NoContext, NotInfiniBand, Port, PortContext, Provider,
};
pub use rdma_access;
pub use request::{KeptRequest, QueryRequest, ResolveRequest};
pub use text::{dump, hosts, options, report, watched_file};

#[doc(hidden)]
pub use abi_stable as __abi_stable;
#[doc(hidden)]
pub use door::{load::provider_query as __provider_query, slot::Slot as __Slot};

/// The items that most providers need: `use acm_prov_api::prelude::*;`.
pub mod prelude {
    pub use crate::address::{Address, Gid, Lid, Name, PKey};
    pub use crate::path::PathRecord;
    pub use crate::text::options::Options;
    pub use crate::{
        Error, Host, KeptRequest, LocalAddress, LogLevel, NoContext, Provider, ResolveRequest,
        Status, export_provider,
    };
    #[cfg(feature = "cache")]
    pub use crate::{
        cache::{Alternatives, Constraints},
        export_policy,
        policy::{AddressRequest, Policy, PolicySettings},
        sa::{PathQuery, Target},
    };
    pub use std::ffi::CStr;
}
