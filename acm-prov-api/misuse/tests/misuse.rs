//! Programs that must not compile, with the compiler's message.
//!
//! The expected messages are from the toolchain that `rust-version` names; `TRYBUILD=overwrite` updates them.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/cases/*.rs");
}
