//! The path cache engine: what a provider needs to answer from memory and to ask the SA
//! without flooding it.
//!
//! [`engine`] joins the parts to the core, a thread and the log. The parts themselves are plain state machines. None of
//! them knows a clock, a thread, the core or a log: each is told the time and what happened, and says what to do.
//!
//! - [`question`]: what was asked, in a form that compares and hashes
//! - [`store`]: answers by question, for one endpoint
//! - [`answer`]: whether what the SA sent answers the question
//! - [`lookups`]: who waits for which question, for one port
//! - [`sm_health`]: whether the SA answers at all, for one port
//! - [`settings`]: the stock provider's options that concern all of that

pub mod answer;
pub mod engine;
pub mod lookups;
mod own_path;
pub mod question;
pub mod settings;
pub mod sm_health;
pub mod store;

pub use own_path::own_path;
