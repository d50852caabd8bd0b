//! What a port that flaps for ever costs.

use std::fs;
use std::time::{Duration, Instant};

use super::serves;
use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::suite::fixture::{Fixture, refused};
use crate::suite::process::threads::{newer_than, threads};
use crate::suite::{Outcome, cannot_run, failed};

const ROUNDS: usize = 1000;
/// What leaks does so in every window. Caches and pools fill up: sooner or later they come to rest.
const WINDOW: usize = 200;
/// Rounds until which they have the time.
const MOST_ROUNDS: usize = 2000;
/// Every so many rounds all MADs come back, joins for one, and a request is made. Each time costs the machine several
/// changes between threads.
const SERVED: usize = 20;
/// How often is written down what the process has, for a provider that is too slow for a window.
const SAMPLED: usize = 5;
/// How long threads and descriptors may take to go.
const PATIENCE: Duration = Duration::from_millis(200);

/// What glibc must be told before the process starts, so that memory in its caches does not count as in use: each thread
/// keeps what it freed in a cache of its own, and how full those are says nothing about the provider.
pub(super) const ENVIRONMENT: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// What the process has. In this process everything else is constant: the core empties its ledger after each round.
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

    /// What has grown by more than chance since `before`, a window ago.
    fn growth_since(self, before: Self) -> Option<(&'static str, usize)> {
        const KIB: usize = 1024;
        // Those that bring memory along with them first.
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
    // A provider may read its files at each open: that is not what this is about, and there is little to read.
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
            "; {} should have ended with a close, {first} for one",
            left.len()
        );
    }
    Err(failed(
        format!("{WINDOW} rounds without growth among {MOST_ROUNDS}"),
        seen,
    ))
}

/// Judges the rounds of a provider so slow that there was no time for more: what leaks does so in every quarter of them but
/// the first, in which caches fill.
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

/// Bytes of the heap that are in use.
pub(in crate::suite) fn heap() -> usize {
    // SAFETY: fills a struct of numbers.
    let heap = unsafe { libc::mallinfo2() };
    heap.uordblks + heap.hblkhd
}

/// What has grown and does not go by itself.
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
