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

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long a datagram is held back at most for another to overtake it.
pub const OVERTAKING: Duration = Duration::from_millis(50);
/// Datagrams that a link holds back or delays at most; what comes then is lost.
pub const MAX_HELD: usize = 4096;
/// The longest delay.
pub const MAX_DELAY: Duration = Duration::from_secs(60);

/// Faults of a link. The default is none. As text: words `key=value`, of which the absent ones mean the default, or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFaults {
    /// Percentage of datagrams that are lost, 0 to 100. `drop=20`
    pub drop: u8,
    /// Percentage that is sent twice. `duplicate=5`
    pub duplicate: u8,
    /// Percentage that the next datagram overtakes. `reorder=5`
    pub reorder: u8,
    /// Percentage with a bit turned. `corrupt=1`
    pub corrupt: u8,
    /// By how much all others are late, in whole milliseconds. `delay=30`
    pub delay: Duration,
    /// Where chance begins. `seed=7`
    pub seed: u64,
}

impl LinkFaults {
    /// Whether nothing happens to any datagram.
    pub fn is_none(&self) -> bool {
        Self { seed: 0, ..*self } == Self::default()
    }
}

/// Why a text is not [`LinkFaults`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?}: {reason}")]
pub struct NotLinkFaults {
    word: String,
    reason: &'static str,
}

impl FromStr for LinkFaults {
    type Err = NotLinkFaults;

    fn from_str(text: &str) -> Result<Self, NotLinkFaults> {
        let mut faults = Self::default();
        if text.trim() == "none" {
            return Ok(faults);
        }
        let mut seen = Vec::new();
        for word in text.split_ascii_whitespace() {
            let wrong = |reason| NotLinkFaults {
                word: word.to_owned(),
                reason,
            };
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| wrong("say none, or drop=, duplicate=, reorder=, corrupt=, delay=, seed= and a number"))?;
            if seen.contains(&key) {
                return Err(wrong("said twice"));
            }
            seen.push(key);
            let percentage = || {
                value
                    .parse()
                    .ok()
                    .filter(|percentage| *percentage <= 100)
                    .ok_or_else(|| wrong("a percentage is a number from 0 to 100"))
            };
            match key {
                "drop" => faults.drop = percentage()?,
                "duplicate" => faults.duplicate = percentage()?,
                "reorder" => faults.reorder = percentage()?,
                "corrupt" => faults.corrupt = percentage()?,
                "delay" => {
                    let delay = value.parse().ok().map(Duration::from_millis);
                    faults.delay = delay.filter(|delay| *delay <= MAX_DELAY).ok_or_else(|| {
                        wrong("a delay is a number of milliseconds from 0 to 60000")
                    })?;
                }
                "seed" => {
                    faults.seed = value
                        .parse()
                        .map_err(|_| wrong("a seed is a number of 64 bits"))?;
                }
                _ => {
                    return Err(wrong(
                        "there is drop, duplicate, reorder, corrupt, delay and seed",
                    ));
                }
            }
        }
        if seen.is_empty() {
            return Err(NotLinkFaults {
                word: String::new(),
                reason: "say none, or which faults",
            });
        }
        Ok(faults)
    }
}

impl fmt::Display for LinkFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            drop,
            duplicate,
            reorder,
            corrupt,
            delay,
            seed,
        } = self;
        let delay = delay.as_millis();
        write!(
            f,
            "drop={drop} duplicate={duplicate} reorder={reorder} corrupt={corrupt} delay={delay} seed={seed}"
        )
    }
}

/// What a link did to the datagrams that left the port since its faults were set. Written and read as words `key=value` in
/// the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

impl fmt::Display for LinkCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            dropped,
            duplicated,
            reordered,
            corrupted,
            delayed,
        } = self;
        write!(
            f,
            "sent={sent} dropped={dropped} duplicated={duplicated} reordered={reordered} corrupted={corrupted} delayed={delayed}"
        )
    }
}

/// Not what [`LinkCounts`] are written as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} are not a link's counts")]
pub struct NotLinkCounts(String);

impl FromStr for LinkCounts {
    type Err = NotLinkCounts;

    fn from_str(text: &str) -> Result<Self, NotLinkCounts> {
        let mut words = text.split(' ');
        let mut value = |key: &str| {
            words
                .next()?
                .strip_prefix(key)?
                .strip_prefix('=')?
                .parse()
                .ok()
        };
        let counts = (|| {
            Some(Self {
                sent: value("sent")?,
                dropped: value("dropped")?,
                duplicated: value("duplicated")?,
                reordered: value("reordered")?,
                corrupted: value("corrupted")?,
                delayed: value("delayed")?,
            })
        })();
        counts.ok_or_else(|| NotLinkCounts(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_go_both_ways() {
        let faults = LinkFaults {
            drop: 20,
            duplicate: 5,
            reorder: 100,
            corrupt: 1,
            delay: Duration::from_millis(30),
            seed: u64::MAX,
        };
        assert_eq!(
            faults.to_string(),
            "drop=20 duplicate=5 reorder=100 corrupt=1 delay=30 seed=18446744073709551615"
        );
        assert_eq!(faults.to_string().parse(), Ok(faults));
        assert_eq!("none".parse(), Ok(LinkFaults::default()));
        assert_eq!(
            " drop=7\tseed=1 ".parse(),
            Ok(LinkFaults {
                drop: 7,
                seed: 1,
                ..LinkFaults::default()
            })
        );
        assert!("seed=3".parse::<LinkFaults>().unwrap().is_none());
        assert!(!"delay=1".parse::<LinkFaults>().unwrap().is_none());
    }

    #[test]
    fn what_is_no_fault_says_why() {
        for (text, part) in [
            ("", "say none"),
            ("drop", "say none"),
            ("none drop=1", "say none"),
            ("drop=1 drop=2", "twice"),
            ("drop=101", "0 to 100"),
            ("corrupt=-1", "0 to 100"),
            ("delay=60001", "0 to 60000"),
            ("delay=99999999999999999999", "0 to 60000"),
            ("seed=x", "64 bits"),
            ("loss=5", "there is drop"),
        ] {
            let error = text.parse::<LinkFaults>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn counts_go_both_ways() {
        let counts = LinkCounts {
            sent: 6,
            dropped: 1,
            duplicated: 2,
            reordered: 3,
            corrupted: 4,
            delayed: 5,
        };
        assert_eq!(counts.to_string().parse(), Ok(counts));
        assert!("sent=1 dropped=2".parse::<LinkCounts>().is_err());
    }
}
