//! The history of the SA's records, to judge which answers are right.

use std::time::Instant;

use crate::fabric::PortSpec;
use crate::message::Path;
use crate::subnet::Subnet;

/// The SA's records since a time.
struct Epoch {
    since: Instant,
    /// `None` if the SA responds with wrong records, so that any answer is accepted.
    subnet: Option<Subnet>,
}

/// The history.
#[derive(Default)]
pub(super) struct Truth {
    epochs: Vec<Epoch>,
    /// When the provider had to drop its cache: the end of an event or an open.
    flushes: Vec<Instant>,
    /// Since when the SA may have seemed silent to the provider, and until when: the next open with a working SA.
    troubles: Vec<(Instant, Option<Instant>)>,
}

/// A request whose answer can be judged.
pub(super) struct Asked {
    pub id: u64,
    pub path: Path,
    pub at: Instant,
}

impl Truth {
    /// Sets the SA's records from this time on.
    pub(super) fn changes(&mut self, since: Instant, subnet: Option<Subnet>) {
        self.epochs.push(Epoch { since, subnet });
    }

    /// Records that the provider must have dropped its cache by now.
    pub(super) fn is_flushed(&mut self) {
        self.flushes.push(Instant::now());
    }

    /// Records that the SA does not respond in time: a provider may then prefer an old path to none, and may continue so for a
    /// while after the SA works again.
    pub(super) fn is_troubled(&mut self) {
        if !matches!(self.troubles.last(), Some((_, None))) {
            self.troubles.push((Instant::now(), None));
        }
    }

    /// Records an open of the port, which drops the cache of an earlier open.
    pub(super) fn is_opened(&mut self, in_trouble: bool) {
        if let (false, Some((_, until))) = (in_trouble, self.troubles.last_mut()) {
            until.get_or_insert_with(Instant::now);
        }
        self.is_flushed();
    }

    /// Whether a path was right at any time between the last flush before the request and the answer.
    pub(super) fn allows(&self, asked: &Asked, answered: Instant, answer: &Path) -> bool {
        let is_troubled = self
            .troubles
            .iter()
            .any(|(from, until)| *from <= answered && until.is_none_or(|until| until >= asked.at));
        let mut flushes = self.flushes.iter().rev();
        let from = flushes.find(|flush| **flush <= asked.at && !is_troubled);
        let first = match from {
            Some(from) => self.epochs.iter().rposition(|epoch| epoch.since <= *from),
            None => None,
        };
        self.epochs[first.unwrap_or(0)..]
            .iter()
            .take_while(|epoch| epoch.since <= answered)
            .any(|epoch| match &epoch.subnet {
                Some(subnet) => is_right(subnet, &asked.path, answer),
                None => true,
            })
    }
}

/// Whether the SA has this record for the request with the answer's own values: a provider may have its own policy.
fn is_right(subnet: &Subnet, asked: &Path, answer: &Path) -> bool {
    const EXACTLY: u8 = 2 << 6;
    let exactly = |byte: u8| EXACTLY | byte & 0x3f;
    let own = subnet.ports.first().map(PortSpec::gid).unwrap_or_default();
    let question = asked
        .with_sgid(own)
        .with_pkey(answer.pkey())
        .with_qos_sl(answer.qos_sl())
        .with_mtu(exactly(answer.mtu()))
        .with_rate(exactly(answer.rate()))
        .with_lifetime(exactly(answer.lifetime()));
    let expected = subnet.path(&question, question.comp_mask(), 0);
    expected.is_ok_and(|expected| comparable(&expected) == comparable(answer))
}

/// Removes the SA's own fields and reserved bytes, which do not matter to clients.
fn comparable(path: &Path) -> Path {
    let mut path = path.with_reversible_numpath(path.reversible_numpath() & 0x80);
    path.0[57..].fill(0);
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Peer;

    fn subnet() -> Subnet {
        Subnet {
            ports: vec![PortSpec::new(0x0010_0001, 10)],
            ..Subnet::default()
        }
    }

    fn moved(peer: &Peer) -> Subnet {
        let mut subnet = subnet();
        subnet.ports.push(PortSpec::new(peer.guid, 2000));
        subnet
    }

    fn record(subnet: &Subnet, peer: &Peer) -> Path {
        let asked = Path::default()
            .with_dgid(peer.gid())
            .with_sgid(subnet.ports[0].gid());
        subnet.path(&asked, asked.comp_mask(), 0).unwrap()
    }

    #[test]
    fn an_answer_is_the_sas_of_the_time_between_flush_and_answer() {
        let peer = Peer::number(3);
        let path = Path::default().with_dgid(peer.gid());
        let asked = || Asked {
            id: 1,
            path,
            at: Instant::now(),
        };
        let (old, new) = (record(&subnet(), &peer), record(&moved(&peer), &peer));
        let mut truth = Truth::default();
        truth.changes(Instant::now(), Some(subnet()));
        truth.is_flushed();
        let before = asked();
        assert!(truth.allows(&before, Instant::now(), &old));
        assert!(!truth.allows(&before, Instant::now(), &new));
        truth.changes(Instant::now(), Some(moved(&peer)));
        // Without a flush the provider may still have the old path.
        let unaware = asked();
        assert!(truth.allows(&unaware, Instant::now(), &old));
        truth.is_flushed();
        let aware = asked();
        assert!(!truth.allows(&aware, Instant::now(), &old));
        assert!(truth.allows(&aware, Instant::now(), &new));
        // A request from before the change may get either path.
        assert!(truth.allows(&before, Instant::now(), &new));
        // An old path is acceptable, but not a path that never existed.
        truth.is_troubled();
        assert!(truth.allows(&aware, Instant::now(), &old));
        assert!(!truth.allows(&aware, Instant::now(), &Path::default()));
        truth.changes(Instant::now(), None);
        assert!(truth.allows(&aware, Instant::now(), &Path::default()));
    }

    #[test]
    fn a_policy_is_right_and_an_invention_is_not() {
        let peer = Peer::number(3);
        let path = Path::default().with_dgid(peer.gid());
        let good = record(&subnet(), &peer);
        assert!(is_right(&subnet(), &path, &good.with_qos_sl(3)));
        assert!(is_right(&subnet(), &path, &good.with_mtu(0x82)));
        assert!(!is_right(&subnet(), &path, &good.with_mtu(0x85)));
        assert!(!is_right(&subnet(), &path, &good.with_slid(11)));
        let other = record(&subnet(), &Peer::number(4));
        assert!(!is_right(&subnet(), &path, &other));
    }
}
