//! Asking the subnet administrator (SA), through the core's queue of SA MADs.
//!
//! A question is asked for an [endpoint](EndpointHandle); its answer comes to a closure, once, on the core's SA thread, on
//! the closing thread when the endpoint is closed first, or, for paths, on a thread of the SDK's when the core does not
//! bring it in time; that thread lives while a path is asked for. What the core gets as a MAD's context is a key into a table:
//! an answer that comes after its endpoint was closed finds nothing there, and one that never comes leaves nothing behind
//! once the endpoint is closed.
//!
//! The core sends at most `sa_depth` (ibacm_opts.cfg, default 1) MADs a port at a time and queues the rest without a
//! bound. Each MAD times out after `timeout` × (`retries` + 1).

use std::ffi::c_int;
use std::fmt;

use crate::abi::{
    self, AcmCounter, AcmStatus, Be16, Be64, acm_endpoint, acm_sa_mad, umad_hdr,
    umad_sa_mcmember_record, umad_sa_packet,
};
use crate::address::{Gid, Lid};
use crate::door::{self, Refusal};
use crate::handle::{Closed, EndpointHandle};
use crate::path::PathRecord;

mod multicast;
mod outstanding;

pub use multicast::{MulticastJoin, MulticastMember, Selected};
use outstanding::{Context, OUTSTANDING, Until};

#[cfg(feature = "cache")]
pub(crate) use outstanding::abandon;
pub(crate) use outstanding::forget;

/// The status field of a MAD (IBA vol. 1, 13.4.7 and 15.2.2): zero is success, anything else a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SaStatus(pub u16);

impl SaStatus {
    /// The SA is busy: ask again later.
    pub const BUSY: Self = Self(0x0001);
    /// The SA lacks resources: ask again later.
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

    /// The code common to all classes: the low byte.
    pub fn common(self) -> u8 {
        self.0 as u8
    }

    /// The SA's own code: the high byte.
    pub fn class_specific(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Whether the SA may answer the same question later.
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

/// Why a question to the SA brought no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// The SA refused.
    #[error("the SA answered: {0}")]
    Status(SaStatus),
    /// What came back does not answer the question.
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
    /// A record that does not answer the question: for another port than was asked for, or leading nowhere.
    #[error(
        "the SA answered with a path from {sgid} to {dgid} (LID {dlid}), which was not asked for"
    )]
    OtherPath {
        /// Where it starts.
        sgid: Gid,
        /// Where it leads.
        dgid: Gid,
        /// By which LID.
        dlid: Lid,
    },
    /// The endpoint was closed first.
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl SaError {
    /// What a client is told: that the SA was not reached, that the port is down, or that there is no such path.
    #[must_use]
    pub fn status(&self) -> AcmStatus {
        match self {
            Self::TimedOut | Self::NotSent { .. } => AcmStatus::ETIMEDOUT,
            Self::Status(status) if status.is_transient() => AcmStatus::ETIMEDOUT,
            Self::Closed(_) => AcmStatus::ENOTCONN,
            Self::Status(SaStatus::REQ_INVALID) => AcmStatus::EINVAL,
            Self::Status(_) | Self::Unexpected { .. } | Self::OtherPath { .. } => {
                AcmStatus::ENODATA
            }
        }
    }
}

/// Why a question was not asked. Its closure was dropped without being called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaSendError {
    /// See [`Closed`].
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The core has no memory for a MAD, or 2^20 questions are out already.
    #[error("no memory for an SA MAD")]
    NoMemory,
    /// The core did not take the MAD.
    #[error("acm_send_sa_mad refused: {code}")]
    Refused {
        /// What the function returned.
        code: c_int,
    },
}

impl SaSendError {
    /// What a client is told.
    #[must_use]
    pub fn status(&self) -> AcmStatus {
        match self {
            Self::NoMemory => AcmStatus::ENOMEM,
            Self::Closed(_) => AcmStatus::ENOTCONN,
            Self::Refused { .. } => AcmStatus::ETIMEDOUT,
        }
    }
}

/// A question's method and attribute.
#[derive(Clone, Copy)]
struct Question {
    method: u8,
    response: u8,
    attribute: u16,
}

impl EndpointHandle {
    /// Asks the SA for one path record (PathRecord GET), and counts a route query.
    ///
    /// What is not zero in `wanted` is demanded (`acm_path_comp_mask`). An absent SGID, P_Key or reversible bit is filled
    /// in with the port's first GID, the endpoint's P_Key and 1: some SAs answer nothing otherwise.
    ///
    /// `done` is called once: with a record that leads from the SGID to the DGID or DLID that was asked for, by a LID that
    /// a port can have; or with an error, at the latest when the core should have given up, `timeout` × (`retries` + 2)
    /// after the call.
    ///
    /// One call is one MAD: the same question is not asked once for all who want to know, nothing is kept, and a client
    /// that [does not want to wait](crate::ResolveRequest::is_nodelay) is the caller's to answer. The engine of the
    /// feature `cache` does all of that.
    ///
    /// # Errors
    /// When the question could not be asked. `done` is then dropped uncalled.
    pub fn ask_path(
        &self,
        wanted: &PathRecord,
        done: impl FnOnce(Result<PathRecord, SaError>) + Send + 'static,
    ) -> Result<(), SaSendError> {
        let mut wanted = *wanted;
        if wanted.sgid().is_zero() {
            wanted.set_sgid(self.port().gid(0).unwrap_or_default());
        }
        if wanted.pkey().0 == 0 {
            wanted.set_pkey(self.pkey());
        }
        wanted.set_reversible(true);
        let mask = self.host().path_comp_mask(wanted.as_abi());
        self.ask_path_components(&wanted, mask.to_host(), move |answer| {
            done(answer.and_then(|path| answers(&wanted, path)));
        })
    }

    /// Asks the SA for one path record, demanding exactly the components in `mask` (IBA vol. 1, 15.2.5.16; host order), and
    /// counts a route query. Zero can be demanded that way, as of an SL.
    ///
    /// The record that `done` gets has passed the checks on the MAD alone; whether it answers the question is for the
    /// caller to see. Otherwise as [`ask_path`](Self::ask_path).
    ///
    /// # Errors
    /// When the question could not be asked. `done` is then dropped uncalled.
    pub fn ask_path_components(
        &self,
        record: &PathRecord,
        mask: u64,
        done: impl FnOnce(Result<PathRecord, SaError>) + Send + 'static,
    ) -> Result<(), SaSendError> {
        self.ask_path_until(Until::Deadline, record, mask, done)
    }

    /// As [`ask_path_components`](Self::ask_path_components), but `done` is called when the MAD comes back, be the endpoint
    /// closed or not, and dropped by [`abandon`]: for who must know how many MADs the core has.
    #[cfg(feature = "cache")]
    pub(crate) fn ask_path_until_returned(
        &self,
        record: &PathRecord,
        mask: u64,
        done: impl FnOnce(Result<PathRecord, SaError>) + Send + 'static,
    ) -> Result<(), SaSendError> {
        self.ask_path_until(Until::Return, record, mask, done)
    }

    fn ask_path_until(
        &self,
        until: Until,
        record: &PathRecord,
        mask: u64,
        done: impl FnOnce(Result<PathRecord, SaError>) + Send + 'static,
    ) -> Result<(), SaSendError> {
        const QUESTION: Question = Question {
            method: abi::UMAD_METHOD_GET,
            response: abi::UMAD_METHOD_GET_RESP,
            attribute: abi::UMAD_SA_ATTR_PATH_REC,
        };
        self.count(AcmCounter::ROUTE_QUERY);
        self.ask(
            QUESTION,
            until,
            Be64::from_host(mask),
            &record.to_bytes(),
            move |answer| {
                done(answer.map(|packet| {
                    let mut record = [0; PathRecord::LENGTH];
                    record.copy_from_slice(&packet.data[..PathRecord::LENGTH]);
                    PathRecord::from_bytes(&record)
                }));
            },
        )
    }

    /// Joins a multicast group (MCMemberRecord SET). `done` is called once: when the core brings the MAD back, or when the
    /// endpoint is closed first. A core that has lost it brings it never.
    ///
    /// # Errors
    /// When the question could not be asked. `done` is then dropped uncalled.
    pub fn join_multicast(
        &self,
        join: &MulticastJoin,
        done: impl FnOnce(Result<MulticastMember, SaError>) + Send + 'static,
    ) -> Result<(), SaSendError> {
        let (record, mask) = join.record_and_mask(self);
        self.ask_multicast(
            abi::UMAD_METHOD_SET,
            abi::UMAD_METHOD_GET_RESP,
            &record,
            mask,
            done,
        )
    }

    /// Leaves a multicast group that was joined before (MCMemberRecord DELETE). `done` is called as by
    /// [`join_multicast`](Self::join_multicast).
    ///
    /// # Errors
    /// When the question could not be asked. `done` is then dropped uncalled.
    pub fn leave_multicast(
        &self,
        join: &MulticastJoin,
        done: impl FnOnce(Result<MulticastMember, SaError>) + Send + 'static,
    ) -> Result<(), SaSendError> {
        let (record, mask) = join.leave_record_and_mask(self);
        self.ask_multicast(
            abi::UMAD_SA_METHOD_DELETE,
            abi::UMAD_SA_METHOD_DELETE_RESP,
            &record,
            mask,
            done,
        )
    }

    fn ask_multicast(
        &self,
        method: u8,
        response: u8,
        record: &umad_sa_mcmember_record,
        mask: u64,
        done: impl FnOnce(Result<MulticastMember, SaError>) + Send + 'static,
    ) -> Result<(), SaSendError> {
        let question = Question {
            method,
            response,
            attribute: abi::UMAD_SA_ATTR_MCMEMBER_REC,
        };
        self.ask(
            question,
            Until::Close,
            Be64::from_host(mask),
            &multicast::to_bytes(record),
            move |answer| {
                done(answer.map(|packet| MulticastMember::from_data(&packet.data)));
            },
        )
    }

    fn ask(
        &self,
        question: Question,
        until: Until,
        mask: Be64,
        record: &[u8],
        done: impl FnOnce(Result<&umad_sa_packet, SaError>) + Send + 'static,
    ) -> Result<(), SaSendError> {
        let judged = move |answer: Result<&umad_sa_packet, SaError>| {
            done(answer.and_then(|packet| judge(question, packet)));
        };
        let context = OUTSTANDING
            .insert(self, until, Box::new(judged))
            .map_err(|_| SaSendError::NoMemory)?;
        let sent = self.gate().with(|endpoint| {
            // SAFETY: the gate keeps the endpoint open.
            unsafe { self.hand_over(endpoint, context, question, mask, record) }
        });
        let sent = sent.map_err(SaSendError::from).flatten();
        if sent.is_err() {
            // The closure is dropped here, where the endpoint is not held open: what it owns may do anything.
            drop(OUTSTANDING.take(context.key));
        }
        sent
    }

    /// # Safety
    /// The endpoint is open.
    unsafe fn hand_over(
        &self,
        endpoint: *const acm_endpoint,
        context: Context,
        question: Question,
        mask: Be64,
        record: &[u8],
    ) -> Result<(), SaSendError> {
        let table = self.host().table();
        // SAFETY: the caller's promise; the context is a key that nobody dereferences.
        let mad =
            unsafe { (table.acm_alloc_sa_mad)(endpoint, context.to_pointer(), Some(sa_answered)) };
        if mad.is_null() {
            return Err(SaSendError::NoMemory);
        }
        // SAFETY: the core's fresh MAD is ours until it is sent.
        fill(
            unsafe { &mut *mad },
            question,
            mask,
            record,
            context.key.get(),
        );
        // SAFETY: the endpoint is open and the MAD complete. The core logs the endpoint's first address here, out of an array
        // that its server thread may be moving; nothing on this side can prevent that.
        let code = unsafe { (table.acm_send_sa_mad)(mad) };
        if code != 0 {
            // SAFETY: a MAD that was not taken stays with the caller.
            unsafe { (table.acm_free_sa_mad)(mad) };
            return Err(SaSendError::Refused { code });
        }
        Ok(())
    }
}

fn fill(mad: &mut acm_sa_mad, question: Question, mask: Be64, record: &[u8], tid: u32) {
    let packet = &mut mad.sa_mad;
    packet.mad_hdr = umad_hdr {
        base_version: abi::UMAD_BASE_VERSION,
        mgmt_class: abi::UMAD_CLASS_SUBN_ADM,
        class_version: abi::UMAD_SA_CLASS_VERSION,
        method: question.method,
        // The kernel overwrites the upper half, and the core matches answers by the lower.
        tid: Be64::from_host(tid.into()),
        attr_id: Be16::from_host(question.attribute),
        ..Default::default()
    };
    packet.comp_mask = mask;
    packet.data[..record.len()].copy_from_slice(record);
}

/// The path, if it is one between the ports that were asked for.
fn answers(wanted: &PathRecord, path: PathRecord) -> Result<PathRecord, SaError> {
    let (sgid, dgid, dlid) = (path.sgid(), path.dgid(), path.dlid());
    let is_meant = sgid == wanted.sgid()
        && (wanted.dgid().is_zero() || wanted.dgid() == dgid)
        && (wanted.dlid().0 == 0 || wanted.dlid() == dlid);
    if is_meant && dlid.is_unicast() {
        Ok(path)
    } else {
        Err(SaError::OtherPath { sgid, dgid, dlid })
    }
}

/// Whether a MAD is the SA's successful answer to `question`.
fn judge(question: Question, packet: &umad_sa_packet) -> Result<&umad_sa_packet, SaError> {
    let header = &packet.mad_hdr;
    let (class, method, attribute) = (header.mgmt_class, header.method, header.attr_id.to_host());
    if class != abi::UMAD_CLASS_SUBN_ADM
        || method != question.response
        || attribute != question.attribute
    {
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

/// The core's SA thread brings a MAD back, with an answer or without.
unsafe extern "C" fn sa_answered(mad: *mut acm_sa_mad) {
    if mad.is_null() {
        return door::report(
            OUTSTANDING.host(None).as_ref(),
            format_args!("SA handler: the core passed no MAD"),
        );
    }
    // SAFETY: the core's MAD, ours to read until it is freed below.
    let (context, status, packet) = unsafe { ((*mad).context, (*mad).umad.status, (*mad).sa_mad) };
    let context = Context::from_pointer(context);
    let host = OUTSTANDING.host(context);
    door::enter("SA handler", host.as_ref(), (), || {
        let host = host.ok_or_else(|| Refusal::error("a MAD came back before any was sent"))?;
        // SAFETY: the handler owns the MAD and frees it once.
        unsafe { (host.table().acm_free_sa_mad)(mad) };
        // An unknown key belongs to an endpoint that was closed meanwhile: its questions have been answered.
        if let Some(done) = context.and_then(|context| OUTSTANDING.take(context.key)) {
            done(match status {
                0 => Ok(&packet),
                status if status == libc::ETIMEDOUT as u32 => Err(SaError::TimedOut),
                errno => Err(SaError::NotSent { errno }),
            });
        }
        Ok(())
    });
}
