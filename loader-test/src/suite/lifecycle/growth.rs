//! What a port that flaps for ever costs.

use std::fs;
use std::time::{Duration, Instant};

use super::serves;
use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::DeviceSpec;
use crate::suite::bench::{Bench, refused};
use crate::suite::{Outcome, failed};

const ROUNDS: usize = 1000;
/// Rounds after which caches and pools have their size.
const WARM: usize = 200;
/// Every so many rounds a request is made: each costs the machine several changes between threads.
const SERVED: usize = 20;

/// What the process has. In this process everything else is constant: the core empties its books after each round.
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
        // SAFETY: fills a struct of numbers.
        let heap = unsafe { libc::mallinfo2() };
        let pages = |index| {
            fs::read_to_string("/proc/self/statm")
                .ok()
                .and_then(|text| text.split(' ').nth(index)?.parse::<usize>().ok())
                .unwrap_or(0)
                * 4096
        };
        let entries = |folder| fs::read_dir(folder).map_or(0, Iterator::count);
        Self {
            heap: heap.uordblks + heap.hblkhd,
            resident: pages(1),
            mapped: pages(0),
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
        }
    }

    /// What has grown by more than chance since `before`.
    fn growth_since(self, before: Self) -> Option<(&'static str, usize)> {
        const KIB: usize = 1024;
        let grown = [
            ("bytes of heap", self.heap, before.heap, 16 * KIB),
            (
                "bytes in memory",
                self.resident,
                before.resident,
                4096 * KIB,
            ),
            (
                "bytes of address space",
                self.mapped,
                before.mapped,
                256 * 1024 * KIB,
            ),
            ("descriptors", self.descriptors, before.descriptors, 0),
            ("threads", self.threads, before.threads, 0),
        ];
        grown
            .into_iter()
            .find(|(_, now, before, allowed)| *now > before + allowed)
            .map(|(what, now, before, _)| (what, now - before))
    }
}

pub(super) fn thousand(bench: &mut Bench) -> Outcome {
    let core = bench.core_with(vec![DeviceSpec::single()], &["log_level 0"])?;
    let mut before = Resources::now();
    for round in 0..ROUNDS {
        let from = core.up(FIRST_PORT).map_err(refused)?;
        if round == 0 {
            core.settle();
        }
        if round % SERVED == 0 {
            serves(core, from, 1)?;
        }
        core.port_down(FIRST_PORT);
        core.forget_history();
        if round == WARM {
            before = Resources::now();
        }
    }
    // Threads that are about to end are given the time.
    let deadline = Instant::now() + Duration::from_secs(2);
    while let Some((what, grown)) = Resources::now().growth_since(before) {
        if Instant::now() > deadline {
            let rounds = ROUNDS - WARM;
            return Err(failed(
                format!("no growth over {rounds} rounds"),
                format!("{grown} {what} more"),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
