//! The control socket: tests use it to control an adapter inside a running program.
//!
//! It is a Unix stream socket at the path in the environment variable `FABRIC_SIM_CONTROL`, created when the
//! program first lists its devices. It controls the first adapter. Each process needs its own path: if the
//! socket is in use, the process reports that on stderr and runs without one. A socket left behind by a killed
//! process is replaced.
//!
//! # Protocol
//! The protocol is lines of JSON, each ended by a newline and at most [`MAX_LINE`] bytes long. Each line gets
//! one line in response, in order: an [`Answer`]. A line that gets an error changes nothing.
//!
//! | line | what it does | answer |
//! | --- | --- | --- |
//! | `{"event":{"port":1,"event":"LID_CHANGE"}}` | raises an event of a port in every open context: PORT_ACTIVE, PORT_ERR, LID_CHANGE, PKEY_CHANGE, SM_CHANGE, CLIENT_REREGISTER or GID_CHANGE of `enum ibv_event_type`. Nothing else changes: the port keeps its attributes from the fabric. | `"done"` |
//! | `{"status":{"port":1}}` | reads the adapter's state of the port | `{"status":…}`, a [`PortStatus`] |
//! | `{"set_faults":{"port":1,"faults":{"drop":20}}}` | replaces the faults of datagrams that leave the port: `drop`, `duplicate`, `reorder` and `corrupt` in percent, `delay` in milliseconds, `seed`. Absent faults are off, see [`LinkFaults`](crate::model::link_faults::LinkFaults) | `"done"` |
//! | `{"faults":{"port":1}}` | reads the faults, and their counts since they were last set | `{"faults":…}`, a [`LinkStatus`] |
//!
//! A context receives events, from here and from the fabric, in the order in which they were raised.
//!
//! Each port has its own percentages, counts and random sequence. They restart whenever the port's faults are
//! set.
//!
//! ```text
//! $ echo '{"event":{"port":1,"event":"CLIENT_REREGISTER"}}' | nc -UN /run/fabric-sim.sock
//! "done"
//! $ echo '{"status":{"port":9}}' | nc -UN /run/fabric-sim.sock
//! {"error":"ibsim0 has no port 9; it has 1"}
//! ```

mod client;
mod message;
mod server;

pub use client::{Client, ControlError};
pub use message::{Answer, LinkStatus, MAX_LINE, PortStatus};
pub use server::{ServeError, serve, serve_once};
