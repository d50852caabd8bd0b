//! MADs that the core still has from earlier openings of a port.
//!
//! The core keeps its queue of SA MADs when a port goes down, and it has one SA credit a port for old and new. So a port that
//! was opened again counts what it had handed over before, until it comes back or must be lost.

use crate::cache::lookups::{EndpointId, LookupId, Lookups};
use crate::clock::Moment;
use crate::handle::CorePort;
use crate::sa;
use crate::sync::{Arc, Mutex, Weak};

use super::{Shared, Waiter};

/// A MAD of an endpoint that is closed.
struct Mad {
    endpoint: EndpointId,
    lookup: LookupId,
    /// The core cannot have it any longer: all MADs that were out with it have had their time.
    lost_at: Moment,
}

struct Port {
    id: CorePort,
    mads: Vec<Mad>,
    /// The opening that waits for them.
    waits: Weak<Shared>,
}

/// The ports of which there is something.
static PORTS: Mutex<Vec<Port>> = Mutex::new(Vec::new());

/// What the core has besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    /// How many MADs.
    pub(super) count: usize,
    /// When the next of them counts as lost.
    pub(super) until: Option<Moment>,
}

/// A port closes: what is out stays with the core.
pub(super) fn leave(shared: &Shared, lookups: &Lookups<Waiter>) {
    let limits = &shared.settings.lookups;
    let longest = limits
        .patience()
        .saturating_mul(limits.out as u64)
        .saturating_add(limits.timeout);
    let left = lookups.handed().map(|(lookup, handed)| Mad {
        endpoint: handed.endpoint,
        lookup,
        lost_at: handed.at.after(longest),
    });
    let mut left = left.peekable();
    if left.peek().is_none() {
        return;
    }
    let id = shared.port.core_port();
    let mut ports = PORTS.lock();
    match ports.iter_mut().find(|port| port.id == id) {
        Some(port) => port.mads.extend(left),
        None => ports.push(Port {
            id,
            mads: left.collect(),
            waits: Weak::new(),
        }),
    }
}

/// What the core has of the port's earlier openings. This one is [told](returned) when something comes back.
pub(super) fn still_out(shared: &Arc<Shared>, now: Moment) -> Earlier {
    let mut ports = PORTS.lock();
    let id = shared.port.core_port();
    let Some(index) = ports.iter().position(|port| port.id == id) else {
        return Earlier::default();
    };
    let port = &mut ports[index];
    for lost in port.mads.extract_if(.., |mad| mad.lost_at <= now) {
        sa::abandon(lost.endpoint.0);
    }
    let earlier = Earlier {
        count: port.mads.len(),
        until: port.mads.iter().map(|mad| mad.lost_at).min(),
    };
    if earlier.count == 0 {
        ports.swap_remove(index);
    } else {
        port.waits = Arc::downgrade(shared);
    }
    earlier
}

/// A MAD of a closed opening is back. Gives the opening that may send another one for it.
pub(super) fn returned(
    port: CorePort,
    endpoint: EndpointId,
    lookup: LookupId,
) -> Option<Arc<Shared>> {
    let mut ports = PORTS.lock();
    let port = ports.iter_mut().find(|known| known.id == port)?;
    port.mads
        .retain(|mad| (mad.endpoint, mad.lookup) != (endpoint, lookup));
    port.waits.upgrade()
}
