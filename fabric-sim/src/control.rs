//! A socket by which tests talk to an adapter inside a running program.
//!
//! A Unix stream socket at the path in the environment variable `FABRIC_SIM_CONTROL`, made when the program first lists
//! its devices. It serves the first adapter. One process has one path: a second one that finds the socket in use says so
//! on stderr and goes on without. A socket that a killed process left behind is replaced.
//!
//! # Protocol
//! Lines of JSON, each ended by a newline and at most [`MAX_LINE`] bytes long. Each gets one line in answer, in order: an
//! [`Answer`]. A line that is answered with an error changes nothing.
//!
//! | line | what it does | answer |
//! | --- | --- | --- |
//! | `{"event":{"port":1,"event":"LID_CHANGE"}}` | raises an event of a port in every open context: PORT_ACTIVE, PORT_ERR, LID_CHANGE, PKEY_CHANGE, SM_CHANGE, CLIENT_REREGISTER or GID_CHANGE of `enum ibv_event_type`. Nothing else changes: programs that read the port's attributes get the fabric's. | `"done"` |
//! | `{"status":{"port":1}}` | reads what the adapter knows of the port | `{"status":…}`, a [`PortStatus`] |
//! | `{"set_faults":{"port":1,"faults":{"drop":20}}}` | sets the faults of datagrams that leave the port, instead of the earlier ones: `drop`, `duplicate`, `reorder` and `corrupt` in percent, `delay` in milliseconds, `seed`. Absent ones are off: see [`LinkFaults`](crate::model::link_faults::LinkFaults) | `"done"` |
//! | `{"faults":{"port":1}}` | reads the faults, and their counts since they were set | `{"faults":…}`, a [`LinkStatus`] |
//!
//! Events raised here and by the fabric reach a context in the order in which they were raised.
//!
//! Percentages, counts and chance are of each port alone, and begin anew whenever a port is given faults.
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
