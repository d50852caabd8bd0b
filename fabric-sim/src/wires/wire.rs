//! A port's socket.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, sendto, shutdown};

use super::WiresError;
use super::folder::{Folder, Slot, Socket};
use super::frame::{self, MAX_FRAME};
use super::waiting::{Offer, Waiting};
use crate::model::adapter::Adapter;
use crate::model::data_path::{DataPath, Datagram};
use crate::report::report_once;

/// How long to leave a full receiver alone.
const PAUSE: Duration = Duration::from_millis(1);

/// A port's connection to the wires. Dropping it removes the socket.
pub(super) struct Wire(Arc<Shared>);

struct Shared {
    folder: Arc<Folder>,
    /// Held as long as the socket.
    _slot: Arc<Slot>,
    name: String,
    socket: OwnedFd,
    adapter: Weak<Adapter>,
    port: u8,
    ended: AtomicBool,
    outgoing: Mutex<Outgoing>,
}

#[derive(Default)]
struct Outgoing {
    waiting: Waiting,
    /// Whether a thread serves the waiting frames.
    is_watched: bool,
}

impl Wire {
    /// Creates a port's socket and starts a thread that receives from it.
    pub(super) fn lay(
        folder: &Arc<Folder>,
        slot: &Arc<Slot>,
        adapter: &Arc<Adapter>,
        port: u8,
    ) -> Result<Self, WiresError> {
        let name = slot.socket_name(port);
        let socket = folder.bind(&name)?;
        let shared = Arc::new(Shared {
            folder: folder.clone(),
            _slot: slot.clone(),
            name,
            socket,
            adapter: Arc::downgrade(adapter),
            port,
            ended: AtomicBool::new(false),
            outgoing: Mutex::default(),
        });
        let receiver = shared.clone();
        let started = std::thread::Builder::new()
            .name("fabric-sim wire".to_owned())
            .spawn(move || receiver.receive_until_ended());
        let wire = Self(shared);
        started.map_err(|error| folder.cannot_make(&wire.0.name, error))?;
        Ok(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        // Both fail only if the socket is already gone, as wanted. The first wakes the receiver.
        let _ = shutdown(&self.0.socket, Shutdown::Both);
        let _ = self.0.folder.remove(&self.0.name);
    }
}

impl DataPath for Wire {
    fn send(&self, datagram: &Datagram) {
        let shared = &self.0;
        let sockets = match shared.folder.sockets() {
            Ok(sockets) => sockets,
            Err(error) => {
                return report_once(&format!("cannot read the folder of the wires: {error}"));
            }
        };
        let frame: Arc<[u8]> = frame::encode(datagram).into();
        let now = Instant::now();
        let mut outgoing = shared.outgoing.lock();
        for socket in sockets.iter().filter(|socket| socket.name != shared.name) {
            outgoing.waiting.hand(socket, &frame, now, |socket, frame| {
                shared.offer(socket, frame)
            });
        }
        if !outgoing.waiting.is_empty() && !outgoing.is_watched {
            let shared = shared.clone();
            let started = std::thread::Builder::new()
                .name("fabric-sim waiting".to_owned())
                .spawn(move || shared.hand_over_until_none_waits());
            match started {
                Ok(_) => outgoing.is_watched = true,
                // The next datagram tries again.
                Err(error) => report_once(&format!(
                    "cannot start the thread for waiting datagrams: {error}"
                )),
            }
        }
    }
}

impl Shared {
    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn offer(&self, socket: &Socket, frame: &[u8]) -> Offer {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendto(&self.socket, frame, flags, &socket.address) {
            Err(Errno::AGAIN | Errno::NOBUFS) => Offer::Full,
            Ok(_)
            // The receiver's process has ended.
            | Err(Errno::CONNREFUSED | Errno::NOENT | Errno::PIPE | Errno::CONNRESET) => Offer::Done,
            Err(error) => {
                report_once(&format!("cannot send a datagram to a socket of the wires: {error}"));
                Offer::Done
            }
        }
    }

    fn hand_over_until_none_waits(&self) {
        loop {
            std::thread::sleep(PAUSE);
            let mut outgoing = self.outgoing.lock();
            let is_active = self
                .adapter
                .upgrade()
                .and_then(|adapter| adapter.port(self.port))
                .is_some_and(|port| port.is_active());
            if self.is_ended() || !is_active {
                outgoing.waiting.clear();
            }
            let offer = |socket: &Socket, frame: &[u8]| self.offer(socket, frame);
            if !outgoing.waiting.hand_over(Instant::now(), offer) {
                outgoing.is_watched = false;
                return;
            }
        }
    }

    fn receive_until_ended(&self) {
        // One byte more than a frame, so that an overlong one is detected.
        let mut buffer = vec![0; MAX_FRAME + 1];
        while !self.is_ended() {
            let length = match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length)) => length.min(buffer.len()),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    return report_once(&format!("receiving from the wires stopped: {error}"));
                }
            };
            if self.is_ended() {
                return;
            }
            match frame::parse(&buffer[..length]) {
                Ok(datagram) => {
                    let Some(adapter) = self.adapter.upgrade() else {
                        return;
                    };
                    adapter.arrive(self.port, &datagram);
                }
                Err(error) => {
                    report_once(&format!("dropped an invalid frame from the wires: {error}"));
                }
            }
        }
    }
}
