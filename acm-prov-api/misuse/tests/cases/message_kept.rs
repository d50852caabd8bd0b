//! What a client asked lives as long as the request: a reference into it cannot be kept past the answer.
use acm_prov_api::prelude::*;

fn resolve(request: ResolveRequest, kept: &mut Vec<&'static PathRecord>) {
    if let Some(wanted) = request.wanted() {
        kept.push(wanted);
    }
    request.refuse(Status::ENODATA);
}

fn main() {}
