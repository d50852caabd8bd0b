//! Readers of the daemon's text files: options, hosts, dumps of paths.

pub mod dump;
pub mod hosts;
mod lines;
pub mod options;
pub mod report;
pub mod watched_file;
