//! A provider that writes its rule, not the machine.
//!
//! A [`Policy`] says in small methods what a provider knows: who has an address, what to ask the SA for, which paths need no
//! SA. [`PolicyProvider`] is the provider made from it: it answers for the port's own addresses and for names of the hosts
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
//! | step | for | who says it |
//! | --- | --- | --- |
//! | own address | names, IP addresses | the port (`loopback_prot local`) |
//! | hosts file | names, IP addresses | the operator (`addr_preload acm_hosts`) |
//! | [`Policy::address`] | names, IP addresses | the provider |
//! | what is known | LIDs, GIDs, path records, and the GID that an address led to | the cache |
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
    /// The name that ibacm_opts.cfg knows the provider by: 1 to 63 bytes without white space.
    const NAME: &'static CStr;

    /// Makes the policy from the provider's own options. It reads options and does nothing else: programs that ask a library
    /// about its options call it as well.
    fn read(options: &Options) -> Self;

    /// What the cache keeps, how long clients wait, which files are read. The default is what stock's options say. It reads
    /// options and does nothing else.
    fn settings(options: &Options) -> PolicySettings {
        PolicySettings::read(options)
    }

    /// Does the rest of what is to be done once, when the core loads the library, such as to read files. No thread may start
    /// here.
    ///
    /// # Errors
    /// The core then does without the provider; the error goes to its log.
    fn load(&mut self, host: &Host) -> Result<(), Error> {
        let _ = host;
        Ok(())
    }

    /// The provider's own counters, as [`Provider::counters`]. The [engine's](crate::cache::counters) are counted beside them.
    fn counters() -> Vec<&'static Counter> {
        Vec::new()
    }

    /// Which port has a name or IP address that is neither the endpoint's own nor in the hosts file. The default knows none.
    fn address(&self, request: AddressRequest<'_>) {
        request.unknown();
    }

    /// See [`PathRules::alternatives`].
    fn alternatives(&self, query: &PathQuery) -> Alternatives {
        let _ = query;
        Alternatives::any()
    }

    /// See [`PathRules::path`].
    fn path(&self, query: &PathQuery) -> Option<PathRecord> {
        let _ = query;
        None
    }
}

/// A policy that has a place for its provider's open contexts: made so by [`export_policy!`](crate::export_policy) or
/// [`policy_table!`](crate::policy_table), not by hand.
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
