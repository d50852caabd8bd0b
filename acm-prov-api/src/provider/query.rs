//! The right answer to a query for every provider: ask the SA, past all caches.

use crate::handles::EndpointHandle;
use crate::request::QueryRequest;
use crate::sa::SaError;

/// Asks the SA what the client wants to know and answers with what it says.
pub(crate) fn ask_sa(endpoint: &EndpointHandle, request: QueryRequest) {
    let query = request.path_query();
    if let Err(error) = query.target() {
        return request.refuse(error.status());
    }
    let port = endpoint.port().clone();
    endpoint.ask_path_for_a_client(&query, move |answer| match answer {
        Ok(path) => request.answer(&path),
        Err(error) => {
            if let SaError::Mismatch(mismatch) = error {
                port.report_mismatch(&mismatch);
            }
            request.refuse(error.status());
        }
    });
}
