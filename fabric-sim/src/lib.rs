//! A simulated InfiniBand adapter.
//!
//! ibsim and its libumad2sim simulate a fabric's management side, but no verbs and none of the kernel's MAD time-outs.
//! This crate adds both. As a shared object, preloaded behind libumad2sim, it lets unmodified programs (ibacm, its
//! providers, ib_acme) find and open the adapter:
//!
//! ```text
//! LD_PRELOAD="/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so /path/to/libfabric_sim.so" \
//!     SIM_HOST=Hca1 IBSIM_SOCKNAME=rig1 ibacm -P
//! ```
//!
//! As a Rust library its [`model`] works in process, without ibsim.
//!
//! # Environment
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `FABRIC_SIM_POLL_MS` | how often the port's attributes are read, in milliseconds | 100 |
//! | `FABRIC_SIM_CONTROL` | path of the [control] socket; for one process | none |
//!
//! # Limits
//! - What changes and changes back between two polls is not seen.
//! - ibsim keeps no ClientReregister bit, so that event is derived: [`model::port::PortSnapshot::events_of_change_to`].
//! - The ports of a node that its `SIM_HOST` process does not show through libibumad are there, but down.
//! - Datagrams that are sent go nowhere until somebody sets a [data path](model::data_path::DataPath).
//! - Reliable queue pairs, shared receive queues, memory windows and extended verbs are not simulated: such a call
//!   fails with `ENOSYS` and says its name once on stderr.
//! - A blocking call (`ibv_get_cq_event`, `ibv_get_async_event`, `umad_recv`) is no cancellation point.

pub mod config;
pub mod control;
pub mod fabric;
pub mod fd_queue;
pub mod live;
pub mod model;
pub mod report;
pub mod smp;
pub mod umad;
pub mod verbs;
