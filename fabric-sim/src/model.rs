//! The adapter itself: plain Rust, no C types, usable in process without any of the exported functions.

pub mod adapter;
pub mod completion;
pub mod data_path;
pub mod event;
pub mod memory;
pub mod port;
pub mod queue_pair;

#[cfg(test)]
mod tests;
