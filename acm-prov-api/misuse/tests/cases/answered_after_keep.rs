//! Keeping consumes the request: the one that is kept has its one answer.
use acm_prov_api::prelude::*;

fn resolve(request: ResolveRequest<'_>, path: &PathRecord) -> KeptRequest {
    let kept = request.keep();
    request.answer(path);
    kept
}

fn main() {}
