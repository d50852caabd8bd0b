//! Lets requests that arrive before the port's files are read wait for them, for at most a tenth of a second.

use std::time::Duration;

use crate::abi::AcmStatus;
use crate::clock::Moment;
use crate::host::{Host, LogLevel};
use crate::lookups::{End, Limits, Lookups, Waiter};
use crate::sa::{PathQuery, Source};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{
    Asker, Client, EndpointId, OpenEndpoint, PathOptions, Provider, Resolution, Shared, State,
    files,
};

/// Milliseconds that the first request waits for unread files. Later requests wait until the same moment.
const PATIENCE: u64 = 100;

/// The operator's dump and flush file.
pub(super) const FILES: u32 = 1;
/// The port's snapshot.
pub(super) const SNAPSHOT: u32 = 2;

/// The files that an endpoint still waits for. Changed with the port's state locked.
pub(super) struct UnreadFiles {
    files: AtomicU32,
    /// When requests stop waiting, in milliseconds; 0 before the first request.
    until: AtomicU64,
}

impl UnreadFiles {
    pub(super) fn new(files: u32) -> Self {
        Self {
            files: AtomicU32::new(files),
            until: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.files.load(Ordering::Acquire) == 0
    }

    /// Marks a file as read. True if it was the last one.
    fn ends(&self, file: u32) -> bool {
        let before = self.files.fetch_and(!file, Ordering::AcqRel);
        before & !file == 0 && before != 0
    }

    /// Stops waiting. Returns the unread files.
    fn give_up(&self) -> u32 {
        self.files.swap(0, Ordering::AcqRel)
    }

    fn until(&self, now: Moment) -> Moment {
        let since = |moment: Moment| moment.since(Moment::default());
        if self.until.load(Ordering::Relaxed) == 0 {
            let until = since(now.after(PATIENCE));
            self.until.store(until, Ordering::Relaxed);
        }
        Moment::from_millis(self.until.load(Ordering::Relaxed))
    }
}

/// The waiting requests, by endpoint.
pub(super) type WaitingForFiles = Lookups<EndpointId, WaitsForFiles>;

pub(super) fn nobody(waiters: usize, host: Host) -> WaitingForFiles {
    let limits = Limits {
        lookups: usize::MAX,
        waiters,
        tries: 0,
        try_timeout: None,
        rest: (Duration::ZERO, Duration::ZERO),
    };
    Lookups::new(limits, Some(host), 0)
}

/// A request that waits for files.
pub(super) struct WaitsForFiles {
    asker: Asker,
    query: PathQuery,
    client: Client<'static>,
    deadline: Moment,
}

impl Waiter for WaitsForFiles {
    type Answer = ();

    fn end(self, end: End<()>) {
        match end {
            End::Answer(()) => {}
            End::Expired => {
                // A request can have a shorter deadline than the others.
                let now = Moment::now();
                if self.asker.endpoint.unread.until(now) <= now {
                    self.asker.go_on_without_files();
                }
            }
            End::Full => return self.client.reply(Err(AcmStatus::ENOMEM)),
            End::Closed => return self.client.reply(Err(AcmStatus::ENOTCONN)),
        }
        self.asker
            .find(&self.query, self.client, Moment::now(), self.deadline);
    }
}

impl Shared {
    /// Returns the files that an endpoint must wait for.
    pub(super) fn unread_files(&self, state: &State, source: &Source) -> u32 {
        let mut unread = 0;
        if files::has_some(self) && !state.are_files_read {
            unread |= FILES;
        }
        if state.snapshot.is_pending_for(source) {
            unread |= SNAPSHOT;
        }
        unread
    }
}

impl State {
    /// Notes that the operator's files have been read for the first time.
    pub(super) fn files_are_read(&mut self) {
        self.are_files_read = true;
        let endpoints: Vec<EndpointId> = self.endpoints.keys().copied().collect();
        for endpoint in endpoints {
            self.has_file(endpoint, FILES);
        }
    }

    /// Notes that an endpoint has the paths of a file.
    pub(super) fn has_file(&mut self, endpoint: EndpointId, file: u32) {
        let open = self.endpoints.get(&endpoint);
        if open.is_some_and(|open| open.unread.ends(file)) {
            self.files.finish_key(&endpoint, &());
        }
    }
}

impl Asker {
    /// Stops waiting for files, for this and later requests. Logs which files were not read in time.
    fn go_on_without_files(&self) {
        let files = match self.endpoint.unread.give_up() {
            0 => return,
            FILES => "the dump or the flush file is",
            SNAPSHOT => "the snapshot is",
            _ => "dump, flush file or snapshot are",
        };
        let (port, pkey) = (self.shared.port.number(), self.endpoint.source.pkey);
        self.endpoint.handle.host().log(
            LogLevel::ALWAYS,
            format_args!(
                "port {port}, P_Key {pkey}: {files} not read {PATIENCE} ms after the first request; requests wait no longer"
            ),
        );
    }

    /// Lets a request wait for its endpoint's unread files.
    pub(super) fn wait_for_files(
        &self,
        query: &PathQuery,
        client: Client<'_>,
        now: Moment,
        deadline: Moment,
    ) -> Resolution {
        let OpenEndpoint { unread, .. } = &*self.endpoint;
        let Some((mut state, client)) = self.if_open(self.shared.state.lock(), client) else {
            return Resolution::Refused;
        };
        let until = unread.until(now);
        if until <= now || unread.is_over() {
            drop(state);
            self.go_on_without_files();
            return self.find(query, client, now, deadline);
        }
        let (client, refused) = if client.is_nodelay() {
            let nobody = Provider::new(PathOptions::default(), |_| ());
            (Client::Provider(nobody), Some(client))
        } else {
            (client.keep(), None)
        };
        let waiter = WaitsForFiles {
            asker: self.clone(),
            query: *query,
            client,
            deadline,
        };
        let waits = state
            .files
            .ask(now, self.endpoint.id(), waiter, until.min(deadline));
        drop(state);
        if let Some(client) = refused {
            client.reply(Err(AcmStatus::ENODATA));
        }
        if waits {
            Resolution::Asked
        } else {
            Resolution::Refused
        }
    }
}
