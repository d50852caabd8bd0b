//! The right answer to a query for every provider: ask the SA, past all caches.

use crate::abi::AcmStatus;
use crate::handle::EndpointHandle;
use crate::host::LogLevel;
use crate::log_limit::LogLimit;
use crate::path::PathRecord;
use crate::request::QueryRequest;
use crate::sa::{SaError, SaSendError, SaStatus};
use crate::sync::{Arc, Mutex};

/// Asks the SA what the client wants to know and answers with what it says.
pub(crate) fn ask_sa(endpoint: &EndpointHandle, request: QueryRequest) {
    let wanted = request.wanted();
    let host = *endpoint.host();
    // The closure may be dropped uncalled, and the request must then be refused for the right reason.
    let request = Arc::new(Mutex::new(Some(request)));
    let waiting = Arc::clone(&request);
    let asked = endpoint.ask_path(&wanted, move |answer| {
        let Some(request) = waiting.lock().take() else {
            return;
        };
        match answer {
            Ok(path) if answers(&wanted, &path) => request.answer(&path),
            Ok(path) => {
                static LIMIT: LogLimit = LogLimit::new();
                host.log_fault(
                    &LIMIT,
                    format_args!(
                        "query: the SA answered for {} (LID {})",
                        path.dgid(),
                        path.dlid()
                    ),
                );
                request.refuse(AcmStatus::ENODATA);
            }
            Err(error) => request.refuse(status_of(error)),
        }
    });
    if let Err(error) = asked
        && let Some(request) = request.lock().take()
    {
        host.log(LogLevel::VERBOSE, format_args!("query: {error}"));
        request.refuse(match error {
            SaSendError::NoMemory => AcmStatus::ENOMEM,
            SaSendError::Closed(_) => AcmStatus::ENOTCONN,
            SaSendError::Refused { .. } => AcmStatus::ETIMEDOUT,
        });
    }
}

/// Whether a record is for the destination that was asked for, and usable.
fn answers(wanted: &PathRecord, path: &PathRecord) -> bool {
    path.dlid().is_unicast()
        && (wanted.dlid().0 == 0 || wanted.dlid() == path.dlid())
        && (wanted.dgid().is_zero() || wanted.dgid() == path.dgid())
}

/// What a client is told when the SA brought no record: the SA was not reached, the port is down, or there is none.
pub(crate) fn status_of(error: SaError) -> AcmStatus {
    match error {
        SaError::TimedOut | SaError::NotSent { .. } => AcmStatus::ETIMEDOUT,
        SaError::Status(status) if status.is_transient() => AcmStatus::ETIMEDOUT,
        SaError::Closed(_) => AcmStatus::ENOTCONN,
        SaError::Status(SaStatus::REQ_INVALID) => AcmStatus::EINVAL,
        SaError::Status(_) | SaError::Unexpected { .. } => AcmStatus::ENODATA,
    }
}
