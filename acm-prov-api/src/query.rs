//! The right answer to a query for every provider: ask the SA, past all caches.

use crate::handle::EndpointHandle;
use crate::host::LogLevel;
use crate::log_limit::LogLimit;
use crate::request::QueryRequest;
use crate::sa::SaError;
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
            Ok(path) => request.answer(&path),
            Err(error) => {
                if let SaError::OtherPath { .. } = error {
                    static LIMIT: LogLimit = LogLimit::new();
                    host.log_fault(&LIMIT, format_args!("query: {error}"));
                }
                request.refuse(error.status());
            }
        }
    });
    if let Err(error) = asked
        && let Some(request) = request.lock().take()
    {
        host.log(LogLevel::VERBOSE, format_args!("query: {error}"));
        request.refuse(error.status());
    }
}
