//! The table of questions that the SA has not answered yet.

use std::collections::HashMap;
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

/// What a question is known by: the MAD's context and its transaction id. Never zero, and below 2^32, since the kernel
/// takes the upper half of a transaction id for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(NonZeroU32);

impl Key {
    pub(crate) fn get(self) -> u32 {
        self.0.get()
    }

    pub(crate) fn from_context(context: usize) -> Option<Self> {
        NonZeroU32::new(u32::try_from(context).ok()?).map(Self)
    }
}

struct Question {
    endpoint: u64,
    done: Done,
}

#[derive(Default)]
struct Table {
    questions: Option<HashMap<Key, Question>>,
    last_key: u32,
    /// The core that MADs were sent through, which is the one that brings them back.
    host: Option<Host>,
}

/// All questions of this library. The handler that the core calls has nothing but the key.
pub(crate) struct Outstanding(Mutex<Table>);

pub(crate) static OUTSTANDING: Outstanding = Outstanding(Mutex::new(Table {
    questions: None,
    last_key: 0,
    host: None,
}));

impl Outstanding {
    pub(crate) fn insert(&self, endpoint: &EndpointHandle, done: Done) -> Option<Key> {
        let mut table = self.0.lock();
        table.host = Some(*endpoint.host());
        let mut last_key = table.last_key;
        let questions = table.questions.get_or_insert_default();
        if questions.len() >= LIMIT {
            return None;
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
                done,
            },
        );
        table.last_key = last_key;
        Some(key)
    }

    /// Takes a question out, to be answered once.
    pub(crate) fn take(&self, key: Key) -> Option<Done> {
        let question = self.0.lock().questions.as_mut()?.remove(&key)?;
        Some(question.done)
    }

    pub(crate) fn host(&self) -> Option<Host> {
        self.0.lock().host
    }

    fn take_all_of(&self, endpoint: u64) -> Vec<Done> {
        let mut table = self.0.lock();
        let Some(questions) = table.questions.as_mut() else {
            return Vec::new();
        };
        questions
            .extract_if(|_, question| question.endpoint == endpoint)
            .map(|(_, question)| question.done)
            .collect()
    }
}

/// Answers everything that a closed endpoint has asked.
pub(crate) fn forget(endpoint: &EndpointHandle) {
    for done in OUTSTANDING.take_all_of(endpoint.id()) {
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
