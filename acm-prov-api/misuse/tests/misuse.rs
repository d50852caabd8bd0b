//! What must not compile, with the message that the author then reads.
//!
//! The expected messages are those of the toolchain that `rust-version` names; `TRYBUILD=overwrite` writes them anew.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/cases/*.rs");
}
