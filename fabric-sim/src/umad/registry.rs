//! The ports that the program has open, by the descriptor that it was given.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::lower::{LowerError, Registration};
use super::port::{Inbox, MadPort, Undeliverable};

/// Packets that a port keeps for a program that does not read them; what comes then is lost.
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
    /// Opens a port and returns the descriptor that stands for it.
    ///
    /// # Errors
    /// If there is no such port, or no descriptor left.
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

    /// The port that a descriptor stands for.
    pub fn of(fd: RawFd) -> Option<Arc<Self>> {
        open_ports().read().get(&fd).cloned()
    }

    /// Closes it; its agents are gone. False: it was not open.
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
    /// If it is refused.
    pub fn register(&self, registration: Registration) -> Result<u32, LowerError> {
        let id = self
            .port
            .register(registration, &self.inbox, Undeliverable::Hold)?;
        self.agents.lock().push(id);
        Ok(id)
    }

    /// Unregisters an agent. False: it is not this port's.
    pub fn unregister(&self, id: u32) -> bool {
        let mut agents = self.agents.lock();
        let Some(index) = agents.iter().position(|agent| *agent == id) else {
            return false;
        };
        agents.swap_remove(index);
        self.port.unregister(id)
    }

    /// Whether an agent is this port's.
    pub fn has_agent(&self, id: u32) -> bool {
        self.agents.lock().contains(&id)
    }

    /// The port behind it.
    pub fn port(&self) -> &MadPort {
        &self.port
    }

    /// What has come for its agents.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }
}
