//! The SA answers after the callback: a closure that answers the client must own a kept request.
use acm_prov_api::prelude::*;

struct Asker;

impl Provider for Asker {
    const NAME: &CStr = c"asker";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        let query = request.path_query();
        from.endpoint().handle().ask_path(&query, move |answer| match answer {
            Ok(path) => request.answer(&path),
            Err(_) => request.refuse(Status::ENODATA),
        });
    }
}

fn main() {}
