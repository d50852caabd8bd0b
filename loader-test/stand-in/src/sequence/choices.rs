//! Where the choices come from that make a sequence.

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

    /// Whether no byte is left. A seed never ends.
    pub(super) fn is_used_up(&self) -> bool {
        matches!(self, Self::Bytes([]))
    }

    /// A number below `limit`, which is at most 256: one byte, so that a changed byte changes one choice.
    pub(super) fn below(&mut self, limit: u16) -> u8 {
        match self {
            Self::Seed(rng) => rng.u16(..limit) as u8,
            Self::Bytes(bytes) => (u16::from(take(bytes)) % limit) as u8,
        }
    }

    /// Any number: eight bytes.
    pub(super) fn any(&mut self) -> u64 {
        match self {
            Self::Seed(rng) => rng.u64(..),
            Self::Bytes(bytes) => u64::from_be_bytes(std::array::from_fn(|_| take(bytes))),
        }
    }
}

/// The next byte; zero when there is none.
fn take(bytes: &mut &[u8]) -> u8 {
    match bytes.split_first() {
        Some((first, rest)) => {
            *bytes = rest;
            *first
        }
        None => 0,
    }
}
