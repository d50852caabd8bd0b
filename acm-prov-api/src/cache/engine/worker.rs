//! A port's thread for deadlines. It must not block on anything else.

use std::time::Duration;

use super::{Shared, State};
use crate::address::PKey;
use crate::clock::Moment;
use crate::host::guard;
use crate::sync::Arc;
use crate::text::watched_file::TICK;

/// How long a thread rests after a turn that panicked.
pub(super) const AFTER_A_PANIC: Duration = Duration::from_secs(1);

/// Runs until the port is closed.
pub(super) fn run(shared: &Arc<Shared>) {
    let host = *shared.port.host();
    loop {
        // A panic ends one turn, not the thread.
        match guard::enter("thread of a port", Some(&host), None, || {
            Ok(Some(turn(shared)))
        }) {
            Some(true) => {}
            Some(false) => break,
            None => {
                // A repeated panic must neither fill the log nor use up a CPU.
                let mut state = shared.state.lock();
                if state.closed {
                    break;
                }
                state.wait(&shared.wake, Some(AFTER_A_PANIC));
            }
        }
    }
}

/// Does what is due and waits for what comes next; false once the port is closed.
fn turn(shared: &Arc<Shared>) -> bool {
    let now = Moment::now();
    let looks_at_sm_lid = {
        let mut state = shared.state.lock();
        for endpoint in state.endpoints.values() {
            if endpoint.store.next_tick().is_some_and(|at| at <= now) {
                endpoint.store.tick(now);
            }
        }
        state.paths.expire(now);
        state.qos.lookups.expire(now);
        state.files.expire(now);
        state.parked.expire(now);
        state.renew(shared, now);
        let message = state.health.poll(now);
        let pkey = state.endpoints.values().next();
        let pkey = pkey.map_or(PKey::default(), |endpoint| endpoint.source.pkey);
        state.report_health(shared, pkey, message);
        let looks = state.health.is_silent() && state.sm_lid_at <= now;
        if looks {
            state.sm_lid_at = now.after(TICK);
        }
        looks
    };
    if looks_at_sm_lid {
        shared.watch_sm_lid();
    }
    let mut state = shared.state.lock();
    if state.closed {
        return false;
    }
    // Keep an earlier wake-up even if its cause has gone: otherwise each request that is answered at once would wake
    // this thread again.
    let asked_for = state.wakes_at;
    state.wakes_at = next_turn(&state);
    if asked_for > now {
        state.wakes_at = state.wakes_at.min(asked_for);
    }
    match state.wakes_at.since(Moment::now()) {
        0 => {}
        _ if state.wakes_at == Moment::NEVER => state.wait(&shared.wake, None),
        wait => state.wait(&shared.wake, Some(Duration::from_millis(wait))),
    }
    !state.closed
}

fn next_turn(state: &State) -> Moment {
    let health = [
        state.health.next_poll(),
        state.health.is_silent().then_some(state.sm_lid_at),
    ];
    health
        .into_iter()
        .flatten()
        .fold(state.next_due(), Moment::min)
}
