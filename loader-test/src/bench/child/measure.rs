//! The measurements of each case.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::{FLUSH, Run, START};
use crate::bench::case::{Case, DUMP_HOSTS};
use crate::bench::machine::{self, Memory};
use crate::bench::numbers;
use crate::bench::requests::{Requests, shuffled, single_requests};
use crate::stand_in::bare::Asked;

/// The provider whose capacity and flush options the bench knows.
const PATH_CACHE: &str = "path-cache";
/// One of this many requests misses, while responses arrive on another thread.
const MISS_EVERY: u32 = 64;
/// Number of single misses to time.
const MISSES: u32 = 2000;

impl Run<'_> {
    /// Measures a case after the first request was answered.
    pub(super) fn filled(&mut self, requests: &mut Requests) -> Result<(), String> {
        let count = self.plan.destinations;
        if self.plan.case == Case::Flush && !self.flushes(requests)? {
            return Ok(());
        }
        let order = shuffled(count);
        requests.fill(&order[..1])?;
        let before = Memory::now();
        let cold = requests.fill(&order[1..])?;
        let after = Memory::now();
        match self.plan.case {
            Case::Churn => return self.churn(requests),
            Case::Threads => return self.threads(requests),
            Case::Flush => return self.flush(requests),
            _ => {}
        }
        let growth = |after: u64, before: u64| {
            after.saturating_sub(before) as f64 / f64::from(count - 1).max(1.0)
        };
        self.figure("cold", cold);
        self.figure("rss", growth(after.rss, before.rss));
        self.figure("used", growth(after.used, before.used));
        self.hits(requests)?;
        if self.plan.case == Case::Gid {
            self.misses(requests)?;
        }
        let closed = requests.core.close();
        if self.plan.case == Case::Gid {
            self.figure("close", closed.as_nanos() as f64 / 1000.0);
        }
        Ok(())
    }

    fn hits(&mut self, requests: &mut Requests) -> Result<(), String> {
        let (time, count) = (self.time(), self.plan.destinations);
        let queries = requests.core.path_queries();
        let hit = requests.rate(time, |requests| requests.any(count))?;
        let singles = single_requests(time);
        let (p50, p99) = requests.singles(singles, |requests| requests.any(count))?;
        let queries = requests.core.path_queries() - queries;
        self.figure("hit", hit);
        self.figure("hit-p50", p50);
        self.figure("hit-p99", p99);
        if queries > 0 {
            let remark = format!("{queries} of the hits caused an SA query");
            self.found.remarks.push(remark);
        }
        Ok(())
    }

    fn misses(&mut self, requests: &mut Requests) -> Result<(), String> {
        let (time, count) = (self.time(), self.plan.destinations);
        let mut fresh = count..count * 2;
        let most = MISSES.min(count / 2) as usize;
        let (p50, p99) = requests.singles(most, |_| fresh.next().unwrap_or(0))?;
        self.figure("miss-p50", p50);
        self.figure("miss-p99", p99);
        let mut turn = 0_u32;
        // Without fresh destinations the figure would be that of hits.
        let short = time.min(Duration::from_micros(u64::from(count) * 5));
        let mixed = requests.rate(short, |requests| {
            turn += 1;
            match turn % 100 {
                0 => fresh.next().unwrap_or_else(|| requests.any(count)),
                _ => requests.any(count),
            }
        })?;
        if fresh.is_empty() {
            // A batch has more misses than there are other destinations.
            return Ok(());
        }
        self.figure("one-percent-misses", mixed);
        Ok(())
    }

    fn churn(&mut self, requests: &mut Requests) -> Result<(), String> {
        let (time, count) = (self.time(), self.plan.destinations);
        let (queries, made) = (requests.core.path_queries(), requests.made);
        let churn = requests.rate(time, |requests| requests.any(count))?;
        let queries = (requests.core.path_queries() - queries) as f64;
        self.figure("churn", churn);
        self.figure("churn-queries", queries / (requests.made - made) as f64);
        if queries == 0.0 {
            let remark = "it cached all of them: it has no capacity limit, or none was set (--opt \"NAME @CAPACITY@\")";
            self.found.remarks.push(remark.into());
        }
        Ok(())
    }

    /// Measures hits on this thread while another thread delivers responses, to misses and to queries that replace cached paths.
    fn threads(&mut self, requests: &mut Requests) -> Result<(), String> {
        let &[other, _, ..] = self.processors.as_slice() else {
            let remark = "only one processor: no thread runs beside the hits";
            self.found.remarks.push(remark.into());
            return Ok(());
        };
        let stop = AtomicBool::new(false);
        let sa = requests.core.sa();
        std::thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(move || {
                // On failure the thread shares a processor, which shows as spread.
                let _ = machine::pin(other);
                sa.pump_until(stop);
            });
            let result = self.hits_beside(requests);
            // All requests are answered before the core ends.
            let waited = requests.wait();
            stop.store(true, Ordering::Relaxed);
            result.and(waited)
        })
    }

    fn hits_beside(&mut self, requests: &mut Requests) -> Result<(), String> {
        const BATCH: usize = 256;
        let (time, count) = (self.time(), self.plan.destinations);
        let mut fresh = count..count * 2;
        let mut query = requests.query_message();
        let (mut batches, mut singles) = (Vec::new(), Vec::new());
        let begin = Instant::now();
        let (mut turn, mut asked_again) = (0_u32, 0);
        while begin.elapsed() < time * 2 && !fresh.is_empty() {
            let mut hits = Duration::ZERO;
            for _ in 0..BATCH / MISS_EVERY as usize {
                turn += 1;
                if turn.is_multiple_of(2) {
                    requests.ask(fresh.next().unwrap_or(0));
                } else {
                    let destination = requests.any(count);
                    requests.query(&mut query, destination);
                }
                let start = Instant::now();
                for _ in 0..MISS_EVERY {
                    let destination = requests.any(count);
                    asked_again += usize::from(requests.ask(destination) == Asked::Pending);
                }
                let took = start.elapsed();
                hits += took;
                singles.push(took.as_nanos() as u32 / MISS_EVERY);
            }
            batches.push(hits.as_nanos() as f64 / BATCH as f64);
        }
        singles.sort_unstable();
        let at = |percent| numbers::percentile(&singles, percent).map_or(0.0, f64::from);
        if let Some(hit) = numbers::median(&mut batches) {
            self.figure("hit", hit);
            self.figure("hit-p50", at(50.0));
            self.figure("hit-p99", at(99.0));
        }
        if asked_again > 0 {
            let remark = format!("{asked_again} of the hits caused an SA query");
            self.found.remarks.push(remark);
        }
        Ok(())
    }

    /// Whether the provider drops a path when the flush file is touched; adds a remark if not.
    fn flushes(&mut self, requests: &mut Requests) -> Result<bool, String> {
        let is_given = self.plan.line.iter().any(|line| line.contains(FLUSH));
        if !is_given && requests.core.provider_name() != PATH_CACHE {
            let remark = "it has no flush file, or none was set (--opt \"NAME @FLUSH@\")";
            self.found.remarks.push(remark.into());
            return Ok(false);
        }
        touch(&self.flush_file)?;
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if requests.ask(0) == Asked::Pending {
                requests.wait()?;
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let remark = format!("it did not flush within {START:?} of a touch of its flush file");
        self.found.remarks.push(remark);
        Ok(false)
    }

    fn flush(&mut self, requests: &mut Requests) -> Result<(), String> {
        let count = self.plan.destinations;
        let begin = Instant::now();
        // A provider polls its flush file every second.
        let quiet_time = Duration::from_millis(500).min(self.time() * 2);
        let quiet = requests.longest(count, |_, _| begin.elapsed() < quiet_time)?;
        self.figure("quiet-pause", quiet);
        touch(&self.flush_file)?;
        let begin = Instant::now();
        let mut missed: Option<Instant> = None;
        let after = Duration::from_millis(50);
        let pause = requests.longest(count, |_, asked| {
            if asked == Asked::Pending {
                missed.get_or_insert_with(Instant::now);
            }
            begin.elapsed() < START && missed.is_none_or(|first| first.elapsed() < after)
        })?;
        match missed {
            Some(_) => self.figure("pause", pause),
            None => self
                .found
                .remarks
                .push(format!("it did not flush within {START:?}")),
        }
        Ok(())
    }

    pub(super) fn preload(
        &mut self,
        requests: &mut Requests,
        begin: Instant,
        longest: Duration,
    ) -> Result<(), String> {
        // The SA does not respond to path queries: all answers come from the dump.
        requests.core.hold_path_queries();
        let mut held = longest;
        let deadline = begin + START;
        let mut next = (0..DUMP_HOSTS).cycle();
        let waits = Duration::from_millis(200);
        'ready: loop {
            requests.core.pump();
            let asked = Instant::now();
            requests.ask(next.next().unwrap_or(0));
            held = held.max(asked.elapsed());
            // The provider may keep the request until it has read the dump.
            while asked.elapsed() < waits {
                if requests.core.is_answered() {
                    break 'ready;
                }
                requests.core.pump();
                std::thread::yield_now();
            }
            if Instant::now() > deadline {
                self.found
                    .remarks
                    .push("it answers nothing from the dump".into());
                return Ok(());
            }
        }
        if requests.core.tally().refused > 0 {
            self.found
                .remarks
                .push("it refuses destinations of the dump".into());
            return Ok(());
        }
        self.figure("ready", begin.elapsed().as_nanos() as f64 / 1e6);
        self.figure("held", held.as_nanos() as f64 / 1e6);
        let hit = requests.rate(self.time(), |requests| requests.any(DUMP_HOSTS))?;
        self.figure("hit", hit);
        Ok(())
    }
}

fn touch(file: &Path) -> Result<(), String> {
    // Set a different time, whatever the file system's resolution.
    let later = fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .unwrap_or(SystemTime::UNIX_EPOCH)
        + Duration::from_secs(2);
    fs::File::options()
        .write(true)
        .open(file)
        .and_then(|file| file.set_modified(later))
        .map_err(|error| format!("{}: {error}", file.display()))
}
