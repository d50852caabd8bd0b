//! A query has one answer, too.
use acm_prov_api::QueryRequest;
use acm_prov_api::prelude::*;

fn query(request: QueryRequest, path: &PathRecord) {
    request.answer(path);
    request.answer(path);
}

fn main() {}
