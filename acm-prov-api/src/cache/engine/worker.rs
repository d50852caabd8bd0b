//! A port's own thread: deadlines, the file that flushes, and files that are followed.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{Shared, State, reply};
use crate::cache::lookups::Replies;
use crate::clock::Moment;
use crate::door;
use crate::followed::TICK;
use crate::host::LogLevel;
use crate::sync::{Arc, MutexGuard};

/// How often the flush file is looked at, in milliseconds.
const FLUSH_TICK: u64 = 500;

/// How long the thread rests after a turn that panicked.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);

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
    shared.state.lock().thread_has_ended = true;
    shared.thread_ended.notify_all();
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
    let due = Due::take(shared, &mut state, now);
    drop(state);
    shared.tell(line);
    reply(shared.port.host(), replies);
    if due.sm_lid {
        shared.watch_sm_lid();
    }
    if due.flush {
        flush_if_touched(shared);
    }
    if due.look {
        look(shared, now);
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

/// What is to be looked at with no lock held: it can take long.
struct Due {
    sm_lid: bool,
    flush: bool,
    look: bool,
}

impl Due {
    fn take(shared: &Shared, state: &mut State, now: Moment) -> Self {
        let is_due = |wanted: bool, at: &mut Moment, pause| {
            let due = wanted && *at <= now;
            if due {
                *at = now.after(pause);
            }
            due
        };
        Self {
            sm_lid: is_due(state.health.is_silent(), &mut state.sm_lid_at, TICK),
            flush: is_due(
                shared.settings.flush_file.is_some(),
                &mut state.flush_at,
                FLUSH_TICK,
            ),
            look: is_due(follows(shared), &mut state.looks_at, TICK),
        }
    }
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

fn follows(shared: &Shared) -> bool {
    shared.preload.is_some() || !shared.followed.lock().is_empty()
}

/// Looks after the operator's files, with no lock held: they can be long.
fn look(shared: &Shared, now: Moment) {
    let followed = shared.followed.lock().clone();
    let mut told: Vec<String> = followed.iter().flat_map(|file| file.look(now)).collect();
    told.extend(shared.preload.iter().flat_map(|preload| preload.look(now)));
    for line in told {
        shared
            .port
            .host()
            .log(LogLevel::ALWAYS, format_args!("{line}"));
    }
}

fn next_turn(shared: &Shared, state: &State) -> Moment {
    let flush = shared.settings.flush_file.as_ref().map(|_| state.flush_at);
    [
        state.lookups.next_deadline(),
        state.health.next_poll(),
        overdue(shared, state).map(|(_, due)| due),
        state.health.is_silent().then_some(state.sm_lid_at),
        state.earlier_until,
        flush,
        follows(shared).then_some(state.looks_at),
    ]
    .into_iter()
    .flatten()
    .min()
    .unwrap_or(Moment::NEVER)
}

/// When the file was last changed; `None` while there is none.
pub(super) fn touched(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .ok()
}

fn flush_if_touched(shared: &Shared) {
    let Some(file) = shared.settings.flush_file.as_deref() else {
        return;
    };
    let touched = touched(file);
    let mut state = shared.state.lock();
    // A file that vanishes flushes nothing.
    if touched.is_none() || touched == state.flushed {
        return;
    }
    state.flushed = touched;
    let mut answers = 0;
    for endpoint in state.endpoints.values() {
        let mut store = endpoint.store.lock();
        answers += store.len();
        store.clear();
    }
    state.lookups.supersede();
    drop(state);
    shared.port.host().log(
        LogLevel::ALWAYS,
        format_args!(
            "port {}: {} was touched: flushed {answers} paths",
            shared.port.number(),
            file.display()
        ),
    );
}
