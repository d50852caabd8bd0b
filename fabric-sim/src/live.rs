//! Keeps an adapter's ports as the fabric has them: asks them, by directed route with no hop, again and again.
//!
//! umad2sim's sysfs files are written once when a process starts; state, LIDs and P_Keys in it never change.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::config;
use crate::model::adapter::{Adapter, Identity};
use crate::model::port::PortSnapshot;
use crate::report::report;
use crate::smp::{self, Attribute, MAD_SIZE, NodeInfo, PortInfo};
use crate::umad::lower::{ChannelAdapter, Libibumad, LowerError, Registration};
use crate::umad::packet::Packet;
use crate::umad::port::{Inbox, MadPort, SendError};

const QUERY_TIMEOUT: Duration = Duration::from_millis(250);
const QUERY_RETRIES: u32 = 3;
/// P_Keys read at most, whatever NodeInfo claims.
const MAX_PKEYS: usize = 4096;

/// Why an adapter could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Its management port cannot be used.
    #[error(transparent)]
    Port(#[from] LowerError),
    /// It does not say what it is.
    #[error("{adapter}: {source}; is ibsim running, and SIM_HOST a node of its net?")]
    Query {
        /// Which one.
        adapter: String,
        /// What was asked.
        source: QueryError,
    },
    /// It is shown with no port at all.
    #[error("{0} has no port")]
    NoPort(String),
}

/// Why a port did not tell something.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It was not sent.
    #[error("cannot ask for {0:?} {1}: {2}")]
    Send(Attribute, u32, SendError),
    /// No answer.
    #[error("no answer to a SubnGet of {0:?} {1}")]
    Silent(Attribute, u32),
    /// A MAD status other than 0.
    #[error("SubnGet of {0:?} {1} was refused with status {2:#06x}")]
    Refused(Attribute, u32, u16),
    /// A descriptor failed.
    #[error("cannot wait for {0:?} {1}: {2}")]
    Wait(Attribute, u32, io::Error),
}

/// Asks the port of this process.
pub struct Prober {
    port: Arc<MadPort>,
    agent: u32,
    inbox: Arc<Inbox>,
    next_transaction: u32,
}

impl Prober {
    /// Opens a port.
    ///
    /// # Errors
    /// If there is none of that name and number, or it refuses an agent for subnet management.
    pub fn open(adapter: &str, port: u8) -> Result<Self, LowerError> {
        let port = MadPort::open(Some(adapter), port.into())?;
        let inbox = Inbox::new(64).map_err(|error| LowerError::Call {
            function: "eventfd",
            arguments: String::new(),
            error,
        })?;
        let inbox = Arc::new(inbox);
        let registration = Registration {
            class: smp::CLASS_SUBNET_DIRECTED_ROUTE,
            class_version: 1,
            rmpp_version: 0,
            oui: None,
            methods: [0; 2],
        };
        let agent = port.register(registration, &inbox)?;
        Ok(Self {
            port,
            agent,
            inbox,
            next_transaction: 1,
        })
    }

    /// An attribute's 64 bytes.
    ///
    /// # Errors
    /// If there is no answer, or one with a status.
    pub fn get(&mut self, attribute: Attribute, modifier: u32) -> Result<[u8; 64], QueryError> {
        let transaction = self.next_transaction;
        self.next_transaction = transaction.checked_add(1).unwrap_or(1);
        let request = Packet::new(
            &smp::get(attribute, modifier, transaction),
            smp::PERMISSIVE_LID,
            0,
        );
        self.port
            .send(self.agent, request, QUERY_TIMEOUT, QUERY_RETRIES)
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
            let answer = mad.and_then(|mad| smp::answer(mad, attribute, modifier));
            let data = answer.ok_or(QueryError::Silent(attribute, modifier))?;
            return data.map_err(|status| QueryError::Refused(attribute, modifier, status));
        }
    }

    /// What comes next, a request given back included. `None`: nothing, though its time is long up.
    fn next_packet(&self) -> io::Result<Option<Packet>> {
        let longest = QUERY_TIMEOUT * (QUERY_RETRIES + 2);
        let longest = Timespec::try_from(longest).map_err(io::Error::other)?;
        match rustix::event::poll(
            &mut [PollFd::from_borrowed_fd(self.inbox.as_fd(), PollFlags::IN)],
            Some(&longest),
        )? {
            0 => Ok(None),
            _ => self.inbox.pop().map(Some),
        }
    }

    /// All that verbs show of a port of this node; `pkey_count` from its NodeInfo.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn snapshot(&mut self, port: u8, pkey_count: usize) -> Result<PortSnapshot, QueryError> {
        let info = PortInfo::read(&self.get(Attribute::PortInfo, port.into())?);
        let pkey_count = pkey_count.min(MAX_PKEYS);
        let mut pkeys = Vec::with_capacity(pkey_count);
        for block in 0..pkey_count.div_ceil(32) {
            pkeys.extend(smp::pkeys(&self.get(Attribute::PKeyTable, block as u32)?));
        }
        pkeys.truncate(pkey_count);
        let guid_count = usize::from(info.guid_cap).max(1);
        let mut guids = Vec::with_capacity(guid_count);
        for block in 0..guid_count.div_ceil(8) {
            guids.extend(smp::guids(&self.get(Attribute::GuidInfo, block as u32)?));
        }
        guids.truncate(guid_count);
        Ok(PortSnapshot { info, pkeys, guids })
    }
}

/// An adapter for each channel adapter that libibumad shows, each with a thread that keeps it up to date.
///
/// # Errors
/// If one of them does not answer.
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
    let node = NodeInfo::read(&first.get(Attribute::NodeInfo, 0).map_err(failed)?);
    let pkey_count = usize::from(node.partition_cap);
    let mut snapshots = Vec::new();
    for port in 1..=ca.port_count {
        snapshots.push(match probers.get_mut(&port) {
            Some(prober) => prober.snapshot(port, pkey_count).map_err(failed)?,
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
        let adapter = Arc::downgrade(&adapter);
        std::thread::spawn(move || watch(&adapter, port, prober, pkey_count));
    }
    Ok(adapter)
}

/// Reads a port until its adapter or the process is gone. One that cannot be read stays as it was.
fn watch(adapter: &Weak<Adapter>, port: u8, mut prober: Prober, pkey_count: usize) {
    let interval = config::poll_interval();
    let mut silent = false;
    loop {
        std::thread::sleep(interval);
        let Some(adapter) = adapter.upgrade() else {
            return;
        };
        let read = prober.snapshot(port, pkey_count);
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
                    "port {port} of {} stays as it was: {error}",
                    adapter.identity().name
                ));
            }
            Err(_) => {}
        }
    }
}
