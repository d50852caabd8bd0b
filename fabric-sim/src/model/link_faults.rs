//! Link faults on demand, for datagrams that leave a port. For datagrams that arrive at a port, set the faults
//! of the ports that send them.
//!
//! Each datagram is lost, or else gets these faults in this order: one bit of its payload flipped, sent twice,
//! held back until the next one overtakes it (or [`OVERTAKING`] has passed), and delayed. One datagram can have
//! all of them.
//!
//! On hardware a datagram with a wrong bit is lost, because its checksum does not match. Here it arrives: it
//! stands for a peer that sends garbage.
//!
//! Chance is a pseudorandom sequence from the seed. Every datagram consumes the same part of it whatever the
//! percentages are, so the fate of the n-th datagram depends only on the seed, on n and on the percentages.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum time that a datagram waits to be overtaken.
pub const OVERTAKING: Duration = Duration::from_millis(50);
/// Maximum number of datagrams that a link holds; further ones are lost.
pub const MAX_HELD: usize = 4096;
/// Maximum delay.
pub const MAX_DELAY: Duration = Duration::from_secs(60);

/// Faults of a link. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkFaults {
    /// Percentage of datagrams that are lost, 0 to 100.
    pub drop: u8,
    /// Percentage sent twice.
    pub duplicate: u8,
    /// Percentage overtaken by the next datagram.
    pub reorder: u8,
    /// Percentage with a bit flipped.
    pub corrupt: u8,
    /// Delay of all other datagrams; in JSON, whole milliseconds.
    #[serde(with = "milliseconds")]
    pub delay: Duration,
    /// Seed of the pseudorandom sequence.
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
    /// Returns whether there are no faults.
    pub fn is_none(&self) -> bool {
        Self { seed: 0, ..*self } == Self::default()
    }

    /// Checks values from outside.
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

/// Counts of a link's faults since they were last set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounts {
    /// Datagrams that left the port, whatever their fate.
    pub sent: u64,
    /// Lost, because of `drop` or because too many were held.
    pub dropped: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held back to be overtaken.
    pub reordered: u64,
    /// With a bit flipped.
    pub corrupted: u64,
    /// Delayed, duplicates included.
    pub delayed: u64,
}
