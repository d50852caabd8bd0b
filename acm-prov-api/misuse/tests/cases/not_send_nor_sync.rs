//! The core, the SA thread and a provider's own threads share a provider: it must be Send + Sync.
use std::cell::RefCell;
use std::rc::Rc;

use acm_prov_api::prelude::*;

struct Counting(Rc<RefCell<u64>>);

impl Provider for Counting {
    const NAME: &CStr = c"counting";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self(Rc::default()))
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
        *self.0.borrow_mut() += 1;
        request.refuse(Status::ENODATA);
    }
}

fn main() {}
