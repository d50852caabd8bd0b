//! Searches for a failing sequence, and for its shortest part that still fails.

use std::io;
use std::time::{Duration, Instant};

use super::orders::{Failure, Found, Results, Sequence};
use super::pool::{Flow, Job, Pool};
use super::shrink::shrink;
use crate::stand_in::sequence;

/// Tolerance for unanswered requests beyond their deadline, while many sequences run.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same tolerance while a failure that a busy machine can cause is repeated alone.
const PATIENCE_ALONE: Duration = Duration::from_secs(4);
/// Number of such repetitions.
const ALONE: u64 = 5;
/// Number of runs to measure a failure rate, for frequent and for rare failures.
const MEASURED: [u64; 2] = [16, 256];
/// Number of failures that a part must show if the whole sequence does not always fail: a single failure may be rare.
const NEEDED: u64 = 3;
/// Maximum number of runs of a part for that.
const MOST_TRIES: u64 = 1024;
/// One of this many seeds is played repeatedly in one process, to find leaks.
const REPEATED: u64 = 64;

/// Sequences per process: a fork takes longer than a sequence.
const BATCH: u64 = 8;

/// Returns the sequence of a seed.
pub(super) fn of_seed(seed: u64) -> Sequence {
    Sequence {
        seed,
        repeated: seed % REPEATED == REPEATED - 1,
        after: Vec::new(),
        actions: sequence::from_seed(seed),
    }
}

/// Returns how many sequences run at the same time to reproduce a failure of this cause.
fn width(like: &Failure) -> usize {
    /// Few enough to keep the machine idle: they mostly wait.
    const FEW: usize = 8;
    match like.cause.counts_at_once() {
        true => usize::MAX,
        false => FEW,
    }
}

/// Returns how often a part must fail, and out of how many runs, to replace a whole with this failure rate.
fn demand(failed: u64, played: u64) -> (u64, u64) {
    match failed {
        0 => (NEEDED, 0),
        _ if failed == played => (1, 1),
        // A part with the whole's failure rate is rejected once in sixteen times.
        _ => (
            NEEDED,
            (2 * NEEDED * played).div_ceil(failed).min(MOST_TRIES),
        ),
    }
}

/// How to play a sequence to reproduce its failure.
struct Trial<'a> {
    like: &'a Failure,
    width: usize,
    patience: Duration,
}

/// The search.
pub(super) struct Search {
    pool: Pool,
    start: Instant,
    end: Instant,
    results: Results,
}

impl Search {
    /// Creates a search with a time limit.
    pub(super) fn new(pool: Pool, time: Duration, loads_anew: Option<String>) -> Self {
        let start = Instant::now();
        Self {
            pool,
            start,
            end: start + time,
            results: Results {
                loads_anew,
                ..Results::default()
            },
        }
    }

    /// Plays the sequences of consecutive seeds from `first` until one fails.
    ///
    /// # Errors
    /// The harness failed.
    pub(super) fn seeds(mut self, first: u64, runs: Option<u64>) -> io::Result<Results> {
        let mut begun = 0;
        let end = self.end;
        let mut again = Vec::new();
        let found = loop {
            let most = runs.unwrap_or(u64::MAX);
            let mut left = std::mem::take(&mut again);
            // At least one, however short the time limit.
            let next = || {
                let is_time = Instant::now() < end || begun == 0;
                if let Some(sequence) = left.pop().filter(|_| is_time) {
                    return Some(sequence);
                }
                (begun < most && is_time).then(|| {
                    begun += 1;
                    of_seed(first.wrapping_add(begun - 1))
                })
            };
            match self.first_failure(next, BATCH, &mut again)? {
                Some((sequence, failure)) if self.is_certain(&sequence, &failure)? => {
                    break Some((sequence, failure));
                }
                Some((sequence, failure)) => {
                    self.results.not_again.push((sequence.seed, failure));
                }
                None => break None,
            }
        };
        self.conclude(found)
    }

    /// Plays one sequence until it fails.
    ///
    /// # Errors
    /// The harness failed.
    pub(super) fn replay(mut self, sequence: &Sequence, runs: Option<u64>) -> io::Result<Results> {
        let mut begun = 0;
        let end = self.end;
        let runs = runs.unwrap_or(u64::MAX);
        let next = || {
            (begun < runs && (Instant::now() < end || begun == 0)).then(|| {
                begun += 1;
                sequence.clone()
            })
        };
        let found = self.first_failure(next, 1, &mut Vec::new())?;
        self.conclude(found)
    }

    /// Plays the sequences from `next` until one fails, a limited number per process. Puts the unplayed ones of that process
    /// into `left`.
    fn first_failure(
        &mut self,
        mut next: impl FnMut() -> Option<Sequence>,
        batch: u64,
        left: &mut Vec<Sequence>,
    ) -> io::Result<Option<(Sequence, Failure)>> {
        let mut found: Option<(Sequence, Failure)> = None;
        let sequences = &mut self.results.sequences;
        let is_found = std::cell::Cell::new(false);
        // Leaks are measured in a separate process, which waits for the memory.
        let mut waits = None;
        let mut begun = 0;
        let processes = self.pool.width() as u64;
        let job = || {
            // Running sequences may end: they need not be played again.
            if is_found.get() {
                return None;
            }
            // The first jobs have one sequence each, so that all processes have work.
            let most = (begun / processes).clamp(1, batch) as usize;
            let mut batch = vec![waits.take().or_else(&mut next)?];
            while batch.len() < most && !batch[0].repeated && waits.is_none() {
                match next() {
                    Some(another) if another.repeated => waits = Some(another),
                    Some(another) => batch.push(another),
                    None => break,
                }
            }
            begun += batch.len() as u64;
            Some(Job {
                sequences: batch,
                patience: PATIENCE,
            })
        };
        self.pool.run(usize::MAX, Some(self.end), job, |played| {
            *sequences += played.sequences;
            let Some((sequence, failure)) = played.failed else {
                return Flow::GoOn;
            };
            is_found.set(true);
            left.extend(played.left);
            let is_certain = failure.cause.counts_at_once();
            if is_certain || found.is_none() {
                found = Some((sequence, failure));
            }
            if is_certain { Flow::Stop } else { Flow::GoOn }
        })?;
        left.extend(waits);
        Ok(found)
    }

    /// Whether a failure is independent of a busy machine: it recurs while nothing else runs.
    fn is_certain(&mut self, sequence: &Sequence, failure: &Failure) -> io::Result<bool> {
        let trial = Trial {
            like: failure,
            width: 1,
            patience: PATIENCE_ALONE,
        };
        if failure.cause.counts_at_once() {
            return Ok(true);
        }
        let comes_again = self
            .failures(&sequence.alone(), &trial, 1, ALONE)?
            .is_some();
        Ok(comes_again
            || !sequence.after.is_empty() && self.failures(sequence, &trial, 1, ALONE)?.is_some())
    }

    /// Plays a sequence until it has failed a number of times of the same cause, up to a number of runs. Returns the last
    /// failure, if that number was reached.
    fn failures(
        &mut self,
        sequence: &Sequence,
        trial: &Trial<'_>,
        needed: u64,
        times: u64,
    ) -> io::Result<Option<Failure>> {
        let (mut left, mut failed, mut found) = (times, 0, None);
        let next = || {
            left = left.checked_sub(1)?;
            Some(Job {
                sequences: vec![sequence.clone()],
                patience: trial.patience,
            })
        };
        self.pool.run(trial.width, None, next, |played| {
            let failure = played.failed.map(|(_, failure)| failure);
            let failure = failure.filter(|failure| failure.cause.is_like(&trial.like.cause));
            failed += u64::from(failure.is_some());
            found = failure.or(found.take());
            match failed == needed {
                true => Flow::Stop,
                false => Flow::GoOn,
            }
        })?;
        Ok(found.filter(|_| failed == needed))
    }

    /// Plays a sequence to see how often it fails of the same cause, and of how many times.
    fn measure(&mut self, sequence: &Sequence, like: &Failure) -> io::Result<(u64, u64)> {
        let mut measured = (0, 0);
        for times in MEASURED {
            let (mut left, mut failed) = (times, 0);
            let next = || {
                left = left.checked_sub(1)?;
                Some(Job {
                    sequences: vec![sequence.clone()],
                    patience: PATIENCE,
                })
            };
            self.pool.run(width(like), None, next, |played| {
                let is_like = |(_, seen): (_, Failure)| seen.cause.is_like(&like.cause);
                failed += u64::from(played.failed.is_some_and(is_like));
                Flow::GoOn
            })?;
            measured = (failed, times);
            if failed > 0 || Instant::now() > self.end {
                break;
            }
        }
        Ok(measured)
    }

    /// Shrinks the failing sequence within the time limit.
    fn conclude(mut self, found: Option<(Sequence, Failure)>) -> io::Result<Results> {
        self.results.searched = self.start.elapsed();
        let Some((mut original, mut failure)) = found else {
            return Ok(self.results);
        };
        let found_after = self.start.elapsed();
        let alone = original.alone();
        let (mut failed, mut played) = self.measure(&alone, &failure)?;
        if failed > 0 {
            original = alone;
        } else if !original.after.is_empty() {
            (failed, played) = self.measure(&original, &failure)?;
        }
        let (needed, tries) = demand(failed, played);
        let mut shortest = original.clone();
        // If the whole never fails again, no part will.
        let end = if failed == 0 { self.start } else { self.end };
        let mut fails = |part: &Sequence| -> io::Result<bool> {
            let trial = Trial {
                like: &failure,
                width: width(&failure),
                patience: PATIENCE,
            };
            let fails = self.failures(part, &trial, needed, tries)?;
            Ok(fails.map(|fails| failure = fails).is_some())
        };
        let mut after = std::mem::take(&mut shortest.after);
        let mut is_shrunk = shrink(&mut after, end, |part| {
            fails(&Sequence {
                after: part.to_vec(),
                ..shortest.clone()
            })
        })?;
        shortest.after = after;
        let mut actions = std::mem::take(&mut shortest.actions);
        is_shrunk &= shrink(&mut actions, end, |part| {
            fails(&Sequence {
                actions: part.to_vec(),
                ..shortest.clone()
            })
        })?;
        shortest.actions = actions;
        let fails = self.measure(&shortest, &failure)?;
        self.results.found = Some(Found {
            original,
            shortest,
            failure,
            found_after,
            shrunk_after: self.start.elapsed(),
            is_shrunk,
            fails,
        });
        Ok(self.results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_seldom_fails_is_played_often() {
        assert_eq!(demand(16, 16), (1, 1));
        assert_eq!(demand(8, 16), (3, 12));
        assert_eq!(demand(1, 256), (3, 1024));
        assert_eq!(demand(0, 256), (3, 0));
    }

    #[test]
    fn one_of_many_seeds_is_played_again_and_again() {
        let repeated = (0..640).filter(|seed| of_seed(*seed).repeated).count();
        assert_eq!(repeated, 10);
    }
}
