//! Opens the subnet management interface (SMI) of each port that the core opens, but sends nothing. Start from it to write
//! a provider that manages the fabric. It needs the feature `verbs`, to open the core's device again as its own.

use std::sync::Arc;

use acm_prov_api::rdma_access::umad::{self, Umad};
use acm_prov_api::{
    Device, EndpointContext, EndpointHandle, Port, PortContext, PortHandle, prelude::*,
};

struct SmiPorts(Umad);

/// The SMI of a port, open while the core has the port open.
struct Smi {
    _port: umad::Port,
}

struct OnSmi;

impl PortContext<SmiPorts> for Smi {
    type Device = NoContext;

    fn open(device: &Arc<Device<SmiPorts>>, port: &PortHandle) -> Result<Self, Error> {
        // Find the SMI by the device's name: two functions of one adapter can share a GUID.
        let context = device.handle().open_verbs()?;
        let smi = device
            .provider()
            .0
            .open_smi_port(Some(context.name()), Some(port.number()))?;
        let host = device.handle().host();
        host.log(
            LogLevel::ALWAYS,
            format_args!("SMI of {} port {} is open", smi.device(), smi.number()),
        );
        Ok(Self { _port: smi })
    }
}

impl EndpointContext<SmiPorts> for OnSmi {
    type Port = Smi;
    type Address = NoContext;

    fn open(_: &Arc<Port<SmiPorts>>, _: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self)
    }
}

impl Provider for SmiPorts {
    const NAME: &CStr = c"smi-ports";
    type Endpoint = OnSmi;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self(Umad::load()?))
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
        request.refuse(Status::ENODATA);
    }
}

export_provider!(SmiPorts);
