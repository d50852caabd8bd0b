//! The core's verbs context is gone when the device closes: no context of a provider's can hold it.
use acm_prov_api::abi::ibv_context;
use acm_prov_api::prelude::*;
use acm_prov_api::sync::Arc;
use acm_prov_api::{DeviceContext, DeviceHandle};

struct Keeper;

struct OfDevice(*mut ibv_context);

impl Provider for Keeper {
    const NAME: &CStr = c"keeper";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        request.refuse(Status::ENODATA);
    }
}

impl DeviceContext<Keeper> for OfDevice {
    fn open(_: &Arc<Keeper>, device: &DeviceHandle) -> Result<Self, Error> {
        Ok(Self(device.verbs()))
    }
}

fn main() {}
