//! A request has one answer: answering consumes it.
use acm_prov_api::prelude::*;

fn resolve(request: ResolveRequest, path: &PathRecord) {
    request.answer(path);
    request.refuse(Status::ENODATA);
}

fn main() {}
