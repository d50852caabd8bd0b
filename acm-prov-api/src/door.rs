//! The entry points of the core: the library's exported functions, its table, and the twelve callbacks.

mod callbacks;
pub mod check;
mod contexts;
mod export;
pub mod introspection;
pub(crate) mod load;
mod pin;
mod registry;
mod shown_counters;
pub(crate) mod slot;
