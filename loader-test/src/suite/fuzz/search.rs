//! Looks for a sequence that fails, and for the shortest part of it that still does.

use std::io;
use std::time::{Duration, Instant};

use super::orders::{Failure, Found, Results, Sequence};
use super::pool::{Flow, Job, Pool};
use super::shrink::shrink;
use crate::stand_in::sequence;

/// How long past its deadline a request may stay unanswered, while many sequences are played at a time.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same when a failure that a busy machine may bring about is looked at again alone.
const PATIENCE_ALONE: Duration = Duration::from_secs(4);
/// How often it is.
const ALONE: u64 = 5;
/// How often a sequence is played to see how often it fails.
const MEASURED: u64 = 16;
/// The most times that a part of a sequence is played before it counts as one that does not fail.
const MOST_TRIES: u64 = 128;
/// One of so many seeds is played again and again in one process, to see whether memory is lost.
const REPEATED: u64 = 64;

/// The sequence that a seed makes.
pub(super) fn of_seed(seed: u64) -> Sequence {
    Sequence {
        seed,
        repeated: seed % REPEATED == REPEATED - 1,
        actions: sequence::from_seed(seed),
    }
}

/// How many sequences are played at a time to see whether they fail like this.
fn width(like: &Failure) -> usize {
    /// So few that the machine is not busy.
    const FEW: usize = 2;
    match like.cause.counts_at_once() {
        true => usize::MAX,
        false => FEW,
    }
}

/// See the module.
pub(super) struct Search {
    pool: Pool,
    start: Instant,
    end: Instant,
    results: Results,
}

impl Search {
    /// Has so much time.
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

    /// Plays the sequences of seeds that count on from `first` until one fails.
    ///
    /// # Errors
    /// Trouble of the harness's own.
    pub(super) fn seeds(mut self, first: u64, runs: Option<u64>) -> io::Result<Results> {
        let mut begun = 0;
        let end = self.end;
        let found = loop {
            let most = runs.unwrap_or(u64::MAX);
            // One at least, however little time there is.
            let next = || {
                (begun < most && (Instant::now() < end || begun == 0)).then(|| {
                    begun += 1;
                    of_seed(first.wrapping_add(begun - 1))
                })
            };
            match self.first_failure(next)? {
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
    /// Trouble of the harness's own.
    pub(super) fn replay(mut self, sequence: &Sequence, runs: u64) -> io::Result<Results> {
        let mut begun = 0;
        let end = self.end;
        let next = || {
            (begun < runs && (Instant::now() < end || begun == 0)).then(|| {
                begun += 1;
                sequence.clone()
            })
        };
        let found = self.first_failure(next)?;
        self.conclude(found)
    }

    /// Plays what `next` gives until one fails.
    fn first_failure(
        &mut self,
        mut next: impl FnMut() -> Option<Sequence>,
    ) -> io::Result<Option<(Sequence, Failure)>> {
        let mut found: Option<(Sequence, Failure)> = None;
        let sequences = &mut self.results.sequences;
        let is_found = std::cell::Cell::new(false);
        let job = || {
            // Those at work come to their ends: they need not be played again.
            let sequence = (!is_found.get()).then(&mut next).flatten()?;
            Some(Job {
                sequence,
                patience: PATIENCE,
            })
        };
        self.pool.run(usize::MAX, Some(self.end), job, |job, failure| {
            *sequences += 1;
            let Some(failure) = failure else {
                return Flow::GoOn;
            };
            is_found.set(true);
            let is_certain = failure.cause.counts_at_once();
            if is_certain || found.is_none() {
                found = Some((job.sequence, failure));
            }
            if is_certain { Flow::Stop } else { Flow::GoOn }
        })?;
        Ok(found)
    }

    /// Whether a failure is none that a busy machine brings about: it comes again when nothing else is played.
    fn is_certain(&mut self, sequence: &Sequence, failure: &Failure) -> io::Result<bool> {
        if failure.cause.counts_at_once() {
            return Ok(true);
        }
        for _ in 0..ALONE {
            if self.tries(sequence, failure, 1, PATIENCE_ALONE)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Plays a sequence so many times, and counts the failures of the same cause. Ends with the first one if the number of
    /// them does not matter.
    fn tries(
        &mut self,
        sequence: &Sequence,
        like: &Failure,
        times: u64,
        patience: Duration,
    ) -> io::Result<u64> {
        let mut left = times;
        let mut failures = 0;
        let next = || {
            left = left.checked_sub(1)?;
            Some(Job {
                sequence: sequence.clone(),
                patience,
            })
        };
        self.pool.run(width(like), None, next, |_, failure| {
            failures += u64::from(failure.is_some_and(|failure| failure.cause == like.cause));
            Flow::GoOn
        })?;
        Ok(failures)
    }

    /// Plays a sequence until it fails of the same cause, so many times at most.
    fn fails(
        &mut self,
        sequence: &Sequence,
        like: &Failure,
        times: u64,
    ) -> io::Result<Option<Failure>> {
        let mut left = times;
        let mut found = None;
        let next = || {
            left = left.checked_sub(1)?;
            Some(Job {
                sequence: sequence.clone(),
                patience: PATIENCE,
            })
        };
        self.pool.run(width(like), None, next, |_, failure| match failure {
            Some(failure) if failure.cause == like.cause => {
                found = Some(failure);
                Flow::Stop
            }
            _ => Flow::GoOn,
        })?;
        Ok(found)
    }

    /// Shrinks what was found, within the time.
    fn conclude(mut self, found: Option<(Sequence, Failure)>) -> io::Result<Results> {
        self.results.searched = self.start.elapsed();
        let Some((original, mut failure)) = found else {
            return Ok(self.results);
        };
        let found_after = self.start.elapsed();
        let failures = self.tries(&original, &failure, MEASURED, PATIENCE)?;
        // A part that fails as often as the whole is missed once in a hundred times.
        let tries = match failures {
            MEASURED => 1,
            0 => MOST_TRIES,
            some => (5 * MEASURED / some).min(MOST_TRIES),
        };
        let mut shortest = original.clone();
        let mut actions = std::mem::take(&mut shortest.actions);
        let end = self.end;
        let is_shrunk = shrink(&mut actions, end, |part| {
            let part = Sequence {
                actions: part.to_vec(),
                ..shortest.clone()
            };
            let fails = self.fails(&part, &failure, tries)?;
            Ok(fails.map(|fails| failure = fails).is_some())
        })?;
        shortest.actions = actions;
        let fails = (
            self.tries(&shortest, &failure, MEASURED, PATIENCE)?,
            MEASURED,
        );
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
