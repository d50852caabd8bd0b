//! Wires between processes: Unix datagram sockets in a folder that all processes of a fabric share.
//!
//! The environment variable `FABRIC_SIM_WIRES` names the folder; without it datagrams leave no process. Give
//! each fabric its own folder, which must exist. Every process that may write to the folder is part of the
//! fabric.
//!
//! # Sockets
//! A process has a socket `NODEGUID-SLOT-PORT`, in hex digits, for each port of each of its adapters. A slot is
//! one process at a node: several may open the same node, as a daemon and a diagnostic do. Each slot is a file
//! `NODEGUID-SLOT.lock` that its process keeps locked. So the slot of a process that ended in any way is free
//! again, and the next process in that slot replaces its sockets. Queue pairs of a node have different numbers
//! in all its processes: the slot is their highest 8 bits.
//!
//! # Datagrams
//! A datagram that leaves a port goes to all other sockets; the adapter behind each takes what is [for
//! it](crate::model::data_path). Each process uses its own [view of the port](crate::live), so a change takes
//! effect within one query of the port. All ACTIVE ports reach each other, whatever the cables between
//! switches.
//!
//! A sender never waits for a receiver. While a receiver takes nothing, frames for it are kept: at most
//! [`MOST_WAITING`] frames, and each for at most [`LIFETIME`]. Then they are lost, as in switches at the end of
//! their head-of-queue lifetime.
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
//! | 26 | 2 | length of the payload, at most 4096 |
//! | 28 | 4 | immediate data, else 0 |
//! | 32 | 16 | source GID; without a GRH this and the following are 0 |
//! | 48 | 16 | destination GID |
//! | 64 | 1 | traffic class |
//! | 65 | 1 | hop limit |
//! | 66 | 2 | 0 |
//! | 68 | 4 | flow label |
//! | 72 | | the payload |
//!
//! Anything else that arrives at a socket is dropped and reported once on stderr.

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

/// Error from connecting an adapter to the wires.
#[derive(Debug, thiserror::Error)]
pub enum WiresError {
    /// The folder cannot be opened.
    #[error("cannot open the folder of the wires {}: {error}; create it, or unset {}", path.display(), config::WIRES)]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The maximum number of processes already has this node open.
    #[error("{processes} processes of the fabric in {}, the maximum, have already opened the node {node_guid:#018x}", path.display())]
    Crowded {
        /// The folder.
        path: PathBuf,
        /// The node's GUID.
        node_guid: u64,
        /// The number of processes.
        processes: usize,
    },
    /// A file in the folder cannot be created.
    #[error("cannot create {name} in the folder of the wires {}: {error}", path.display())]
    Make {
        /// The folder.
        path: PathBuf,
        /// The file.
        name: String,
        /// The cause.
        error: io::Error,
    },
}

/// Connects all ports of an adapter to the wires in a folder, replacing their earlier connections. Queue pairs
/// created from now on have numbers that are unique to the process, starting at `first_number` of 16 bits, or
/// anywhere. The wires end with the adapter.
///
/// # Errors
/// If the folder or a socket in it cannot be used. Ports already connected stay connected.
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
        // The port exists.
        let _ = adapter.set_data_path(port, Arc::new(wire));
    }
    Ok(())
}

/// Connects adapters to the wires that the environment names. Reports errors on stderr, so that the tested
/// program does not fail because of its test.
pub(crate) fn connect_from_environment(adapters: &[Arc<Adapter>]) {
    let Some(folder) = config::wires() else {
        return;
    };
    for adapter in adapters {
        if let Err(error) = connect(&folder, adapter, config::first_queue_pair()) {
            report_once(&error.to_string());
        }
    }
}
