//! `mcast-sa`: an ibacm provider for any node of a cluster, beside stock's or instead of it.
//!
//! It resolves names and IP addresses by the ACM multicast protocol, which the stock provider also speaks.
//! Paths come from the SA (`route_prot sa`) or from the group that both ends share (`route_prot acm`). It reads
//! stock's options and speaks stock's datagrams, so a cluster can mix both.
//!
//! | module | what it does |
//! | --- | --- |
//! | `wire` | parses and writes the protocol's datagram |
//! | `groups` | decides which groups to join, and when (state machine) |
//! | `resolver` | learns who has an address, and keeps the waiting clients (state machine) |
//! | `drop_log` | logs dropped datagrams, one line a second (state machine) |
//! | `datagrams` | queue pair and buffers |
//! | `device` | the device's thread |
//! | `endpoint` | connects all of these with the core and the SDK's cache engine |
//!
#![doc = include_str!("../BESIDE-STOCK.md")]
#![forbid(unsafe_code)]

mod datagrams;
mod device;
mod drop_log;
mod endpoint;
mod groups;
mod resolver;
mod settings;
mod wire;

#[cfg(test)]
mod tests;

use acm_prov_api::Counter;
use acm_prov_api::cache::engine::PortCache;
use acm_prov_api::clock::Moment;
use acm_prov_api::policy::Names;
use acm_prov_api::prelude::*;
use acm_prov_api::sync::{Arc, Mutex, Weak};
use acm_prov_api::{
    AddressContext, Device, DeviceContext, DeviceHandle, Endpoint, EndpointContext, EndpointHandle,
    Port, PortContext, PortError, PortHandle, QueryRequest,
};

use datagrams::{Datagrams, Depths};
use device::OpenDevice;
use endpoint::{AcmEndpoint, Parts};
use groups::{Groups, Speed};
use settings::{RouteProtocol, Settings};

/// The provider.
struct McastSa {
    settings: Arc<Settings>,
    names: Names,
    endpoints: Mutex<Vec<Weak<AcmEndpoint>>>,
}

impl McastSa {
    /// The open endpoints of all ports.
    fn endpoints(&self) -> Vec<Arc<AcmEndpoint>> {
        let mut endpoints = self.endpoints.lock();
        endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        endpoints.iter().filter_map(Weak::upgrade).collect()
    }
}

/// An open port.
struct OpenPort {
    cache: PortCache,
    /// Speed of the port's own group; `None` for a link of unknown width or speed.
    speed: Option<Speed>,
    lmc: u8,
    endpoints: Mutex<Vec<Arc<AcmEndpoint>>>,
}

/// An open endpoint.
struct OpenEndpoint {
    endpoint: Arc<AcmEndpoint>,
    port: Arc<Port<McastSa>>,
}

/// One of an endpoint's addresses.
struct OpenAddress {
    endpoint: Arc<AcmEndpoint>,
    provider: Arc<McastSa>,
}

impl Provider for McastSa {
    const NAME: &CStr = c"mcast-sa";
    type Endpoint = OpenEndpoint;

    fn load(host: &Host, options: &Options) -> Result<Self, Error> {
        let settings = Arc::new(Settings::read(options));
        Ok(Self {
            names: Names::load(host, &settings.policy),
            settings,
            endpoints: Mutex::default(),
        })
    }

    fn counters() -> Vec<&'static Counter> {
        acm_prov_api::cache::counters()
    }

    fn declare_options(options: &Options) {
        Settings::read(options);
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        from.context().endpoint.resolve(from.address(), request);
    }

    fn query(&self, from: &LocalAddress<Self>, request: QueryRequest) {
        from.context().endpoint.query(request);
    }
}

impl DeviceContext<McastSa> for OpenDevice {
    fn open(_: &Arc<McastSa>, device: &DeviceHandle) -> Result<Self, Error> {
        Ok(OpenDevice::open(device)?)
    }

    fn close(&self) {
        OpenDevice::close(self);
    }
}

impl PortContext<McastSa> for OpenPort {
    type Device = OpenDevice;

    fn open(device: &Arc<Device<McastSa>>, port: &PortHandle) -> Result<Self, Error> {
        let provider = device.provider();
        let attributes = port.attributes()?;
        let cache = PortCache::open(port, provider.settings.policy.cache.clone())?;
        provider.names.follow(&cache);
        let speed = port.rate().map(|rate| Speed {
            rate,
            mtu: attributes.active_mtu,
        });
        Ok(Self {
            cache,
            speed,
            lmc: attributes.lmc,
            endpoints: Mutex::default(),
        })
    }

    fn reregister(&self, _: &PortHandle) {
        self.cache.reregister();
        let endpoints = self.endpoints.lock().clone();
        for endpoint in endpoints {
            endpoint.reregister();
        }
    }

    fn close(&self) {
        self.endpoints.lock().clear();
        self.cache.close();
    }
}

impl EndpointContext<McastSa> for OpenEndpoint {
    type Port = OpenPort;
    type Address = OpenAddress;

    fn open(port: &Arc<Port<McastSa>>, handle: &EndpointHandle) -> Result<Self, Error> {
        let provider = port.provider();
        let settings = &provider.settings;
        let device = port.device().context();
        let number = port.handle().number();
        let depths = Depths {
            requests: u32::try_from(settings.resolver.out)?,
            answers: settings.send_depth,
            receives: settings.receive_depth,
        };
        let datagrams = Datagrams::open(device.verbs(), number, handle.pkey(), depths)?;
        let gid = port.handle().gid(0).ok_or(PortError::NoGid(number))?;
        let shared = Speed {
            rate: settings.min_rate,
            mtu: settings.min_mtu,
        };
        let own = port
            .context()
            .speed
            .filter(|_| settings.route_protocol == RouteProtocol::Acm);
        let now = Moment::now();
        let groups = Groups::new(gid, handle.pkey(), shared, own, now);
        let endpoint = Arc::new(AcmEndpoint::new(Parts {
            handle: handle.clone(),
            cache: port.context().cache.open_endpoint(handle)?,
            settings: Arc::clone(settings),
            names: provider.names.clone(),
            datagrams,
            groups,
            lmc: port.context().lmc,
            waker: device.waker(),
        }));
        port.context().endpoints.lock().push(Arc::clone(&endpoint));
        provider.endpoints.lock().push(Arc::downgrade(&endpoint));
        device.serve(&endpoint);
        // Sends the joins at once, on the core's thread, as stock does.
        endpoint.turn_and_wake(now);
        Ok(Self {
            endpoint,
            port: Arc::clone(port),
        })
    }

    fn close(&self) {
        let partition = |endpoint: &AcmEndpoint| endpoint.source().pkey.partition();
        let others = {
            let mut endpoints = self.port.context().endpoints.lock();
            endpoints.retain(|endpoint| !Arc::ptr_eq(endpoint, &self.endpoint));
            endpoints.clone()
        };
        // The membership is the port's: another endpoint in the same partition (full and limited member) still
        // uses it.
        let is_last = others
            .iter()
            .all(|other| partition(other) != partition(&self.endpoint));
        // A port that is down cannot send, and queued requests would delay those after it comes up.
        let is_active = self
            .port
            .handle()
            .attributes()
            .is_ok_and(|attributes| attributes.state == rdma_access::PortState::ACTIVE);
        self.port.device().context().leave(&self.endpoint);
        self.endpoint.close();
        // No more joins follow.
        if is_last && is_active {
            self.endpoint.leave_groups();
        }
    }
}

impl AddressContext<McastSa> for OpenAddress {
    fn add(endpoint: &Arc<Endpoint<McastSa>>, address: &Address) -> Result<Self, Error> {
        let own = &endpoint.context().endpoint;
        own.add_address(address);
        Ok(Self {
            endpoint: Arc::clone(own),
            provider: Arc::clone(endpoint.provider()),
        })
    }

    fn remove(&self, address: &Address) {
        self.endpoint.remove_address(address);
        // The address may come back at another port or host.
        for endpoint in self.provider.endpoints() {
            endpoint.forget_address(address);
        }
    }
}

acm_prov_api::export_provider!(McastSa);
