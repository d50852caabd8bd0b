//! The adapter: identity, ports, and the contexts that receive their events.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::completion::CompletionQueue;
use super::data_path::DataPath;
use super::event::{AsyncEvent, PortEvent};
use super::link::Link;
use super::link_faults::{LinkCounts, LinkFaults};
use super::membership::{JoinState, Membership, Memberships};
use super::memory::MemoryRegions;
use super::port::PortSnapshot;
use super::queue_pair::{Limits, QueuePair};
use crate::fd_queue::FdQueue;

/// Maximum number of unread events per context; further ones are lost.
const EVENT_CAPACITY: usize = 4096;

/// Default numbers of queue pairs, unless [set](Adapter::number_queue_pairs).
const QUEUE_PAIR_NUMBERS: RangeInclusive<u32> = 0x40..=0x00ff_fffe;

/// The adapter's identity. Host byte order.
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
    /// Vendor ID.
    pub vendor_id: u32,
    /// Device ID.
    pub device_id: u16,
    /// Revision.
    pub revision: u32,
}

/// The network of a port; it does not change with the port's state.
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

/// A simulated adapter. Any thread may call all methods.
pub struct Adapter {
    identity: Identity,
    ports: BTreeMap<u8, Port>,
    /// The event queues of the contexts, each of which gets every event.
    listeners: Mutex<Vec<Weak<FdQueue<AsyncEvent>>>>,
    queue_pairs: RwLock<QueuePairs>,
}

struct Port {
    snapshot: RwLock<Arc<PortSnapshot>>,
    link_layer: LinkLayer,
    memberships: Mutex<Memberships>,
    link: Link,
}

/// The existing queue pairs, by number.
pub(super) type QueuePairsByNumber = HashMap<u32, Weak<QueuePair>>;

struct QueuePairs {
    known: QueuePairsByNumber,
    numbers: RangeInclusive<u32>,
    next: u32,
}

impl QueuePairs {
    /// Returns an unused number; a number is reused as late as possible.
    fn take_number(&mut self) -> u32 {
        self.known.retain(|_, pair| pair.strong_count() > 0);
        let (first, last) = self.numbers.clone().into_inner();
        loop {
            let number = self.next;
            self.next = if number >= last { first } else { number + 1 };
            // A process runs out of memory long before the adapter runs out of numbers.
            if !self.known.contains_key(&number) || self.known.len() as u32 > last - first {
                return number;
            }
        }
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Adapter {
    /// Creates an adapter with ports 1 to `ports.len()`, all of them InfiniBand.
    pub fn new(identity: Identity, ports: Vec<PortSnapshot>) -> Arc<Self> {
        Self::mixed(identity, ports, BTreeMap::new())
    }

    /// Like [`new`](Self::new), with the link layers of ports that are not InfiniBand.
    pub fn mixed(
        identity: Identity,
        ports: Vec<PortSnapshot>,
        link_layers: BTreeMap<u8, LinkLayer>,
    ) -> Arc<Self> {
        let port = |(number, snapshot)| {
            let port = Port {
                snapshot: RwLock::new(Arc::new(snapshot)),
                link_layer: link_layers.get(&number).copied().unwrap_or_default(),
                memberships: Mutex::default(),
                link: Link::default(),
            };
            (number, port)
        };
        Arc::new(Self {
            identity,
            ports: (1..=u8::MAX).zip(ports).map(port).collect(),
            listeners: Mutex::default(),
            queue_pairs: RwLock::new(QueuePairs {
                known: HashMap::new(),
                numbers: QUEUE_PAIR_NUMBERS,
                next: *QUEUE_PAIR_NUMBERS.start(),
            }),
        })
    }

    /// Returns its identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the number of ports.
    pub fn port_count(&self) -> u8 {
        self.ports.keys().next_back().copied().unwrap_or(0)
    }

    /// Returns the state of a port; ports count from 1.
    pub fn port(&self, number: u8) -> Option<Arc<PortSnapshot>> {
        Some(self.ports.get(&number)?.snapshot.read().clone())
    }

    /// Returns the network of a port.
    pub fn link_layer(&self, number: u8) -> LinkLayer {
        self.ports
            .get(&number)
            .map_or_else(LinkLayer::default, |port| port.link_layer)
    }

    /// Like [`port`](Self::port), with an error that names the missing port.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn known_port(&self, number: u8) -> Result<Arc<PortSnapshot>, NoSuchPort> {
        self.port(number).ok_or_else(|| self.no_such_port(number))
    }

    fn whole_port(&self, number: u8) -> Result<&Port, NoSuchPort> {
        self.ports
            .get(&number)
            .ok_or_else(|| self.no_such_port(number))
    }

    /// Sets the state of a port, raises the events of the change and returns them. Memberships [may
    /// end](super::membership) by it.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn update_port(
        &self,
        number: u8,
        snapshot: PortSnapshot,
    ) -> Result<Vec<PortEvent>, NoSuchPort> {
        let port = self.whole_port(number)?;
        let events = {
            let mut current = port.snapshot.write();
            let events = current.events_of_change_to(&snapshot);
            *current = Arc::new(snapshot);
            events
        };
        // Before programs get the event and join again.
        if events.iter().copied().any(Memberships::end_with) {
            port.memberships.lock().clear();
        }
        if events.contains(&PortEvent::PortErr) {
            port.link.lose_held();
        }
        for event in &events {
            self.tell(&AsyncEvent::Port(*event, number));
        }
        Ok(events)
    }

    /// Raises an event without a change.
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

    /// Creates a queue that gets every event from now on, until it is dropped.
    ///
    /// # Errors
    /// The error of `eventfd(2)`.
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

    /// Creates a queue pair in the state RESET.
    pub fn create_queue_pair(
        self: &Arc<Self>,
        memory: Arc<MemoryRegions>,
        send_cq: Arc<CompletionQueue>,
        recv_cq: Arc<CompletionQueue>,
        limits: Limits,
    ) -> Arc<QueuePair> {
        let mut pairs = self.queue_pairs.write();
        let number = pairs.take_number();
        let pair = Arc::new(QueuePair::new(
            number,
            Arc::downgrade(self),
            memory,
            send_cq,
            recv_cq,
            limits,
        ));
        pairs.known.insert(number, Arc::downgrade(&pair));
        pair
    }

    /// Returns the number of existing queue pairs.
    pub fn queue_pair_count(&self) -> usize {
        let pairs = self.queue_pairs.read();
        let alive = pairs.known.values();
        alive.filter(|pair| pair.strong_count() > 0).count()
    }

    /// Returns a queue pair by its number.
    pub fn queue_pair(&self, number: u32) -> Option<Arc<QueuePair>> {
        self.queue_pairs.read().known.get(&number)?.upgrade()
    }

    /// Sets the numbers of new queue pairs: in turn, starting at `first`.
    pub fn number_queue_pairs(&self, numbers: RangeInclusive<u32>, first: u32) {
        let mut pairs = self.queue_pairs.write();
        pairs.next = first.clamp(*numbers.start(), *numbers.end());
        pairs.numbers = numbers;
    }

    pub(super) fn queue_pairs(&self) -> impl std::ops::Deref<Target = QueuePairsByNumber> {
        RwLockReadGuard::map(self.queue_pairs.read(), |pairs| &pairs.known)
    }

    /// Sets the destination of datagrams that leave a port.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_data_path(&self, port: u8, data_path: Arc<dyn DataPath>) -> Result<(), NoSuchPort> {
        self.whole_port(port)?.link.set_path(data_path);
        Ok(())
    }

    pub(super) fn link(&self, port: u8) -> Option<&Link> {
        Some(&self.ports.get(&port)?.link)
    }

    /// Sets the faults of datagrams that leave a port. Restarts counts and random sequence.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_link_faults(&self, port: u8, faults: LinkFaults) -> Result<(), NoSuchPort> {
        self.whole_port(port)?.link.set_faults(faults);
        Ok(())
    }

    /// Returns the faults of datagrams that leave a port, and their counts since they were last set.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn link_faults(&self, port: u8) -> Result<(LinkFaults, LinkCounts), NoSuchPort> {
        Ok(self.whole_port(port)?.link.faults())
    }

    /// Records that the SA granted a port a membership in a group, or further join states.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn joined(&self, port: u8, membership: Membership) -> Result<(), NoSuchPort> {
        self.whole_port(port)?.memberships.lock().join(membership);
        Ok(())
    }

    /// Records that the SA ended a port's membership in a group: some join states or, with [`JoinState::ALL`],
    /// all.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn left(&self, port: u8, mgid: &[u8; 16], state: JoinState) -> Result<(), NoSuchPort> {
        self.whole_port(port)?.memberships.lock().leave(mgid, state);
        Ok(())
    }

    /// Returns the groups that a port is a member of, in any order.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn memberships(&self, port: u8) -> Result<Vec<Membership>, NoSuchPort> {
        Ok(self.whole_port(port)?.memberships.lock().list())
    }

    pub(super) fn with_memberships(
        &self,
        port: u8,
        ask: impl FnOnce(&Memberships) -> bool,
    ) -> bool {
        self.ports
            .get(&port)
            .is_some_and(|port| ask(&port.memberships.lock()))
    }
}
