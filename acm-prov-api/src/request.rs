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
    ACM_FLAGS_NODELAY, AcmCounter, AcmEpType, AcmStatus, IBV_PATH_FLAG_BIDIRECTIONAL,
    IBV_PATH_FLAG_GMP, IBV_PATH_FLAG_PRIMARY,
};
use crate::address::Address;
use crate::handle::EndpointHandle;
use crate::host::{Host, LogLevel};
use crate::log_limit::LogLimit;
use crate::message::{ENTRY, Entry, HEADER, Message, Outgoing};
use crate::path::PathRecord;
use crate::sa::{Component, PathQuery, Source, Target};
use crate::sync::Arc;

mod plain;

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
    Borrowed {
        endpoint: &'a EndpointHandle,
        id: u64,
        header: &'a [u8; HEADER],
        asked: Asked<'a>,
    },
    Kept(Arc<Kept>),
}

struct Kept {
    endpoint: EndpointHandle,
    id: u64,
    header: [u8; HEADER],
    destination: [u8; ENTRY],
    source: Option<[u8; ENTRY]>,
    hint: Option<[u8; ENTRY]>,
}

/// What a message asks, as its entries.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// A path record, or an address of a kind that is known.
    destination: Entry<'a>,
    /// The source that the core chose, if the answer is to name it.
    source: Option<Entry<'a>>,
    /// A path record beside an address.
    hint: Option<Entry<'a>>,
}

/// A request in either form.
struct View<'a> {
    endpoint: &'a EndpointHandle,
    id: u64,
    header: &'a [u8; HEADER],
    asked: Asked<'a>,
}

impl<'a> ResolveRequest<'a> {
    /// Reads the core's message. One that asks for nothing sensible is answered here; `None` then.
    #[inline]
    pub(crate) fn read(
        endpoint: &'a EndpointHandle,
        id: u64,
        message: Message<'a>,
    ) -> Option<Self> {
        match Asked::read(message) {
            Ok(asked) => Some(Self {
                inner: Inner::Borrowed {
                    endpoint,
                    id,
                    header: message.header(),
                    asked,
                },
                is_answered: false,
            }),
            Err(invalid) => {
                invalid.refuse(endpoint, id, message);
                None
            }
        }
    }

    #[inline]
    fn view(&self) -> View<'_> {
        match &self.inner {
            Inner::Borrowed {
                endpoint,
                id,
                header,
                asked,
            } => View {
                endpoint,
                id: *id,
                header,
                asked: *asked,
            },
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
            Inner::Kept(kept) => Arc::clone(kept),
            Inner::Borrowed {
                endpoint,
                id,
                header,
                asked,
            } => Arc::new(Kept {
                endpoint: (*endpoint).clone(),
                id: *id,
                header: **header,
                destination: *asked.destination.0,
                source: asked.source.map(|entry| *entry.0),
                hint: asked.hint.map(|entry| *entry.0),
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

    /// Answers with a path.
    pub fn answer(mut self, path: &PathRecord) {
        self.count();
        self.is_answered = true;
        self.view().succeed(path);
    }

    /// Answers with a path that was known before the client asked, and counts that (route cache, in the endpoint's set and in
    /// the core's).
    #[inline]
    pub fn answer_from_cache(mut self, path: &PathRecord) {
        self.is_answered = true;
        let view = self.view();
        match self.inner {
            Inner::Borrowed { .. } => view.endpoint.counters().count_resolved_from_cache(),
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
        if let Inner::Borrowed { endpoint, .. } = &self.inner {
            endpoint.counters().increment(AcmCounter::RESOLVE);
        }
    }
}

impl View<'_> {
    #[inline]
    fn succeed(&self, path: &PathRecord) {
        const FLAGS: u32 = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
        let mut answer = Outgoing::answer_to(self.header, AcmStatus::SUCCESS.0);
        answer.path(FLAGS, path);
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

/// How the log line about a request ends that a provider forgot: for whoever watches a provider under test.
pub const DROPPED_REQUEST: &str = "dropped unanswered; answering ENODATA";

/// Lines about requests that a provider forgot.
static DROPPED: LogLimit = LogLimit::new();

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
        self.view().endpoint.host().log_fault(
            &DROPPED,
            format_args!(
                "resolve: the request for {} was {DROPPED_REQUEST}",
                self.destination()
            ),
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

/// Why a message asks for nothing sensible.
enum Invalid {
    NoEntry,
    NoDestination,
    DestinationIndex,
    DestinationType,
    SourceIndex,
}

impl Invalid {
    fn status(&self) -> AcmStatus {
        match self {
            Self::NoEntry | Self::DestinationIndex | Self::SourceIndex => AcmStatus::EINVAL,
            Self::NoDestination => AcmStatus::EDESTADDR,
            Self::DestinationType => AcmStatus::EDESTTYPE,
        }
    }

    fn reason(&self, message: Message<'_>) -> String {
        let entries = message.entries();
        match self {
            Self::NoEntry => "the message has no entry".to_owned(),
            Self::NoDestination => "a path request names neither DLID nor DGID".to_owned(),
            Self::DestinationIndex => {
                let index = message.destination_index();
                format!("destination index {index} of {entries} entries")
            }
            Self::DestinationType => {
                let entry = message.entry(message.destination_index());
                let kind = entry.map_or(0, |entry| entry.kind().0);
                crate::address::AddressError::UnknownType(kind).to_string()
            }
            Self::SourceIndex => {
                let index = message.source_index();
                format!("source index {index} of {entries} entries")
            }
        }
    }

    #[cold]
    fn refuse(&self, endpoint: &EndpointHandle, id: u64, message: Message<'_>) {
        endpoint.counters().increment(AcmCounter::RESOLVE);
        let status = self.status();
        count_failure(endpoint, status);
        let host = endpoint.host();
        host.log(
            LogLevel::VERBOSE,
            format_args!("resolve: client {id}: {}", self.reason(message)),
        );
        respond_failure(host, id, message.header(), status);
    }
}

/// Answers a request from an address that is not open.
pub(crate) fn refuse_resolve(host: &Host, id: u64, message: Message<'_>) {
    let status = match Asked::read(message) {
        Ok(_) => AcmStatus::ESRCADDR,
        Err(invalid) => invalid.status(),
    };
    respond_failure(host, id, message.header(), status);
}

impl<'a> Asked<'a> {
    #[inline]
    fn read(message: Message<'a>) -> Result<Self, Invalid> {
        let first = message.filled_entry(0).ok_or(Invalid::NoEntry)?;
        if first.kind() == AcmEpType::PATH {
            // The header's data bytes are the client's own in a path request and mean nothing.
            if !plain::has_destination(first.info()) {
                return Err(Invalid::NoDestination);
            }
            return Ok(Self {
                destination: first,
                source: None,
                hint: None,
            });
        }
        Self::read_address(message)
    }

    fn read_address(message: Message<'a>) -> Result<Self, Invalid> {
        let index = message.destination_index();
        let destination = message
            .filled_entry(index)
            .ok_or(Invalid::DestinationIndex)?;
        if !Address::is_known(destination.kind()) {
            return Err(Invalid::DestinationType);
        }
        let source_index = message.source_index();
        let source = if message.source_is_out() {
            // The core puts the source that it chose right behind the client's entries; of eight it would be the ninth.
            let is_there = source_index <= message.entries();
            let source = message.entry(source_index).filter(|_| is_there);
            Some(source.ok_or(Invalid::SourceIndex)?)
        } else {
            None
        };
        let hint = (0..message.entries())
            .filter(|&other| other != index && other != source_index)
            .filter_map(|other| message.filled_entry(other))
            .find(|entry| entry.kind() == AcmEpType::PATH);
        Ok(Self {
            destination,
            source,
            hint,
        })
    }

    fn is_path(&self) -> bool {
        self.destination.kind() == AcmEpType::PATH
    }

    fn wanted(&self) -> Option<Entry<'a>> {
        if self.is_path() {
            Some(self.destination)
        } else {
            self.hint
        }
    }

    fn destination(&self) -> Address {
        if self.is_path() {
            let wanted = self.destination.path_record();
            return match wanted.dgid() {
                none if none.is_zero() => Address::Lid(wanted.dlid()),
                gid => Address::Gid(gid),
            };
        }
        Address::parse(self.destination.kind().0, self.destination.info())
            .expect("the kind was looked at when the message was read")
    }

    fn path_query(&self) -> PathQuery {
        let wanted = self.wanted().map(Entry::path_record);
        let mut query = PathQuery::from_client(&wanted.unwrap_or_default());
        if !self.is_path() {
            query
                .leave_open(Component::Dgid)
                .leave_open(Component::Dlid);
            match self.destination() {
                Address::Gid(gid) => query.set_dgid(gid),
                Address::Lid(lid) => query.set_dlid(lid),
                Address::Name(_) | Address::Ip(_) | Address::Ip6(_) => &mut query,
            };
        }
        query
    }
}

/// A request to ask the SA, past every cache: answer or refuse it, now or later.
#[must_use = "dropping a request answers ENODATA"]
pub struct QueryRequest {
    endpoint: EndpointHandle,
    id: u64,
    header: [u8; HEADER],
    entry: [u8; ENTRY],
    is_answered: bool,
}

impl QueryRequest {
    /// Reads the core's message. One that asks for nothing is answered here; `None` then.
    pub(crate) fn read(endpoint: &EndpointHandle, id: u64, message: Message<'_>) -> Option<Self> {
        match queried(message) {
            Some(entry) => Some(Self {
                endpoint: endpoint.clone(),
                id,
                header: *message.header(),
                entry: *entry.0,
                is_answered: false,
            }),
            None => {
                let host = endpoint.host();
                host.log(
                    LogLevel::VERBOSE,
                    format_args!("query: client {id}: the message has no path record"),
                );
                count_failure(endpoint, AcmStatus::EINVAL);
                respond_query(host, id, message.header(), AcmStatus::EINVAL, |_| ());
                None
            }
        }
    }

    fn entry(&self) -> Entry<'_> {
        Entry(&self.entry)
    }

    /// The path record that the SA is to be asked for. What is zero in it is left open.
    pub fn wanted(&self) -> PathRecord {
        self.entry().path_record()
    }

    /// The query that the request asks: all that its path record names.
    pub fn path_query(&self) -> PathQuery {
        PathQuery::from_client(&self.wanted())
    }

    /// Answers with the SA's record.
    pub fn answer(mut self, path: &PathRecord) {
        self.is_answered = true;
        let flags = self.entry().flags();
        self.respond(AcmStatus::SUCCESS, |answer| answer.path(flags, path));
    }

    /// Answers with a failure. `SUCCESS` is no failure and becomes `ENODATA`.
    pub fn refuse(mut self, status: AcmStatus) {
        self.fail(status);
    }

    fn fail(&mut self, status: AcmStatus) {
        self.is_answered = true;
        self.respond(failure(status), |answer| answer.entry(&self.entry));
    }

    fn respond(&self, status: AcmStatus, fill: impl FnOnce(&mut Outgoing)) {
        count_failure(&self.endpoint, status);
        respond_query(self.endpoint.host(), self.id, &self.header, status, fill);
    }
}

impl Drop for QueryRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.endpoint.host().log_fault(
                &DROPPED,
                format_args!("query: a request was {DROPPED_REQUEST}"),
            );
            self.fail(AcmStatus::ENODATA);
        }
    }
}

impl fmt::Debug for QueryRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRequest")
            .field("wanted", &self.wanted())
            .finish_non_exhaustive()
    }
}

/// The entry of a query message.
fn queried(message: Message<'_>) -> Option<Entry<'_>> {
    message
        .filled_entry(0)
        .filter(|entry| entry.kind() == AcmEpType::PATH)
}

/// Answers a query from an address that is not open.
pub(crate) fn refuse_query(host: &Host, id: u64, message: Message<'_>) {
    let header = message.header();
    match queried(message) {
        Some(entry) => respond_query(host, id, header, AcmStatus::ESRCADDR, |answer| {
            answer.entry(entry.0);
        }),
        None => respond_query(host, id, header, AcmStatus::EINVAL, |_| ()),
    }
}

/// A query is answered in a message of its own form: one path entry, also when it failed.
fn respond_query(
    host: &Host,
    id: u64,
    header: &[u8; HEADER],
    status: AcmStatus,
    fill: impl FnOnce(&mut Outgoing),
) {
    let mut answer = Outgoing::answer_to(header, status.0);
    fill(&mut answer);
    // SAFETY: a message as long as it says, the core's during the call.
    let code = unsafe { (host.table().acm_query_response)(id, answer.as_msg()) };
    if code != 0 {
        not_delivered(host, id, "query", status);
    }
}
