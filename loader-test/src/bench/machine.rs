//! The system's statistics of this process and of the processors.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the processors that this thread may use, from 0.
pub fn processors() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect(),
        Err(_) => Vec::new(),
    }
}

/// Binds this thread to one processor.
///
/// # Errors
/// If the system does not allow it.
pub fn pin(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

/// The disturbances of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbance {
    /// Involuntary context switches of this thread.
    switches: u64,
    /// Clock ticks of all processors: stolen by a hypervisor, and total.
    stolen: u64,
    ticks: u64,
}

impl Disturbance {
    /// Returns the counts so far.
    pub fn so_far() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::read(&status, &stat)
    }

    fn read(status: &str, stat: &str) -> Self {
        let switches = status
            .lines()
            .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))
            .and_then(|count| count.trim().parse().ok());
        let ticks: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .filter_map(|ticks| ticks.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal; what follows is part of user.
        const STEAL: usize = 7;
        Self {
            switches: switches.unwrap_or(0),
            stolen: ticks.get(STEAL).copied().unwrap_or(0),
            ticks: ticks.iter().take(STEAL + 1).sum(),
        }
    }

    /// Returns the involuntary context switches and the stolen part of all processor time since then.
    pub fn since(&self) -> (u64, f64) {
        let now = Self::so_far();
        let ticks = now.ticks.saturating_sub(self.ticks).max(1);
        (
            now.switches.saturating_sub(self.switches),
            now.stolen.saturating_sub(self.stolen) as f64 / ticks as f64,
        )
    }
}

/// Returns how long this thread has waited for a processor.
pub fn waited() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    waited_of(&text)
}

/// Returns the second number of a schedstat, in nanoseconds.
fn waited_of(text: &str) -> Duration {
    let waited = text
        .split_whitespace()
        .nth(1)
        .and_then(|ns| ns.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

/// The memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident, in bytes.
    pub rss: u64,
    /// Allocated from malloc, and mapped without it, in bytes.
    pub used: u64,
}

impl Memory {
    /// Returns the current values.
    pub fn now() -> Self {
        const PAGE: u64 = 4096;
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = statm
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<u64>().ok());
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        // SAFETY: mallinfo2 only reads the allocator's statistics.
        let malloc = unsafe { libc::mallinfo2() };
        let by_malloc = (malloc.arena + malloc.hblkhd) as u64;
        let mapped = anonymous(&maps).saturating_sub(by_malloc);
        Self {
            rss: resident.unwrap_or(0) * PAGE,
            used: (malloc.uordblks + malloc.hblkhd) as u64 + mapped,
        }
    }
}

/// Returns the bytes of private, writable, anonymous memory.
fn anonymous(maps: &str) -> u64 {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let (access, inode) = (words.next()?, words.nth(2)?);
        if access != "rw-p" || inode != "0" {
            return None;
        }
        let number = |text| u64::from_str_radix(text, 16).ok();
        number(to)?.checked_sub(number(from)?)
    };
    maps.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbances_are_read() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t5\n";
        let stat = "cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3\n";
        let read = Disturbance::read(status, stat);
        assert_eq!((read.switches, read.stolen, read.ticks), (5, 35, 1000));
        assert_eq!(Disturbance::read("", "").ticks, 0);
    }

    #[test]
    fn the_wait_for_a_processor_is_read() {
        assert_eq!(waited_of("123 4567 8\n"), Duration::from_nanos(4567));
        assert_eq!(waited_of(""), Duration::ZERO);
    }

    #[test]
    fn anonymous_memory_is_what_has_no_file() {
        let maps = "1000-3000 rw-p 00000000 00:00 0          [heap]\n\
                    5000-6000 r--p 00000000 08:01 77         /lib/x.so\n\
                    6000-7000 rw-p 00001000 08:01 77         /lib/x.so\n\
                    8000-9000 ---p 00000000 00:00 0 \n\
                    a000-b000 rw-p 00000000 00:00 0 \n";
        assert_eq!(anonymous(maps), 0x3000);
    }

    #[test]
    fn what_is_allocated_shows() {
        let before = Memory::now();
        let block = vec![1_u8; 8 << 20];
        let after = Memory::now();
        assert!(
            after.used >= before.used + (8 << 20),
            "{before:?} {after:?}"
        );
        drop(block);
    }
}
