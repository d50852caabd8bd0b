//! Makes a complete provider from a small [`Policy`].
//!
//! The methods of a [`Policy`] say what a provider knows: which port has an address, what to ask the SA for, which paths
//! need no SA. [`PolicyProvider`] is the provider made from it: it answers for the port's own addresses and for names of the hosts
//! file, asks the SA through the [cache engine](crate::cache), keeps deadlines, counts, and answers queries.
//!
//! ```
//! use acm_prov_api::policy::Policy;
//! use acm_prov_api::prelude::*;
//!
//! struct NamesAndSa;
//!
//! impl Policy for NamesAndSa {
//!     const NAME: &CStr = c"names-and-sa";
//!
//!     fn read(_: &Options) -> Self {
//!         Self
//!     }
//! }
//!
//! acm_prov_api::export_policy!(NamesAndSa);
//! ```
//!
//! A request goes through these steps; the first that has a result ends it:
//!
//! | step | for | who decides |
//! | --- | --- | --- |
//! | own address | names, IP addresses | the port (`loopback_prot local`) |
//! | hosts file | names, IP addresses | the operator (`addr_preload acm_hosts`) |
//! | [`Policy::address`] | names, IP addresses | the provider |
//! | cached path | LIDs, GIDs, path records, and the GID found for an address | the cache |
//! | [`Policy::path`] | the same | the provider |
//! | the dump of paths | the same | the operator (`route_preload opensm_full_v1`) |
//! | [`Policy::alternatives`] | the same | the SA |
//!
//! A provider with devices or datagrams of its own implements [`Provider`], and uses [`Names`] and [`EndpointResolver`] for its
//! endpoints: `provider-default` does.

mod export;
mod resolver;
mod settings;

use std::ffi::CStr;

use crate::address::Address;
use crate::cache::engine::PortCache;
use crate::cache::{Alternatives, PathRules};
use crate::door::slot::{Exported, Slot};
use crate::handles::{EndpointHandle, PortHandle};
use crate::host::Host;
use crate::host::own_counters::Counter;
use crate::path::PathRecord;
use crate::provider::{
    Device, EndpointContext, Error, LocalAddress, NoContext, Port, PortContext, Provider,
};
use crate::request::{QueryRequest, ResolveRequest};
use crate::sa::PathQuery;
use crate::sync::Arc;
use crate::text::options::Options;

pub use resolver::{AddressRequest, EndpointResolver, Names};
pub use settings::PolicySettings;

/// What a provider knows, and what it asks the SA for. Only the name and [`read`](Self::read) have no default.
///
/// The methods run on the core's thread, the SA's or the port's, several at a time, with no lock held. They must not block.
pub trait Policy: Sized + Send + Sync + 'static {
    /// The provider's name in ibacm_opts.cfg: 1 to 63 bytes without white space.
    const NAME: &'static CStr;

    /// Makes the policy from the provider's own options. It must do nothing but read options: `loader-test info` calls it
    /// too, to list them.
    fn read(options: &Options) -> Self;

    /// Returns the settings: the cache's limits, the clients' deadlines, the files to read. The default reads the stock
    /// provider's options. It must do nothing but read options.
    fn settings(options: &Options) -> PolicySettings {
        PolicySettings::read(options)
    }

    /// Called once, after [`read`](Self::read), when the core loads the library: the place to read files. No thread may start
    /// here, because the core may still refuse the library and unload it.
    ///
    /// # Errors
    /// The core then does not use the provider, and its log has the error.
    fn load(&mut self, host: &Host) -> Result<(), Error> {
        let _ = host;
        Ok(())
    }

    /// Returns the provider's own counters, as [`Provider::counters`] does. The SDK adds the
    /// [engine's](crate::cache::counters).
    fn counters() -> Vec<&'static Counter> {
        Vec::new()
    }

    /// Finds the port that has a name or an IP address. Called only for an address that is neither the endpoint's own nor in
    /// the hosts file. The default refuses each with ENODATA.
    fn address(&self, request: AddressRequest<'_>) {
        request.unknown();
    }

    /// Returns the constraints for the SA query, in order of preference: see [`PathRules::alternatives`].
    fn alternatives(&self, query: &PathQuery) -> Alternatives {
        let _ = query;
        Alternatives::any()
    }

    /// Returns a path that needs no SA: see [`PathRules::path`].
    fn path(&self, query: &PathQuery) -> Option<PathRecord> {
        let _ = query;
        None
    }
}

/// A policy with a table of its provider's open contexts. Do not implement it by hand:
/// [`export_policy!`](crate::export_policy) and [`policy_table!`](crate::policy_table) do.
pub trait ExportedPolicy: Policy {
    #[doc(hidden)]
    fn slot() -> &'static Slot<PolicyProvider<Self>>;
}

impl<P: ExportedPolicy> Exported for PolicyProvider<P> {
    fn slot() -> &'static Slot<Self> {
        P::slot()
    }
}

/// The provider made from a [`Policy`]; [`export_policy!`](crate::export_policy) exports it.
pub struct PolicyProvider<P> {
    policy: Arc<P>,
    settings: PolicySettings,
    names: Names,
}

struct Rules<P>(Arc<P>);

impl<P: Policy> PathRules for Rules<P> {
    fn alternatives(&self, query: &PathQuery) -> Alternatives {
        self.0.alternatives(query)
    }

    fn path(&self, query: &PathQuery) -> Option<PathRecord> {
        self.0.path(query)
    }
}

impl<P: Policy> Provider for PolicyProvider<P> {
    const NAME: &'static CStr = P::NAME;
    type Endpoint = PolicyEndpoint;

    fn load(host: &Host, options: &Options) -> Result<Self, Error> {
        let settings = P::settings(options);
        let mut policy = P::read(options);
        policy.load(host)?;
        Ok(Self {
            policy: Arc::new(policy),
            names: Names::load(host, &settings),
            settings,
        })
    }

    fn declare_options(options: &Options) {
        P::settings(options);
        P::read(options);
    }

    fn counters() -> Vec<&'static Counter> {
        let mut counters = crate::cache::counters();
        counters.extend(P::counters());
        counters
    }

    #[inline(always)]
    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        let endpoint = from.endpoint();
        let is_own = |address: &Address| endpoint.has_address(address);
        let elsewhere = |request: AddressRequest<'_>| self.policy.address(request);
        endpoint.context().0.resolve(request, is_own, elsewhere);
    }

    fn query(&self, from: &LocalAddress<Self>, request: QueryRequest) {
        from.endpoint().context().0.query(request);
    }
}

/// What a [`PolicyProvider`] keeps for a port.
pub struct PolicyPort(PortCache);

impl<P: Policy> PortContext<PolicyProvider<P>> for PolicyPort {
    type Device = NoContext;

    fn open(device: &Arc<Device<PolicyProvider<P>>>, port: &PortHandle) -> Result<Self, Error> {
        let provider = device.provider();
        let rules = Arc::new(Rules(Arc::clone(&provider.policy)));
        let cache = PortCache::open_with_rules(port, provider.settings.cache.clone(), rules)?;
        provider.names.follow(&cache);
        Ok(Self(cache))
    }

    fn reregister(&self, _: &PortHandle) {
        self.0.reregister();
    }

    fn close(&self) {
        self.0.close();
    }
}

/// What a [`PolicyProvider`] keeps for an endpoint.
pub struct PolicyEndpoint(EndpointResolver);

impl<P: Policy> EndpointContext<PolicyProvider<P>> for PolicyEndpoint {
    type Port = PolicyPort;
    type Address = NoContext;

    fn open(port: &Arc<Port<PolicyProvider<P>>>, endpoint: &EndpointHandle) -> Result<Self, Error> {
        let cache = port.context().0.open_endpoint(endpoint)?;
        Ok(Self(EndpointResolver::new(cache, &port.provider().names)))
    }

    fn close(&self) {
        self.0.close();
    }
}
