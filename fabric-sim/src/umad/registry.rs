//! The program's open ports, by their descriptors.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::lower::{LowerError, Registration};
use super::port::{Inbox, MadPort, Undeliverable};

/// Maximum number of unread packets of a port; further ones are lost.
const INBOX_CAPACITY: usize = 65536;

/// A port as `umad_open_port` opened it.
pub struct OpenPort {
    port: Arc<MadPort>,
    inbox: Arc<Inbox>,
    agents: Mutex<Vec<u32>>,
}

type Open = RwLock<HashMap<RawFd, Arc<OpenPort>>>;

fn open_ports() -> &'static Open {
    static OPEN: OnceLock<Open> = OnceLock::new();
    OPEN.get_or_init(Open::default)
}

impl OpenPort {
    /// Opens a port and returns its descriptor.
    ///
    /// # Errors
    /// If there is no such port, or no free descriptor.
    pub fn open(name: Option<&str>, number: i32) -> Result<RawFd, LowerError> {
        let port = MadPort::open(name, number)?;
        let inbox = Inbox::new(INBOX_CAPACITY).map_err(|error| LowerError::Call {
            function: "eventfd",
            arguments: String::new(),
            error,
        })?;
        let fd = inbox.as_raw_fd();
        let open = Self {
            port,
            inbox: Arc::new(inbox),
            agents: Mutex::default(),
        };
        open_ports().write().insert(fd, Arc::new(open));
        Ok(fd)
    }

    /// Returns the port of a descriptor.
    pub fn of(fd: RawFd) -> Option<Arc<Self>> {
        open_ports().read().get(&fd).cloned()
    }

    /// Closes it and removes its agents. Returns false if it was not open.
    pub fn close(fd: RawFd) -> bool {
        let Some(open) = open_ports().write().remove(&fd) else {
            return false;
        };
        for agent in open.agents.lock().drain(..) {
            open.port.unregister(agent);
        }
        true
    }

    /// Registers an agent.
    ///
    /// # Errors
    /// If the registration is refused.
    pub fn register(&self, registration: Registration) -> Result<u32, LowerError> {
        let id = self
            .port
            .register(registration, &self.inbox, Undeliverable::Hold)?;
        self.agents.lock().push(id);
        Ok(id)
    }

    /// Unregisters an agent. Returns false if it does not belong to this port.
    pub fn unregister(&self, id: u32) -> bool {
        let mut agents = self.agents.lock();
        let Some(index) = agents.iter().position(|agent| *agent == id) else {
            return false;
        };
        agents.swap_remove(index);
        self.port.unregister(id)
    }

    /// Returns whether an agent belongs to this port.
    pub fn has_agent(&self, id: u32) -> bool {
        self.agents.lock().contains(&id)
    }

    /// Returns the management port.
    pub fn port(&self) -> &MadPort {
        &self.port
    }

    /// Returns the packets for its agents.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }
}
