//! Everything CI does.
fn main() {}
