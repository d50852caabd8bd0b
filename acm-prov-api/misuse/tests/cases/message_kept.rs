//! A request is a view of the core's message, which is gone after the callback. To answer later, keep it with
//! `ResolveRequest::keep`.
use std::sync::Mutex;

use acm_prov_api::prelude::*;

struct Waiting(Mutex<Vec<KeptRequest>>);

impl Provider for Waiting {
    const NAME: &CStr = c"waiting";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self(Mutex::default()))
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        self.0.lock().unwrap().push(request);
    }
}

fn main() {}
