//! Queries to the subnet administrator (SA), through the core's queue of SA MADs.
//!
//! A query belongs to an [endpoint](EndpointHandle). The SDK calls its closure exactly once:
//!
//! - with the SA's response, on the core's SA thread;
//! - with an error when the endpoint closes first, on the closing thread;
//! - with any other error, on a thread of the SDK. That thread lives while queries are outstanding, and then until its next
//!   deadline or the close of an endpoint.
//!
//! The SDK paces all MADs of a port: the core has at most `sa_depth` + 1 at a time (ibacm_opts.cfg, default 1). The others
//! wait here, joins before path queries. If the core does not return a MAD, it ends by a deadline, which starts when the MAD is
//! handed to the core: `timeout` × (`retries` + 1) for each MAD that the core has, this one included, plus one `timeout`.

use std::ffi::c_int;
use std::fmt;

use crate::abi::{self, AcmStatus, umad_sa_mcmember_record, umad_sa_packet};
use crate::address::Lid;
use crate::handles::{Closed, EndpointHandle, PortError, PortHandle};
use crate::path::PathRecord;

mod class_port_info;
mod multicast;
mod path_query;
mod queue;

pub use class_port_info::ClassPortInfo;
pub use multicast::{MulticastJoin, MulticastMember};
pub use path_query::{Component, Mismatch, PathQuery, PathQueryError, Source, Target};
use queue::{MadRequest, RECORD_LENGTH, Urgency};

pub(crate) use queue::MadId;
#[cfg(feature = "cache")]
pub(crate) use queue::{OnEnd, new_id, withdraw};

/// The status field of a MAD (IBA vol. 1, 13.4.7 and 15.2.2): zero is success, anything else a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SaStatus(pub u16);

impl SaStatus {
    /// The SA is busy: retry later.
    pub const BUSY: Self = Self(0x0001);
    /// The SA lacks resources: retry later.
    pub const NO_RESOURCES: Self = Self(0x0100);
    /// The request is invalid.
    pub const REQ_INVALID: Self = Self(0x0200);
    /// No record matches.
    pub const NO_RECORDS: Self = Self(0x0300);
    /// More than one record matches a query for one.
    pub const TOO_MANY_RECORDS: Self = Self(0x0400);
    /// The requester's or a record's GID is invalid.
    pub const INVALID_GID: Self = Self(0x0500);
    /// The query lacks components.
    pub const INSUFFICIENT_COMPONENTS: Self = Self(0x0600);
    /// The request is denied.
    pub const REQ_DENIED: Self = Self(0x0700);

    /// Returns the code common to all classes: the low byte.
    pub fn common(self) -> u8 {
        self.0 as u8
    }

    /// Returns the SA's own code: the high byte.
    pub fn class_specific(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Whether a later retry may succeed.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::BUSY | Self::NO_RESOURCES)
    }

    fn meaning(self) -> &'static str {
        match self {
            Self(0) => "success",
            Self::BUSY => "busy",
            Self::NO_RESOURCES => "no resources",
            Self::REQ_INVALID => "invalid request",
            Self::NO_RECORDS => "no records",
            Self::TOO_MANY_RECORDS => "too many records",
            Self::INVALID_GID => "invalid GID",
            Self::INSUFFICIENT_COMPONENTS => "insufficient components",
            Self::REQ_DENIED => "request denied",
            Self(status) => match status & 0x1c {
                0x04 => "bad class version",
                0x08 => "method not supported",
                0x0c => "attribute not supported",
                0x1c => "invalid attribute value",
                _ => "unknown status",
            },
        }
    }
}

impl fmt::Display for SaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {:#06x})", self.meaning(), self.0)
    }
}

impl fmt::Debug for SaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why an SA query brought no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SaError {
    /// No answer within the core's `timeout` × (`retries` + 1).
    #[error("the SA did not answer in time")]
    TimedOut,
    /// The core could not send the MAD after it had queued it.
    #[error("the MAD was not sent: errno {errno}")]
    NotSent {
        /// The reason, as an errno.
        errno: u32,
    },
    /// The core refused the MAD.
    #[error("acm_send_sa_mad refused the MAD: {code}")]
    NotTaken {
        /// The function's return value.
        code: c_int,
    },
    /// The core has no memory for a MAD, 2^20 MADs are outstanding, or no thread could be started.
    #[error("no memory for an SA MAD")]
    NoMemory,
    /// The SA answered with an error.
    #[error("the SA answered: {0}")]
    Status(SaStatus),
    /// The response does not belong to the query.
    #[error(
        "the answer has method {method:#04x}, attribute {attribute:#06x}, management class {class:#04x}"
    )]
    Unexpected {
        /// The MAD's management class.
        class: u8,
        /// The MAD's method.
        method: u8,
        /// The MAD's attribute, host order.
        attribute: u16,
    },
    /// The SA's ClassPortInfo has an unknown version.
    #[error(
        "the SA's ClassPortInfo has base version {base}, class version {class}; 1 and 2 are known"
    )]
    UnknownVersion {
        /// The base version.
        base: u8,
        /// The class version.
        class: u8,
    },
    /// A record that does not answer the query.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The endpoint was closed first.
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl SaError {
    /// Returns the status for a client: SA not reached, port down, or no such path.
    #[must_use]
    pub fn status(&self) -> AcmStatus {
        match self {
            Self::NoMemory => AcmStatus::ENOMEM,
            Self::Closed(_) => AcmStatus::ENOTCONN,
            Self::Status(SaStatus::REQ_INVALID) => AcmStatus::EINVAL,
            error if error.is_transient() => AcmStatus::ETIMEDOUT,
            _ => AcmStatus::ENODATA,
        }
    }

    /// Whether a later retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::TimedOut | Self::NotSent { .. } | Self::NotTaken { .. } | Self::NoMemory => true,
            Self::Status(status) => status.is_transient(),
            _ => false,
        }
    }

    /// Whether this shows that the SA cannot be reached.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        matches!(
            self,
            Self::TimedOut | Self::NotSent { .. } | Self::NotTaken { .. } | Self::NoMemory
        )
    }
}

impl EndpointHandle {
    /// Returns the source side of the endpoint's path queries, from the port's present attributes.
    ///
    /// # Errors
    /// If the port is closed, its attributes cannot be read, or it has no GID.
    pub fn source(&self) -> Result<Source, PortError> {
        let port = self.port();
        Ok(Source {
            gid: port.gid(0).ok_or(PortError::NoGid(port.number()))?,
            lid: port.attributes()?.lid,
            pkey: self.pkey(),
        })
    }

    /// Queries the SA for one path record (PathRecord GET), and counts a route query when the core gets the MAD.
    ///
    /// The SDK sends the components that `query` names, and [fills in](PathQuery::complete) the endpoint's GID and P_Key. It
    /// calls `done` exactly once: with a record that [answers the query](PathQuery::check), or with an error. That is at the
    /// latest when the core should have given up the MAD (see the [module](crate::sa)). A MAD may wait without limit before it
    /// is sent. If you keep a client's request for the answer, enforce the client's deadline yourself.
    ///
    /// One call is one MAD. This does not merge equal queries, does not cache, and does not answer clients that [do not want
    /// to wait](crate::ResolveRequest::is_nodelay). The engine (feature `cache`) does all three.
    pub fn ask_path(
        &self,
        query: &PathQuery,
        done: impl FnOnce(Result<PathRecord, SaError>) + Send + 'static,
    ) {
        self.ask_completed(query, None, done);
    }

    /// As [`ask_path`](Self::ask_path), for a client: calls `done` when the core should have given up a MAD that was sent
    /// now, even if this one still waits to be sent.
    pub(crate) fn ask_path_for_a_client(
        &self,
        query: &PathQuery,
        done: impl FnOnce(Result<PathRecord, SaError>) + Send + 'static,
    ) {
        let patience = self.host().sa_limits().patience();
        self.ask_completed(query, Some(patience), done);
    }

    fn completed(&self, query: &PathQuery) -> PathQuery {
        query.complete(&Source {
            gid: self.port().gid(0).unwrap_or_default(),
            lid: Lid::ZERO,
            pkey: self.pkey(),
        })
    }

    fn ask_completed(
        &self,
        query: &PathQuery,
        patience: Option<u64>,
        done: impl FnOnce(Result<PathRecord, SaError>) + Send + 'static,
    ) {
        let query = self.completed(query);
        let on_end = move |_, answer: Result<&umad_sa_packet, SaError>| {
            done(answer.and_then(|packet| read_path(&query, packet)));
        };
        let id = queue::new_id();
        self.clone()
            .ask_complete_path(id, &query, patience, Box::new(on_end));
    }

    /// As [`ask_path`](Self::ask_path), for a complete query, with the caller's id. `done` also gets the time at which the
    /// core got the MAD, and [reads](read_path) the answer itself.
    pub(crate) fn ask_complete_path(
        self,
        id: MadId,
        query: &PathQuery,
        patience: Option<u64>,
        done: queue::Done,
    ) {
        let request = MadRequest {
            method: abi::UMAD_METHOD_GET,
            response: abi::UMAD_METHOD_GET_RESP,
            attribute: abi::UMAD_SA_ATTR_PATH_REC,
            mask: query.mask(),
            record: query.record().to_bytes(),
        };
        queue::submit(id, self, Urgency::Usual, request, patience, done);
    }

    /// Queries the SA's ClassPortInfo (GET). Does not count as a route query, and goes before path queries. Calls `done` as
    /// [`ask_path`](Self::ask_path) does.
    pub fn ask_class_port_info(
        &self,
        done: impl FnOnce(Result<ClassPortInfo, SaError>) + Send + 'static,
    ) {
        self.ask_abilities(queue::new_id(), done);
    }

    /// As [`ask_class_port_info`](Self::ask_class_port_info), with the caller's id.
    pub(crate) fn ask_abilities(
        &self,
        id: MadId,
        done: impl FnOnce(Result<ClassPortInfo, SaError>) + Send + 'static,
    ) {
        let request = MadRequest {
            method: abi::UMAD_METHOD_GET,
            response: abi::UMAD_METHOD_GET_RESP,
            attribute: class_port_info::ATTRIBUTE,
            mask: 0,
            record: [0; RECORD_LENGTH],
        };
        let done = move |_, answer: Result<&umad_sa_packet, SaError>| {
            done(answer.and_then(|packet| ClassPortInfo::from_data(&packet.data)));
        };
        queue::submit(
            id,
            self.clone(),
            Urgency::Urgent,
            request,
            None,
            Box::new(done),
        );
    }

    /// Joins a multicast group (MCMemberRecord SET). Goes before path queries. Calls `done` as [`ask_path`](Self::ask_path)
    /// does.
    pub fn join_multicast(
        &self,
        join: &MulticastJoin,
        done: impl FnOnce(Result<MulticastMember, SaError>) + Send + 'static,
    ) {
        let (record, mask) = join.record_and_mask(self);
        self.ask_multicast(
            Urgency::Urgent,
            [abi::UMAD_METHOD_SET, abi::UMAD_METHOD_GET_RESP],
            &record,
            mask,
            done,
        );
    }

    /// Leaves a multicast group (MCMemberRecord DELETE). The core gets the MAD at once, ahead of all others, since an endpoint
    /// leaves when it closes. Calls `done` as [`ask_path`](Self::ask_path) does.
    pub fn leave_multicast(
        &self,
        join: &MulticastJoin,
        done: impl FnOnce(Result<MulticastMember, SaError>) + Send + 'static,
    ) {
        let (record, mask) = join.leave_record_and_mask(self);
        self.ask_multicast(
            Urgency::Last,
            [abi::UMAD_SA_METHOD_DELETE, abi::UMAD_SA_METHOD_DELETE_RESP],
            &record,
            mask,
            done,
        );
    }

    fn ask_multicast(
        &self,
        urgency: Urgency,
        [method, response]: [u8; 2],
        record: &umad_sa_mcmember_record,
        mask: u64,
        done: impl FnOnce(Result<MulticastMember, SaError>) + Send + 'static,
    ) {
        let mut bytes = [0; RECORD_LENGTH];
        let record = multicast::to_bytes(record);
        bytes[..record.len()].copy_from_slice(&record);
        let request = MadRequest {
            method,
            response,
            attribute: abi::UMAD_SA_ATTR_MCMEMBER_REC,
            mask,
            record: bytes,
        };
        let done = move |_, answer: Result<&umad_sa_packet, SaError>| {
            done(answer.map(|packet| MulticastMember::from_data(&packet.data)));
        };
        queue::submit(
            queue::new_id(),
            self.clone(),
            urgency,
            request,
            None,
            Box::new(done),
        );
    }
}

impl EndpointHandle {
    /// Ends the endpoint's queries with an error, and refuses new ones.
    pub(crate) fn close(&self) {
        self.gate().close();
        queue::close(self);
    }
}

impl PortHandle {
    /// Logs that the SA's path does not match the query, at most once an hour for each component.
    pub(crate) fn report_mismatch(&self, mismatch: &Mismatch) {
        self.log_hourly(
            mismatch.component.name(),
            format_args!("{mismatch}; the answer is not used"),
        );
    }
}

/// Returns the record in the SA's response, if it [answers](PathQuery::check) the query.
pub(crate) fn read_path(query: &PathQuery, packet: &umad_sa_packet) -> Result<PathRecord, SaError> {
    let mut record = [0; PathRecord::LENGTH];
    record.copy_from_slice(&packet.data[..PathRecord::LENGTH]);
    let path = PathRecord::from_bytes(&record);
    query.check(&path)?;
    Ok(path)
}

/// Returns the MAD if it is a successful response of the SA, with the method `response` and the attribute of the query.
fn judge(response: u8, asked: u16, packet: &umad_sa_packet) -> Result<&umad_sa_packet, SaError> {
    let header = &packet.mad_hdr;
    let (class, method, attribute) = (header.mgmt_class, header.method, header.attr_id.to_host());
    if class != abi::UMAD_CLASS_SUBN_ADM || method != response || attribute != asked {
        return Err(SaError::Unexpected {
            class,
            method,
            attribute,
        });
    }
    match header.status.to_host() {
        0 => Ok(packet),
        status => Err(SaError::Status(SaStatus(status))),
    }
}
