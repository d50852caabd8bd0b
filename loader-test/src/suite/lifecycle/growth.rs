//! Checks that memory, descriptors and threads do not grow when a port is reopened.

use std::fs;
use std::time::{Duration, Instant};

use super::serves;
use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::suite::fixture::{Fixture, refused};
use crate::suite::process::threads::{newer_than, threads};
use crate::suite::{Outcome, cannot_run, failed};

const ROUNDS: usize = 1000;
/// Rounds per window. A leak grows in every window; caches and pools stop growing at some point.
const WINDOW: usize = 200;
/// Rounds after which caches and pools must have stopped growing.
const MOST_ROUNDS: usize = 2000;
/// Interval, in rounds, at which the SA returns all MADs, including joins, and a request is sent. Each costs several thread
/// switches.
const SERVED: usize = 20;
/// Interval, in rounds, of the samples for a provider that is too slow for a window.
const SAMPLED: usize = 5;
/// Time limit for threads and descriptors to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// glibc setting for the process: it disables the per-thread caches of freed memory, which would count as used memory and
/// say nothing about the provider.
pub(super) const ENVIRONMENT: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// Resources of the process. The rest of the process is constant: the core empties its ledger after each round.
#[derive(Clone, Copy, Debug)]
struct Resources {
    heap: usize,
    resident: usize,
    mapped: usize,
    descriptors: usize,
    threads: usize,
}

impl Resources {
    fn now() -> Self {
        let pages = |index| {
            fs::read_to_string("/proc/self/statm")
                .ok()
                .and_then(|text| text.split(' ').nth(index)?.parse::<usize>().ok())
                .unwrap_or(0)
                * 4096
        };
        let entries = |folder| fs::read_dir(folder).map_or(0, Iterator::count);
        Self {
            heap: heap(),
            resident: pages(1),
            mapped: pages(0),
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
        }
    }

    /// Returns the resource that grew by more than noise since `before`, one window ago.
    fn growth_since(self, before: Self) -> Option<(&'static str, usize)> {
        const KIB: usize = 1024;
        // First the resources that also take memory.
        let grown = [
            ("threads", self.threads, before.threads, 0),
            ("descriptors", self.descriptors, before.descriptors, 0),
            ("bytes of heap", self.heap, before.heap, 3 * KIB),
            (
                "bytes in memory",
                self.resident,
                before.resident,
                1024 * KIB,
            ),
            (
                "bytes of address space",
                self.mapped,
                before.mapped,
                64 * 1024 * KIB,
            ),
        ];
        grown
            .into_iter()
            .find(|(_, now, before, allowed)| *now > before + allowed)
            .map(|(what, now, before, _)| (what, now - before))
    }
}

pub(super) fn thousand(fixture: &mut Fixture) -> Outcome {
    // A provider may read its files at each open; a small hosts file keeps that short.
    let hosts = fixture.folder().join("few-hosts");
    let text = format!("peer1 {}\n", Peer::number(1).gid());
    fs::write(&hosts, text).map_err(cannot_run("a hosts file"))?;
    let hosts = format!("addr_data_file {}", hosts.display());
    let ends = fixture.deadline();
    let core = fixture.core_with(vec![DeviceSpec::single()], &["log_level 0", &hosts])?;
    let threads_before = threads();
    let mut before = Resources::now();
    let mut is_at_rest = false;
    let mut last_growth = None;
    let mut samples = Vec::new();
    for round in 0..=MOST_ROUNDS {
        let from = core.up(FIRST_PORT).map_err(refused)?;
        if round % SERVED == 0 {
            core.settle();
            serves(core, from, 1)?;
        }
        core.port_down(FIRST_PORT);
        core.forget_history();
        if round % WINDOW == 0 {
            last_growth = growth(before);
            is_at_rest |= round > 0 && last_growth.is_none();
            before = Resources::now();
        }
        if round >= ROUNDS && is_at_rest {
            return Ok(());
        }
        if Instant::now() > ends {
            return match is_at_rest {
                true => Ok(()),
                false => of_few(&samples),
            };
        }
        if round % SAMPLED == 0 {
            samples.push(Resources::now());
        }
    }
    let (what, grown) = last_growth.unwrap_or(("resources", 0));
    let mut seen = format!("{grown} {what} more in the last {WINDOW}");
    if what == "threads" {
        let left = newer_than(&threads_before);
        let first = left.first().map_or("", String::as_str);
        seen += &format!(
            "; {} should have ended with a close, such as {first}",
            left.len()
        );
    }
    Err(failed(
        format!("{WINDOW} rounds without growth among {MOST_ROUNDS}"),
        seen,
    ))
}

/// Judges the rounds of a slow provider whose time ran out: a leak grows in every quarter except the first, in which caches
/// fill.
fn of_few(samples: &[Resources]) -> Outcome {
    let quarter = samples.len() / 4;
    if quarter == 0 {
        return Ok(());
    }
    let rest = &samples[samples.len() - 1 - 3 * quarter..];
    let grown: Option<Vec<_>> = (0..3)
        .map(|index| rest[(index + 1) * quarter].growth_since(rest[index * quarter]))
        .collect();
    match grown.as_deref().and_then(<[_]>::last) {
        None => Ok(()),
        Some((what, grown)) => Err(failed(
            format!("rounds without growth among {}", samples.len() * SAMPLED),
            format!("{grown} {what} more in the last {}", quarter * SAMPLED),
        )),
    }
}

/// Returns the used bytes of the heap.
pub(in crate::suite) fn heap() -> usize {
    // SAFETY: fills a struct of numbers.
    let heap = unsafe { libc::mallinfo2() };
    heap.uordblks + heap.hblkhd
}

/// Returns what grew and does not shrink by itself.
fn growth(before: Resources) -> Option<(&'static str, usize)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let growth = Resources::now().growth_since(before);
        if growth.is_none() || Instant::now() > deadline {
            return growth;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
