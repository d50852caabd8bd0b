//! The trait that a provider implements, and the traits of its contexts for devices, ports, endpoints and addresses.
//!
//! The SDK has an object for each thing that the core opens ([`Device`], [`Port`], [`Endpoint`], [`LocalAddress`]). It holds the
//! provider's own data, its *context*. The objects are reference-counted, and a child holds its parent. So a provider may
//! still hold an endpoint after the core has closed it: the memory stays valid, and each call that needs the core returns
//! [`Closed`](crate::Closed).
//!
//! The core calls on one thread, SA answers come on another, and a provider may have threads of its own: all contexts are
//! `Send + Sync`.

mod query;

use std::ffi::CStr;
use std::fmt;

use rdma_access::LinkLayer;

use crate::address::{Address, PKey};
use crate::handles::{DeviceHandle, EndpointHandle, PortHandle};
use crate::host::Host;
use crate::host::own_counters::Counter;
use crate::request::{QueryRequest, ResolveRequest};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, RwLock};
use crate::text::options::Options;

/// An error from loading or opening. Any error type that is `Send` and `Sync` converts into it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A provider: the implementation behind the table that `provider_query` returns.
pub trait Provider: Sized + Send + Sync + 'static {
    /// The provider's name in ibacm_opts.cfg: 1 to 63 bytes without white space.
    const NAME: &'static CStr;

    /// The provider's context of an endpoint; [`NoContext`] if it has none.
    type Endpoint: EndpointContext<Self>;

    /// Makes the provider, once, when the core loads the library. No thread may start here: the core may still refuse
    /// the library and unload it.
    ///
    /// # Errors
    /// The core then does not use the provider, and its log has the error.
    fn load(host: &Host, options: &Options) -> Result<Self, Error>;

    /// Reads each option that [`load`](Self::load) reads, for programs that ask a library about its options (`loader-test
    /// info`). It has no other effect. [`load`](crate::load()) logs options that are read and not declared here.
    fn declare_options(options: &Options) {
        let _ = options;
    }

    /// The provider's own [counters](crate::Counter): `loader-test info` shows their names and what they count.
    ///
    /// To see their values, ask for the counters of an endpoint: `ib_acme -P s -s ADDRESS`. The SDK then logs a line with all of
    /// them if one has changed since the last line, at most one line in ten seconds, whatever the log level.
    fn counters() -> Vec<&'static Counter> {
        Vec::new()
    }

    /// Called when a client requests a path from one of the endpoint's addresses. Runs on the core's only thread, so it must
    /// not block. To answer later, [keep](ResolveRequest::keep) the request.
    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>);

    /// Called when a client requests a query of the SA itself, past any cache. The default sends it.
    fn query(&self, from: &LocalAddress<Self>, request: QueryRequest) {
        query::ask_sa(from.endpoint().handle(), request);
    }
}

/// The context of a provider that keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContext;

/// What a provider keeps for a device.
pub trait DeviceContext<P: Provider>: Send + Sync + Sized + 'static {
    /// Called when the core has opened a device.
    ///
    /// # Errors
    /// The core then does not use the device.
    fn open(provider: &Arc<P>, device: &DeviceHandle) -> Result<Self, Error>;

    /// Called when the core closes the device.
    fn close(&self) {}
}

/// What a provider keeps for a port.
pub trait PortContext<P: Provider>: Send + Sync + Sized + 'static {
    /// What it keeps for the port's device.
    type Device: DeviceContext<P>;

    /// Called when a port comes up. Everything known from an earlier opening may be outdated.
    ///
    /// # Errors
    /// The core then does not use the port.
    fn open(device: &Arc<Device<P>>, port: &PortHandle) -> Result<Self, Error>;

    /// Called when the subnet manager asks clients to register again (`IBV_EVENT_CLIENT_REREGISTER`): it has forgotten
    /// registrations such as multicast joins, and paths may have changed.
    fn reregister(&self, _port: &PortHandle) {}

    /// Called when the port goes down, after the close of its endpoints.
    fn close(&self) {}
}

/// What a provider keeps for an endpoint.
pub trait EndpointContext<P: Provider>: Send + Sync + Sized + 'static {
    /// What it keeps for the endpoint's port.
    type Port: PortContext<P>;
    /// What it keeps for each of the endpoint's addresses.
    type Address: AddressContext<P>;

    /// Called when an endpoint comes up.
    ///
    /// # Errors
    /// The core tries again for each further address of the endpoint.
    fn open(port: &Arc<Port<P>>, endpoint: &EndpointHandle) -> Result<Self, Error>;

    /// Called when the endpoint goes down. Answer the requests that still wait.
    fn close(&self) {}
}

/// What a provider keeps for a local address.
pub trait AddressContext<P: Provider>: Send + Sync + Sized + 'static {
    /// Called when the core adds an address to the endpoint.
    ///
    /// After a netlink overflow the core adds addresses again that it has not removed. The SDK then calls
    /// [`remove`](Self::remove) for the first one before this. So an endpoint has each address once. There is one exception:
    /// twice, if the core has it both as IPv4 and as IPv4-mapped IPv6 address.
    ///
    /// # Errors
    /// The core then does not use the address.
    fn add(endpoint: &Arc<Endpoint<P>>, address: &Address) -> Result<Self, Error>;

    /// Called when the core removes the address, before the core adds it again, and when its endpoint closes.
    fn remove(&self, _address: &Address) {}
}

impl<P: Provider> DeviceContext<P> for NoContext {
    fn open(_: &Arc<P>, _: &DeviceHandle) -> Result<Self, Error> {
        Ok(Self)
    }
}

impl<P: Provider> PortContext<P> for NoContext {
    type Device = NoContext;

    fn open(_: &Arc<Device<P>>, _: &PortHandle) -> Result<Self, Error> {
        Ok(Self)
    }
}

impl<P: Provider> EndpointContext<P> for NoContext {
    type Port = NoContext;
    type Address = NoContext;

    fn open(_: &Arc<Port<P>>, _: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self)
    }
}

impl<P: Provider> AddressContext<P> for NoContext {
    fn add(_: &Arc<Endpoint<P>>, _: &Address) -> Result<Self, Error> {
        Ok(Self)
    }
}

type PortOf<P> = <<P as Provider>::Endpoint as EndpointContext<P>>::Port;
type DeviceOf<P> = <PortOf<P> as PortContext<P>>::Device;
type AddressOf<P> = <<P as Provider>::Endpoint as EndpointContext<P>>::Address;

/// An open device.
pub struct Device<P: Provider> {
    provider: Arc<P>,
    handle: DeviceHandle,
    context: DeviceOf<P>,
}

impl<P: Provider> Device<P> {
    pub(crate) fn open(provider: Arc<P>, handle: DeviceHandle) -> Result<Self, Error> {
        let context = DeviceOf::<P>::open(&provider, &handle)?;
        Ok(Self {
            provider,
            handle,
            context,
        })
    }

    /// The provider.
    pub fn provider(&self) -> &Arc<P> {
        &self.provider
    }

    /// The device as the core knows it.
    pub fn handle(&self) -> &DeviceHandle {
        &self.handle
    }

    /// What the provider keeps for the device.
    pub fn context(&self) -> &DeviceOf<P> {
        &self.context
    }
}

/// An open port.
pub struct Port<P: Provider> {
    device: Arc<Device<P>>,
    handle: PortHandle,
    context: PortOf<P>,
}

/// The port's link layer is not InfiniBand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "port {port} is no InfiniBand port (link layer {}): it has no subnet administrator to ask; \
     ibacm serves the adapter's InfiniBand ports only", link_layer.0
)]
pub struct NotInfiniBand {
    /// The port's number.
    pub port: u8,
    /// The link layer.
    pub link_layer: LinkLayer,
}

impl<P: Provider> Port<P> {
    pub(crate) fn open(device: Arc<Device<P>>, handle: PortHandle) -> Result<Self, Error> {
        let link_layer = handle.attributes()?.link_layer;
        if !matches!(link_layer, LinkLayer::UNSPECIFIED | LinkLayer::INFINIBAND) {
            return Err(NotInfiniBand {
                port: handle.number(),
                link_layer,
            }
            .into());
        }
        let context = PortOf::<P>::open(&device, &handle)?;
        Ok(Self {
            device,
            handle,
            context,
        })
    }

    /// The port's device.
    pub fn device(&self) -> &Arc<Device<P>> {
        &self.device
    }

    /// The provider.
    pub fn provider(&self) -> &Arc<P> {
        self.device.provider()
    }

    /// The port as the core knows it.
    pub fn handle(&self) -> &PortHandle {
        &self.handle
    }

    /// What the provider keeps for the port.
    pub fn context(&self) -> &PortOf<P> {
        &self.context
    }
}

/// An open endpoint: one partition of one port.
pub struct Endpoint<P: Provider> {
    /// A copy of the port's reference, because every request uses it.
    provider: Arc<P>,
    port: Arc<Port<P>>,
    handle: EndpointHandle,
    context: P::Endpoint,
    addresses: RwLock<Vec<Address>>,
    /// The [marks](Address::mark) of all addresses ever added. Most requests are for another host's address, which its mark
    /// usually rules out without a search.
    marks: AtomicU64,
}

impl<P: Provider> Endpoint<P> {
    pub(crate) fn open(port: Arc<Port<P>>, handle: EndpointHandle) -> Result<Self, Error> {
        let context = P::Endpoint::open(&port, &handle)?;
        Ok(Self {
            provider: Arc::clone(port.provider()),
            port,
            handle,
            context,
            addresses: RwLock::default(),
            marks: AtomicU64::new(0),
        })
    }

    /// The endpoint's port.
    pub fn port(&self) -> &Arc<Port<P>> {
        &self.port
    }

    /// The provider.
    pub fn provider(&self) -> &Arc<P> {
        &self.provider
    }

    /// The endpoint as the core knows it.
    pub fn handle(&self) -> &EndpointHandle {
        &self.handle
    }

    /// The endpoint's P_Key.
    pub fn pkey(&self) -> PKey {
        self.handle.pkey()
    }

    /// What the provider keeps for the endpoint.
    pub fn context(&self) -> &P::Endpoint {
        &self.context
    }

    /// Whether the core has given the endpoint this address.
    #[inline]
    pub fn has_address(&self, address: &Address) -> bool {
        self.marks.load(Ordering::Relaxed) & crate::address::mark(address) != 0
            && self.is_there(address)
    }

    #[cold]
    fn is_there(&self, address: &Address) -> bool {
        self.addresses.read().contains(address)
    }

    fn add_address(&self, address: &Address) {
        self.addresses.write().push(*address);
        // Relaxed suffices: a thread that has learnt of the address has synchronized with this one.
        self.marks
            .fetch_or(crate::address::mark(address), Ordering::Relaxed);
    }

    fn remove_address(&self, address: &Address) {
        let mut addresses = self.addresses.write();
        if let Some(index) = addresses.iter().position(|own| own == address) {
            addresses.swap_remove(index);
        }
    }
}

/// One of an endpoint's addresses: where a client's request comes from.
pub struct LocalAddress<P: Provider> {
    endpoint: Arc<Endpoint<P>>,
    address: Address,
    context: AddressOf<P>,
}

impl<P: Provider> LocalAddress<P> {
    pub(crate) fn add(endpoint: Arc<Endpoint<P>>, address: Address) -> Result<Self, Error> {
        let context = AddressOf::<P>::add(&endpoint, &address)?;
        endpoint.add_address(&address);
        Ok(Self {
            endpoint,
            address,
            context,
        })
    }

    pub(crate) fn remove(&self) {
        self.endpoint.remove_address(&self.address);
        self.context.remove(&self.address);
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Arc<Endpoint<P>> {
        &self.endpoint
    }

    /// The address itself.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What the provider keeps for the address.
    pub fn context(&self) -> &AddressOf<P> {
        &self.context
    }
}

impl<P: Provider> fmt::Debug for LocalAddress<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalAddress")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
