//! The path cache engine: what a provider needs to answer from memory and to ask the SA
//! without flooding it.
//!
//! [`engine`] joins the parts to the core, a thread and the log. The parts themselves are plain state machines. None of
//! them knows a clock, a thread, the core or a log: each is told the time and what happened, and says what to do.
//!
//! - [`store`]: answers by query, for one endpoint
//! - [`sm_health`]: whether the SA answers at all, for one port
//! - [`renewal`]: when which path is asked for again before it is needed, for one port
//! - [`snapshot`]: paths in a file, so that a daemon that starts again knows them
//! - [`settings`]: the stock provider's options that concern all of that
//!
//! What a path is asked for is a [`PathQuery`](crate::sa::PathQuery); who waits for which answer is kept by
//! [`Lookups`](crate::lookups::Lookups).

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
