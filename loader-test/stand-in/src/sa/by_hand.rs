//! MADs that a test returns itself, on its own thread instead of the SA's.

use acm_prov_api::abi::{acm_sa_mad, umad_sa_packet};

use super::{Mad, Reaction, SaRequest, SaThread, lock};

/// A MAD that waits for the test.
#[derive(Clone)]
pub struct Held {
    /// The request.
    pub request: SaRequest,
    /// The MAD as the provider sent it.
    pub packet: umad_sa_packet,
}

impl SaThread {
    /// Stops the SA's thread: each MAD waits for [`bring_back`](Self::bring_back), and the core accepts as many as the provider
    /// sends. Call this before the provider sends any.
    pub fn leave_to_test(&self) {
        self.script(|_| Reaction::Hold);
        lock(&self.inner.state).depth = usize::MAX;
    }

    /// Returns the waiting MADs, oldest first.
    pub fn held(&self) -> Vec<Held> {
        let state = lock(&self.inner.state);
        let mads = state.ports.values().flat_map(|queue| &queue.pending);
        let mut held: Vec<Held> = mads
            .map(|mad| Held {
                request: mad.request.clone(),
                packet: packet(mad),
            })
            .collect();
        held.sort_by_key(|held| held.request.number);
        held
    }

    /// Returns a MAD to the provider: `change` turns the request into the response. The handler has run when this returns, even if
    /// the port is closed. False if no such MAD waits.
    pub fn bring_back(
        &self,
        number: usize,
        umad_status: u32,
        change: impl FnOnce(&mut umad_sa_packet),
    ) -> bool {
        let mut state = lock(&self.inner.state);
        let found = state.ports.values_mut().find_map(|queue| {
            let is_it = |mad: &Mad| mad.request.number == number;
            let index = queue.pending.iter().position(is_it)?;
            Some(queue.pending.remove(index))
        });
        drop(state);
        let Some(mad) = found else { return false };
        let target = std::ptr::with_exposed_provenance_mut::<acm_sa_mad>(mad.address);
        // SAFETY: the core has the MAD, and MADs are kept until the end of the run; no other thread has found it.
        unsafe {
            (*target).umad.status = umad_status;
            change(&mut (*target).sa_mad);
        }
        self.inner.hand_back(mad.address, mad.handler);
        true
    }
}

fn packet(mad: &Mad) -> umad_sa_packet {
    let mad = std::ptr::with_exposed_provenance::<acm_sa_mad>(mad.address);
    // SAFETY: the core has the MAD while it is in the queue.
    unsafe { (*mad).sa_mad }
}
