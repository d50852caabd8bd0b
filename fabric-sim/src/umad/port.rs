//! A management port with the kernel's timeouts, shared by all its openers.
//!
//! A port of the library below is opened once and never closed, and its agents are never unregistered but
//! reused. umad2sim 0.10 passes all responses of a management class to the descriptor that registered it last,
//! and crashes on a response to a closed one. Here responses find their agent by the agent id in their
//! transaction id instead.
//!
//! ibsim returns a MAD that it cannot deliver at once, with status 110. The kernel does not: a MAD without a
//! response is silent until its timeout. So this module drops these returned MADs and lets the deadline decide,
//! unless the agent is this crate's own and [requests them](Undeliverable::GiveBack).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::joins;
use super::lower::{Libibumad, LowerError, Registration};
use super::packet::Packet;
use super::transactions::{Due, Duplicate, Key, Transactions};
use crate::fd_queue::FdQueue;
use crate::model::adapter::Adapter;

/// The queue of an agent's packets.
pub type Inbox = FdQueue<Packet>;

/// Maximum time that the receiving thread waits before it checks whether to end.
const RECEIVE_SLICE: Duration = Duration::from_millis(100);

/// How long a process that exits waits for outstanding responses.
const LAST_ANSWERS: Duration = Duration::from_millis(250);

/// Minimum number of unused agents of one kind before they are reused. umad2sim has room for 32 in all.
const MANY_SPARES: usize = 8;

/// Error from sending a packet.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The port has no such agent.
    #[error("agent {0} is not registered on this port")]
    NoSuchAgent(u32),
    /// The same request is in flight.
    #[error(transparent)]
    Duplicate(#[from] Duplicate),
    /// The layer below refused it.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// `exit` was called.
    #[error("the process is ending")]
    Ending,
}

/// What to do with an agent's request that ibsim cannot deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undeliverable {
    /// Wait for its timeout, as the kernel does.
    Hold,
    /// Return it at once, as timed out.
    GiveBack,
}

struct Agent {
    registration: Registration,
    inbox: Weak<Inbox>,
    undeliverable: Undeliverable,
}

#[derive(Default)]
struct State {
    agents: HashMap<u32, Agent>,
    /// Unused agents of the layer below, the longest unused first.
    spare: Vec<(Registration, u32)>,
    transactions: Transactions,
    /// `exit` was called: nothing is sent any more.
    ending: bool,
    /// Nothing is received any more.
    ended: bool,
}

impl State {
    /// Returns the longest unused agent of that kind, if there are so many that it surely gets no late
    /// responses.
    fn take_spare(&mut self, registration: &Registration) -> Option<u32> {
        let same = |(spare, _): &(Registration, u32)| spare == registration;
        if self.spare.iter().filter(|spare| same(spare)).count() < MANY_SPARES {
            return None;
        }
        let oldest = self.spare.iter().position(same)?;
        Some(self.spare.remove(oldest).1)
    }

    fn inbox(&self, agent: u32) -> Option<Arc<Inbox>> {
        self.agents.get(&agent)?.inbox.upgrade()
    }
}

/// A shared management port, see the module. Any thread may call all methods.
pub struct MadPort {
    library: &'static Libibumad,
    below: i32,
    state: Mutex<State>,
    /// Signals that a request started or stopped waiting, so that the next deadline may have changed.
    waiting_changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The adapter and number of this port, to update with its memberships.
    adapter: Mutex<Option<(Weak<Adapter>, u8)>>,
}

type OpenPorts = Mutex<HashMap<(String, i32), Arc<MadPort>>>;

fn open_ports() -> &'static OpenPorts {
    static PORTS: OnceLock<OpenPorts> = OnceLock::new();
    PORTS.get_or_init(OpenPorts::default)
}

impl MadPort {
    /// Opens the port with that name (`None`: any) and number (0: any), or returns it if it is open.
    ///
    /// # Errors
    /// If there is no such port or it cannot be opened.
    pub fn open(name: Option<&str>, number: i32) -> Result<Arc<Self>, LowerError> {
        let library = Libibumad::get()?;
        let key = library.resolve_port(name, number)?;
        let mut ports = open_ports().lock();
        if let Some(port) = ports.get(&key) {
            return Ok(port.clone());
        }
        let below = library.open_port(&key.0, key.1)?;
        let port = Arc::new(Self {
            library,
            below,
            state: Mutex::default(),
            waiting_changed: Condvar::new(),
            threads: Mutex::default(),
            adapter: Mutex::default(),
        });
        let (receiver, timer) = (port.clone(), port.clone());
        *port.threads.lock() = vec![
            std::thread::spawn(move || receiver.receive_until_ended()),
            std::thread::spawn(move || timer.watch_deadlines()),
        ];
        if ports.is_empty() {
            end_ports_at_exit();
        }
        ports.insert(key, port.clone());
        Ok(port)
    }

    /// Reports to an adapter the memberships that the SA grants to its port and ends.
    pub fn report_memberships(&self, adapter: &Arc<Adapter>, port: u8) {
        *self.adapter.lock() = Some((Arc::downgrade(adapter), port));
    }

    /// Registers an agent whose packets go to `inbox`, until `inbox` is dropped.
    ///
    /// # Errors
    /// If the layer below refuses it.
    pub fn register(
        &self,
        registration: Registration,
        inbox: &Arc<Inbox>,
        undeliverable: Undeliverable,
    ) -> Result<u32, LowerError> {
        let mut state = self.state.lock();
        let id = match state.take_spare(&registration) {
            Some(id) => id,
            None => self.library.register(self.below, &registration)?,
        };
        state.agents.insert(
            id,
            Agent {
                registration,
                inbox: Arc::downgrade(inbox),
                undeliverable,
            },
        );
        Ok(id)
    }

    /// Removes an agent and its requests. Returns false if there is none with that id.
    pub fn unregister(&self, id: u32) -> bool {
        let mut state = self.state.lock();
        let Some(agent) = state.agents.remove(&id) else {
            return false;
        };
        state.transactions.forget_agent(id);
        state.spare.push((agent.registration, id));
        true
    }

    /// Sends a packet for an agent. For a request with a timeout, the agent's inbox gets either a response or,
    /// once, the request's headers with status 110.
    ///
    /// # Errors
    /// If sending failed; then nothing is returned.
    pub fn send(
        &self,
        id: u32,
        mut packet: Packet,
        timeout: Duration,
        retries: u32,
    ) -> Result<(), SendError> {
        packet.set_sent_by(
            id,
            u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            retries,
        );
        let key = Key::of(id, &packet);
        let awaits_answer = !timeout.is_zero() && !packet.is_response();
        {
            let mut state = self.state.lock();
            if state.ending {
                return Err(SendError::Ending);
            }
            if !state.agents.contains_key(&id) {
                return Err(SendError::NoSuchAgent(id));
            }
            if awaits_answer {
                state
                    .transactions
                    .start(Instant::now(), key, packet.clone(), timeout, retries)?;
                self.waiting_changed.notify_all();
            }
        }
        self.library
            .send(self.below, id, &mut packet)
            .map_err(|error| {
                if awaits_answer {
                    self.state.lock().transactions.finish(&key);
                }
                error.into()
            })
    }

    /// Returns whether the process is exiting, so that nothing is sent any more.
    pub fn is_ending(&self) -> bool {
        self.state.lock().ending
    }

    fn receive_until_ended(&self) {
        while !self.state.lock().ended {
            let begin = Instant::now();
            match self.library.receive(self.below, RECEIVE_SLICE) {
                Some(packet) => self.dispatch(packet),
                // umad2sim's poll may fail at once after a spurious wake-up.
                None if begin.elapsed() < Duration::from_millis(1) => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                None => {}
            }
        }
    }

    fn dispatch(&self, mut packet: Packet) {
        if packet.status() != 0 {
            return self.give_back(packet);
        }
        for (id, inbox) in self.receivers(&packet) {
            packet.set_received_by(id);
            let _ = inbox.push(packet.clone());
        }
    }

    /// Returns the receivers of a packet. Ends the transaction that it answers.
    fn receivers(&self, packet: &Packet) -> Vec<(u32, Arc<Inbox>)> {
        let mut state = self.state.lock();
        if packet.is_response() {
            let id = packet.agent();
            let Some(request) = state.transactions.finish(&Key::of(id, packet)) else {
                return Vec::new();
            };
            self.waiting_changed.notify_all();
            let inbox = state.inbox(id);
            drop(state);
            // Before the program sees the response and attaches.
            if let Some((adapter, port)) = &*self.adapter.lock()
                && let Some(adapter) = adapter.upgrade()
            {
                joins::apply_response(&adapter, *port, &request, packet);
            }
            return inbox.map(|inbox| (id, inbox)).into_iter().collect();
        }
        let bit = packet.method() & 0x7f;
        let wants = |registration: &Registration| {
            registration.class == packet.class()
                && registration.methods[usize::from(bit / 64)] >> (bit % 64) & 1 != 0
        };
        let agents = state
            .agents
            .iter()
            .filter(|(_, agent)| wants(&agent.registration));
        agents
            .filter_map(|(id, agent)| Some((*id, agent.inbox.upgrade()?)))
            .collect()
    }

    /// Handles a request that ibsim could not deliver.
    fn give_back(&self, mut packet: Packet) {
        let id = packet.asking_agent();
        let mut state = self.state.lock();
        let at_once = state
            .agents
            .get(&id)
            .is_some_and(|agent| agent.undeliverable == Undeliverable::GiveBack);
        if packet.is_response()
            || !at_once
            || state.transactions.finish(&Key::of(id, &packet)).is_none()
        {
            return;
        }
        self.waiting_changed.notify_all();
        packet.set_sent_by(id, 0, 0);
        packet.time_out();
        if let Some(inbox) = state.inbox(id) {
            let _ = inbox.push(packet);
        }
    }

    fn watch_deadlines(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            let due = state.transactions.due(Instant::now());
            if !due.is_empty() {
                let inboxes: Vec<_> = due.iter().map(|(key, _)| state.inbox(key.agent)).collect();
                drop(state);
                for ((key, due), inbox) in due.into_iter().zip(inboxes) {
                    self.act(key, due, inbox);
                }
                state = self.state.lock();
                continue;
            }
            match state.transactions.next_deadline() {
                Some(deadline) => {
                    self.waiting_changed.wait_until(&mut state, deadline);
                }
                None => self.waiting_changed.wait(&mut state),
            }
        }
    }

    fn act(&self, key: Key, due: Due, inbox: Option<Arc<Inbox>>) {
        match due {
            // A retry that cannot be sent counts as lost until the next deadline.
            Due::Resend(mut packet) => drop(self.library.send(self.below, key.agent, &mut packet)),
            Due::TimedOut(mut packet) => {
                packet.time_out();
                if let Some(inbox) = inbox {
                    let _ = inbox.push(packet);
                }
            }
        }
    }

    /// Waits for outstanding responses, for a moment, and ends the threads.
    fn end(&self) {
        let mut state = self.state.lock();
        state.ending = true;
        let deadline = Instant::now() + LAST_ANSWERS;
        while !state.transactions.is_empty()
            && !self
                .waiting_changed
                .wait_until(&mut state, deadline)
                .timed_out()
        {}
        state.ended = true;
        drop(state);
        self.waiting_changed.notify_all();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

/// umad2sim's own exit handler frees what our threads wait on, and hangs if a packet arrives meanwhile. It was
/// registered when the first port was opened, so ours, registered later, runs first.
fn end_ports_at_exit() {
    extern "C" fn end() {
        let ports: Vec<_> = open_ports().lock().values().cloned().collect();
        for port in ports {
            port.end();
        }
    }
    // SAFETY: the function has no arguments and no result; the library that contains it stays loaded (it is
    // preloaded or part of the program).
    unsafe { libc::atexit(end) };
}
