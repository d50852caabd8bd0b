//! Another node in its own process: the stock provider under its own core, at the other end of the cable.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use fabric_sim::model::data_path::DataPath;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::stand_in::fabric::{DeviceSpec, Peer, PortSpec};
use crate::stand_in::message::{Addr, Gid};
use crate::stand_in::wire::{Datagram, GlobalRouteHeader, Wire};
use crate::stand_in::{FIRST_PORT, Setup, StandIn};
use crate::suite::fixture::by_addr;

/// Paths of the stock provider in distributions.
const PLACES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/ibacm",
    "/usr/lib/aarch64-linux-gnu/ibacm",
    "/usr/lib64/ibacm",
    "/usr/lib/ibacm",
];

/// Returns the stock provider's library, if it is installed.
pub fn stock_library() -> Option<PathBuf> {
    PLACES
        .iter()
        .map(|place| Path::new(place).join("libibacmp.so"))
        .find(|path| path.is_file())
}

/// A message between the two processes, one per line.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// A datagram from one node to the other.
    Datagram(Plain),
    /// A request of the neighbour's client for an address: type and field.
    Resolve(u16, Vec<u8>),
    /// The port is up.
    Ready,
    /// The client's answer: status, DLID, DGID.
    Answered(u8, u16, [u8; 16]),
    /// The neighbour failed.
    Failed(String),
}

/// The used parts of a datagram.
#[derive(Debug, Serialize, Deserialize)]
struct Plain {
    lids: [u16; 2],
    pairs: [u32; 2],
    gids: Option<[[u8; 16]; 2]>,
    keys: (u32, u16),
    payload: Vec<u8>,
}

impl From<&Datagram> for Plain {
    fn from(datagram: &Datagram) -> Self {
        Self {
            lids: [datagram.source_lid, datagram.destination_lid],
            pairs: [datagram.source_qp, datagram.destination_qp],
            gids: datagram.grh.map(|grh| [grh.source, grh.destination]),
            keys: (datagram.qkey, datagram.pkey),
            payload: datagram.payload.clone(),
        }
    }
}

impl From<Plain> for Datagram {
    fn from(plain: Plain) -> Self {
        Self {
            source_lid: plain.lids[0],
            destination_lid: plain.lids[1],
            source_qp: plain.pairs[0],
            destination_qp: plain.pairs[1],
            grh: plain.gids.map(|[source, destination]| GlobalRouteHeader {
                source,
                destination,
                ..GlobalRouteHeader::default()
            }),
            qkey: plain.keys.0,
            pkey: plain.keys.1,
            payload: plain.payload,
            ..Self::default()
        }
    }
}

/// This process's end of the cable.
struct Cable(Mutex<UnixStream>);

impl Cable {
    fn say(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        let mut stream = self.0.lock().map_err(|_| io::Error::other("a panic"))?;
        stream.write_all(text.as_bytes())
    }
}

impl DataPath for Cable {
    fn send(&self, datagram: &Datagram) {
        // A cut cable loses all datagrams.
        let _ = self.say(&Line::Datagram(datagram.into()));
    }
}

/// Passes datagrams from the cable to the port, and other messages to the waiting thread, until the cable is cut.
fn listen(stream: UnixStream, wire: Wire) -> Receiver<Line> {
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        for text in BufReader::new(stream).lines().map_while(Result::ok) {
            match serde_json::from_str(&text) {
                Ok(Line::Datagram(plain)) => wire.send(&plain.into()),
                Ok(line) => {
                    if to.send(line).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    });
    from
}

/// A node with the stock provider.
pub struct Neighbour {
    cable: Arc<Cable>,
    heard: Receiver<Line>,
    child: Child,
    patience: Duration,
}

/// An answer to the neighbour's client.
#[derive(Debug, PartialEq, Eq)]
pub struct Answered {
    /// ACM status.
    pub status: u8,
    /// Destination of the path.
    pub dlid: u16,
    /// Destination of the path.
    pub dgid: Gid,
}

impl Neighbour {
    /// Starts the node `peer`, at the other end of the first port's cable, with these lines of ibacm_opts.cfg.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(
        core: &StandIn,
        library: &Path,
        folder: &Path,
        options: &[&str],
        peer: u16,
    ) -> io::Result<Self> {
        let folder = folder.join("neighbour");
        std::fs::create_dir_all(&folder)?;
        let own = core.port(FIRST_PORT);
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(std::env::current_exe()?)
            .arg("neighbour")
            .arg(library)
            .arg(&folder)
            .arg(peer.to_string())
            .args([own.guids[0].to_string(), own.lid.to_string()])
            .args(options)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let heard = listen(ours.try_clone()?, core.wire(FIRST_PORT));
        let cable = Arc::new(Cable(Mutex::new(ours)));
        core.connect(FIRST_PORT, cable.clone());
        let neighbour = Self {
            cable,
            heard,
            child,
            patience: core.patience,
        };
        match neighbour.hear()? {
            Line::Ready => Ok(neighbour),
            other => Err(io::Error::other(format!("expected ready, got {other:?}"))),
        }
    }

    /// Lets the neighbour's client resolve an address.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn resolve(&self, wanted: &Addr) -> io::Result<Answered> {
        self.cable
            .say(&Line::Resolve(wanted.code(), wanted.field().to_vec()))?;
        match self.hear()? {
            Line::Answered(status, dlid, dgid) => Ok(Answered {
                status,
                dlid,
                dgid: Gid(dgid),
            }),
            other => Err(io::Error::other(format!(
                "expected an answer, got {other:?}"
            ))),
        }
    }

    fn hear(&self) -> io::Result<Line> {
        self.heard
            .recv_timeout(self.patience)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => {
                    io::Error::other("the stock provider did not respond in time")
                }
                RecvTimeoutError::Disconnected => {
                    io::Error::other("the stock provider's process has ended")
                }
            })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Plays the other node of some checks; its standard input is the cable (internal).
#[derive(Debug, Args)]
pub struct NeighbourCommand {
    library: PathBuf,
    folder: PathBuf,
    peer: u16,
    tested_guid: u64,
    tested_lid: u16,
    options: Vec<String>,
}

impl NeighbourCommand {
    /// Runs until the cable is cut, then ends the process without the library's exit handlers.
    pub fn run(self) -> ExitCode {
        let ended = set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(io::Error::from)
            .and_then(|()| self.serve());
        if let Err(error) = &ended {
            eprintln!("neighbour: {error}");
        }
        // SAFETY: ends the process at once; this program has nothing to clean up.
        unsafe { libc::_exit(ended.is_err().into()) }
    }

    fn serve(&self) -> io::Result<()> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let cable = Arc::new(Cable(Mutex::new(stream.try_clone()?)));
        if let Err(error) = self.play(stream, &cable) {
            cable.say(&Line::Failed(error.to_string()))?;
        }
        Ok(())
    }

    fn play(&self, stream: UnixStream, cable: &Arc<Cable>) -> io::Result<()> {
        let peer = Peer::number(self.peer);
        let mut device = DeviceSpec::single();
        device.node_guid = peer.guid << 8;
        device.ports = vec![PortSpec::new(peer.guid, peer.lid)];
        let mut options = StandIn::default_options(&self.folder);
        options.extend(self.options.iter().cloned());
        let setup = Setup {
            devices: vec![device],
            options,
            folder: self.folder.clone(),
            trace: None,
            deadline: None,
        };
        let mut core = StandIn::start(setup, &self.library).map_err(io::Error::other)?;
        core.add_neighbour(PortSpec::new(self.tested_guid, self.tested_lid));
        let wire = core.wire(FIRST_PORT);
        core.connect(FIRST_PORT, cable.clone());
        core.port_up(FIRST_PORT).map_err(io::Error::other)?;
        let source = Addr::Ip(peer.ip);
        let mut from = None;
        for addr in [Addr::Name(peer.name.clone()), source.clone()] {
            let id = core.add_address(FIRST_PORT, 0xffff, &addr);
            from = Some(id.map_err(io::Error::other)?);
        }
        let from = from.ok_or_else(|| io::Error::other("no address"))?;
        core.settle();
        let heard = listen(stream, wire);
        cable.say(&Line::Ready)?;
        while let Ok(Line::Resolve(code, field)) = heard.recv() {
            let field = <[u8; 64]>::try_from(field).map_err(|_| io::Error::other("no address"))?;
            let wanted = Addr::Raw(code, Box::new(field));
            let id = core.resolve_from(from, &by_addr(&source, &wanted));
            let reply = core
                .reply(id)
                .ok_or_else(|| io::Error::other("no answer to a client"))?;
            let path = reply.path().unwrap_or_default();
            cable.say(&Line::Answered(reply.status, path.dlid(), path.dgid().0))?;
        }
        Ok(())
    }
}
