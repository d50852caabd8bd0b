//! A client's request for an SA query (QUERY_SA).

use std::fmt;

use super::{count_failure, dropped, failure, not_delivered};
use crate::abi::{AcmEpType, AcmStatus};
use crate::handles::EndpointHandle;
use crate::host::{Host, LogLevel};
use crate::path::PathRecord;
use crate::request::message::{ENTRY, Entry, HEADER, Message, Outgoing};
use crate::sa::PathQuery;

/// A request for an SA query, past every cache: answer or refuse it, now or later.
#[must_use = "dropping a request answers ENODATA"]
pub struct QueryRequest {
    endpoint: EndpointHandle,
    id: u64,
    header: [u8; HEADER],
    entry: [u8; ENTRY],
    is_answered: bool,
}

impl QueryRequest {
    /// Reads the core's message. Refuses an invalid one and returns `None`.
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

    /// Returns the path record for the query. Zero fields are left open.
    pub fn wanted(&self) -> PathRecord {
        self.entry().path_record()
    }

    /// Returns the request's query: all that its path record names.
    pub fn path_query(&self) -> PathQuery {
        PathQuery::from_client(&self.wanted())
    }

    /// Answers with the SA's record.
    pub fn answer(mut self, path: &PathRecord) {
        self.is_answered = true;
        let flags = self.entry().flags();
        self.respond(AcmStatus::SUCCESS, |answer| answer.path(flags, path));
    }

    /// Answers with an error. `SUCCESS` becomes `ENODATA`.
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
            dropped(self.endpoint.host(), format_args!("query: a request"));
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

/// Returns the entry of a query message.
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

/// Answers a query. The message always has one path entry, even with an error.
fn respond_query(
    host: &Host,
    id: u64,
    header: &[u8; HEADER],
    status: AcmStatus,
    fill: impl FnOnce(&mut Outgoing),
) {
    let mut answer = Outgoing::answer_to(header, status.0);
    fill(&mut answer);
    // SAFETY: the message has the length in its header; the core reads it only during the call.
    let code = unsafe { (host.table().acm_query_response)(id, answer.as_msg()) };
    if code != 0 {
        not_delivered(host, id, "query", status);
    }
}
