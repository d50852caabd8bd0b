//! Faults of a link, on demand: what happens to datagrams that leave a port. What comes to it is left alone; that is for the
//! faults of the ports that it comes from.
//!
//! Each datagram is looked at in this order: lost, or else one bit of its payload turned, sent twice, held back until the
//! next one has overtaken it (or [`OVERTAKING`] has passed), and at last delayed. All that can come together.
//!
//! On hardware a datagram with a wrong bit is lost, since its checksum does not match. Here it arrives: it stands for a
//! peer that sends nonsense.
//!
//! Chance is a sequence that follows from the seed. Every datagram takes the same share of it whatever is asked for, so the
//! fate of the n-th datagram depends on the seed, on n and on the percentages alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a datagram is held back at most for another to overtake it.
pub const OVERTAKING: Duration = Duration::from_millis(50);
/// Datagrams that a link holds back or delays at most; what comes then is lost.
pub const MAX_HELD: usize = 4096;
/// The longest delay.
pub const MAX_DELAY: Duration = Duration::from_secs(60);

/// Faults of a link. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkFaults {
    /// Percentage of datagrams that are lost, 0 to 100.
    pub drop: u8,
    /// Percentage that is sent twice.
    pub duplicate: u8,
    /// Percentage that the next datagram overtakes.
    pub reorder: u8,
    /// Percentage with a bit turned.
    pub corrupt: u8,
    /// By how much all others are late; in JSON, whole milliseconds.
    #[serde(with = "milliseconds")]
    pub delay: Duration,
    /// Where chance begins.
    pub seed: u64,
}

/// A value of [`LinkFaults`] is too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}{unit}, at most {limit}")]
pub struct TooLarge {
    name: &'static str,
    value: u128,
    unit: &'static str,
    limit: u128,
}

impl LinkFaults {
    /// Whether nothing happens to any datagram.
    pub fn is_none(&self) -> bool {
        Self { seed: 0, ..*self } == Self::default()
    }

    /// Checks values that come from outside.
    ///
    /// # Errors
    /// A percentage above 100, or a delay above [`MAX_DELAY`].
    pub fn check(&self) -> Result<(), TooLarge> {
        let percentage = |name, value: u8| (name, value.into(), "", 100);
        let values = [
            percentage("drop", self.drop),
            percentage("duplicate", self.duplicate),
            percentage("reorder", self.reorder),
            percentage("corrupt", self.corrupt),
            (
                "delay",
                self.delay.as_millis(),
                " ms",
                MAX_DELAY.as_millis(),
            ),
        ];
        match values
            .into_iter()
            .find(|(_, value, _, limit)| value > limit)
        {
            None => Ok(()),
            Some((name, value, unit, limit)) => Err(TooLarge {
                name,
                value,
                unit,
                limit,
            }),
        }
    }
}

/// Durations as whole milliseconds.
mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(value.as_millis())
            .unwrap_or(u64::MAX)
            .serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// What a link did to the datagrams that left the port since its faults were set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounts {
    /// Datagrams that left the port, however they fared.
    pub sent: u64,
    /// Lost, because of `drop` or because too many were held already.
    pub dropped: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held back to be overtaken.
    pub reordered: u64,
    /// With a bit turned.
    pub corrupted: u64,
    /// Sent late, duplicates included.
    pub delayed: u64,
}
