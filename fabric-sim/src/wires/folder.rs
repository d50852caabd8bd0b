//! The folder that holds a fabric's sockets.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, flock, fstat, open, openat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use super::WiresError;
use crate::model::adapter::Adapter;

/// Maximum number of processes that have one node open.
const SLOTS: u8 = 255;
/// Lower numbers stay unused, as on hardware, where they are special queue pairs.
const FIRST_NUMBER: u32 = 0x40;
const LAST_NUMBER: u32 = 0xfffe;

/// The kernel's coarse clock stands still for a few milliseconds, in which a folder can change without a change
/// of its time. A list that is read this long after the last change is complete.
const SETTLED: Duration = Duration::from_millis(100);

/// A fabric's folder.
pub(super) struct Folder {
    path: PathBuf,
    /// Sockets are named relative to this: a path to a socket is limited to 107 bytes, and the folder's path
    /// may be longer.
    descriptor: OwnedFd,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    sockets: Arc<Vec<Socket>>,
    /// The folder's change time when the list was read, if the list is complete.
    read_at: Option<(i64, i64)>,
}

/// A socket in the folder.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) name: String,
    pub(super) address: SocketAddrUnix,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, WiresError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = open(path, flags, Mode::empty()).map_err(|error| WiresError::Folder {
            path: path.to_owned(),
            error: error.into(),
        })?;
        Ok(Self {
            path: path.to_owned(),
            descriptor,
            known: Mutex::default(),
        })
    }

    pub(super) fn cannot_make(&self, name: &str, error: impl Into<io::Error>) -> WiresError {
        WiresError::Make {
            path: self.path.clone(),
            name: name.to_owned(),
            error: error.into(),
        }
    }

    fn address(&self, name: &str) -> Result<SocketAddrUnix, Errno> {
        let folder = self.descriptor.as_raw_fd();
        SocketAddrUnix::new(format!("/proc/self/fd/{folder}/{name}").as_str())
    }

    /// Returns the sockets in the folder.
    pub(super) fn sockets(&self) -> Result<Arc<Vec<Socket>>, Errno> {
        let mut known = self.known.lock();
        // Before reading it, so that a change meanwhile is noticed.
        let stat = fstat(&self.descriptor)?;
        // Signed or not, depending on rustix' backend.
        let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let changed_at = (stat.st_mtime, nanoseconds);
        if known.read_at == Some(changed_at) {
            return Ok(known.sockets.clone());
        }
        let mut sockets = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let name = entry?.file_name().to_str().ok().map(str::to_owned);
            if let Some(name) = name.filter(|name| is_socket_name(name)) {
                let address = self.address(&name)?;
                sockets.push(Socket { name, address });
            }
        }
        known.sockets = Arc::new(sockets);
        known.read_at = is_settled(changed_at).then_some(changed_at);
        Ok(known.sockets.clone())
    }

    /// Creates a socket, replacing one that an earlier process left behind in the same slot.
    pub(super) fn bind(&self, name: &str) -> Result<OwnedFd, WiresError> {
        let bind = || -> Result<OwnedFd, Errno> {
            let socket = socket_with(
                AddressFamily::UNIX,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            self.remove(name)?;
            bind(&socket, &self.address(name)?)?;
            Ok(socket)
        };
        bind().map_err(|error| self.cannot_make(name, error))
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), Errno> {
        match unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }
}

fn is_settled((seconds, nanoseconds): (i64, i64)) -> bool {
    let since = Duration::from_secs(seconds.unsigned_abs())
        + Duration::from_nanos(nanoseconds.unsigned_abs());
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH + since)
        .is_ok_and(|age| age > SETTLED)
}

/// `NODEGUID-SLOT-PORT`
fn is_socket_name(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let hex = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    matches!(parts[..], [guid, slot, port] if hex(guid, 16) && hex(slot, 2) && hex(port, 2))
}

/// A process's slot at a node. No other process has it as long as this lives.
pub(super) struct Slot {
    node_guid: u64,
    number: u8,
    /// Locked.
    _lock: OwnedFd,
}

impl Slot {
    /// Takes the first free slot.
    pub(super) fn take(folder: &Folder, node_guid: u64) -> Result<Self, WiresError> {
        for number in 0..SLOTS {
            let name = format!("{node_guid:016x}-{number:02x}.lock");
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            let lock = openat(
                &folder.descriptor,
                name.as_str(),
                flags,
                Mode::RUSR | Mode::WUSR,
            )
            .map_err(|error| folder.cannot_make(&name, error))?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    return Ok(Self {
                        node_guid,
                        number,
                        _lock: lock,
                    });
                }
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(folder.cannot_make(&name, error)),
            }
        }
        Err(WiresError::Crowded {
            path: folder.path.clone(),
            node_guid,
            processes: SLOTS.into(),
        })
    }

    /// Returns the socket name of a port.
    pub(super) fn socket_name(&self, port: u8) -> String {
        format!("{:016x}-{:02x}-{port:02x}", self.node_guid, self.number)
    }

    /// Keeps this process's queue pair numbers apart from those of others. They start anywhere, as on used
    /// hardware, unless `first` is given.
    pub(super) fn number_queue_pairs(&self, adapter: &Adapter, first: Option<u16>) {
        let highest = u32::from(self.number) << 16;
        let first = first.unwrap_or_else(|| RandomState::new().build_hasher().finish() as u16);
        let numbers = highest | FIRST_NUMBER..=highest | LAST_NUMBER;
        adapter.number_queue_pairs(numbers, highest | u32::from(first));
    }
}
