//! A local address is borrowed for the callback: a thread can have what it needs of the endpoint instead.
use acm_prov_api::prelude::*;

struct Threaded;

impl Provider for Threaded {
    const NAME: &CStr = c"threaded";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        let request = request.keep();
        let port = from.endpoint().handle().port();
        let _ = port.spawn("resolver", move |_| {
            let _ = from.address();
            request.refuse(Status::ENODATA);
        });
    }
}

fn main() {}
