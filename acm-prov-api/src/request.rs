//! A client's request: a token that is consumed by its one answer.
//!
//! Each token keeps the client's id, transaction id and source, so that whatever the provider answers goes to the right
//! client in the right form. A token that is dropped answers `ENODATA` and says so in the log: no client waits for ever.
//! Tokens may be kept as long as the provider likes and answered from any thread, also after the endpoint was closed.

use std::fmt;

use crate::abi::{
    ACM_FLAGS_NODELAY, AcmCounter, AcmEpType, AcmStatus, IBV_PATH_FLAG_BIDIRECTIONAL,
    IBV_PATH_FLAG_GMP, IBV_PATH_FLAG_PRIMARY,
};
use crate::address::Address;
use crate::handle::EndpointHandle;
use crate::host::{Host, LogLevel};
use crate::log_limit::LogLimit;
use crate::message::{Entry, Message, Outgoing};
use crate::path::PathRecord;
use crate::sa::{Component, PathQuery};

/// Who asked, and what the answer must carry.
struct Client {
    host: Host,
    endpoint: Option<EndpointHandle>,
    id: u64,
    header: [u8; 16],
}

impl Client {
    fn count(&self, status: AcmStatus) {
        let counter = match status {
            AcmStatus::SUCCESS => return,
            AcmStatus::ENODATA => AcmCounter::NODATA,
            _ => AcmCounter::ERROR,
        };
        if let Some(endpoint) = &self.endpoint {
            endpoint.counters().increment(counter);
        }
    }

    /// A refusal is never a success.
    fn failure(status: AcmStatus) -> AcmStatus {
        if status == AcmStatus::SUCCESS {
            AcmStatus::ENODATA
        } else {
            status
        }
    }

    fn delivered(&self, code: i32, what: fmt::Arguments<'_>) {
        if code != 0 {
            // Clients may leave before they are answered.
            self.host.log(
                LogLevel::OPERATION,
                format_args!("client {} is gone: {what}", self.id),
            );
        }
    }
}

/// A request for a path to a destination: answer or refuse it, now or later.
#[must_use = "dropping a request answers ENODATA"]
pub struct ResolveRequest {
    client: Option<Client>,
    source: Option<Entry>,
    destination: Address,
    wanted: Option<PathRecord>,
    /// Whether `wanted` is the request itself, and not a hint beside an address.
    is_path: bool,
    nodelay: bool,
}

impl ResolveRequest {
    /// Reads the core's message. One that asks for nothing sensible is answered here; `None` then.
    pub(crate) fn read(
        host: Host,
        endpoint: Option<EndpointHandle>,
        id: u64,
        message: Message<'_>,
    ) -> Option<Self> {
        let client = Client {
            host,
            endpoint,
            id,
            header: *message.header(),
        };
        if let Some(endpoint) = &client.endpoint {
            endpoint.counters().increment(AcmCounter::RESOLVE);
        }
        match parse(message) {
            Ok(Question {
                source,
                destination,
                wanted,
                is_path,
                nodelay,
            }) => Some(Self {
                client: Some(client),
                source,
                destination,
                wanted,
                is_path,
                nodelay,
            }),
            Err((status, reason)) => {
                host.log(
                    LogLevel::VERBOSE,
                    format_args!("resolve: client {id}: {reason}"),
                );
                respond(client, status, None, None);
                None
            }
        }
    }

    /// What the client wants a path to. Of a path record that is its DGID or, without one, its DLID.
    pub fn destination(&self) -> Address {
        self.destination
    }

    /// The path record that came with the request: the client's own question, or hints that came with an address
    /// (librdmacm). What is zero in it is left open.
    pub fn wanted(&self) -> Option<&PathRecord> {
        self.wanted.as_ref()
    }

    /// Whether the client wants an answer from what is known, or `ENODATA`, at once.
    pub fn is_nodelay(&self) -> bool {
        self.nodelay
    }

    /// Whether the kernel asks (for rdma_cm; id 0): it asks the SA itself when it is refused.
    pub fn is_from_the_kernel(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.id == 0)
    }

    /// The query that the request asks: all that its path record names. Of one that came beside an address the destination
    /// does not count; a name's or IP address's is left open, for the provider to
    /// [name](PathQuery::set_target).
    pub fn path_query(&self) -> PathQuery {
        let mut query = PathQuery::from_client(&self.wanted.unwrap_or_default());
        if !self.is_path {
            query
                .leave_open(Component::Dgid)
                .leave_open(Component::Dlid);
            match self.destination {
                Address::Gid(gid) => query.set_dgid(gid),
                Address::Lid(lid) => query.set_dlid(lid),
                Address::Name(_) | Address::Ip(_) | Address::Ip6(_) => &mut query,
            };
        }
        query
    }

    /// Answers with a path.
    pub fn answer(mut self, path: &PathRecord) {
        if let Some(client) = self.client.take() {
            respond(client, AcmStatus::SUCCESS, Some(path), self.source.as_ref());
        }
    }

    /// Answers with a failure. `SUCCESS` is no failure and becomes `ENODATA`.
    pub fn refuse(mut self, status: AcmStatus) {
        if let Some(client) = self.client.take() {
            respond(client, Client::failure(status), None, None);
        }
    }
}

/// How the log line about a request ends that a provider forgot: for whoever watches a provider under test.
pub const DROPPED_REQUEST: &str = "dropped unanswered; answering ENODATA";

/// Lines about requests that a provider forgot.
static DROPPED: LogLimit = LogLimit::new();

impl Drop for ResolveRequest {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            client.host.log_fault(
                &DROPPED,
                format_args!(
                    "resolve: the request for {} was {DROPPED_REQUEST}",
                    self.destination
                ),
            );
            respond(client, AcmStatus::ENODATA, None, None);
        }
    }
}

impl fmt::Debug for ResolveRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolveRequest")
            .field("destination", &self.destination)
            .field("nodelay", &self.nodelay)
            .finish_non_exhaustive()
    }
}

fn respond(client: Client, status: AcmStatus, path: Option<&PathRecord>, source: Option<&Entry>) {
    client.count(status);
    let mut answer = Outgoing::answer_to(&client.header, status.0);
    if let Some(path) = path {
        const FLAGS: u32 = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
        answer.set_entry(0, &Entry::path(FLAGS, path));
        if let Some(source) = source {
            answer.set_entry(1, source);
        }
    }
    // SAFETY: a whole message, the core's during the call.
    let code = unsafe { (client.host.table().acm_resolve_response)(client.id, answer.as_msg()) };
    client.delivered(code, format_args!("resolve, {status:?}"));
}

struct Question {
    source: Option<Entry>,
    destination: Address,
    wanted: Option<PathRecord>,
    is_path: bool,
    nodelay: bool,
}

fn parse(message: Message<'_>) -> Result<Question, (AcmStatus, String)> {
    let first = message
        .filled_entry(0)
        .ok_or_else(|| (AcmStatus::EINVAL, "the message has no entry".to_owned()))?;
    if first.kind() == AcmEpType::PATH {
        // The header's data bytes are the client's own in a path request and mean nothing.
        let wanted = first.path_record();
        let destination = if !wanted.dgid().is_zero() {
            Address::Gid(wanted.dgid())
        } else if wanted.dlid().0 != 0 {
            Address::Lid(wanted.dlid())
        } else {
            return Err((
                AcmStatus::EDESTADDR,
                "a path request names neither DLID nor DGID".to_owned(),
            ));
        };
        let nodelay = first.flags() & ACM_FLAGS_NODELAY != 0;
        return Ok(Question {
            source: None,
            destination,
            wanted: Some(wanted),
            is_path: true,
            nodelay,
        });
    }
    let index = message.destination_index();
    let entry = message.filled_entry(index).ok_or_else(|| {
        (
            AcmStatus::EINVAL,
            format!("destination index {index} of {} entries", message.entries()),
        )
    })?;
    let destination = Address::parse(entry.kind().0, entry.info())
        .map_err(|error| (AcmStatus::EDESTTYPE, error.to_string()))?;
    let source_index = message.source_index();
    let source = if message.source_is_out() {
        // The core puts the source that it chose right behind the client's entries; of eight it would be the ninth.
        let source = if source_index <= message.entries() {
            message.entry(source_index)
        } else {
            None
        };
        Some(source.ok_or_else(|| {
            (
                AcmStatus::EINVAL,
                format!(
                    "source index {source_index} of {} entries",
                    message.entries()
                ),
            )
        })?)
    } else {
        None
    };
    let wanted = (0..message.entries())
        .filter(|&other| other != index && other != source_index)
        .filter_map(|other| message.filled_entry(other))
        .find(|entry| entry.kind() == AcmEpType::PATH)
        .map(|entry| entry.path_record());
    Ok(Question {
        source,
        destination,
        wanted,
        is_path: false,
        nodelay: entry.flags() & ACM_FLAGS_NODELAY != 0,
    })
}

/// A request to ask the SA, past every cache: answer or refuse it, now or later.
#[must_use = "dropping a request answers ENODATA"]
pub struct QueryRequest {
    client: Option<Client>,
    entry: Entry,
}

impl QueryRequest {
    /// Reads the core's message. One that asks for nothing is answered here; `None` then.
    pub(crate) fn read(
        host: Host,
        endpoint: Option<EndpointHandle>,
        id: u64,
        message: Message<'_>,
    ) -> Option<Self> {
        let client = Client {
            host,
            endpoint,
            id,
            header: *message.header(),
        };
        match message.filled_entry(0) {
            Some(entry) if entry.kind() == AcmEpType::PATH => Some(Self {
                client: Some(client),
                entry,
            }),
            _ => {
                host.log(
                    LogLevel::VERBOSE,
                    format_args!("query: client {id}: the message has no path record"),
                );
                respond_query(client, AcmStatus::EINVAL, None);
                None
            }
        }
    }

    /// The path record that the SA is to be asked for. What is zero in it is left open.
    pub fn wanted(&self) -> PathRecord {
        self.entry.path_record()
    }

    /// The query that the request asks: all that its path record names.
    pub fn path_query(&self) -> PathQuery {
        PathQuery::from_client(&self.wanted())
    }

    /// Answers with the SA's record.
    pub fn answer(mut self, path: &PathRecord) {
        let entry = Entry::path(self.entry.flags(), path);
        if let Some(client) = self.client.take() {
            respond_query(client, AcmStatus::SUCCESS, Some(entry));
        }
    }

    /// Answers with a failure. `SUCCESS` is no failure and becomes `ENODATA`.
    pub fn refuse(mut self, status: AcmStatus) {
        if let Some(client) = self.client.take() {
            respond_query(client, Client::failure(status), Some(self.entry));
        }
    }
}

impl Drop for QueryRequest {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            client.host.log_fault(
                &DROPPED,
                format_args!("query: a request was {DROPPED_REQUEST}"),
            );
            respond_query(client, AcmStatus::ENODATA, Some(self.entry));
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

/// A query is answered in a message of its own form: one path entry, also when it failed.
fn respond_query(client: Client, status: AcmStatus, entry: Option<Entry>) {
    client.count(status);
    let mut answer = Outgoing::answer_to(&client.header, status.0);
    if let Some(entry) = entry {
        answer.set_entry(0, &entry);
    }
    // SAFETY: a whole message, the core's during the call.
    let code = unsafe { (client.host.table().acm_query_response)(client.id, answer.as_msg()) };
    client.delivered(code, format_args!("query, {status:?}"));
}
