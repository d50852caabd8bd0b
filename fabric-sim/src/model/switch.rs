//! A switch for adapters in one process, for tests that need neither ibsim nor another process.
//!
//! ```
//! use fabric_sim::model::adapter::{Adapter, Identity};
//! use fabric_sim::model::membership::Membership;
//! use fabric_sim::model::port::{PortSnapshot, STATE_ACTIVE};
//! use fabric_sim::model::switch::Switch;
//!
//! let adapters = [1, 2].map(|lid| {
//!     let mut port = PortSnapshot::down();
//!     port.info.state = STATE_ACTIVE;
//!     port.info.lid = lid;
//!     port.pkeys = vec![0xffff];
//!     port.guids = vec![u64::from(lid)];
//!     Adapter::new(Identity::default(), vec![port])
//! });
//! Switch::connecting(&adapters);
//! // In place of the subnet administrator: both have joined a group, and get its datagrams from now on.
//! let mgid = [0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0];
//! for adapter in &adapters {
//!     adapter.joined(1, Membership::full(mgid, 0xc000))?;
//! }
//! # Ok::<(), fabric_sim::model::adapter::NoSuchPort>(())
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::adapter::{Adapter, NoSuchPort};
use super::data_path::{DataPath, Datagram};

/// A switch that forwards every datagram to all other connected ports; each port takes what is for it.
/// Connected ports keep the switch alive, not the reverse. Any thread may call all methods.
#[derive(Debug, Default)]
pub struct Switch {
    outlets: RwLock<Vec<Outlet>>,
    next_cable: AtomicU64,
}

/// A connected port.
#[derive(Clone, Debug)]
struct Outlet {
    cable: u64,
    adapter: Weak<Adapter>,
    port: u8,
}

/// A cable from a switch to a port; the port owns it.
struct Cable {
    switch: Arc<Switch>,
    number: u64,
}

impl DataPath for Cable {
    fn send(&self, datagram: &Datagram) {
        let others: Vec<Outlet> = {
            let outlets = self.switch.outlets.read();
            let others = outlets.iter().filter(|outlet| outlet.cable != self.number);
            others.cloned().collect()
        };
        for outlet in others {
            if let Some(adapter) = outlet.adapter.upgrade() {
                adapter.arrive(outlet.port, datagram);
            }
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let mut outlets = self.switch.outlets.write();
        outlets.retain(|outlet| outlet.cable != self.number);
    }
}

impl Switch {
    /// Creates a switch and connects all ports of some adapters to it.
    pub fn connecting(adapters: &[Arc<Adapter>]) -> Arc<Self> {
        let switch = Arc::<Self>::default();
        for adapter in adapters {
            for port in 1..=adapter.port_count() {
                // The port exists.
                let _ = switch.connect(adapter, port);
            }
        }
        switch
    }

    /// Connects a port, replacing its earlier connection.
    ///
    /// # Errors
    /// If the adapter has no such port.
    pub fn connect(self: &Arc<Self>, adapter: &Arc<Adapter>, port: u8) -> Result<(), NoSuchPort> {
        let number = self.next_cable.fetch_add(1, Ordering::Relaxed);
        let cable = Cable {
            switch: self.clone(),
            number,
        };
        adapter.set_data_path(port, Arc::new(cable))?;
        self.outlets.write().push(Outlet {
            cable: number,
            adapter: Arc::downgrade(adapter),
            port,
        });
        Ok(())
    }
}
