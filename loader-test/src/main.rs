//! The `loader-test` command.
fn main() {}
