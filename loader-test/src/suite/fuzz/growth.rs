//! Plays a sequence again and again in one process, to see whether memory is lost each time.

use std::time::{Duration, Instant};

use super::round::round;
use crate::stand_in::StandIn;
use crate::stand_in::ledger::Violation;
use crate::stand_in::sequence::{Action, SaMood};

/// Rounds until caches and pools are full.
const WARM_UP: usize = 2;
/// Rounds that must all lose memory before it is looked into.
const SUSPECTS: usize = 3;
/// Rounds that are played then, and how many of them must lose memory. What fills up slowly, or comes and goes, grows in a
/// third of the rounds.
const ROUNDS: usize = 32;
const LOSING: usize = 30;
/// Bytes that are no chance.
const LOST: usize = 32;
/// How long threads may take to give back what they have.
const PATIENCE: Duration = Duration::from_millis(30);

/// Plays the sequence several times; the violations, or how much memory is lost each time.
pub(super) fn play(core: &mut StandIn, actions: &[Action]) -> Result<Vec<Violation>, String> {
    // What never comes back stays in the books of provider and core.
    let actions: Vec<Action> = actions
        .iter()
        .filter(|action| **action != Action::Sa(SaMood::Never))
        .cloned()
        .collect();
    let mut violations = Vec::new();
    for _ in 0..WARM_UP {
        violations.append(&mut round(core, &actions));
    }
    let start = heap();
    let mut before = start;
    let mut gains = 0;
    for number in 0..SUSPECTS + ROUNDS {
        violations.append(&mut round(core, &actions));
        let now = settled_heap(before + LOST);
        gains += usize::from(now >= before + LOST);
        before = now;
        if !violations.is_empty() || number < SUSPECTS && gains <= number {
            return Ok(violations);
        }
    }
    match gains >= SUSPECTS + LOSING {
        true => Err(format!(
            "heap lost in {gains} of {} rounds, {} bytes in each by the average",
            SUSPECTS + ROUNDS,
            before.saturating_sub(start) / gains
        )),
        false => Ok(violations),
    }
}

/// What of the heap is in use, once it is below `limit` or after a while.
fn settled_heap(limit: usize) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = heap();
        if now < limit || Instant::now() > deadline {
            return now;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn heap() -> usize {
    // SAFETY: fills a struct of numbers.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
