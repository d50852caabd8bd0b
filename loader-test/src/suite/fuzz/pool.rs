//! Plays sequences in several concurrent processes.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::fork::{self, Copy, Ended};
use super::orders::{Cause, Failure, Sequence};
use super::part::{self, Part};
use super::stage::Stage;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::recorder;

/// The sequences for one process.
pub(super) struct Job {
    /// The sequences, one after the other until one fails.
    pub sequences: Vec<Sequence>,
    /// How long a request may stay unanswered past its deadline before it counts as lost.
    pub patience: Duration,
}

/// The result of a job.
pub(super) struct Played {
    /// Number of completed sequences.
    pub sequences: u64,
    /// The last one, if it failed, with those before it.
    pub failed: Option<(Sequence, Failure)>,
    /// The sequences that were not played.
    pub left: Vec<Sequence>,
}

/// Whether a pool continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Continue with the next jobs.
    GoOn,
    /// Stop, and kill running jobs.
    Stop,
}

/// A pool of processes.
pub(super) struct Pool {
    stage: Stage,
    slots: Vec<Slot>,
}

struct Slot {
    folder: PathBuf,
    work: Option<Work>,
}

struct Work {
    job: Job,
    copy: Copy,
    deadline: Instant,
}

impl Pool {
    /// Creates a pool for `width` concurrent jobs, with their files in `folder`.
    ///
    /// # Errors
    /// If the folders cannot be created.
    pub(super) fn new(stage: Stage, jobs: usize, folder: &Path) -> io::Result<Self> {
        let slots = (0..jobs).map(|number| {
            let folder = folder.join(format!("slot-{number}"));
            fs::create_dir(&folder)?;
            Ok(Slot { folder, work: None })
        });
        let slots = slots.collect::<io::Result<_>>()?;
        Ok(Self { stage, slots })
    }

    /// Returns the number of concurrent jobs.
    pub(super) fn width(&self) -> usize {
        self.slots.len()
    }

    /// Plays the jobs from `next`, at most `width` at a time, and passes each result to `ended`. Kills the jobs still running at
    /// `end`, unless none has ended yet.
    ///
    /// # Errors
    /// The harness failed.
    pub(super) fn run(
        &mut self,
        width: usize,
        end: Option<Instant>,
        mut next: impl FnMut() -> Option<Job>,
        mut ended: impl FnMut(Played) -> Flow,
    ) -> io::Result<()> {
        let mut is_any_over = false;
        loop {
            let now = Instant::now();
            if is_any_over && end.is_some_and(|end| end <= now) {
                self.slots.iter_mut().for_each(|slot| slot.work = None);
                return Ok(());
            }
            let Self { stage, slots } = self;
            let width = width.clamp(1, slots.len());
            let slots = &mut slots[..width];
            for slot in slots.iter_mut().filter(|slot| slot.work.is_none()) {
                let Some(job) = next() else { break };
                slot.start(stage, job)?;
            }
            let ends: Vec<_> = slots
                .iter()
                .filter_map(|slot| Some(slot.work.as_ref()?.copy.as_fd()))
                .collect();
            if ends.is_empty() {
                return Ok(());
            }
            let works = slots.iter().filter_map(|slot| slot.work.as_ref());
            let deadlines = works.map(|work| work.deadline);
            let first = deadlines.chain(end.filter(|_| is_any_over)).min();
            let left = first.map_or(Duration::ZERO, |first| first.saturating_duration_since(now));
            fork::wait_for_any(&ends, left)?;
            for slot in slots.iter_mut() {
                let Some(played) = slot.end()? else {
                    continue;
                };
                is_any_over = true;
                if ended(played) == Flow::Stop {
                    slots.iter_mut().for_each(|slot| slot.work = None);
                    return Ok(());
                }
            }
        }
    }
}

impl Slot {
    fn start(&mut self, stage: &Stage, job: Job) -> io::Result<()> {
        let limit = part::time_limit(&job);
        let copy = fork::start(|| part::play(stage, &job, &self.folder))?;
        let deadline = Instant::now() + limit;
        self.work = Some(Work {
            job,
            copy,
            deadline,
        });
        Ok(())
    }

    /// Returns the job's result, if it ended or a sequence exceeded its time limit.
    fn end(&mut self) -> io::Result<Option<Played>> {
        let Some(work) = &mut self.work else {
            return Ok(None);
        };
        let ended = work.copy.ended()?;
        let now = Instant::now();
        if ended.is_none() && now < work.deadline {
            return Ok(None);
        }
        let (index, since) = part::at(&self.folder);
        let left = part::time_limit(&work.job).saturating_sub(since);
        if ended.is_none() && !left.is_zero() {
            // The place in an earlier sequence no longer counts.
            work.deadline = now + left;
            return Ok(None);
        }
        let Some(Work { mut job, .. }) = self.work.take() else {
            return Ok(None);
        };
        let failure = self.judge(ended, &job)?;
        part::forget(&self.folder);
        let Some(failure) = failure else {
            return Ok(Some(Played {
                sequences: job.sequences.len() as u64,
                failed: None,
                left: Vec::new(),
            }));
        };
        let index = index.min(job.sequences.len() - 1);
        let left = job.sequences.split_off(index + 1);
        let mut sequence = job.sequences.remove(index);
        let before = job.sequences.iter();
        sequence.after.extend(before.map(|earlier| earlier.seed));
        Ok(Some(Played {
            sequences: index as u64 + 1,
            failed: Some((sequence, failure)),
            left,
        }))
    }

    fn judge(&self, ended: Option<Ended>, job: &Job) -> io::Result<Option<Failure>> {
        let place = recorder::last_call(&self.folder)
            .map(|place| format!(", {place}"))
            .unwrap_or_default();
        let (cause, seen) = match ended {
            Some(Ended::Exit(part::PLAYED)) => match part::result(&self.folder) {
                Some(Part::Passed) => return Ok(None),
                Some(Part::Failed(mut failure)) => {
                    failure.log = recorder::last_lines(&self.folder);
                    failure.output = part::output(&self.folder);
                    return Ok(Some(failure));
                }
                Some(Part::Trouble(trouble)) => return Err(io::Error::other(trouble)),
                // The provider ended the process with the same code.
                None => ended_by_itself(part::PLAYED, &place),
            },
            Some(Ended::Exit(fork::PANICKED)) => (
                Cause::Panic,
                format!(
                    "the harness panicked{place}: {}",
                    part::output(&self.folder)
                ),
            ),
            Some(Ended::Exit(code)) => ended_by_itself(code, &place),
            Some(Ended::Signal(name)) => (
                Cause::Signal(name.clone()),
                format!("the process was ended by {name}{place}"),
            ),
            None => (
                Cause::Hangs,
                format!("timed out after {:?}{place}", part::time_limit(job)),
            ),
        };
        Ok(Some(Failure {
            cause,
            message: format!("expected: the sequence to end\nseen: {seen}"),
            harmed: Harmed::Daemon,
            log: recorder::last_lines(&self.folder),
            output: part::output(&self.folder),
        }))
    }
}

fn ended_by_itself(code: i32, place: &str) -> (Cause, String) {
    (
        Cause::Exit(code),
        format!("the process was ended with exit code {code}{place}"),
    )
}
