//! A client's request: a token that is consumed by its one answer.
//!
//! Each token leads to the client's id, transaction id and source, so that whatever the provider answers goes to the right
//! client in the right form. A token that is dropped answers `ENODATA` and says so in the log: no client waits for ever.
//!
//! A [`ResolveRequest`] is a view of the core's message, good for the callback that it was passed to. What is to be answered
//! later is [kept](ResolveRequest::keep): for as long as the provider likes, to be answered from any thread, also after the
//! endpoint was closed.

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

mod asked;
pub(crate) mod message;
mod plain;
mod query;

use asked::{Asked, Invalid};
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

/// A request that was [kept](ResolveRequest::keep) beyond its callback: it can be moved to any thread, into a closure, or
/// into a table of those who wait.
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

/// A request in either form.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    endpoint: &'a EndpointHandle,
    id: u64,
    header: &'a [u8; HEADER],
    asked: Asked<'a>,
}

impl<'a> View<'a> {
    /// Reads the core's message. One that asks for nothing sensible is answered here; `None` then.
    #[inline]
    pub(crate) fn read(
        endpoint: &'a EndpointHandle,
        id: u64,
        message: Message<'a>,
    ) -> Option<Self> {
        match Asked::read(message) {
            Ok(asked) => Some(Self {
                endpoint,
                id,
                header: message.header(),
                asked,
            }),
            Err(invalid) => {
                refuse_invalid(endpoint, id, message, &invalid);
                None
            }
        }
    }
}

impl<'a> ResolveRequest<'a> {
    /// The request that was read. To be moved it is two words.
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
                asked: Asked {
                    destination: Entry(&kept.destination),
                    source: kept.source.as_ref().map(Entry),
                    hint: kept.hint.as_ref().map(Entry),
                },
            },
        }
    }

    /// Makes the request independent of the core's message, to be answered later. It copies what the answer and a query to
    /// the SA need.
    pub fn keep(mut self) -> KeptRequest {
        self.count();
        self.is_answered = true;
        let kept = match &self.inner {
            Inner::Kept(kept) => kept.clone(),
            Inner::Borrowed(view) => Box::new(Kept {
                endpoint: view.endpoint.clone(),
                id: view.id,
                header: *view.header,
                destination: *view.asked.destination.0,
                source: view.asked.source.map(|entry| *entry.0),
                hint: view.asked.hint.map(|entry| *entry.0),
            }),
        };
        ResolveRequest {
            inner: Inner::Kept(kept),
            is_answered: false,
        }
    }

    /// What the client wants a path to. Of a path record that is its DGID or, without one, its DLID.
    pub fn destination(&self) -> Address {
        self.view().asked.destination()
    }

    /// Whether the destination is a name or an IP address: what it leads to is the provider's to say.
    #[inline]
    pub fn is_by_name(&self) -> bool {
        matches!(
            self.view().asked.destination.kind(),
            AcmEpType::NAME | AcmEpType::ADDRESS_IP | AcmEpType::ADDRESS_IP6
        )
    }

    /// The path record that came with the request: the client's own question, or hints that came with an address
    /// (librdmacm). What is zero in it is left open.
    pub fn wanted(&self) -> Option<PathRecord> {
        self.view().asked.wanted().map(Entry::path_record)
    }

    /// Whether the client wants an answer from what is known, or `ENODATA`, at once.
    pub fn is_nodelay(&self) -> bool {
        self.view().asked.destination.flags() & ACM_FLAGS_NODELAY != 0
    }

    /// Whether the kernel asks (for rdma_cm; id 0): it asks the SA itself when it is refused.
    pub fn is_from_the_kernel(&self) -> bool {
        self.view().id == 0
    }

    /// The query that the request asks: all that its path record names. Of one that came beside an address the destination
    /// does not count; a name's or IP address's is left open, for the provider to
    /// [name](PathQuery::set_target).
    pub fn path_query(&self) -> PathQuery {
        self.view().asked.path_query()
    }

    /// Where the path is to lead if the client asks the plain question of an endpoint: names one destination LID or GID, and
    /// nothing else but the endpoint's own GID and P_Key. `None` for all other requests; their
    /// [`path_query`](Self::path_query) says more.
    ///
    /// `source` is the endpoint's. It is a few comparisons, and agrees with [`PathQuery::is_plain`] of the
    /// [complete](PathQuery::complete) query.
    #[inline]
    pub fn plain_target(&self, source: &Source) -> Option<Target> {
        self.view().asked.plain_target(source, plain::Qos::Counts)
    }

    /// The same with another destination.
    #[cfg(feature = "cache")]
    #[inline]
    pub(crate) fn plain_target_to(&self, target: Target, source: &Source) -> Option<Target> {
        self.view().asked.plain_target_to(target, source)
    }

    /// The same for an SA that does not look at service id and QoS class.
    #[cfg(feature = "cache")]
    #[inline]
    pub(crate) fn plain_target_without_qos(&self, source: &Source) -> Option<Target> {
        self.view()
            .asked
            .plain_target(source, plain::Qos::IsIgnored)
    }

    /// Answers with several paths, the preferred one first. The first is marked as the primary path, the others as alternate
    /// ones; an answer without a path is [ENODATA](Self::refuse).
    ///
    /// librdmacm gives an application all of them (`rdma_getaddrinfo`, in `ai_route`); its own connections take the first. The
    /// kernel gets the first alone. A message has room for [`MAX_PATHS`](Self::MAX_PATHS), one less beside a source
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

    /// Most paths in an answer: the entries of a message (acm.h).
    pub const MAX_PATHS: usize = message::ENTRIES;

    /// Answers with a path. [`answer_all`](Self::answer_all) answers with several.
    pub fn answer(mut self, path: &PathRecord) {
        self.count();
        self.is_answered = true;
        self.view().succeed(path);
    }

    /// Answers with a path that was known before the client asked, and counts that (route cache, in the endpoint's set and in
    /// the core's).
    // Always: a path that is made on the way is not put together in memory first.
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

    /// Answers with a failure. `SUCCESS` is no failure and becomes `ENODATA`.
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

    /// Counts the request, once: one that is kept has been counted.
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
        // librdmacm copies the paths as one piece: nothing stands between them.
        let room = message::ENTRIES - 1 - usize::from(self.asked.source.is_some());
        for path in alternates.iter().take(room) {
            answer.path(ALTERNATE, path);
        }
        if let Some(source) = self.asked.source {
            answer.entry(source.0);
        }
        let host = self.endpoint.host();
        // SAFETY: a message as long as it says, the core's during the call.
        let code = unsafe { (host.table().acm_resolve_response)(self.id, answer.as_msg()) };
        if code != 0 {
            not_delivered(host, self.id, "resolve", AcmStatus::SUCCESS);
        }
    }
}

/// Answers a request without a path.
fn respond_failure(host: &Host, id: u64, header: &[u8; HEADER], status: AcmStatus) {
    let mut answer = Outgoing::answer_to(header, status.0);
    // SAFETY: a message as long as it says, the core's during the call.
    let code = unsafe { (host.table().acm_resolve_response)(id, answer.as_msg()) };
    if code != 0 {
        not_delivered(host, id, "resolve", status);
    }
}

/// Clients may leave before they are answered.
#[cold]
fn not_delivered(host: &Host, id: u64, what: &str, status: AcmStatus) {
    host.log(
        LogLevel::OPERATION,
        format_args!("client {id} is gone: {what}, {status:?}"),
    );
}

/// A refusal is never a success.
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

/// A provider dropped a request: `what` says which.
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

/// Refuses a message that asks for nothing sensible.
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
    let status = match Asked::read(message) {
        Ok(_) => AcmStatus::ESRCADDR,
        Err(invalid) => invalid.status(),
    };
    respond_failure(host, id, message.header(), status);
}
