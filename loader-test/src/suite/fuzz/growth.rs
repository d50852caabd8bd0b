//! Plays a sequence repeatedly in one process, to find leaks.

use std::time::{Duration, Instant};

use super::round::round;
use crate::stand_in::StandIn;
use crate::stand_in::ledger::Violation;
use crate::stand_in::sequence::{Action, SaMood};

/// Rounds until caches and pools are full.
const WARM_UP: usize = 2;
/// First rounds, all of which must lose memory before more are played.
const SUSPECTS: usize = 3;
/// Further rounds, and how many of them must lose memory. Slowly filling or fluctuating caches grow in a third of the
/// rounds.
const ROUNDS: usize = 32;
const LOSING: usize = 30;
/// Bytes above noise.
const LOST: usize = 32;
/// Time limit for threads to free their memory.
const PATIENCE: Duration = Duration::from_millis(30);

/// Plays the sequence several times; returns the violations, or the loss per round.
pub(super) fn play(core: &mut StandIn, actions: &[Action]) -> Result<Vec<Violation>, String> {
    // MADs that never come back stay in the ledgers of provider and core.
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
            "heap lost in {gains} of {} rounds, {} bytes per round on average",
            SUSPECTS + ROUNDS,
            before.saturating_sub(start) / gains
        )),
        false => Ok(violations),
    }
}

/// Waits until the used heap is below `limit`, but not for long; returns its size.
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
