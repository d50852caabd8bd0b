//! Faulty providers: a good one, in C, with one fault.
//!
//! The good one is `include/examples/sa_provider.c`. A [`Fault`] says what to replace in its text; a test builds the result
//! and sees the check fail on it, and no other check but those that the fault declares.

/// A change that makes a good provider faulty.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Texts of the good provider's source, each of which must be there exactly once, and what takes their place.
    pub replace: &'static [(&'static str, &'static str)],
    /// How the check must end on it: failed, crashed or timed out; several where memory is damaged.
    pub status: &'static [super::Status],
    /// Other checks that fail on it for the same reason: names, or families as `sa-*`.
    pub also: &'static [&'static str],
}
