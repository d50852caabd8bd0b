//! A management port, shared by all who open it, with the kernel's time-outs.
//!
//! One port of the library below is opened once, never closed, and its agents are never unregistered but used again:
//! umad2sim 0.10 gives all answers of a management class to the descriptor that registered it last, and crashes on an
//! answer to one that is closed. Answers find their agent by the agent id in their transaction id instead.
//!
//! ibsim gives a MAD that it cannot deliver back at once, with status 110. The kernel knows no such thing: a MAD without
//! an answer is silence until its time is up. So these are dropped here and the deadline decides, unless the agent is
//! this crate's own and [wants to know](Undeliverable::GiveBack).

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

/// Where an agent's packets go.
pub type Inbox = FdQueue<Packet>;

/// How long the receiving thread waits at a time; it notices within this that it is to end.
const RECEIVE_SLICE: Duration = Duration::from_millis(100);

/// How long a process that ends waits for answers that are still to come.
const LAST_ANSWERS: Duration = Duration::from_millis(250);

/// Agents of one kind out of use, from which on they are used again. umad2sim has room for 32 in all.
const MANY_SPARES: usize = 8;

/// Why a packet was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No such agent of this port.
    #[error("agent {0} is not registered on this port")]
    NoSuchAgent(u32),
    /// The same request is out.
    #[error(transparent)]
    Duplicate(#[from] Duplicate),
    /// The layer below refused it.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// `exit` was called.
    #[error("the process is ending")]
    Ending,
}

/// What is to become of a request of an agent that ibsim cannot deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undeliverable {
    /// Nothing until its time is up, as with the kernel.
    Hold,
    /// It is given back at once, as timed out.
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
    /// Agents of the layer below that nobody uses now, the longest unused first.
    spare: Vec<(Registration, u32)>,
    transactions: Transactions,
    /// `exit` was called: nothing is sent any more,
    ending: bool,
    /// nor received.
    ended: bool,
}

impl State {
    /// The agent of that kind that is out of use longest, if there are so many that it surely gets no late answers.
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

/// See the module's text. All methods may be called from any thread.
pub struct MadPort {
    library: &'static Libibumad,
    below: i32,
    state: Mutex<State>,
    /// Signalled when a request begins or ends to wait, so that the next deadline may be another one.
    waiting_changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The adapter whose port this is, by number, which is told of its memberships.
    adapter: Mutex<Option<(Weak<Adapter>, u8)>>,
}

type OpenPorts = Mutex<HashMap<(String, i32), Arc<MadPort>>>;

fn open_ports() -> &'static OpenPorts {
    static PORTS: OnceLock<OpenPorts> = OnceLock::new();
    PORTS.get_or_init(OpenPorts::default)
}

impl MadPort {
    /// The port of that name (`None`: any) and number (0: any), opened the first time.
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

    /// Tells an adapter from now on of the memberships that the SA gives to its port and takes.
    pub fn tell_memberships(&self, adapter: &Arc<Adapter>, port: u8) {
        *self.adapter.lock() = Some((Arc::downgrade(adapter), port));
    }

    /// Registers an agent whose packets go to `inbox`, for as long as that lives.
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

    /// Forgets an agent and its requests. False: there was none of that id.
    pub fn unregister(&self, id: u32) -> bool {
        let mut state = self.state.lock();
        let Some(agent) = state.agents.remove(&id) else {
            return false;
        };
        state.transactions.forget_agent(id);
        state.spare.push((agent.registration, id));
        true
    }

    /// Sends a packet for an agent. A request with a time-out either gets an answer into the agent's inbox or comes back
    /// there, once, with status 110 and its own headers.
    ///
    /// # Errors
    /// If it was not sent; then nothing comes back.
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

    /// Whether the process is at its end, so that nothing is sent any more.
    pub fn is_ending(&self) -> bool {
        self.state.lock().ending
    }

    fn receive_until_ended(&self) {
        while !self.state.lock().ended {
            let begin = Instant::now();
            match self.library.receive(self.below, RECEIVE_SLICE) {
                Some(packet) => self.dispatch(packet),
                // umad2sim's poll can fail at once when it was woken for nothing.
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

    /// Who gets a packet. Ends the transaction that it answers.
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
            // Before the program hears of it, and attaches.
            if let Some((adapter, port)) = &*self.adapter.lock()
                && let Some(adapter) = adapter.upgrade()
            {
                joins::heed(&adapter, *port, &request, packet);
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

    /// Takes a request that ibsim could not deliver.
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
            // A retry that cannot be sent is a lost one: the next deadline comes.
            Due::Resend(mut packet) => drop(self.library.send(self.below, key.agent, &mut packet)),
            Due::TimedOut(mut packet) => {
                packet.time_out();
                if let Some(inbox) = inbox {
                    let _ = inbox.push(packet);
                }
            }
        }
    }

    /// Waits for what is out, for a moment, and ends the threads.
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

/// umad2sim's own exit handler frees what our threads wait on, and hangs if something arrives meanwhile. It was registered
/// when the first port was opened, so ours, registered after, runs before it.
fn end_ports_at_exit() {
    extern "C" fn end() {
        let ports: Vec<_> = open_ports().lock().values().cloned().collect();
        for port in ports {
            port.end();
        }
    }
    // SAFETY: a function that takes and returns nothing; the library that holds it stays loaded (it is preloaded or part
    // of the program).
    unsafe { libc::atexit(end) };
}
