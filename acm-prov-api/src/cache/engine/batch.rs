//! What was decided under a port's lock, and is done once that is released.

use crate::clock::Moment;
use crate::host::LogLevel;
use crate::lookups::{Deliver, Replies};
use crate::sync::Arc;

use super::asking::{Queries, Waiter};
use super::parked::WaitsForAddress;
use super::qos::{AskingQos, WaitsForQos};
use super::warm_up::WaitsForFiles;
use super::{Shared, State};

/// What was decided. Dropping it does it.
pub(super) struct Batch {
    replies: Option<Replies<Waiter>>,
    queries: Queries,
    /// There is seldom more.
    more: Option<Box<More>>,
}

struct More {
    shared: Arc<Shared>,
    lines: Vec<(LogLevel, String)>,
    qos_question: Option<AskingQos>,
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
        let qos_question = self.next_qos_question();
        self.wake_in_time();
        let has_more = qos_question.is_some()
            || !self.lines.is_empty()
            || self.paths.has_abandoned()
            || self.qos.lookups.has_news()
            || self.files.has_news()
            || self.parked.has_news();
        let more = match has_more {
            true => self.take_more(qos_question),
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
    /// Has the thread that keeps deadlines wake when something is due before it would look by itself.
    fn wake_in_time(&mut self) {
        let due = [
            self.paths.next_deadline(),
            self.qos.lookups.next_deadline(),
            self.next_tick(),
            self.files.next_deadline(),
            self.parked.next_deadline(),
            self.next_renewal(),
        ];
        let due = due.map(|due| due.unwrap_or(Moment::NEVER));
        let due = due.into_iter().fold(Moment::NEVER, Moment::min);
        if due < self.wakes_at
            && let Some(shared) = self.shared.upgrade()
        {
            self.wakes_at = due;
            shared.wake.notify_one();
        }
    }

    #[cold]
    fn take_more(&mut self, qos_question: Option<AskingQos>) -> Option<Box<More>> {
        // Nobody asks what the SA can do for a question that is not wanted any more; one answer more is kept.
        drop(self.qos.lookups.take_abandoned());
        Some(Box::new(More {
            shared: self.shared.upgrade()?,
            lines: std::mem::take(&mut self.lines),
            qos_question,
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
        // Clients come before the SA's next questions.
        if let Some(replies) = &mut self.replies {
            replies.deliver();
        }
        if let Some(more) = &mut more {
            more.for_qos.deliver();
            more.for_files.deliver();
            more.for_addresses.deliver();
            more.shared.take_back(std::mem::take(&mut more.abandoned));
            if let Some(question) = more.qos_question.take() {
                more.shared.ask_qos(question);
            }
        }
        for query in self.queries.drain(..) {
            query.ask();
        }
    }
}
