//! The table of questions that the SA has not answered yet.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::abi::umad_sa_packet;
use crate::clock::Moment;
use crate::door;
use crate::handle::{Closed, EndpointHandle};
use crate::host::Host;
use crate::sa::SaError;
use crate::sync::thread::Builder;
use crate::sync::{Condvar, Mutex};

/// Questions out at a time, over all ports. Whoever asks paces himself far below that; this bounds a runaway.
const LIMIT: usize = 1 << 20;

/// What is called with the answer, once.
pub(crate) type Done = Box<dyn FnOnce(Result<&umad_sa_packet, SaError>) + Send>;

/// What a question is known by: its MAD's transaction id. Never zero, and below 2^32, since the kernel takes the upper half
/// of a transaction id for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(NonZeroU32);

impl Key {
    pub(crate) fn get(self) -> u32 {
        self.0.get()
    }
}

/// What the core keeps as a MAD's context and brings back: no pointer, but the question's key, and by which of the library's
/// hosts the MAD was made, which is the one that can free it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    host: u32,
    pub(crate) key: Key,
}

impl Context {
    pub(crate) fn to_pointer(self) -> *mut c_void {
        std::ptr::without_provenance_mut((self.host as usize) << 32 | self.key.get() as usize)
    }

    pub(crate) fn from_pointer(context: *mut c_void) -> Option<Self> {
        let context = context.addr();
        Some(Self {
            host: (context >> 32) as u32,
            key: Key(NonZeroU32::new(context as u32)?),
        })
    }
}

/// How long a question is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until its endpoint closes: it is answered then.
    Close,
    /// Until then, or for as long as the core's own options say.
    Deadline,
    /// Until its MAD comes back, however late, or it is [abandoned](abandon).
    #[cfg(feature = "cache")]
    Return,
}

impl Until {
    /// Whether a question is still waited for when its endpoint is closed.
    fn outlives_its_endpoint(self) -> bool {
        !matches!(self, Self::Close | Self::Deadline)
    }
}

struct Question {
    endpoint: EndpointHandle,
    until: Until,
    deadline: Moment,
    done: Done,
}

/// Questions, and when those that have a deadline end.
#[derive(Default)]
struct Questions {
    by_key: HashMap<Key, Question>,
    deadlines: BTreeSet<(Moment, Key)>,
}

impl Questions {
    fn remove(&mut self, key: Key) -> Option<Question> {
        let question = self.by_key.remove(&key)?;
        self.deadlines.remove(&(question.deadline, key));
        Some(question)
    }

    fn take(&mut self, is_meant: impl Fn(&Question) -> bool) -> Vec<Question> {
        let meant = self
            .by_key
            .iter()
            .filter(|(_, question)| is_meant(question));
        let keys: Vec<Key> = meant.map(|(key, _)| *key).collect();
        keys.into_iter()
            .filter_map(|key| self.remove(key))
            .collect()
    }

    fn take_due(&mut self, now: Moment) -> Vec<Question> {
        let mut due = Vec::new();
        while let Some(&(deadline, key)) = self.deadlines.first()
            && deadline <= now
        {
            due.extend(self.remove(key));
        }
        due
    }
}

#[derive(Default)]
struct Table {
    questions: Option<Questions>,
    last_key: u32,
    /// The cores that MADs are sent through: one, except where a test or a host written in Rust brings several.
    hosts: Vec<Host>,
    /// Whether a thread keeps the deadlines.
    is_watched: bool,
}

impl Table {
    fn host_index(&mut self, host: &Host) -> u32 {
        let known = self
            .hosts
            .iter()
            .position(|known| std::ptr::eq(known.table(), host.table()));
        let index = known.unwrap_or(self.hosts.len());
        match known {
            Some(index) => self.hosts[index] = *host,
            None => self.hosts.push(*host),
        }
        // There are far fewer tables than 2^32: each is a static.
        index as u32
    }
}

/// All questions of this library. The handler that the core calls has nothing but the key.
pub(crate) struct Outstanding {
    table: Mutex<Table>,
    /// Signalled when the first deadline has changed.
    changed: Condvar,
}

pub(crate) static OUTSTANDING: Outstanding = Outstanding {
    table: Mutex::new(Table {
        questions: None,
        last_key: 0,
        hosts: Vec::new(),
        is_watched: false,
    }),
    changed: Condvar::new(),
};

impl Outstanding {
    /// Notes a question. Gives the closure back when there are too many, or no thread can keep its deadline.
    pub(crate) fn insert(
        &'static self,
        endpoint: &EndpointHandle,
        until: Until,
        done: Done,
    ) -> Result<Context, Done> {
        let mut table = self.table.lock();
        if until == Until::Deadline && !self.watch(&mut table) {
            return Err(done);
        }
        let host = table.host_index(endpoint.host());
        let mut last_key = table.last_key;
        let questions = table.questions.get_or_insert_default();
        if questions.by_key.len() >= LIMIT {
            return Err(done);
        }
        let key = loop {
            last_key = last_key.wrapping_add(1);
            if let Some(key) = NonZeroU32::new(last_key).map(Key)
                && !questions.by_key.contains_key(&key)
            {
                break key;
            }
        };
        let deadline = match until {
            Until::Deadline => Moment::now().after(endpoint.host().sa_patience()),
            _ => Moment::NEVER,
        };
        let question = Question {
            endpoint: endpoint.clone(),
            until,
            deadline,
            done,
        };
        questions.by_key.insert(key, question);
        if deadline != Moment::NEVER {
            questions.deadlines.insert((deadline, key));
            if questions.deadlines.first() == Some(&(deadline, key)) {
                self.changed.notify_one();
            }
        }
        table.last_key = last_key;
        Ok(Context { host, key })
    }

    /// Takes a question out, to be answered once.
    pub(crate) fn take(&self, key: Key) -> Option<Done> {
        let mut table = self.table.lock();
        let questions = table.questions.as_mut()?;
        let question = questions.remove(key)?;
        self.tell_if_idle(questions);
        Some(question.done)
    }

    /// The host that made a MAD; for a context that is none of ours, the host that a MAD can only be from.
    pub(crate) fn host(&self, context: Option<Context>) -> Option<Host> {
        let table = self.table.lock();
        let index = context.map_or(0, |context| context.host as usize);
        table.hosts.get(index).or(table.hosts.first()).copied()
    }

    fn take_all(&self, is_meant: impl Fn(&Question) -> bool) -> Vec<Question> {
        let mut table = self.table.lock();
        let Some(questions) = table.questions.as_mut() else {
            return Vec::new();
        };
        let taken = questions.take(is_meant);
        self.tell_if_idle(questions);
        taken
    }

    /// Without a deadline to keep, the thread ends.
    fn tell_if_idle(&self, questions: &Questions) {
        if questions.deadlines.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Sees to it that a thread keeps the deadlines. False: none could be started.
    fn watch(&'static self, table: &mut Table) -> bool {
        if !table.is_watched {
            let thread = Builder::new().name("sa-deadlines".into());
            table.is_watched = thread.spawn(|| self.keep_deadlines()).is_ok();
        }
        table.is_watched
    }

    /// Ends questions whose time is up, until there are none that have a time.
    fn keep_deadlines(&self) {
        let mut table = self.table.lock();
        loop {
            let now = Moment::now();
            let due = table
                .questions
                .as_mut()
                .map_or(Vec::new(), |questions| questions.take_due(now));
            if !due.is_empty() {
                drop(table);
                end(due, SaError::TimedOut);
                table = self.table.lock();
                continue;
            }
            let questions = table.questions.as_ref();
            match questions.and_then(|questions| questions.deadlines.first()) {
                Some((deadline, _)) => {
                    let wait = Duration::from_millis(deadline.since(now));
                    self.changed.wait_for(&mut table, wait);
                }
                None => {
                    table.is_watched = false;
                    return;
                }
            }
        }
    }
}

/// Answers questions without an answer of the SA's. One that panics takes no answer from the others.
fn end(questions: Vec<Question>, error: SaError) {
    for question in questions {
        let host = *question.endpoint.host();
        door::guard(&host, "whoever asked the SA", (), || {
            (question.done)(Err(error));
        });
    }
}

/// Answers everything that a closed endpoint has asked.
pub(crate) fn forget(endpoint: &EndpointHandle) {
    let asked = OUTSTANDING.take_all(|question| {
        question.endpoint.id() == endpoint.id() && !question.until.outlives_its_endpoint()
    });
    end(asked, SaError::Closed(Closed));
}

/// Forgets what an endpoint, long closed, waits for [until it returns](Until::Return): the core has lost those MADs.
#[cfg(feature = "cache")]
pub(crate) fn abandon(endpoint: u64) {
    drop(OUTSTANDING.take_all(|question| {
        question.endpoint.id() == endpoint && question.until == Until::Return
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_holds_key_and_host() {
        let key = Key(NonZeroU32::new(0xffff_fffe).unwrap());
        let context = Context { host: 3, key };
        assert_eq!(Context::from_pointer(context.to_pointer()), Some(context));
        assert_eq!(Context::from_pointer(std::ptr::null_mut()), None);
    }
}
