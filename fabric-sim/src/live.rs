//! Keeps an adapter's ports up to date by querying them repeatedly, by directed route without hops.
//!
//! umad2sim writes its sysfs files once, when a process starts; state, LIDs and P_Keys in them never change.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::config;
use crate::model::adapter::{Adapter, Identity};
use crate::model::port::{PortSnapshot, STATE_ACTIVE};
use crate::report::report;
use crate::smp::{self, Attribute, MAD_SIZE, NodeInfo, PortInfo, Route};
use crate::umad::lower::{ChannelAdapter, Libibumad, LowerError, Registration};
use crate::umad::packet::Packet;
use crate::umad::port::{Inbox, MadPort, SendError, Undeliverable};

/// How long to wait for a response, and how often to retry.
#[derive(Clone, Copy)]
struct Patience {
    timeout: Duration,
    retries: u32,
}

/// ibsim responds at once if it runs.
const SIMULATOR: Patience = Patience {
    timeout: Duration::from_millis(250),
    retries: 3,
};
/// A subnet manager may be stopped or busy, which must not delay the query of the port.
const MANAGER: Patience = Patience {
    timeout: Duration::from_millis(100),
    retries: 0,
};
/// Number of port queries between two queries of the manager.
const MANAGER_PAUSE: u32 = 10;
/// Maximum number of P_Keys, whatever NodeInfo claims.
const MAX_PKEYS: usize = 4096;

/// Error from attaching an adapter.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Its management port failed.
    #[error(transparent)]
    Port(#[from] LowerError),
    /// It does not respond to NodeInfo.
    #[error("{adapter}: {source}; is ibsim running, and SIM_HOST a node of its net?")]
    Query {
        /// The adapter.
        adapter: String,
        /// The failed query.
        source: QueryError,
    },
    /// The adapter has no ports.
    #[error("{0} has no port")]
    NoPort(String),
}

/// Error from a query.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// Sending failed.
    #[error("cannot send a SubnGet of {0:?} {1}: {2}")]
    Send(Attribute, u32, SendError),
    /// No response.
    #[error("no response to a SubnGet of {0:?} {1}")]
    Silent(Attribute, u32),
    /// A response with a MAD status other than 0.
    #[error("SubnGet of {0:?} {1} was refused with status {2:#06x}")]
    Refused(Attribute, u32, u16),
    /// Waiting failed.
    #[error("cannot wait for {0:?} {1}: {2}")]
    Wait(Attribute, u32, io::Error),
}

/// The state of the subnet manager at a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manager {
    /// Not queried yet.
    Unknown,
    /// There is none, or it is not the master yet.
    Absent,
    /// The master.
    Present,
}

/// Queries ports: this process's own, and others by LID.
pub struct Prober {
    port: Arc<MadPort>,
    own_agent: u32,
    lid_agent: u32,
    inbox: Arc<Inbox>,
    next_transaction: u32,
    manager: Manager,
    /// The subnet manager's activity count at the last query; it restarts with the manager.
    manager_activity: u32,
    /// Number of port queries until the manager's next query.
    manager_pause: u32,
}

impl Prober {
    /// Opens a port.
    ///
    /// # Errors
    /// If there is no such port, or it refuses an agent for subnet management.
    pub fn open(adapter: &str, port: u8) -> Result<Self, LowerError> {
        let port = MadPort::open(Some(adapter), port.into())?;
        let inbox = Inbox::new(64).map_err(|error| LowerError::Call {
            function: "eventfd",
            arguments: String::new(),
            error,
        })?;
        let inbox = Arc::new(inbox);
        let agent = |class| {
            let registration = Registration {
                class,
                class_version: 1,
                rmpp_version: 0,
                oui: None,
                methods: [0; 2],
            };
            port.register(registration, &inbox, Undeliverable::GiveBack)
        };
        let own_agent = agent(smp::CLASS_SUBNET_DIRECTED_ROUTE)?;
        let lid_agent = agent(smp::CLASS_SUBNET_LID_ROUTED)?;
        Ok(Self {
            port,
            own_agent,
            lid_agent,
            inbox,
            next_transaction: 1,
            manager: Manager::Unknown,
            manager_activity: 0,
            manager_pause: 0,
        })
    }

    /// Queries an attribute; returns its 64 bytes.
    fn get(
        &mut self,
        route: Route,
        attribute: Attribute,
        modifier: u32,
        patience: Patience,
    ) -> Result<[u8; 64], QueryError> {
        let transaction = self.next_transaction;
        self.next_transaction = transaction.checked_add(1).unwrap_or(1);
        let request = Packet::new(
            &smp::get(route, attribute, modifier, transaction),
            route.lid(),
            0,
        );
        let agent = if route == Route::Own {
            self.own_agent
        } else {
            self.lid_agent
        };
        self.port
            .send(agent, request, patience.timeout, patience.retries)
            .map_err(|error| QueryError::Send(attribute, modifier, error))?;
        loop {
            let packet = self
                .next_packet()
                .map_err(|error| QueryError::Wait(attribute, modifier, error))?;
            let packet = packet.ok_or(QueryError::Silent(attribute, modifier))?;
            if packet.transaction() != transaction {
                continue;
            }
            let mad: Option<&[u8; MAD_SIZE]> = packet.mad().try_into().ok();
            let answer = mad.and_then(|mad| smp::answer(mad, route, attribute, modifier));
            let data = answer.ok_or(QueryError::Silent(attribute, modifier))?;
            return data.map_err(|status| QueryError::Refused(attribute, modifier, status));
        }
    }

    /// Queries the port of this process.
    fn get_own(&mut self, attribute: Attribute, modifier: u32) -> Result<[u8; 64], QueryError> {
        self.get(Route::Own, attribute, modifier, SIMULATOR)
    }

    /// Returns the next packet, including a returned request; `None` if none arrives long after the timeout.
    fn next_packet(&self) -> io::Result<Option<Packet>> {
        let longest = SIMULATOR.timeout * (SIMULATOR.retries + 2);
        let longest = Timespec::try_from(longest).map_err(io::Error::other)?;
        let mut fds = [PollFd::from_borrowed_fd(self.inbox.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&longest))? {
            0 => Ok(None),
            _ => self.inbox.pop().map(Some),
        }
    }

    /// Queries the NodeInfo of this process's node.
    ///
    /// # Errors
    /// If there is no response, or one with a status.
    pub fn node(&mut self) -> Result<NodeInfo, QueryError> {
        Ok(NodeInfo::read(&self.get_own(Attribute::NodeInfo, 0)?))
    }

    /// Queries all that verbs report of a port of this node. Its P_Key table has `pkey_count` entries.
    /// `manager_present` is used if the manager cannot be queried.
    ///
    /// # Errors
    /// If there is no response, or one with a status.
    pub fn snapshot(
        &mut self,
        port: u8,
        pkey_count: usize,
        manager_present: bool,
    ) -> Result<PortSnapshot, QueryError> {
        let mut info = PortInfo::read(&self.get_own(Attribute::PortInfo, port.into())?);
        // ibsim always has 31, two hours, whatever the subnet manager sets. Programs wait that long for their
        // peers' responses.
        info.subnet_timeout = config::subnet_timeout();
        let pkey_count = pkey_count.min(MAX_PKEYS);
        let mut pkeys = Vec::with_capacity(pkey_count);
        for block in 0..pkey_count.div_ceil(32) {
            pkeys.extend(smp::pkeys(
                &self.get_own(Attribute::PKeyTable, block as u32)?,
            ));
        }
        pkeys.truncate(pkey_count);
        let guid_count = usize::from(info.guid_cap).max(1);
        let mut guids = Vec::with_capacity(guid_count);
        for block in 0..guid_count.div_ceil(8) {
            guids.extend(smp::guids(
                &self.get_own(Attribute::GuidInfo, block as u32)?,
            ));
        }
        guids.truncate(guid_count);
        let manager_present = self.has_manager(&info).unwrap_or(manager_present);
        Ok(PortSnapshot {
            info,
            pkeys,
            guids,
            manager_present,
        })
    }

    /// Returns whether the master subnet manager is at the LID that the port has for it. Returns false once if
    /// the manager was restarted since its last query. `None`: it cannot be queried, now or from here.
    fn has_manager(&mut self, info: &PortInfo) -> Option<bool> {
        if info.state != STATE_ACTIVE || info.sm_lid == 0 {
            return None;
        }
        let route = Route::Lid(info.sm_lid);
        // ibsim itself responds to that, whatever the manager does, unless no route leads there.
        let port = self.get(route, Attribute::PortInfo, 0, SIMULATOR).ok()?;
        let is_present = PortInfo::read(&port).capability_mask & smp::CAPABILITY_IS_SM != 0
            && self.is_master(route);
        self.manager = if is_present {
            Manager::Present
        } else {
            self.manager_activity = 0;
            Manager::Absent
        };
        Some(is_present)
    }

    /// A new manager is at its port long before it is the master. Until then it tells no port about itself, and
    /// ignores SA queries.
    fn is_master(&mut self, route: Route) -> bool {
        if self.manager == Manager::Present && self.manager_pause > 0 {
            self.manager_pause -= 1;
            return true;
        }
        self.manager_pause = MANAGER_PAUSE;
        let Ok(data) = self.get(route, Attribute::SmInfo, 0, MANAGER) else {
            // A silent manager is stopped or busy.
            return self.manager != Manager::Absent;
        };
        let activity = smp::manager_activity(&data);
        let before = std::mem::replace(&mut self.manager_activity, activity);
        smp::is_master(&data) && activity >= before
    }
}

/// Creates an adapter for each channel adapter that libibumad lists, each with a thread that keeps it up to
/// date.
///
/// # Errors
/// If one of them does not respond.
pub fn attach_all() -> Result<Vec<Arc<Adapter>>, AttachError> {
    Libibumad::get()?
        .channel_adapters()?
        .into_iter()
        .map(attach)
        .collect()
}

fn attach(ca: ChannelAdapter) -> Result<Arc<Adapter>, AttachError> {
    let mut probers = HashMap::new();
    for port in &ca.ports {
        probers.insert(*port, Prober::open(&ca.name, *port)?);
    }
    let failed = |source| AttachError::Query {
        adapter: ca.name.clone(),
        source,
    };
    let first = probers
        .values_mut()
        .next()
        .ok_or_else(|| AttachError::NoPort(ca.name.clone()))?;
    let node = first.node().map_err(failed)?;
    let pkey_count = usize::from(node.partition_cap);
    let mut snapshots = Vec::new();
    for port in 1..=ca.port_count {
        snapshots.push(match probers.get_mut(&port) {
            Some(prober) => prober.snapshot(port, pkey_count, false).map_err(failed)?,
            None => PortSnapshot::down(),
        });
    }
    let identity = Identity {
        name: ca.name.clone(),
        firmware: ca.firmware.clone(),
        node_guid: node.node_guid,
        system_image_guid: node.system_image_guid,
        vendor_id: node.vendor_id,
        device_id: node.device_id,
        revision: node.revision,
    };
    let adapter = Adapter::new(identity, snapshots);
    for (port, prober) in probers {
        prober.port.report_memberships(&adapter, port);
        let adapter = Arc::downgrade(&adapter);
        std::thread::spawn(move || watch(&adapter, port, prober, pkey_count));
    }
    Ok(adapter)
}

/// Queries a port until its adapter is dropped or the process exits. A port that cannot be queried stays
/// unchanged.
fn watch(adapter: &Weak<Adapter>, port: u8, mut prober: Prober, pkey_count: usize) {
    let interval = config::poll_interval();
    let mut silent = false;
    loop {
        std::thread::sleep(interval);
        let Some(adapter) = adapter.upgrade() else {
            return;
        };
        let known = adapter.port(port).is_some_and(|port| port.manager_present);
        let read = prober.snapshot(port, pkey_count, known);
        if prober.port.is_ending() {
            return;
        }
        match read {
            Ok(snapshot) => {
                silent = false;
                if let Err(error) = adapter.update_port(port, snapshot) {
                    report(&error);
                }
            }
            Err(error) if !silent => {
                silent = true;
                report(&format_args!(
                    "port {port} of {} keeps its last state: {error}",
                    adapter.identity().name
                ));
            }
            Err(_) => {}
        }
    }
}
