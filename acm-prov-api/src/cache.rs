//! The path cache engine: answers requests from memory, and queries the SA without flooding it.
//!
//! [`engine`] connects the parts with the core, threads and the log. The parts themselves are state machines without
//! clock, thread, core or log: the caller passes the time and the event, and they return what to do.
//!
//! - [`store`]: the cached answers of one endpoint, by query
//! - [`sm_health`]: whether the SA of a port responds
//! - [`renewal`]: when to query which path of a port again, before a client needs it
//! - [`snapshot`]: the file that keeps paths over a restart of the daemon
//! - [`settings`]: the stock provider's options for all of these
//!
//! [`PathQuery`](crate::sa::PathQuery) says which path is wanted; [`Lookups`](crate::lookups::Lookups) keeps the
//! requests that wait for an answer.

mod constraints;
mod counters;
pub mod engine;
mod own_path;
pub mod renewal;
mod rules;
pub mod settings;
pub mod sm_health;
pub mod snapshot;
pub mod store;
mod table;
mod tables;

pub use constraints::{Alternatives, Constraints};
pub use counters::counters;
pub use own_path::own_path;
pub use rules::PathRules;
