//! The table of questions that the SA has not answered yet.

use std::collections::HashMap;
use std::ffi::c_void;
use std::num::NonZeroU32;

use crate::abi::umad_sa_packet;
use crate::door;
use crate::handle::{Closed, EndpointHandle};
use crate::host::Host;
use crate::sa::SaError;
use crate::sync::Mutex;

/// Questions out at a time, over all ports. Whoever asks paces himself far below that; this bounds a runaway.
const LIMIT: usize = 1 << 20;

/// What is called with the answer, once.
pub(crate) type Done = Box<dyn FnOnce(Result<&umad_sa_packet, SaError>) + Send>;

/// What a question is known by: its MAD's transaction id. Never zero, and below 2^32, since the kernel takes the upper half
/// of a transaction id for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Until its MAD comes back, however late, or it is [abandoned](abandon).
    #[cfg(feature = "cache")]
    Return,
}

struct Question {
    endpoint: u64,
    until: Until,
    done: Done,
}

#[derive(Default)]
struct Table {
    questions: Option<HashMap<Key, Question>>,
    last_key: u32,
    /// The cores that MADs are sent through: one, except where a test or a host written in Rust brings several.
    hosts: Vec<Host>,
}

impl Table {
    fn host_index(&mut self, host: &Host) -> u32 {
        let known = self
            .hosts
            .iter()
            .position(|known| std::ptr::eq(known.table(), host.table()));
        let index = known.unwrap_or_else(|| {
            self.hosts.push(*host);
            self.hosts.len() - 1
        });
        // There are far fewer tables than 2^32: each is a static.
        index as u32
    }
}

/// All questions of this library. The handler that the core calls has nothing but the key.
pub(crate) struct Outstanding(Mutex<Table>);

pub(crate) static OUTSTANDING: Outstanding = Outstanding(Mutex::new(Table {
    questions: None,
    last_key: 0,
    hosts: Vec::new(),
}));

impl Outstanding {
    /// Notes a question. Gives the closure back when there are too many.
    pub(crate) fn insert(
        &self,
        endpoint: &EndpointHandle,
        until: Until,
        done: Done,
    ) -> Result<Context, Done> {
        let mut table = self.0.lock();
        let host = table.host_index(endpoint.host());
        let mut last_key = table.last_key;
        let questions = table.questions.get_or_insert_default();
        if questions.len() >= LIMIT {
            return Err(done);
        }
        let key = loop {
            last_key = last_key.wrapping_add(1);
            if let Some(key) = NonZeroU32::new(last_key).map(Key)
                && !questions.contains_key(&key)
            {
                break key;
            }
        };
        questions.insert(
            key,
            Question {
                endpoint: endpoint.id(),
                until,
                done,
            },
        );
        table.last_key = last_key;
        Ok(Context { host, key })
    }

    /// Takes a question out, to be answered once.
    pub(crate) fn take(&self, key: Key) -> Option<Done> {
        let question = self.0.lock().questions.as_mut()?.remove(&key)?;
        Some(question.done)
    }

    /// The host that made a MAD; for a context that is none of ours, the host that a MAD can only be from.
    pub(crate) fn host(&self, context: Option<Context>) -> Option<Host> {
        let table = self.0.lock();
        let index = context.map_or(0, |context| context.host as usize);
        table.hosts.get(index).or(table.hosts.first()).copied()
    }

    fn take_all_of(&self, endpoint: u64, until: Until) -> Vec<Done> {
        let mut table = self.0.lock();
        let Some(questions) = table.questions.as_mut() else {
            return Vec::new();
        };
        questions
            .extract_if(|_, question| question.endpoint == endpoint && question.until == until)
            .map(|(_, question)| question.done)
            .collect()
    }
}

/// Answers everything that a closed endpoint has asked.
pub(crate) fn forget(endpoint: &EndpointHandle) {
    for done in OUTSTANDING.take_all_of(endpoint.id(), Until::Close) {
        // One that panics takes no answer from the others.
        door::guard(
            endpoint.host(),
            "SA handler of a closed endpoint",
            (),
            || {
                done(Err(SaError::Closed(Closed)));
            },
        );
    }
}

/// Forgets what an endpoint, long closed, waits for [until it returns](Until::Return): the core has lost those MADs.
#[cfg(feature = "cache")]
pub(crate) fn abandon(endpoint: u64) {
    drop(OUTSTANDING.take_all_of(endpoint, Until::Return));
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
