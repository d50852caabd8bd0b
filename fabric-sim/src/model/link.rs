//! The cable at a port, with its [faults](super::link_faults).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock};

use super::data_path::{DataPath, Datagram, Nowhere};
use super::link_faults::{LinkCounts, LinkFaults, MAX_HELD, OVERTAKING};
use crate::report::report_once;

/// The cable at a port.
pub(super) struct Link(Arc<Shared>);

struct Shared {
    path: RwLock<Arc<dyn DataPath>>,
    state: Mutex<State>,
    /// Signals the timer thread that its next deadline changed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    faults: LinkFaults,
    chance: Chance,
    counts: LinkCounts,
    /// Held datagrams, by time to send and order of arrival.
    held: BTreeMap<Turn, Datagram>,
    /// Those of `held` that wait to be overtaken.
    to_be_overtaken: Vec<Turn>,
    next_number: u64,
    has_timer: bool,
    closed: bool,
}

type Turn = (Instant, u64);

impl Default for Link {
    fn default() -> Self {
        Self(Arc::new(Shared {
            path: RwLock::new(Arc::new(Nowhere)),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
        // The timer thread may keep the rest alive for a moment, so release the path now.
        self.set_path(Arc::new(Nowhere));
    }
}

impl Link {
    pub(super) fn set_path(&self, path: Arc<dyn DataPath>) {
        let old = std::mem::replace(&mut *self.0.path.write(), path);
        // Outside the lock, because dropping it may run any code.
        drop(old);
    }

    /// Sends a datagram, applying the faults.
    pub(super) fn send(&self, datagram: Datagram) {
        let mut state = self.0.state.lock();
        if state.faults.is_none() && state.to_be_overtaken.is_empty() {
            state.counts.sent += 1;
            drop(state);
            self.0.path().send(&datagram);
            return;
        }
        let at_once = state.judge(datagram, Instant::now());
        let needs_timer = !state.held.is_empty();
        let starts_timer = needs_timer && !std::mem::replace(&mut state.has_timer, needs_timer);
        drop(state);
        if needs_timer {
            self.0.changed.notify_all();
        }
        if starts_timer {
            self.start_timer();
        }
        self.0.send_all(at_once);
    }

    /// Sends a datagram that is looped back at the port, without faults.
    pub(super) fn send_unharmed(&self, datagram: &Datagram) {
        self.0.path().send(datagram);
    }

    /// Loses the held datagrams, because the port was lost.
    pub(super) fn lose_held(&self) {
        let mut state = self.0.state.lock();
        state.held.clear();
        state.to_be_overtaken.clear();
    }

    /// Replaces the faults; counts and random sequence restart. Datagrams already held are sent when due.
    pub(super) fn set_faults(&self, faults: LinkFaults) {
        let mut state = self.0.state.lock();
        state.chance = Chance(faults.seed);
        state.counts = LinkCounts::default();
        state.faults = faults;
    }

    pub(super) fn faults(&self) -> (LinkFaults, LinkCounts) {
        let state = self.0.state.lock();
        (state.faults, state.counts)
    }

    fn start_timer(&self) {
        let shared = self.0.clone();
        let started = std::thread::Builder::new()
            .name("fabric-sim link".to_owned())
            .spawn(move || shared.send_what_is_due());
        if let Err(error) = started {
            report_once(&format!(
                "cannot start the thread for a link's delays ({error}): its held datagrams are lost"
            ));
            self.lose_held();
            self.0.state.lock().has_timer = false;
        }
    }
}

impl Shared {
    fn path(&self) -> Arc<dyn DataPath> {
        self.path.read().clone()
    }

    fn send_all(&self, datagrams: Vec<Datagram>) {
        if !datagrams.is_empty() {
            let path = self.path();
            datagrams.iter().for_each(|datagram| path.send(datagram));
        }
    }

    fn send_what_is_due(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            let due = state.take_due(Instant::now());
            if !due.is_empty() {
                drop(state);
                self.send_all(due);
                state = self.state.lock();
                continue;
            }
            match state.held.first_key_value().map(|((due, _), _)| *due) {
                Some(due) => {
                    self.changed.wait_until(&mut state, due);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl State {
    /// Applies the faults; returns the datagrams to send now.
    fn judge(&mut self, mut datagram: Datagram, now: Instant) -> Vec<Datagram> {
        let faults = self.faults;
        let [drop, corrupt, duplicate, reorder] = [(); 4].map(|()| self.chance.percent());
        let bit = self.chance.next();
        self.counts.sent += 1;
        if drop < faults.drop {
            self.counts.dropped += 1;
            return Vec::new();
        }
        if corrupt < faults.corrupt && !datagram.payload.is_empty() {
            self.counts.corrupted += 1;
            let bits = datagram.payload.len() as u64 * 8;
            let bit = (bit % bits) as usize;
            datagram.payload[bit / 8] ^= 1 << (bit % 8);
        }
        let mut copies = vec![datagram];
        if duplicate < faults.duplicate {
            self.counts.duplicated += 1;
            copies.push(copies[0].clone());
        }
        if reorder < faults.reorder && self.to_be_overtaken.is_empty() {
            self.counts.reordered += 1;
            for copy in copies {
                if let Some(turn) = self.hold(copy, now + OVERTAKING + faults.delay) {
                    self.to_be_overtaken.push(turn);
                    self.counts.delayed += u64::from(!faults.delay.is_zero());
                }
            }
            return Vec::new();
        }
        let new = copies.len();
        for turn in std::mem::take(&mut self.to_be_overtaken) {
            copies.extend(self.held.remove(&turn));
        }
        if faults.delay.is_zero() {
            return copies;
        }
        for (index, copy) in copies.into_iter().enumerate() {
            // Overtaken datagrams were counted before.
            let is_held = self.hold(copy, now + faults.delay).is_some();
            self.counts.delayed += u64::from(is_held && index < new);
        }
        Vec::new()
    }

    fn hold(&mut self, datagram: Datagram, until: Instant) -> Option<Turn> {
        if self.held.len() >= MAX_HELD {
            self.counts.dropped += 1;
            return None;
        }
        let turn = (until, self.next_number);
        self.next_number += 1;
        self.held.insert(turn, datagram);
        Some(turn)
    }

    fn take_due(&mut self, now: Instant) -> Vec<Datagram> {
        let later = self.held.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.held, later);
        self.to_be_overtaken.retain(|turn| !due.contains_key(turn));
        due.into_values().collect()
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
#[derive(Clone, Copy, Debug, Default)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to 99.
    fn percent(&mut self) -> u8 {
        (self.next() % 100) as u8
    }
}
