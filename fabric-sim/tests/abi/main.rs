//! Compares the mirrored structs with the installed headers, and the exported symbols with the installed
//! libraries.

mod layout;
mod symbols;
