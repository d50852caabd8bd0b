//! The actions decided under a port's lock, run after its release.

use crate::clock::Moment;
use crate::host::LogLevel;
use crate::lookups::{Deliver, Replies};
use crate::sync::Arc;

use super::parked::WaitsForAddress;
use super::path_query::{Queries, Waiter};
use super::qos::{QosQuery, WaitsForQos};
use super::warm_up::WaitsForFiles;
use super::{Shared, State};

/// The decided actions. Dropping it runs them.
pub(super) struct Batch {
    replies: Option<Replies<Waiter>>,
    queries: Queries,
    /// Boxed, since most batches have nothing else.
    more: Option<Box<More>>,
}

struct More {
    shared: Arc<Shared>,
    lines: Vec<(LogLevel, String)>,
    qos_query: Option<QosQuery>,
    abandoned: Vec<u64>,
    for_qos: Replies<WaitsForQos>,
    for_files: Replies<WaitsForFiles>,
    for_addresses: Replies<WaitsForAddress>,
}

impl Deliver for State {
    type Batch = Batch;

    #[inline]
    fn take_batch(&mut self) -> Option<Batch> {
        let queries = self.next_queries();
        let qos_query = self.next_qos_query();
        self.wake_in_time();
        let has_more = qos_query.is_some()
            || !self.lines.is_empty()
            || self.paths.has_abandoned()
            || self.qos.lookups.has_news()
            || self.files.has_news()
            || self.parked.has_news();
        let more = match has_more {
            true => self.take_more(qos_query),
            false => None,
        };
        let replies = match self.paths.has_replies() {
            true => Some(self.paths.take_replies()),
            false => None,
        };
        let has_news = replies.is_some() || !queries.is_empty() || more.is_some();
        has_news.then_some(Batch {
            replies,
            queries,
            more,
        })
    }
}

impl State {
    /// Wakes the deadline thread if something is due before its next turn.
    fn wake_in_time(&mut self) {
        let due = self.next_due();
        if due < self.wakes_at
            && let Some(shared) = self.shared.upgrade()
        {
            self.wakes_at = due;
            shared.wake.notify_one();
        }
    }

    /// Returns when the next request expires, hits need the time, or a renewal may begin.
    #[inline]
    pub(super) fn next_due(&self) -> Moment {
        let due = [
            self.paths.next_deadline(),
            self.qos.lookups.next_deadline(),
            self.next_tick(),
            self.files.next_deadline(),
            self.parked.next_deadline(),
            self.next_renewal(),
        ];
        let due = due.map(|due| due.unwrap_or(Moment::NEVER));
        due.into_iter().fold(Moment::NEVER, Moment::min)
    }

    #[cold]
    fn take_more(&mut self, qos_query: Option<QosQuery>) -> Option<Box<More>> {
        // A ClassPortInfo query is not withdrawn when no request waits for it: its answer is cached all the same.
        drop(self.qos.lookups.take_abandoned());
        Some(Box::new(More {
            shared: self.shared.upgrade()?,
            lines: std::mem::take(&mut self.lines),
            qos_query,
            abandoned: self.paths.take_abandoned(),
            for_qos: self.qos.lookups.take_replies(),
            for_files: self.files.take_replies(),
            for_addresses: self.parked.take_replies(),
        }))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut more = self.more.take();
        if let Some(more) = &more {
            for (level, line) in &more.lines {
                more.shared.port.host().log(*level, format_args!("{line}"));
            }
        }
        // Answer clients before sending the next SA queries.
        if let Some(replies) = &mut self.replies {
            replies.deliver();
        }
        if let Some(more) = &mut more {
            more.for_qos.deliver();
            more.for_files.deliver();
            more.for_addresses.deliver();
            more.shared.take_back(std::mem::take(&mut more.abandoned));
            if let Some(query) = more.qos_query.take() {
                more.shared.ask_qos(query);
            }
        }
        for query in self.queries.drain(..) {
            query.ask();
        }
    }
}
