//! A socket by which tests talk to an adapter inside a running program.
//!
//! A Unix stream socket at the path in the environment variable `FABRIC_SIM_CONTROL`, made when the program first lists
//! its devices. It serves the first adapter. One process has one path: a second one that finds the socket in use says so
//! on stderr and goes on without. A socket that a killed process left behind is replaced.
//!
//! # Protocol
//! Lines of text, each ended by a newline and at most [`MAX_LINE`] bytes long; each gets one line in answer, in order:
//! `ok`, or `ok` and a blank and details; or `error: ` and why. A line that is refused changes nothing. Words are
//! separated by blanks.
//!
//! | line | what it does |
//! | --- | --- |
//! | `event NAME PORT` | raises an asynchronous event of a port in every open context. NAME is one of `enum ibv_event_type`, with or without `IBV_EVENT_`: PORT_ACTIVE, PORT_ERR, LID_CHANGE, PKEY_CHANGE, SM_CHANGE, CLIENT_REREGISTER, GID_CHANGE. Nothing else changes: whoever asks for the port's attributes gets the fabric's. |
//! | `status PORT` | answers with what the adapter knows of the port, as `key=value` words: see [`PortStatus`] |
//! | `faults PORT KEY=VALUE...` | does that to datagrams that leave the port, in place of what was said before: `drop`, `duplicate`, `reorder`, `corrupt` and a percentage; `delay` and milliseconds; `seed` and where chance begins. Those not named are off: see [`LinkFaults`](crate::model::link_faults::LinkFaults) |
//! | `faults PORT none` | leaves them alone |
//! | `faults PORT` | answers with what happens, and to how many datagrams it did since that was said: see [`LinkStatus`] |
//!
//! Events raised here and by the fabric reach a context in the order in which they were raised.
//!
//! Percentages, counts and chance are of each port alone, and begin anew whenever a port is given faults.
//!
//! ```text
//! $ echo "event CLIENT_REREGISTER 1" | nc -UN /run/fabric-sim.sock
//! ok
//! $ echo "event LID_CHANGE 9" | nc -UN /run/fabric-sim.sock
//! error: ibsim0 has no port 9; it has 1
//! $ echo "faults 1 drop=20 reorder=5 seed=7" | nc -UN /run/fabric-sim.sock
//! ok
//! ```

mod client;
mod command;
mod server;

pub use client::{Client, ControlError};
pub use command::{LinkStatus, MAX_LINE, NotALinkStatus, NotAStatus, PortStatus};
pub use server::{ServeError, serve, serve_once};
