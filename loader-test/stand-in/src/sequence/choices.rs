//! The source of a sequence's random choices.

use fastrand::Rng;

/// A seed's numbers, or a fuzzer's bytes.
pub(super) enum Choices<'a> {
    Seed(Rng),
    Bytes(&'a [u8]),
}

impl<'a> Choices<'a> {
    pub(super) fn from_seed(seed: u64) -> Self {
        Self::Seed(Rng::with_seed(seed))
    }

    pub(super) fn from_bytes(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }

    /// Whether all bytes are used. A seed never ends.
    pub(super) fn is_used_up(&self) -> bool {
        matches!(self, Self::Bytes([]))
    }

    /// Returns a number below `limit` (at most 256) from one byte, so that a changed byte changes one choice.
    pub(super) fn below(&mut self, limit: u16) -> u8 {
        match self {
            Self::Seed(rng) => rng.u16(..limit) as u8,
            Self::Bytes(bytes) => (u16::from(take(bytes)) % limit) as u8,
        }
    }

    /// Returns any number, from eight bytes.
    pub(super) fn any(&mut self) -> u64 {
        match self {
            Self::Seed(rng) => rng.u64(..),
            Self::Bytes(bytes) => u64::from_be_bytes(std::array::from_fn(|_| take(bytes))),
        }
    }
}

/// Returns the next byte; zero at the end.
fn take(bytes: &mut &[u8]) -> u8 {
    match bytes.split_first() {
        Some((first, rest)) => {
            *bytes = rest;
            *first
        }
        None => 0,
    }
}
