//! The place of one provider in its library: its table, the loaded provider, and its open contexts.

use crate::abi::acm_provider;
use crate::door::contexts::Contexts;
use crate::door::shown_counters::ShownCounters;
use crate::host::{Host, HostTable};
use crate::provider::Provider;
use crate::sync::{Arc, OnceLock, RwLock};

/// A provider with a place for its open contexts. [`export_provider!`](crate::export_provider) and
/// [`provider_table!`](crate::provider_table) implement it; do not implement it by hand.
pub trait Exported: Provider {
    #[doc(hidden)]
    fn slot() -> &'static Slot<Self>;
}

/// The constant table that the core reads.
struct Table(acm_provider);

// SAFETY: it is constant, and its pointers point to constants and functions.
unsafe impl Sync for Table {}
// SAFETY: see above.
unsafe impl Send for Table {}

pub(super) struct Loaded<P> {
    pub(super) host: Host,
    pub(super) provider: Arc<P>,
}

/// One provider of this library: its table, the loaded provider, and its open contexts.
#[doc(hidden)]
pub struct Slot<P: Exported> {
    table: Table,
    /// The core's functions, after the lookup.
    pub(super) functions: OnceLock<HostTable>,
    pub(super) loaded: RwLock<Option<Loaded<P>>>,
    contexts: Contexts<P>,
    pub(super) shown_counters: ShownCounters,
}

impl<P: Exported> Slot<P> {
    /// Creates an empty place. The table's callbacks find it by [`Exported::slot`].
    pub(super) const fn with_table(table: acm_provider) -> Self {
        Self {
            table: Table(table),
            functions: OnceLock::new(),
            loaded: RwLock::new(None),
            contexts: Contexts::new(),
            shown_counters: ShownCounters::new(),
        }
    }

    pub(super) fn contexts(&self) -> &Contexts<P> {
        &self.contexts
    }

    pub(super) fn host(&self) -> Option<Host> {
        self.loaded.read().as_ref().map(|loaded| loaded.host)
    }

    pub(super) fn provider(&self) -> Option<Arc<P>> {
        self.loaded
            .read()
            .as_ref()
            .map(|loaded| Arc::clone(&loaded.provider))
    }

    pub(super) fn table(&'static self) -> &'static acm_provider {
        &self.table.0
    }
}
