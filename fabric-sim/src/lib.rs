//! A simulated InfiniBand adapter.
//!
//! ibsim and its libumad2sim simulate a fabric's management side, but no verbs, no datagrams between queue pairs and none
//! of the kernel's MAD time-outs. This crate adds them. As a shared object, preloaded behind libumad2sim, it lets unmodified programs (ibacm, its
//! providers, ib_acme) find and open the adapter:
//!
//! ```text
//! LD_PRELOAD="/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so /path/to/libfabric_sim.so" \
//!     SIM_HOST=Hca1 IBSIM_SOCKNAME=rig1 ibacm -P
//! ```
//!
//! As a Rust library its [`model`] works in process, without ibsim: adapters on a [switch](model::switch).
//!
//! # Environment
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `FABRIC_SIM_POLL_MS` | how often the port's attributes are read, in milliseconds | 100 |
//! | `FABRIC_SIM_CONTROL` | path of the [control] socket; for one process | none |
//! | `FABRIC_SIM_WIRES` | folder by which the processes of a fabric exchange datagrams, see [wires] | none: no datagram leaves the process |
//! | `FABRIC_SIM_FIRST_QP` | number of the first queue pair on the wires, from 64 to 65534; the slot of the process comes on top as bits 16 to 23 | any |
//! | `FABRIC_SIM_SUBNET_TIMEOUT` | SubnetTimeOut of the ports, an exponent from 0 to 31: ibsim has 31 whatever the subnet manager sets | 18, as OpenSM sets it |
//!
//! # What it adds
//! - [`verbs`]: devices, ports, queues, UD queue pairs, multicast attachment, asynchronous events.
//! - [`wires`]: datagrams between processes, by the rules of [`model::data_path`]. A multicast reaches a queue pair if the
//!   subnet administrator has accepted its port's join; [`umad`] sees the answers.
//! - [`live`]: the port's attributes, P_Keys and GIDs as the fabric has them now, and an event for each change.
//! - [`umad`]: a request that gets no answer is sent again and comes back with status 110, as the kernel does it.
//! - [`control`]: events and [faults of links](model::link_faults) on demand.
//!
//! # Limits
//! - What changes and changes back between two readings is not seen.
//! - ibsim keeps no ClientReregister bit, so that event is derived:
//!   [`model::port::PortSnapshot::events_of_change_to`]. For it each process asks the subnet manager for its SMInfo, once
//!   in eleven readings, and in each while there is no master.
//! - The ports of a node that libumad2sim does not show for its `SIM_HOST` are there, but down.
//! - Datagrams go between all ports that are ACTIVE: a cable pulled between two switches stops none.
//! - A port's memberships are known to the process that joined, once that has listed its devices. Another process at the
//!   same port, or the next one, gets nothing of the group before a join of its own, although the subnet administrator has
//!   the port for a member.
//! - Between processes a change of a port counts when the next reading sees it: up to `FABRIC_SIM_POLL_MS` later.
//! - Reliable queue pairs, shared receive queues, memory windows and extended verbs are not simulated: such a call
//!   fails with `ENOSYS` and says its name once on stderr.
//! - RMPP is not simulated: a MAD is at most 256 bytes.
//! - A blocking call (`ibv_get_cq_event`, `ibv_get_async_event`, `umad_recv`) is no cancellation point, and destroying
//!   something does not wait for its events to be acknowledged.
//! - A process that ends waits up to a quarter of a second for answers that are out. libumad2sim hangs if one arrives
//!   later, in the moment of its own clean-up.
//! - libumad2sim waits for ever for an ibsim that does not run, and ends the process if ibsim has no place for it.

#[cfg(feature = "preload")]
pub mod config;
#[cfg(feature = "preload")]
pub mod control;
pub mod fabric;
pub mod fd_queue;
#[cfg(feature = "preload")]
pub mod live;
pub mod model;
pub mod report;
pub mod smp;
#[cfg(test)]
mod testing;
#[cfg(feature = "preload")]
pub mod umad;
pub mod verbs;
#[cfg(feature = "preload")]
pub mod wires;
