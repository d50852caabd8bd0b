//! The adapter itself: plain Rust without C types, usable in process without the exported functions.

pub mod adapter;
pub mod completion;
pub mod data_path;
mod delivery;
pub mod event;
mod link;
pub mod link_faults;
pub mod membership;
pub mod memory;
pub mod port;
pub mod queue_pair;
pub mod switch;

#[cfg(test)]
mod tests;
