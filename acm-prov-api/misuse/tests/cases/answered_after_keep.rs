//! `keep` consumes the request: only the kept request can be answered.
use acm_prov_api::prelude::*;

fn resolve(request: ResolveRequest<'_>, path: &PathRecord) -> KeptRequest {
    let kept = request.keep();
    request.answer(path);
    kept
}

fn main() {}
