//! The default answer to a query request, right for every provider: queries the SA, past all caches.

use crate::handles::EndpointHandle;
use crate::request::QueryRequest;
use crate::sa::SaError;

/// Queries the SA for the client and answers with its record.
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
