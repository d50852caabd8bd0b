//! The right answer to a query for every provider: ask the SA, past all caches.

use crate::handle::EndpointHandle;
use crate::log_limit::LogLimit;
use crate::request::QueryRequest;
use crate::sa::SaError;

/// Asks the SA what the client wants to know and answers with what it says.
pub(crate) fn ask_sa(endpoint: &EndpointHandle, request: QueryRequest) {
    let query = request.path_query();
    if let Err(error) = query.target() {
        return request.refuse(error.status());
    }
    let host = *endpoint.host();
    endpoint.ask_path(&query, move |answer| match answer {
        Ok(path) => request.answer(&path),
        Err(error) => {
            if let SaError::Mismatch(_) = error {
                static LIMIT: LogLimit = LogLimit::new();
                host.log_fault(&LIMIT, format_args!("query: {error}"));
            }
            request.refuse(error.status());
        }
    });
}
