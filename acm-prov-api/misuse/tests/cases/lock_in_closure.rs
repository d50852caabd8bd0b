//! The SA answers on another thread: a lock that is held until then cannot be released there.
use std::collections::HashMap;

use acm_prov_api::prelude::*;
use acm_prov_api::sync::Mutex;

static KNOWN: Mutex<Option<HashMap<Gid, PathRecord>>> = Mutex::new(None);

struct Locked;

impl Provider for Locked {
    const NAME: &CStr = c"locked";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        let mut known = KNOWN.lock();
        let request = request.keep();
        let endpoint = from.endpoint().handle();
        endpoint.ask_path(&request.path_query(), move |answer| match answer {
            Ok(path) => {
                known.get_or_insert_default().insert(path.dgid(), path);
                request.answer(&path);
            }
            Err(_) => request.refuse(Status::ENODATA),
        });
    }
}

fn main() {}
