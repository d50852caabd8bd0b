//! The format of a snapshot: a port's paths in a file, for the next start. [`file`](mod@file) reads and writes such files.
//!
//! Numbers are little-endian. The fields of a path record keep the byte order of the wire (big-endian).
//!
//! | bytes | header |
//! | --- | --- |
//! | 8 | `acmpaths` |
//! | 4 | version, 1 |
//! | 4 | number of sections |
//! | 8 | GUID of the port |
//! | 8 | subnet prefix |
//! | 8 | when it was written, in seconds since 1970 |
//! | 2, 2 | base LID of the port, LID of the subnet manager |
//! | 1, 3 | LMC, zeros |
//! | 4 | CRC-32 of the above |
//!
//! Then a section for each P_Key:
//!
//! | bytes | section |
//! | --- | --- |
//! | 2, 2 | P_Key, zeros |
//! | 4 | number of entries |
//! | 40 each | entries |
//! | 4 | CRC-32 of the above |
//!
//! | bytes | entry |
//! | --- | --- |
//! | 1, 1 | 1 if the query named a LID, 0 if it named a GID; zero |
//! | 4 | age of the answer when it was written, in seconds |
//! | 16 | DGID |
//! | 18 | the path record from DLID up to preference |

pub mod file;

use std::time::Duration;

use super::store::Kept;
use crate::address::{Gid, Lid, PKey};
use crate::path::PathRecord;
use crate::sa::{Source, Target};

/// The version of the format.
pub const VERSION: u32 = 1;

/// Bytes of an entry.
pub const ENTRY: usize = 40;

const MAGIC: [u8; 8] = *b"acmpaths";
const HEADER: usize = 48;
/// The bytes of a path record that an entry holds.
const TAIL: std::ops::Range<usize> = 40..58;

/// The identity of a port. A snapshot is valid only for the same identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortIdentity {
    /// The port's GUID.
    pub guid: u64,
    /// The subnet prefix.
    pub subnet_prefix: u64,
    /// The base LID.
    pub lid: Lid,
    /// The LID of the subnet manager.
    pub sm_lid: Lid,
    /// The LID mask count.
    pub lmc: u8,
}

/// The reason not to use a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a snapshot, or an incomplete one.
    #[error("it is torn or damaged")]
    Torn,
    /// Written by another version of this library.
    #[error("it has version {0}, this library reads version {VERSION}")]
    Version(u32),
    /// Of another port, or this port had other attributes.
    #[error("it was written for another {0}")]
    Other(&'static str),
    /// The clock was set back, or was ahead then.
    #[error("it was written {0} s in the future")]
    Future(u64),
    /// Too old.
    #[error("it is {age} s old, older than {limit} s")]
    Old {
        /// Its age in seconds.
        age: u64,
        /// The limit in seconds.
        limit: u64,
    },
    /// The operator has flushed the cache.
    #[error("the flush file was touched after it was written")]
    Flushed,
}

/// The paths of one port at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The port.
    pub port: PortIdentity,
    /// When it was written, in seconds since 1970.
    pub time: u64,
    /// The paths of each endpoint.
    pub sections: Vec<Section>,
}

/// The paths of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The endpoint's P_Key.
    pub pkey: PKey,
    entries: Vec<[u8; ENTRY]>,
}

impl Section {
    /// Creates a section with an endpoint's plain answers.
    pub fn new(pkey: PKey, kept: impl IntoIterator<Item = Kept>) -> Self {
        let entries = kept.into_iter().map(|kept| pack(&kept)).collect();
        Self { pkey, entries }
    }

    /// Returns the number of paths.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the paths from `source`, with their ages `elapsed` after they were written.
    pub fn kept(&self, source: Source, elapsed: Duration) -> impl Iterator<Item = Kept> {
        self.entries.iter().filter_map(move |entry| {
            let mut kept = unpack(entry, &source)?;
            kept.age = kept.age.saturating_add(elapsed);
            Some(kept)
        })
    }
}

fn pack(kept: &Kept) -> [u8; ENTRY] {
    let is_lid = matches!(kept.target, Target::Lid(_));
    let age = u32::try_from(kept.age.as_secs()).unwrap_or(u32::MAX);
    let mut entry = [0; ENTRY];
    entry[0] = is_lid.into();
    entry[2..6].copy_from_slice(&age.to_le_bytes());
    entry[6..22].copy_from_slice(&kept.path.dgid().0);
    entry[22..].copy_from_slice(&kept.path.to_bytes()[TAIL]);
    entry
}

/// `None` for an entry that this version never writes.
fn unpack(entry: &[u8; ENTRY], source: &Source) -> Option<Kept> {
    let mut reader = Reader(entry);
    let [is_lid, zero] = reader.take()?;
    let age = u32::from_le_bytes(reader.take()?);
    let dgid = Gid(reader.take()?);
    let mut record = [0; PathRecord::LENGTH];
    record[TAIL].copy_from_slice(&reader.take::<{ TAIL.end - TAIL.start }>()?);
    let mut path = PathRecord::from_bytes(&record);
    path.set_sgid(source.gid).set_dgid(dgid);
    let target = match is_lid {
        0 => Target::Gid(dgid),
        1 => Target::Lid(path.dlid()),
        _ => return None,
    };
    (zero == 0 && path.dlid().is_unicast()).then_some(Kept {
        target,
        path,
        age: Duration::from_secs(age.into()),
    })
}

/// Reads numbers from bytes; `None` at the end.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn take_slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads the checksum of the bytes since `start`; `None` if it is wrong.
    fn check(&mut self, start: &[u8]) -> Option<()> {
        let length = start.len().checked_sub(self.0.len())?;
        let expected = crc32fast::hash(start.get(..length)?);
        (u32::from_le_bytes(self.take()?) == expected).then_some(())
    }
}

impl Snapshot {
    /// Returns the content of a file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self {
            port,
            time,
            sections,
        } = self;
        let entries: usize = sections.iter().map(Section::len).sum();
        let mut bytes = Vec::with_capacity(HEADER + 4 + sections.len() * 12 + entries * ENTRY);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(count(sections.len()));
        bytes.extend(port.guid.to_le_bytes());
        bytes.extend(port.subnet_prefix.to_le_bytes());
        bytes.extend(time.to_le_bytes());
        bytes.extend(port.lid.0.to_le_bytes());
        bytes.extend(port.sm_lid.0.to_le_bytes());
        bytes.extend([port.lmc, 0, 0, 0]);
        finish(&mut bytes, 0);
        for Section { pkey, entries } in sections {
            let start = bytes.len();
            bytes.extend(pkey.0.to_le_bytes());
            bytes.extend([0; 2]);
            bytes.extend(count(entries.len()));
            bytes.extend(entries.as_flattened());
            finish(&mut bytes, start);
        }
        bytes
    }

    /// Parses the content of a file.
    ///
    /// # Errors
    /// [`Refusal::Torn`] or [`Refusal::Version`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader(bytes);
        if reader.take() != Some(MAGIC) {
            return Err(Refusal::Torn);
        }
        let version = reader.take().map(u32::from_le_bytes);
        match version {
            Some(VERSION) => Self::read(bytes, reader).ok_or(Refusal::Torn),
            Some(version) => Err(Refusal::Version(version)),
            None => Err(Refusal::Torn),
        }
    }

    /// Reads the part after the version.
    fn read(bytes: &[u8], mut reader: Reader<'_>) -> Option<Self> {
        let count = u32::from_le_bytes(reader.take()?);
        let guid = u64::from_le_bytes(reader.take()?);
        let subnet_prefix = u64::from_le_bytes(reader.take()?);
        let time = u64::from_le_bytes(reader.take()?);
        let lid = Lid(u16::from_le_bytes(reader.take()?));
        let sm_lid = Lid(u16::from_le_bytes(reader.take()?));
        let [lmc, 0, 0, 0] = reader.take()? else {
            return None;
        };
        reader.check(bytes)?;
        let mut sections = Vec::new();
        for _ in 0..count {
            let start = reader.0;
            let pkey = PKey(u16::from_le_bytes(reader.take()?));
            let [0, 0] = reader.take()? else {
                return None;
            };
            let entries = usize::try_from(u32::from_le_bytes(reader.take()?)).ok()?;
            let entries = reader.take_slice(entries.checked_mul(ENTRY)?)?;
            reader.check(start)?;
            let (entries, _) = entries.as_chunks();
            sections.push(Section {
                pkey,
                entries: entries.to_vec(),
            });
        }
        let port = PortIdentity {
            guid,
            subnet_prefix,
            lid,
            sm_lid,
            lmc,
        };
        reader.0.is_empty().then_some(Self {
            port,
            time,
            sections,
        })
    }

    /// Returns the snapshot's age if it matches `port` and is not too old. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The reason not to use it.
    pub fn check(
        &self,
        port: &PortIdentity,
        now: u64,
        limit: Duration,
    ) -> Result<Duration, Refusal> {
        let written = &self.port;
        for (differs, what) in [
            (written.guid != port.guid, "port"),
            (written.subnet_prefix != port.subnet_prefix, "subnet prefix"),
            (written.lid != port.lid, "LID of the port"),
            (written.lmc != port.lmc, "LMC"),
            (written.sm_lid != port.sm_lid, "LID of the subnet manager"),
        ] {
            if differs {
                return Err(Refusal::Other(what));
            }
        }
        let age = now
            .checked_sub(self.time)
            .ok_or(Refusal::Future(self.time.saturating_sub(now)))?;
        if age > limit.as_secs() {
            let limit = limit.as_secs();
            return Err(Refusal::Old { age, limit });
        }
        Ok(Duration::from_secs(age))
    }

    /// How many paths it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sections.iter().map(Section::len).sum()
    }

    /// Whether it has no path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn count(of: usize) -> [u8; 4] {
    u32::try_from(of).unwrap_or(u32::MAX).to_le_bytes()
}

fn finish(bytes: &mut Vec<u8>, start: usize) {
    let checksum = crc32fast::hash(&bytes[start..]);
    bytes.extend(checksum.to_le_bytes());
}

#[cfg(test)]
mod tests;
