//! Medians, percentiles, spreads and ratios, and limits for a noisy machine.

use serde::{Deserialize, Serialize};

/// Relative spread between rounds above which a figure is noisy.
pub const NOISY_SPREAD: f64 = 0.25;
/// Involuntary context switches per second of measuring above which the machine is noisy.
pub const NOISY_SWITCHES: f64 = 100.0;
/// Part of stolen processor time above which the machine is noisy.
pub const NOISY_STEAL: f64 = 0.02;

/// The values of a figure in all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median of the rounds.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// Each round's value, in order.
    pub rounds: Vec<f64>,
}

impl Summary {
    /// Summarizes at least one value.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let mut sorted = rounds.to_vec();
        let median = median(&mut sorted)?;
        Some(Self {
            median,
            least: *sorted.first()?,
            most: *sorted.last()?,
            rounds: rounds.to_vec(),
        })
    }

    /// Returns the spread: largest minus smallest, relative to the median.
    pub fn spread(&self) -> f64 {
        match self.median == 0.0 {
            true => 0.0,
            false => (self.most - self.least) / self.median,
        }
    }

    /// Whether the rounds differ too much to be compared.
    pub fn is_noisy(&self) -> bool {
        self.spread() > NOISY_SPREAD
    }
}

/// Returns the median, by sorting; `None` without values.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Returns a percentile of sorted values (nearest rank); `None` without values.
pub fn percentile(sorted: &[u32], percent: f64) -> Option<u32> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns how many times larger the reference's value is: the median of the ratios of each round, since a disturbance of a
/// round affects both. `None` if a round is missing or zero.
pub fn ratio(reference: &Summary, own: &Summary) -> Option<f64> {
    if reference.rounds.len() != own.rounds.len() {
        return None;
    }
    let pairs = reference.rounds.iter().zip(&own.rounds);
    let mut ratios: Vec<f64> = pairs.map(|(reference, own)| reference / own).collect();
    median(&mut ratios).filter(|ratio| ratio.is_finite())
}

/// Whether every round of `own` is larger than every round of `reference`. With five rounds each, this happens by chance once
/// in 252 times.
pub fn exceeds_in_every_round(own: &Summary, reference: &Summary) -> bool {
    own.least > reference.most
}

/// Parses a number such as `1k`, `49k` or `1m`: k is a thousand, m a million.
///
/// # Errors
/// If the text is not such a number.
pub fn parse_count(text: &str) -> Result<u32, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, unit) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 1000),
        None => match lower.strip_suffix('m') {
            Some(digits) => (digits, 1_000_000),
            None => (lower.as_str(), 1),
        },
    };
    let wrong = || format!("{text:?} is not a number such as 100, 49k or 1m");
    let count: u32 = digits.parse().map_err(|_| wrong())?;
    match count.checked_mul(unit) {
        Some(count) if count > 0 => Ok(count),
        _ => Err(wrong()),
    }
}

/// Formats a count as [`parse_count`] reads it.
pub fn show_count(count: u32) -> String {
    match count {
        count if count % 1_000_000 == 0 => format!("{}m", count / 1_000_000),
        count if count % 1000 == 0 => format!("{}k", count / 1000),
        count => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let summary = Summary::of(&[10.0, 8.0, 12.0]).unwrap();
        assert_eq!(
            (summary.median, summary.least, summary.most),
            (10.0, 8.0, 12.0)
        );
        assert_eq!(summary.rounds, [10.0, 8.0, 12.0]);
        assert_eq!(summary.spread(), 0.4);
        assert!(summary.is_noisy());
        assert!(!Summary::of(&[10.0, 9.0, 11.0]).unwrap().is_noisy());
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().spread(), 0.0);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&sorted, 50.0), Some(50));
        assert_eq!(percentile(&sorted, 99.0), Some(99));
        assert_eq!(percentile(&sorted, 100.0), Some(100));
        assert_eq!(percentile(&[7], 99.0), Some(7));
        assert_eq!(percentile(&[7, 9], 50.0), Some(7));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn a_ratio_is_that_of_the_rounds() {
        let reference = Summary::of(&[300.0, 900.0, 330.0]).unwrap();
        let own = Summary::of(&[100.0, 300.0, 100.0]).unwrap();
        assert_eq!(ratio(&reference, &own), Some(3.0));
        assert_eq!(ratio(&reference, &Summary::of(&[100.0]).unwrap()), None);
        let zero = Summary::of(&[0.0, 0.0, 0.0]).unwrap();
        assert_eq!(ratio(&reference, &zero), None);
    }

    #[test]
    fn slower_is_what_is_slower_in_every_round() {
        let reference = Summary::of(&[100.0, 110.0, 105.0]).unwrap();
        let exceeds =
            |rounds: &[f64]| exceeds_in_every_round(&Summary::of(rounds).unwrap(), &reference);
        assert!(exceeds(&[111.0, 130.0, 120.0]));
        assert!(!exceeds(&[110.0, 130.0, 120.0]));
        assert!(!exceeds(&[90.0, 91.0, 92.0]));
    }

    #[test]
    fn counts_have_units() {
        for (text, count) in [
            ("100", 100),
            ("1k", 1000),
            ("49K", 49_000),
            (" 1m ", 1_000_000),
        ] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for text in ["", "k", "0", "0k", "-1", "1.5k", "1g", "5000m", "1k,2k"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        for count in [1, 100, 1000, 1500, 49_000, 1_000_000, 2_500_000] {
            assert_eq!(parse_count(&show_count(count)), Ok(count));
        }
    }
}
