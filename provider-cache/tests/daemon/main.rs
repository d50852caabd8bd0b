//! path-cache under the real daemon, with a real OpenSM on a simulated fabric.
//!
//! Every answer is compared with what the SA says, field by field, and where it matters with what OpenSM's log says that
//! the SA was asked.

mod answers;
mod clients;
mod fat_tree;
mod files;
mod flapping;
mod memory;
mod port_changes;
mod sa_silence;
mod support;
