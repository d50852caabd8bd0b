//! The adapter: identity, ports, and who is told what happens to them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::completion::CompletionQueue;
use super::data_path::{DataPath, Datagram, Nowhere};
use super::event::{AsyncEvent, PortEvent};
use super::memory::MemoryRegions;
use super::port::PortSnapshot;
use super::queue_pair::{Limits, QueuePair};
use crate::fd_queue::FdQueue;

/// Events that a context keeps at most for a program that does not read them; what comes then is lost.
const EVENT_CAPACITY: usize = 4096;

/// Who the adapter is. Host byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name of the device, such as `ibsim0`.
    pub name: String,
    /// Firmware version.
    pub firmware: String,
    /// GUID of the node.
    pub node_guid: u64,
    /// GUID of the system.
    pub system_image_guid: u64,
    /// Vendor.
    pub vendor_id: u32,
    /// Device.
    pub device_id: u16,
    /// Revision.
    pub revision: u32,
}

/// What a port is connected to. It is a property of the port, not of its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// An InfiniBand subnet.
    #[default]
    InfiniBand,
    /// An Ethernet network (RoCE): no LIDs, no subnet manager.
    Ethernet,
}

/// The adapter has no such port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{adapter} has no port {port}; it has {count}")]
pub struct NoSuchPort {
    adapter: String,
    port: u8,
    count: usize,
}

/// A simulated adapter. All methods may be called from any thread.
pub struct Adapter {
    identity: Identity,
    ports: BTreeMap<u8, RwLock<Arc<PortSnapshot>>>,
    link_layers: BTreeMap<u8, LinkLayer>,
    /// The queues of the contexts, each of which gets every event.
    listeners: Mutex<Vec<Weak<FdQueue<AsyncEvent>>>>,
    queue_pairs: RwLock<HashMap<u32, Weak<QueuePair>>>,
    next_qpn: AtomicU32,
    data_path: RwLock<Arc<dyn DataPath>>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter")
            .field("identity", &self.identity)
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

impl Adapter {
    /// An adapter with ports 1 to `ports.len()`, all InfiniBand's.
    pub fn new(identity: Identity, ports: Vec<PortSnapshot>) -> Arc<Self> {
        Self::mixed(identity, ports, BTreeMap::new())
    }

    /// As [`new`](Self::new), with the link layers of ports that are not InfiniBand's.
    pub fn mixed(
        identity: Identity,
        ports: Vec<PortSnapshot>,
        link_layers: BTreeMap<u8, LinkLayer>,
    ) -> Arc<Self> {
        let ports = (1..=u8::MAX)
            .zip(ports)
            .map(|(number, port)| (number, RwLock::new(Arc::new(port))))
            .collect();
        Arc::new(Self {
            identity,
            ports,
            link_layers,
            listeners: Mutex::default(),
            queue_pairs: RwLock::default(),
            next_qpn: AtomicU32::new(0x40),
            data_path: RwLock::new(Arc::new(Nowhere)),
        })
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How many ports it has.
    pub fn port_count(&self) -> u8 {
        self.ports.keys().next_back().copied().unwrap_or(0)
    }

    /// What is known of a port; ports count from 1.
    pub fn port(&self, number: u8) -> Option<Arc<PortSnapshot>> {
        Some(self.ports.get(&number)?.read().clone())
    }

    /// What a port is connected to.
    pub fn link_layer(&self, number: u8) -> LinkLayer {
        self.link_layers.get(&number).copied().unwrap_or_default()
    }

    /// As [`port`](Self::port), with an error that says what is wrong.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn known_port(&self, number: u8) -> Result<Arc<PortSnapshot>, NoSuchPort> {
        self.port(number).ok_or_else(|| self.no_such_port(number))
    }

    /// Makes `snapshot` what is known of a port, and raises the events that this makes, which it returns.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn update_port(
        &self,
        number: u8,
        snapshot: PortSnapshot,
    ) -> Result<Vec<PortEvent>, NoSuchPort> {
        let cell = self
            .ports
            .get(&number)
            .ok_or_else(|| self.no_such_port(number))?;
        let events = {
            let mut current = cell.write();
            let events = current.events_of_change_to(&snapshot);
            *current = Arc::new(snapshot);
            events
        };
        for event in &events {
            self.tell(&AsyncEvent::Port(*event, number));
        }
        Ok(events)
    }

    /// Raises an event without anything having changed.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn inject(&self, number: u8, event: PortEvent) -> Result<(), NoSuchPort> {
        if !self.ports.contains_key(&number) {
            return Err(self.no_such_port(number));
        }
        self.tell(&AsyncEvent::Port(event, number));
        Ok(())
    }

    fn no_such_port(&self, port: u8) -> NoSuchPort {
        NoSuchPort {
            adapter: self.identity.name.clone(),
            port,
            count: self.ports.len(),
        }
    }

    /// A queue that gets every event from now on, until it is dropped.
    ///
    /// # Errors
    /// What `eventfd(2)` says.
    pub fn listen(&self) -> io::Result<Arc<FdQueue<AsyncEvent>>> {
        let queue = Arc::new(FdQueue::new(EVENT_CAPACITY)?);
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&queue));
        Ok(queue)
    }

    fn tell(&self, event: &AsyncEvent) {
        for listener in self.listeners.lock().iter().filter_map(Weak::upgrade) {
            let _ = listener.push(event.clone());
        }
    }

    /// A queue pair in the state RESET.
    pub fn create_queue_pair(
        self: &Arc<Self>,
        memory: Arc<MemoryRegions>,
        send_cq: Arc<CompletionQueue>,
        recv_cq: Arc<CompletionQueue>,
        limits: Limits,
    ) -> Arc<QueuePair> {
        let number = self.next_qpn.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
        let pair = Arc::new(QueuePair::new(
            number,
            Arc::downgrade(self),
            memory,
            send_cq,
            recv_cq,
            limits,
        ));
        let mut pairs = self.queue_pairs.write();
        pairs.retain(|_, pair| pair.strong_count() > 0);
        pairs.insert(number, Arc::downgrade(&pair));
        pair
    }

    /// Where sent datagrams go from now on.
    pub fn set_data_path(&self, data_path: Arc<dyn DataPath>) {
        *self.data_path.write() = data_path;
    }

    pub(super) fn send(&self, datagram: Datagram) {
        let data_path = self.data_path.read().clone();
        data_path.send(datagram);
    }

    /// Gives a datagram to the queue pairs that it is meant for; the sender of a multicast does not get its own.
    pub fn deliver(&self, datagram: &Datagram) {
        let pairs: Vec<_> = self
            .queue_pairs
            .read()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for pair in pairs.iter().filter(|pair| pair.is_destination(datagram)) {
            let own = datagram.destination_qp == super::queue_pair::MULTICAST_QPN
                && pair.number() == datagram.source_qp
                && self.is_own_gid(&datagram.source_gid);
            if !own {
                pair.receive(datagram);
            }
        }
    }

    fn is_own_gid(&self, gid: &[u8; 16]) -> bool {
        self.ports.values().any(|port| {
            let port = port.read();
            (0..port.guids.len()).any(|index| port.gid(index).as_ref() == Some(gid))
        })
    }
}
