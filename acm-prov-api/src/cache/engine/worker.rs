//! A port's own thread, for deadlines. It waits for nothing else.

use std::time::Duration;

use super::{Shared, State, reply};
use crate::cache::lookups::Replies;
use crate::clock::Moment;
use crate::door;
use crate::followed::TICK;
use crate::sync::{Arc, MutexGuard};

/// How long a thread rests after a turn that panicked.
pub(super) const AFTER_A_PANIC: Duration = Duration::from_secs(1);

/// Runs until the port is closed.
pub(super) fn run(shared: &Arc<Shared>) {
    let host = *shared.port.host();
    loop {
        // A panic ends one turn, not the deadlines of everybody.
        match door::enter("thread of a port", Some(&host), None, || {
            Ok(Some(turn(shared)))
        }) {
            Some(true) => {}
            Some(false) => break,
            None => {
                // One that repeats itself must fill neither the log nor a processor.
                let mut state = shared.state.lock();
                if state.closed {
                    break;
                }
                shared.wake.wait_for(&mut state, AFTER_A_PANIC);
            }
        }
    }
}

/// Does what is due and waits for what comes next; false once the port is closed.
fn turn(shared: &Arc<Shared>) -> bool {
    let mut state = shared.state.lock();
    if state.closed {
        return false;
    }
    let now = Moment::now();
    let mut replies = state.lookups.expire(now);
    let line = watch_silence(shared, &mut state, now, &mut replies);
    let looks_at_sm_lid = state.health.is_silent() && state.sm_lid_at <= now;
    if looks_at_sm_lid {
        state.sm_lid_at = now.after(TICK);
    }
    drop(state);
    shared.tell(line);
    reply(shared.port.host(), replies);
    if looks_at_sm_lid {
        shared.watch_sm_lid();
    }
    // Something that rested may be sendable.
    shared.send();
    let mut state = shared.state.lock();
    state.wakes_at = next_turn(shared, &state);
    let wait = state.wakes_at.since(Moment::now());
    if state.closed || wait == 0 {
        return !state.closed;
    }
    wait_for(shared, &mut state, wait);
    true
}

fn wait_for(shared: &Shared, state: &mut MutexGuard<'_, State>, wait: u64) {
    if state.wakes_at == Moment::NEVER {
        shared.wake.wait(state);
    } else {
        shared.wake.wait_for(state, Duration::from_millis(wait));
    }
}

/// A query that does not come back at all shows a silent SA as well as one that times out. Gives the line to be logged.
fn watch_silence(
    shared: &Shared,
    state: &mut State,
    now: Moment,
    replies: &mut Replies<super::Waiter>,
) -> Option<String> {
    let was_silent = state.health.is_silent();
    let message = match overdue(shared, state) {
        Some((sent, due)) if due <= now => state.health.overdue(now, sent),
        _ => state.health.poll(now),
    };
    let pkey = state
        .endpoints
        .values()
        .next()
        .map(|endpoint| endpoint.source.pkey)
        .unwrap_or_default();
    let line = shared.line(state, pkey, message);
    if state.health.is_silent() && !was_silent {
        replies.extend(state.lookups.answer_stale(now));
    }
    line
}

/// When the query that is out for longest was sent, and when it is overdue: one timeout after the core should have
/// brought it back, so that it can say itself how it ended.
fn overdue(shared: &Shared, state: &State) -> Option<(Moment, Moment)> {
    let limits = &shared.settings.lookups;
    let sent = state.lookups.oldest_out()?;
    let due = sent.after(limits.patience()).after(limits.timeout);
    state.health.would_tell(sent).then_some((sent, due))
}

fn next_turn(shared: &Shared, state: &State) -> Moment {
    [
        state.lookups.next_deadline(),
        state.health.next_poll(),
        overdue(shared, state).map(|(_, due)| due),
        state.health.is_silent().then_some(state.sm_lid_at),
        state.earlier_until,
    ]
    .into_iter()
    .flatten()
    .min()
    .unwrap_or(Moment::NEVER)
}
