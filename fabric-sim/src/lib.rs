//! A simulated InfiniBand adapter.
//!
//! ibsim and its libumad2sim simulate the management of a fabric, but no verbs, no datagrams between queue
//! pairs and none of the kernel's MAD timeouts. This crate adds them. Preload it as a shared object after
//! libumad2sim, and unmodified programs (ibacm, its providers, ib_acme) find and open the adapter:
//!
//! ```text
//! LD_PRELOAD="/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so /path/to/libfabric_sim.so" \
//!     SIM_HOST=Hca1 IBSIM_SOCKNAME=rig1 ibacm -P
//! ```
//!
//! As a Rust library, its [`model`] works in process and without ibsim: adapters on a [switch](model::switch).
//!
//! # Environment
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `FABRIC_SIM_POLL_MS` | interval between two queries of the port's attributes, in milliseconds | 100 |
//! | `FABRIC_SIM_CONTROL` | path of the [control] socket, for one process only | none |
//! | `FABRIC_SIM_WIRES` | folder through which the processes of a fabric exchange datagrams, see [wires] | none: no datagram leaves the process |
//! | `FABRIC_SIM_FIRST_QP` | number of the first queue pair on the wires, from 64 to 65534; bits 16 to 23 are the slot of the process | any |
//! | `FABRIC_SIM_SUBNET_TIMEOUT` | SubnetTimeOut of the ports, an exponent from 0 to 31 (ibsim always has 31, whatever the subnet manager sets) | 18, as OpenSM sets it |
//!
//! # What it adds
//! - [`verbs`]: devices, ports, queues, UD queue pairs, multicast attachment, asynchronous events.
//! - [`wires`]: datagrams between processes, by the rules of [`model::data_path`]. A multicast reaches a queue
//!   pair if the subnet administrator has accepted its port's join; [`umad`] reads the responses.
//! - [`live`]: the port's attributes, P_Keys and GIDs as they are in the fabric, and an event for each change.
//! - [`umad`]: a request without a response is sent again, and finally returned with status 110, as in the
//!   kernel.
//! - [`control`]: events and [link faults](model::link_faults) on demand.
//!
//! # Limits
//! - A change that is undone between two queries of the port is not noticed.
//! - ibsim keeps no ClientReregister bit, so that event is derived:
//!   [`model::port::PortSnapshot::events_of_change_to`]. To derive it, each process queries the subnet
//!   manager's SMInfo in every eleventh query of the port, and in each while there is no master.
//! - Ports that libumad2sim does not list for its `SIM_HOST` exist, but are down.
//! - Datagrams reach all ACTIVE ports: unplugging a cable between two switches stops none.
//! - Only the process that joined knows a port's memberships, and only after it has listed its devices. Another
//!   or later process at the same port gets no datagrams of the group until it joins itself, even if the subnet
//!   administrator has the port as a member.
//! - Between processes a port's change takes effect at its next query: up to `FABRIC_SIM_POLL_MS` later.
//! - Reliable queue pairs, shared receive queues, memory windows and extended verbs are not simulated: such a
//!   call fails with `ENOSYS` and prints its name once on stderr.
//! - RMPP is not simulated: a MAD is at most 256 bytes.
//! - A blocking call (`ibv_get_cq_event`, `ibv_get_async_event`, `umad_recv`) is not a cancellation point, and
//!   destroying an object does not wait until its events are acknowledged.
//! - A process that exits waits up to a quarter of a second for responses to requests in flight. If one arrives
//!   later, during libumad2sim's own clean-up, libumad2sim hangs.
//! - libumad2sim waits without limit if ibsim does not run, and ends the process if ibsim has no free place for
//!   it.

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
