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
//! # What it adds
//! - [`verbs`]: devices, ports, queues, UD queue pairs, multicast attachment, asynchronous events.
//! - [`live`]: the port's attributes, P_Keys and GIDs as the fabric has them now, and an event for each change.
//! - [`umad`]: a request that gets no answer is sent again and comes back with status 110, as the kernel does it.
//! - [`control`]: events on demand.
//!
//! # Limits
//! - What changes and changes back between two readings is not seen.
//! - ibsim keeps no ClientReregister bit, so that event is derived:
//!   [`model::port::PortSnapshot::events_of_change_to`]. For it each process asks the subnet manager for its SMInfo, once
//!   in eleven readings.
//! - The ports of a node that libumad2sim does not show for its `SIM_HOST` are there, but down.
//! - Datagrams that leave a port go nowhere until it has a [data path](model::data_path), such as a
//!   [`Switch`](model::switch::Switch).
//! - Reliable queue pairs, shared receive queues, memory windows and extended verbs are not simulated: such a call
//!   fails with `ENOSYS` and says its name once on stderr.
//! - RMPP is not simulated: a MAD is at most 256 bytes.
//! - A blocking call (`ibv_get_cq_event`, `ibv_get_async_event`, `umad_recv`) is no cancellation point, and destroying
//!   something does not wait for its events to be acknowledged.
//! - A process that ends waits up to a quarter of a second for answers that are out. libumad2sim hangs if one arrives
//!   later, in the moment of its own clean-up.
//! - libumad2sim waits for ever for an ibsim that does not run, and ends the process if ibsim has no place for it.

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
