//! A client's request: a token, consumed by its one answer.
//!
//! Each token has the client's id, transaction id and source, so that the answer goes to the right client in the right form.
//! Dropping a token answers `ENODATA` and logs a line: no client waits forever.
//!
//! A [`ResolveRequest`] is a view of the core's message, valid during its callback. To answer later,
//! [keep](ResolveRequest::keep) it: a kept request may be answered at any time, from any thread, even after the endpoint
//! was closed.

use std::fmt;

use crate::abi::{
    ACM_FLAGS_NODELAY, AcmCounter, AcmEpType, AcmStatus, IBV_PATH_FLAG_ALTERNATE,
    IBV_PATH_FLAG_BIDIRECTIONAL, IBV_PATH_FLAG_GMP, IBV_PATH_FLAG_PRIMARY,
};
use crate::address::Address;
use crate::handles::EndpointHandle;
use crate::host::log_limit::LogLimit;
use crate::host::{Host, LogLevel, ProviderFault};
use crate::path::PathRecord;
use crate::sa::{PathQuery, Source, Target};

mod entries;
pub(crate) mod message;
mod plain;
mod query;

use entries::{Entries, Invalid};
use message::{ENTRY, Entry, HEADER, Message, Outgoing};

pub use query::QueryRequest;
pub(crate) use query::refuse_query;

/// A request for a path to a destination: answer, refuse or [keep](Self::keep) it.
///
/// It borrows the core's message, so it ends with the callback. The same type with the lifetime `'static`,
/// [`KeptRequest`], owns what it needs.
#[must_use = "dropping a request answers ENODATA"]
pub struct ResolveRequest<'a> {
    inner: Inner<'a>,
    is_answered: bool,
}

/// A request [kept](ResolveRequest::keep) beyond its callback. It can be moved to any thread, into a closure, or into a
/// table of waiting requests.
pub type KeptRequest = ResolveRequest<'static>;

enum Inner<'a> {
    Borrowed(&'a View<'a>),
    Kept(Box<Kept>),
}

#[derive(Clone)]
struct Kept {
    endpoint: EndpointHandle,
    id: u64,
    header: [u8; HEADER],
    destination: [u8; ENTRY],
    source: Option<[u8; ENTRY]>,
    hint: Option<[u8; ENTRY]>,
}

/// A borrowed or a kept request.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    endpoint: &'a EndpointHandle,
    id: u64,
    header: &'a [u8; HEADER],
    entries: Entries<'a>,
}

impl<'a> View<'a> {
    /// Reads the core's message. Refuses an invalid one and returns `None`.
    #[inline]
    pub(crate) fn read(
        endpoint: &'a EndpointHandle,
        id: u64,
        message: Message<'a>,
    ) -> Option<Self> {
        match Entries::read(message) {
            Ok(entries) => Some(Self {
                endpoint,
                id,
                header: message.header(),
                entries,
            }),
            Err(invalid) => {
                refuse_invalid(endpoint, id, message, &invalid);
                None
            }
        }
    }
}

impl<'a> ResolveRequest<'a> {
    /// Returns the borrowed form, which is two words to move.
    #[inline]
    pub(crate) fn new(view: &'a View<'a>) -> Self {
        Self {
            inner: Inner::Borrowed(view),
            is_answered: false,
        }
    }

    #[inline]
    fn view(&self) -> View<'_> {
        match &self.inner {
            Inner::Borrowed(view) => **view,
            Inner::Kept(kept) => View {
                endpoint: &kept.endpoint,
                id: kept.id,
                header: &kept.header,
                entries: Entries {
                    destination: Entry(&kept.destination),
                    source: kept.source.as_ref().map(Entry),
                    hint: kept.hint.as_ref().map(Entry),
                },
            },
        }
    }

    /// Makes the request independent of the core's message, to answer it later. Copies what the answer and an SA query
    /// need.
    pub fn keep(mut self) -> KeptRequest {
        self.count();
        self.is_answered = true;
        let kept = match &self.inner {
            Inner::Kept(kept) => kept.clone(),
            Inner::Borrowed(view) => Box::new(Kept {
                endpoint: view.endpoint.clone(),
                id: view.id,
                header: *view.header,
                destination: *view.entries.destination.0,
                source: view.entries.source.map(|entry| *entry.0),
                hint: view.entries.hint.map(|entry| *entry.0),
            }),
        };
        ResolveRequest {
            inner: Inner::Kept(kept),
            is_answered: false,
        }
    }

    /// Returns the destination. For a path record this is its DGID or, without one, its DLID.
    pub fn destination(&self) -> Address {
        self.view().entries.destination()
    }

    /// Whether the destination is a name or an IP address; the provider must find its port.
    #[inline]
    pub fn is_by_name(&self) -> bool {
        matches!(
            self.view().entries.destination.kind(),
            AcmEpType::NAME | AcmEpType::ADDRESS_IP | AcmEpType::ADDRESS_IP6
        )
    }

    /// Returns the path record in the request: the client's own query, or hints beside an address (librdmacm). Zero
    /// fields are left open.
    pub fn wanted(&self) -> Option<PathRecord> {
        self.view().entries.wanted().map(Entry::path_record)
    }

    /// Whether the client wants an answer from the cache, or `ENODATA`, at once.
    pub fn is_nodelay(&self) -> bool {
        self.view().entries.destination.flags() & ACM_FLAGS_NODELAY != 0
    }

    /// Whether the request is from the kernel (rdma_cm; id 0). If it is refused, the kernel queries the SA itself.
    pub fn is_from_the_kernel(&self) -> bool {
        self.view().id == 0
    }

    /// Returns the request's query: all that its path record names. If the record came beside an address, its destination is
    /// ignored. For a name or an IP address the destination is left open; the provider [names](PathQuery::set_target) it.
    pub fn path_query(&self) -> PathQuery {
        self.view().entries.path_query()
    }

    /// Returns the destination of a plain request: one that names only a destination LID or GID, and possibly the endpoint's
    /// own GID and P_Key. `None` for all other requests; use their [`path_query`](Self::path_query).
    ///
    /// `source` is the endpoint's. This takes a few comparisons, and agrees with [`PathQuery::is_plain`] of the
    /// [complete](PathQuery::complete) query.
    #[inline]
    pub fn plain_target(&self, source: &Source) -> Option<Target> {
        self.view().entries.plain_target(source, plain::Qos::Counts)
    }

    /// As [`plain_target`](Self::plain_target), with another destination.
    #[cfg(feature = "cache")]
    #[inline]
    pub(crate) fn plain_target_to(&self, target: Target, source: &Source) -> Option<Target> {
        self.view().entries.plain_target_to(target, source)
    }

    /// As [`plain_target`](Self::plain_target), for an SA that ignores service id and QoS class.
    #[cfg(feature = "cache")]
    #[inline]
    pub(crate) fn plain_target_without_qos(&self, source: &Source) -> Option<Target> {
        self.view()
            .entries
            .plain_target(source, plain::Qos::IsIgnored)
    }

    /// Answers with several paths, the preferred one first. The first is marked as the primary path, the others as alternate
    /// ones; an answer without a path is [ENODATA](Self::refuse).
    ///
    /// librdmacm gives an application all of them (`rdma_getaddrinfo`, in `ai_route`); its own connections use the first. The
    /// kernel gets only the first. A message has room for [`MAX_PATHS`](Self::MAX_PATHS), one less beside a source
    /// that the core chose; further paths are left out.
    pub fn answer_all(mut self, paths: &[PathRecord]) {
        let Some((primary, alternates)) = paths.split_first() else {
            return self.refuse(AcmStatus::ENODATA);
        };
        self.count();
        self.is_answered = true;
        let alternates = if self.is_from_the_kernel() {
            &[]
        } else {
            alternates
        };
        self.view().succeed_with(primary, alternates);
    }

    /// The largest number of paths in an answer: the entries of a message (acm.h).
    pub const MAX_PATHS: usize = message::ENTRIES;

    /// Answers with a path. [`answer_all`](Self::answer_all) answers with several.
    pub fn answer(mut self, path: &PathRecord) {
        self.count();
        self.is_answered = true;
        self.view().succeed(path);
    }

    /// Answers with a cached path, and counts a route cache hit (in the endpoint's counters and in the core's).
    // Always inline: a path built by the caller then needs no copy in memory.
    #[inline(always)]
    pub fn answer_from_cache(mut self, path: &PathRecord) {
        self.is_answered = true;
        let view = self.view();
        match self.inner {
            Inner::Borrowed(_) => view.endpoint.counters().count_resolved_from_cache(),
            Inner::Kept(_) => view.endpoint.counters().increment(AcmCounter::ROUTE_CACHE),
        }
        view.endpoint
            .host()
            .increment_counter(AcmCounter::ROUTE_CACHE);
        view.succeed(path);
    }

    /// Answers with an error. `SUCCESS` becomes `ENODATA`.
    pub fn refuse(mut self, status: AcmStatus) {
        self.fail(status);
    }

    #[cold]
    fn fail(&mut self, status: AcmStatus) {
        self.count();
        self.is_answered = true;
        let View {
            endpoint,
            id,
            header,
            ..
        } = self.view();
        let status = failure(status);
        count_failure(endpoint, status);
        respond_failure(endpoint.host(), id, header, status);
    }

    /// Counts the request once; `keep` has counted a kept request.
    fn count(&self) {
        if let Inner::Borrowed(view) = &self.inner {
            view.endpoint.counters().increment(AcmCounter::RESOLVE);
        }
    }
}

impl View<'_> {
    #[inline(always)]
    fn succeed(&self, path: &PathRecord) {
        self.succeed_with(path, &[]);
    }

    #[inline(always)]
    fn succeed_with(&self, path: &PathRecord, alternates: &[PathRecord]) {
        const FLAGS: u32 = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
        const ALTERNATE: u32 = IBV_PATH_FLAG_ALTERNATE | IBV_PATH_FLAG_BIDIRECTIONAL;
        let mut answer = Outgoing::answer_to(self.header, AcmStatus::SUCCESS.0);
        answer.path(FLAGS, path);
        // librdmacm copies the paths as one block, so no other entry may stand between them.
        let room = message::ENTRIES - 1 - usize::from(self.entries.source.is_some());
        for path in alternates.iter().take(room) {
            answer.path(ALTERNATE, path);
        }
        if let Some(source) = self.entries.source {
            answer.entry(source.0);
        }
        let host = self.endpoint.host();
        // SAFETY: the message has the length in its header; the core reads it only during the call.
        let code = unsafe { (host.table().acm_resolve_response)(self.id, answer.as_msg()) };
        if code != 0 {
            not_delivered(host, self.id, "resolve", AcmStatus::SUCCESS);
        }
    }
}

/// Answers a request without a path.
fn respond_failure(host: &Host, id: u64, header: &[u8; HEADER], status: AcmStatus) {
    let mut answer = Outgoing::answer_to(header, status.0);
    // SAFETY: the message has the length in its header; the core reads it only during the call.
    let code = unsafe { (host.table().acm_resolve_response)(id, answer.as_msg()) };
    if code != 0 {
        not_delivered(host, id, "resolve", status);
    }
}

/// Logs that the core did not deliver an answer, because the client has disconnected.
#[cold]
fn not_delivered(host: &Host, id: u64, what: &str, status: AcmStatus) {
    host.log(
        LogLevel::OPERATION,
        format_args!("client {id} has disconnected: {what}, {status:?}"),
    );
}

/// Makes sure that a refusal is an error.
fn failure(status: AcmStatus) -> AcmStatus {
    if status == AcmStatus::SUCCESS {
        AcmStatus::ENODATA
    } else {
        status
    }
}

fn count_failure(endpoint: &EndpointHandle, status: AcmStatus) {
    let counter = match status {
        AcmStatus::SUCCESS => return,
        AcmStatus::ENODATA => AcmCounter::NODATA,
        _ => AcmCounter::ERROR,
    };
    endpoint.counters().increment(counter);
}

/// Logs that a provider dropped a request: `what` says which.
fn dropped(host: &Host, what: fmt::Arguments<'_>) {
    static LIMIT: LogLimit = LogLimit::new();
    host.provider_fault(
        ProviderFault::DROPPED_REQUEST,
        &LIMIT,
        format_args!("{what} was dropped unanswered; answering ENODATA"),
    );
}

impl Drop for ResolveRequest<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_answered {
            self.forgotten();
        }
    }
}

impl ResolveRequest<'_> {
    #[cold]
    fn forgotten(&mut self) {
        dropped(
            self.view().endpoint.host(),
            format_args!("resolve: the request for {}", self.destination()),
        );
        self.fail(AcmStatus::ENODATA);
    }
}

impl fmt::Debug for ResolveRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolveRequest")
            .field("destination", &self.destination())
            .field("nodelay", &self.is_nodelay())
            .finish_non_exhaustive()
    }
}

/// Refuses an invalid message.
#[cold]
fn refuse_invalid(endpoint: &EndpointHandle, id: u64, message: Message<'_>, invalid: &Invalid) {
    endpoint.counters().increment(AcmCounter::RESOLVE);
    let status = invalid.status();
    count_failure(endpoint, status);
    let host = endpoint.host();
    host.log(
        LogLevel::VERBOSE,
        format_args!("resolve: client {id}: {}", invalid.reason(message)),
    );
    respond_failure(host, id, message.header(), status);
}

/// Answers a request from an address that is not open.
pub(crate) fn refuse_resolve(host: &Host, id: u64, message: Message<'_>) {
    let status = match Entries::read(message) {
        Ok(_) => AcmStatus::ESRCADDR,
        Err(invalid) => invalid.status(),
    };
    respond_failure(host, id, message.header(), status);
}
