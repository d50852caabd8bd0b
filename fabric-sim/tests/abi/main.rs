//! The mirrored structs against the installed headers, and the exported symbols against the installed libraries.

mod layout;
mod symbols;
