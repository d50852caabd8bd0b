//! The requests that wait for a response, as in the kernel (drivers/infiniband/core/mad.c and user_mad.c).
//!
//! A request with timeout T and R retries is sent again, unchanged, after each T without a response, R times; T
//! after the last try it is returned. A response counts once, and only while its request waits. T = 0 means
//! that no response is expected. The module has no clock and no descriptor: the caller passes the time and does
//! what the result says.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::packet::Packet;

/// The key that matches a response with its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The agent that sent the request.
    pub agent: u32,
    /// Management class.
    pub class: u8,
    /// Low half of the transaction id.
    pub transaction: u32,
}

impl Key {
    /// Returns the key of a request of `agent`, or of a response to it.
    pub fn of(agent: u32, packet: &Packet) -> Self {
        Self {
            agent,
            class: packet.class(),
            transaction: packet.transaction(),
        }
    }
}

/// The agent already has a request with this class and transaction id in flight; the kernel refuses a second
/// (`EINVAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("agent {} already has a request with class {:#x} and transaction {:#x} in flight", .0.agent, .0.class, .0.transaction)]
pub struct Duplicate(pub Key);

#[derive(Debug)]
struct Waiting {
    packet: Packet,
    timeout: Duration,
    retries_left: u32,
    deadline: Instant,
}

/// What to do with a request whose deadline passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send it again.
    Resend(Packet),
    /// Return it as timed out.
    TimedOut(Packet),
}

/// The waiting requests of a port.
#[derive(Debug, Default)]
pub struct Transactions {
    waiting: HashMap<Key, Waiting>,
    deadlines: BTreeSet<(Instant, Key)>,
}

impl Transactions {
    /// Records a request that is about to be sent.
    ///
    /// # Errors
    /// If the same request is in flight.
    pub fn start(
        &mut self,
        now: Instant,
        key: Key,
        packet: Packet,
        timeout: Duration,
        retries: u32,
    ) -> Result<(), Duplicate> {
        if self.waiting.contains_key(&key) {
            return Err(Duplicate(key));
        }
        let deadline = now + timeout;
        self.deadlines.insert((deadline, key));
        self.waiting.insert(
            key,
            Waiting {
                packet,
                timeout,
                retries_left: retries,
                deadline,
            },
        );
        Ok(())
    }

    /// Ends the wait of a request and returns it. `None`: none was waiting, so drop the response.
    pub fn finish(&mut self, key: &Key) -> Option<Packet> {
        let waiting = self.waiting.remove(key)?;
        self.deadlines.remove(&(waiting.deadline, *key));
        Some(waiting.packet)
    }

    /// Removes an agent's requests.
    pub fn forget_agent(&mut self, agent: u32) {
        self.waiting.retain(|key, _| key.agent != agent);
        self.deadlines.retain(|(_, key)| key.agent != agent);
    }

    /// Returns whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the next deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns what is due, in order of deadlines.
    pub fn due(&mut self, now: Instant) -> Vec<(Key, Due)> {
        let mut due = Vec::new();
        while let Some((deadline, key)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.remove(&(deadline, key));
            let Some(waiting) = self.waiting.get_mut(&key) else {
                continue;
            };
            if waiting.retries_left > 0 {
                waiting.retries_left -= 1;
                // From now, as in the kernel: a late timer does not shorten the next wait.
                waiting.deadline = now + waiting.timeout;
                self.deadlines.insert((waiting.deadline, key));
                due.push((key, Due::Resend(waiting.packet.clone())));
            } else if let Some(waiting) = self.waiting.remove(&key) {
                due.push((key, Due::TimedOut(waiting.packet)));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smp::{Attribute, Route, get};

    const SECOND: Duration = Duration::from_secs(1);

    fn request(transaction: u32) -> (Key, Packet) {
        let packet = Packet::new(
            &get(Route::Own, Attribute::PortInfo, 1, transaction),
            0xffff,
            0,
        );
        (Key::of(3, &packet), packet)
    }

    fn started(retries: u32) -> (Transactions, Instant, Key, Packet) {
        let mut transactions = Transactions::default();
        let (key, packet) = request(7);
        let now = Instant::now();
        transactions
            .start(now, key, packet.clone(), SECOND, retries)
            .unwrap();
        (transactions, now, key, packet)
    }

    #[test]
    fn resends_and_then_times_out() {
        let (mut transactions, start, key, packet) = started(2);
        assert_eq!(transactions.next_deadline(), Some(start + SECOND));
        assert_eq!(transactions.due(start + SECOND / 2), []);
        assert_eq!(
            transactions.due(start + SECOND),
            [(key, Due::Resend(packet.clone()))]
        );
        assert_eq!(
            transactions.due(start + SECOND * 2),
            [(key, Due::Resend(packet.clone()))]
        );
        assert_eq!(
            transactions.due(start + SECOND * 3 - Duration::from_millis(1)),
            []
        );
        assert_eq!(
            transactions.due(start + SECOND * 3),
            [(key, Due::TimedOut(packet))]
        );
        assert_eq!(transactions.due(start + SECOND * 9), []);
        assert_eq!(transactions.next_deadline(), None);
        assert!(
            transactions.finish(&key).is_none(),
            "an answer after that is late"
        );
    }

    #[test]
    fn no_retries_is_one_wait() {
        let (mut transactions, start, key, packet) = started(0);
        assert_eq!(
            transactions.due(start + SECOND),
            [(key, Due::TimedOut(packet))]
        );
    }

    #[test]
    fn an_answer_counts_once() {
        let (mut transactions, start, key, _) = started(2);
        transactions.due(start + SECOND);
        assert!(transactions.finish(&key).is_some());
        assert!(transactions.finish(&key).is_none());
        assert_eq!(transactions.due(start + SECOND * 9), []);
    }

    #[test]
    fn an_answer_to_somebody_else_does_not_count() {
        let (mut transactions, _, key, _) = started(2);
        for other in [
            Key {
                agent: key.agent + 1,
                ..key
            },
            Key { class: 3, ..key },
            Key {
                transaction: key.transaction + 1,
                ..key
            },
        ] {
            assert!(transactions.finish(&other).is_none(), "{other:?}");
        }
        assert!(transactions.finish(&key).is_some());
    }

    #[test]
    fn the_same_request_twice_is_refused() {
        let (mut transactions, start, key, packet) = started(0);
        assert_eq!(
            transactions.start(start, key, packet.clone(), SECOND, 0),
            Err(Duplicate(key))
        );
        assert!(transactions.finish(&key).is_some());
        assert_eq!(transactions.start(start, key, packet, SECOND, 0), Ok(()));
    }

    #[test]
    fn each_request_has_its_own_deadline() {
        let mut transactions = Transactions::default();
        let start = Instant::now();
        let requests = [1, 2, 3].map(request);
        for ((key, packet), seconds) in requests.iter().zip([3, 1, 2]) {
            transactions
                .start(start, *key, packet.clone(), SECOND * seconds, 0)
                .unwrap();
        }
        let order: Vec<_> = transactions
            .due(start + SECOND * 3)
            .into_iter()
            .map(|(key, _)| key.transaction)
            .collect();
        assert_eq!(order, [2, 3, 1]);
    }

    #[test]
    fn a_forgotten_agent_gets_nothing() {
        let (mut transactions, start, key, _) = started(1);
        let (_, packet) = request(8);
        let other = Key {
            agent: 9,
            ..Key::of(9, &packet)
        };
        transactions.start(start, other, packet, SECOND, 0).unwrap();
        transactions.forget_agent(key.agent);
        let due: Vec<_> = transactions
            .due(start + SECOND * 9)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(due, [other]);
    }
}
