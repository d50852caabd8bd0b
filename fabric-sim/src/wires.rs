//! Wires between processes: Unix datagram sockets in a folder that all processes of a fabric share.
//!
//! The environment variable `FABRIC_SIM_WIRES` names the folder; without it datagrams leave no process. Fabrics do not mix
//! as long as each has its own folder. The folder has to be there, and whoever may write to it is part of the fabric.
//!
//! # Sockets
//! A process has a socket for each port of each of its adapters, `NODEGUID-SLOT-PORT`, in hex digits. A slot is one process
//! at a node: several may open the same node, as a daemon and a diagnostic do. Each slot is a file `NODEGUID-SLOT.lock`
//! which its process keeps locked, so that the slot of a process that ended in whatever way is free again, and its socket
//! is replaced by the next in that slot. Queue pairs of a node have different numbers in all its processes: the slot is their
//! highest 8 bits.
//!
//! # Datagrams
//! What leaves a port goes to all other sockets; the adapter behind each takes what is [for it](crate::model::data_path). It
//! goes by the port's attributes as its own process [knows them](crate::live), so a change is heeded within one reading
//! of the port. All ports that are ACTIVE reach each other: cables between switches do not count.
//!
//! Nobody waits for a receiver. As long as one takes nothing, what is meant for it is kept, at most [`MOST_WAITING`] frames
//! and each for at most [`LIFETIME`], and then lost, as switches do at the end of their head-of-queue lifetime.
//!
//! # Frames
//! A frame is one datagram; numbers are big-endian.
//!
//! | offset | bytes | |
//! | --- | --- | --- |
//! | 0 | 4 | `FSUD` |
//! | 4 | 1 | version: 1 |
//! | 5 | 1 | flags: 1 GRH, 2 immediate data, 4 solicited event; others 0 |
//! | 6 | 1 | service level |
//! | 7 | 1 | 0 |
//! | 8 | 2 | source LID |
//! | 10 | 2 | destination LID |
//! | 12 | 4 | source queue pair |
//! | 16 | 4 | destination queue pair |
//! | 20 | 4 | Q_Key |
//! | 24 | 2 | P_Key |
//! | 26 | 2 | bytes of the payload, at most 4096 |
//! | 28 | 4 | immediate data, else 0 |
//! | 32 | 16 | source GID; without a GRH this and the following are 0 |
//! | 48 | 16 | destination GID |
//! | 64 | 1 | traffic class |
//! | 65 | 1 | hop limit |
//! | 66 | 2 | 0 |
//! | 68 | 4 | flow label |
//! | 72 | | the payload |
//!
//! Anything else that comes to a socket is dropped, and said once on stderr.

mod folder;
mod frame;
mod waiting;
mod wire;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config;
use crate::model::adapter::Adapter;
use crate::report::report_once;
use folder::{Folder, Slot};
use wire::Wire;

pub use frame::{HEADER, MAX_FRAME, NotAFrame, encode, parse};
pub use waiting::{LIFETIME, MOST_WAITING};

/// Why an adapter is not connected to the wires.
#[derive(Debug, thiserror::Error)]
pub enum WiresError {
    /// The folder cannot be used.
    #[error("the folder of the wires {} cannot be opened: {error}; make it, or unset {}", path.display(), config::WIRES)]
    Folder {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// As many processes as there can be have this node open.
    #[error("{processes} processes of the fabric in {} have the node {node_guid:#018x} open already", path.display())]
    Crowded {
        /// Where.
        path: PathBuf,
        /// The node's GUID.
        node_guid: u64,
        /// How many.
        processes: usize,
    },
    /// Something in the folder cannot be made.
    #[error("{name} cannot be made in the folder of the wires {}: {error}", path.display())]
    Make {
        /// Where.
        path: PathBuf,
        /// What.
        name: String,
        /// Why.
        error: io::Error,
    },
}

/// Connects all ports of an adapter to the wires in a folder, in place of whatever they were connected to. Queue pairs made
/// from now on have numbers of the process's own, beginning with `first_number` of 16 bits, or anywhere. The wires end with
/// the adapter.
///
/// # Errors
/// If the folder or a socket in it cannot be used. The ports before stay connected.
pub fn connect(
    folder: &Path,
    adapter: &Arc<Adapter>,
    first_number: Option<u16>,
) -> Result<(), WiresError> {
    let folder = Arc::new(Folder::open(folder)?);
    let slot = Arc::new(Slot::take(&folder, adapter.identity().node_guid)?);
    slot.number_queue_pairs(adapter, first_number);
    for port in 1..=adapter.port_count() {
        let wire = Wire::lay(&folder, &slot, adapter, port)?;
        // There is such a port.
        let _ = adapter.set_data_path(port, Arc::new(wire));
    }
    Ok(())
}

/// Connects adapters to the wires that the environment names. What goes wrong is said on stderr: a program that is tested
/// does not fail for its test's sake.
pub(crate) fn connect_as_told(adapters: &[Arc<Adapter>]) {
    let Some(folder) = config::wires() else {
        return;
    };
    for adapter in adapters {
        if let Err(error) = connect(&folder, adapter, config::first_queue_pair()) {
            report_once(&error.to_string());
        }
    }
}
