//! `struct acm_msg` by its bytes (acm.h): requests to a provider and its answers, written and read without the SDK.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

pub use rdma_access::Gid;

use super::ledger::{Harmed, ViolationKind};
use super::sa;

/// Bytes of a message.
pub const LENGTH: usize = 592;
/// Bytes of its header.
pub const HEADER: usize = 16;
/// Bytes of an entry.
pub const ENTRY: usize = 72;
/// Entries of a message.
pub const ENTRIES: usize = 8;

/// Entry type: a name.
pub const NAME: u16 = 1;
/// Entry type: an IPv4 address.
pub const IP: u16 = 2;
/// Entry type: an IPv6 address.
pub const IP6: u16 = 3;
/// Entry type: a GID.
pub const GID: u16 = 4;
/// Entry type: a LID.
pub const LID: u16 = 5;
/// Entry type: a path record.
pub const PATH: u16 = 16;

/// Entry flag: the source.
pub const FLAG_SOURCE: u32 = 1;
/// Entry flag: the destination.
pub const FLAG_DEST: u32 = 2;
/// Entry flag: answer at once.
pub const FLAG_NODELAY: u32 = 1 << 30;
/// Entry flag: ask the SA.
pub const FLAG_QUERY_SA: u32 = 1 << 31;

/// The flags of an answer's path: GMP, primary, outbound and inbound-reverse.
pub const ANSWER_FLAGS: u32 = 1 | 2 | 8 | 32;

/// The acknowledge bit of an opcode.
pub const ACK: u8 = 0x80;
/// Opcode: resolve.
pub const RESOLVE: u8 = 1;
/// The version of the protocol.
pub const VERSION: u8 = 1;

/// The kind of a request: its callback and its answering function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `resolve` and `acm_resolve_response`.
    Resolve,
    /// `query` and `acm_query_response`.
    Query,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolve",
            Self::Query => "query",
        })
    }
}

/// An address, as an entry of a message or a local address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Addr {
    /// A name.
    Name(String),
    /// An IPv4 address.
    Ip(Ipv4Addr),
    /// An IPv6 address.
    Ip6(Ipv6Addr),
    /// A GID.
    Gid(Gid),
    /// A LID.
    Lid(u16),
    /// Any type with any bytes.
    Raw(u16, Box<[u8; 64]>),
}

impl Addr {
    /// Returns the type's code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Name(_) => NAME,
            Self::Ip(_) => IP,
            Self::Ip6(_) => IP6,
            Self::Gid(_) => GID,
            Self::Lid(_) => LID,
            Self::Raw(code, _) => *code,
        }
    }

    /// Returns the 64 bytes, with zeros behind the address.
    pub fn field(&self) -> [u8; 64] {
        let mut field = [0; 64];
        match self {
            Self::Name(name) => {
                let length = name.len().min(64);
                field[..length].copy_from_slice(&name.as_bytes()[..length]);
            }
            Self::Ip(ip) => field[..4].copy_from_slice(&ip.octets()),
            Self::Ip6(ip) => field[..16].copy_from_slice(&ip.octets()),
            Self::Gid(gid) => field[..16].copy_from_slice(&gid.0),
            Self::Lid(lid) => field[..2].copy_from_slice(&lid.to_be_bytes()),
            Self::Raw(_, bytes) => field = **bytes,
        }
        field
    }

    /// Returns the same address with garbage in the ignored bytes.
    pub fn with_garbage(&self) -> Self {
        let used = match self {
            Self::Name(name) => name.len() + 1,
            Self::Ip(_) => 4,
            Self::Ip6(_) | Self::Gid(_) => 16,
            Self::Lid(_) => 2,
            Self::Raw(..) => 64,
        };
        let mut field = self.field();
        for (index, byte) in field.iter_mut().enumerate().skip(used) {
            *byte = 0xc0 | index as u8;
        }
        Self::Raw(self.code(), Box::new(field))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Ip(ip) => ip.fmt(f),
            Self::Ip6(ip) => ip.fmt(f),
            Self::Gid(gid) => gid.fmt(f),
            Self::Lid(lid) => write!(f, "LID {lid}"),
            Self::Raw(code, bytes) => write!(f, "type {code} {:02x?}…", &bytes[..8]),
        }
    }
}

/// A path record by its bytes (`struct ibv_path_record`, sa.h; all big-endian).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Path(pub [u8; 64]);

impl Default for Path {
    fn default() -> Self {
        Self([0; 64])
    }
}

/// Getters and setters of big-endian fields.
macro_rules! path_fields {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $type:ty, $at:literal;)*) => {
        $(
            $(#[$doc])*
            pub fn $get(&self) -> $type {
                const SIZE: usize = size_of::<$type>();
                let mut bytes = [0; SIZE];
                bytes.copy_from_slice(&self.0[$at..$at + SIZE]);
                <$type>::from_be_bytes(bytes)
            }

            $(#[$doc])*
            #[must_use]
            pub fn $set(mut self, value: $type) -> Self {
                self.0[$at..$at + size_of::<$type>()].copy_from_slice(&value.to_be_bytes());
                self
            }
        )*
    };
}

impl Path {
    path_fields! {
        /// Service id.
        service_id, with_service_id: u64, 0;
        /// Destination LID.
        dlid, with_dlid: u16, 40;
        /// Source LID.
        slid, with_slid: u16, 42;
        /// Flow label and hop limit.
        flow_hop, with_flow_hop: u32, 44;
        /// Traffic class.
        tclass, with_tclass: u8, 48;
        /// Reversible bit and number of paths.
        reversible_numpath, with_reversible_numpath: u8, 49;
        /// P_Key.
        pkey, with_pkey: u16, 50;
        /// QoS class and SL.
        qos_sl, with_qos_sl: u16, 52;
        /// MTU with its selector.
        mtu, with_mtu: u8, 54;
        /// Rate with its selector.
        rate, with_rate: u8, 55;
        /// Packet lifetime with its selector.
        lifetime, with_lifetime: u8, 56;
    }

    /// Returns the component mask of the non-zero fields, as the core's `acm_path_comp_mask` does.
    pub fn comp_mask(&self) -> u64 {
        let demand =
            |byte: u8, selector, value| [(selector, byte & 0xc0 != 0), (value, byte & 0x3f != 0)];
        let [mtu, rate, lifetime] = [
            demand(self.mtu(), sa::COMP_MTU_SELECTOR, sa::COMP_MTU),
            demand(self.rate(), sa::COMP_RATE_SELECTOR, sa::COMP_RATE),
            demand(
                self.lifetime(),
                sa::COMP_LIFETIME_SELECTOR,
                sa::COMP_LIFETIME,
            ),
        ];
        [
            (sa::COMP_SERVICE_ID, self.service_id() != 0),
            (sa::COMP_DGID, !self.dgid().is_zero()),
            (sa::COMP_SGID, !self.sgid().is_zero()),
            (sa::COMP_DLID, self.dlid() != 0),
            (sa::COMP_SLID, self.slid() != 0),
            (sa::COMP_FLOW_LABEL, self.flow_hop() >> 8 != 0),
            (sa::COMP_HOP_LIMIT, self.flow_hop() & 0xff != 0),
            (sa::COMP_TCLASS, self.tclass() != 0),
            (sa::COMP_REVERSIBLE, self.reversible_numpath() & 0x80 != 0),
            (sa::COMP_PKEY, self.pkey() != 0),
            (sa::COMP_QOS_CLASS, self.qos_sl() >> 4 != 0),
            (sa::COMP_SL, self.qos_sl() & 0xf != 0),
        ]
        .into_iter()
        .chain(mtu)
        .chain(rate)
        .chain(lifetime)
        .filter(|(_, named)| *named)
        .fold(0, |mask, (bit, _)| mask | bit)
    }

    /// Destination GID.
    pub fn dgid(&self) -> Gid {
        Gid(std::array::from_fn(|index| self.0[8 + index]))
    }

    /// Sets the destination GID.
    #[must_use]
    pub fn with_dgid(mut self, gid: Gid) -> Self {
        self.0[8..24].copy_from_slice(&gid.0);
        self
    }

    /// Source GID.
    pub fn sgid(&self) -> Gid {
        Gid(std::array::from_fn(|index| self.0[24 + index]))
    }

    /// Sets the source GID.
    #[must_use]
    pub fn with_sgid(mut self, gid: Gid) -> Self {
        self.0[24..40].copy_from_slice(&gid.0);
        self
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} LID {} -> {} LID {}, P_Key {:#06x}, SL {}, MTU {:#04x}, rate {:#04x}, lifetime {:#04x}",
            self.sgid(),
            self.slid(),
            self.dgid(),
            self.dlid(),
            self.pkey(),
            self.qos_sl() & 0xf,
            self.mtu(),
            self.rate(),
            self.lifetime()
        )?;
        for (name, value) in [
            ("service id", self.service_id()),
            ("flow label and hop limit", self.flow_hop().into()),
            ("traffic class", self.tclass().into()),
            ("QoS class", (self.qos_sl() >> 4).into()),
        ] {
            if value != 0 {
                write!(f, ", {name} {value:#x}")?;
            }
        }
        Ok(())
    }
}

/// A message under construction, with garbage behind its entries, as from a real client.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct Message(pub [u8; LENGTH]);

/// Returns a request's header. Its length is in native byte order for [`RESOLVE`], in network byte order otherwise.
pub fn header(operation: u8, data: [u8; 3], length: [u8; 2], tid: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&[VERSION, operation]);
    header[3..6].copy_from_slice(&data);
    header[6..8].copy_from_slice(&length);
    header[8..].copy_from_slice(&tid.to_ne_bytes());
    header
}

impl Message {
    /// Returns a resolve message without entries.
    pub fn resolve() -> Self {
        let mut bytes = [0xee; LENGTH];
        let length = (HEADER as u16).to_ne_bytes();
        bytes[..HEADER].copy_from_slice(&header(RESOLVE, [0; 3], length, 0));
        Self(bytes)
    }

    /// Returns a request for a path.
    pub fn path(path: &Path) -> Self {
        Self::resolve().with_entry(0, PATH, &path.0)
    }

    /// Returns a query for a path.
    pub fn query(path: &Path) -> Self {
        Self::resolve().with_entry(FLAG_QUERY_SA, PATH, &path.0)
    }

    /// Returns a request for a path between two addresses; without a source the core chooses it.
    pub fn destination(source: Option<&Addr>, destination: &Addr) -> Self {
        let mut message = Self::resolve();
        if let Some(source) = source {
            message = message.with_entry(FLAG_SOURCE, source.code(), &source.field());
        }
        message.with_entry(FLAG_DEST, destination.code(), &destination.field())
    }

    /// Adds an entry.
    #[must_use]
    pub fn with_entry(mut self, flags: u32, code: u16, field: &[u8; 64]) -> Self {
        let at = usize::from(self.length());
        if at + ENTRY <= LENGTH {
            self.put_entry(at, flags, code, field);
            self.set_length((at + ENTRY) as u16);
        }
        self
    }

    /// Sets flags of the entry that has `flag`.
    #[must_use]
    pub fn with_flags(mut self, index: usize, flags: u32) -> Self {
        let at = HEADER + index * ENTRY;
        let old = u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]]);
        self.0[at..at + 4].copy_from_slice(&(old | flags).to_ne_bytes());
        self
    }

    /// Sets the header's data bytes: `src_out`, `src_index`, `dst_index`.
    #[must_use]
    pub fn with_data(mut self, data: [u8; 3]) -> Self {
        self.0[3..6].copy_from_slice(&data);
        self
    }

    /// Sets the transaction id.
    #[must_use]
    pub fn with_tid(mut self, tid: u64) -> Self {
        self.0[8..16].copy_from_slice(&tid.to_ne_bytes());
        self
    }

    /// Returns the transaction id.
    pub fn tid(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[8..16]);
        u64::from_ne_bytes(bytes)
    }

    /// Returns the length in the header.
    pub fn length(&self) -> u16 {
        u16::from_ne_bytes([self.0[6], self.0[7]])
    }

    /// Sets the length that the header states.
    pub fn set_length(&mut self, length: u16) {
        self.0[6..8].copy_from_slice(&length.to_ne_bytes());
    }

    /// The type of an entry.
    pub fn code(&self, index: usize) -> u16 {
        let at = HEADER + index * ENTRY;
        u16::from_ne_bytes([self.0[at + 4], self.0[at + 5]])
    }

    /// The flags of an entry.
    pub fn flags(&self, index: usize) -> u32 {
        let at = HEADER + index * ENTRY;
        u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// The entry's 64 bytes.
    pub fn field(&self, index: usize) -> [u8; 64] {
        let at = HEADER + index * ENTRY + 8;
        std::array::from_fn(|byte| self.0[at + byte])
    }

    fn put_entry(&mut self, at: usize, flags: u32, code: u16, field: &[u8; 64]) {
        self.0[at..at + 4].copy_from_slice(&flags.to_ne_bytes());
        self.0[at + 4..at + 6].copy_from_slice(&code.to_ne_bytes());
        self.0[at + 6..at + 8].fill(0);
        self.0[at + 8..at + ENTRY].copy_from_slice(field);
    }

    /// Returns the type of the destination entry.
    pub fn destination_code(&self) -> Option<u16> {
        (0..self.entries())
            .find(|index| self.flags(*index) & FLAG_DEST != 0)
            .map(|index| self.code(index))
    }

    /// Returns the number of complete entries in the length.
    fn entries(&self) -> usize {
        (usize::from(self.length()).saturating_sub(HEADER) / ENTRY).min(ENTRIES)
    }

    /// Changes an address request as the core does before it passes it on: sets the source and destination indices, and room for
    /// the source that the core chooses.
    ///
    /// # Errors
    /// The ACM status with which the core itself refuses the message.
    pub fn verified(mut self, chosen_source: Option<&Addr>) -> Result<(Self, Addr), u8> {
        const EINVAL: u8 = 2;
        const ESRCADDR: u8 = 7;
        const ESRCTYPE: u8 = 8;
        const EDESTADDR: u8 = 9;
        const EDESTTYPE: u8 = 10;
        if usize::from(self.length()) < HEADER {
            return Err(EINVAL);
        }
        let count = self.entries();
        let is_address = |code: u16| (NAME..=LID).contains(&code);
        let (mut source, mut destination) = (None, None);
        for index in 0..count {
            if self.flags(index) & FLAG_SOURCE != 0 {
                if source.replace(index).is_some() {
                    return Err(ESRCADDR);
                }
                if !is_address(self.code(index)) {
                    return Err(ESRCTYPE);
                }
            }
            if self.flags(index) & FLAG_DEST != 0 {
                if destination.replace(index).is_some() {
                    return Err(EDESTADDR);
                }
                if !is_address(self.code(index)) {
                    return Err(EDESTTYPE);
                }
            }
        }
        let destination = destination.ok_or(EDESTTYPE)?;
        let from = match (source, chosen_source) {
            (Some(source), _) => Addr::Raw(self.code(source), Box::new(self.field(source))),
            (None, Some(chosen)) => chosen.clone(),
            (None, None) => return Err(EDESTTYPE),
        };
        let index = source.unwrap_or(count);
        if source.is_none() && count < ENTRIES {
            self.put_entry(
                HEADER + count * ENTRY,
                FLAG_SOURCE,
                from.code(),
                &from.field(),
            );
        }
        self.0[3..6].copy_from_slice(&[u8::from(source.is_none()), index as u8, destination as u8]);
        Ok((self, from))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "length {}, data {:02x?}", self.length(), &self.0[3..6])?;
        for index in 0..self.entries() {
            let (flags, code) = (self.flags(index), self.code(index));
            write!(f, "\n    flags {flags:#x}, ")?;
            match code {
                PATH => Path(self.field(index)).fmt(f)?,
                _ => write!(f, "type {code}, {:02x?}", self.field(index))?,
            }
        }
        Ok(())
    }
}

/// An answer, read from the provider's memory.
#[derive(Clone)]
pub struct Reply {
    /// The bytes, of which `length` count.
    bytes: Box<[u8; LENGTH]>,
    /// The transaction id.
    pub tid: u64,
    /// The opcode.
    pub opcode: u8,
    /// The status.
    pub status: u8,
    /// The length that the header states.
    pub length: u16,
}

impl Reply {
    /// Copies an answer.
    ///
    /// # Safety
    /// `message` points to a `struct acm_msg`, of which `length` bytes may be read.
    pub unsafe fn read(message: *const u8) -> Self {
        let mut bytes = Box::new([0; LENGTH]);
        // SAFETY: a message has a header, by the caller's promise.
        unsafe { message.copy_to_nonoverlapping(bytes.as_mut_ptr(), HEADER) };
        let length = u16::from_ne_bytes([bytes[6], bytes[7]]);
        let readable = usize::from(length).clamp(HEADER, LENGTH);
        // SAFETY: the caller's promise.
        unsafe { message.copy_to_nonoverlapping(bytes.as_mut_ptr(), readable) };
        let mut tid = [0; 8];
        tid.copy_from_slice(&bytes[8..16]);
        let (opcode, status) = (bytes[1], bytes[2]);
        Self {
            bytes,
            tid: u64::from_ne_bytes(tid),
            opcode,
            status,
            length,
        }
    }

    /// The version that the header states.
    pub fn version(&self) -> u8 {
        self.bytes[0]
    }

    /// Returns the number of its entries.
    pub fn entries(&self) -> usize {
        usize::from(self.length).saturating_sub(HEADER) / ENTRY
    }

    /// Returns flags, type and bytes of an entry.
    pub fn entry(&self, index: usize) -> Option<(u32, u16, [u8; 64])> {
        if index >= self.entries().min(ENTRIES) {
            return None;
        }
        let message = Message(*self.bytes);
        Some((
            message.flags(index),
            message.code(index),
            message.field(index),
        ))
    }

    /// Returns the number of paths at the beginning of the answer, the primary one first. If the core chose the source, the
    /// next entry is the source.
    pub fn paths(&self) -> usize {
        let entries = (0..self.entries()).map_while(|index| self.entry(index));
        entries.take_while(|(_, code, _)| *code == PATH).count()
    }

    /// Returns the path in the first entry.
    pub fn path(&self) -> Option<Path> {
        self.entry(0)
            .filter(|(_, code, _)| *code == PATH)
            .map(|(_, _, field)| Path(field))
    }

    /// Returns the faults in the form of an answer, independent of its request.
    pub(super) fn faults(&self, kind: Kind) -> Vec<(ViolationKind, Harmed, String)> {
        let mut faults = Vec::new();
        let length = usize::from(self.length);
        let expected = match kind {
            Kind::Query => length == HEADER + ENTRY || (self.status != 0 && length == HEADER),
            Kind::Resolve if self.status == 0 => {
                length > HEADER && length <= LENGTH && (length - HEADER).is_multiple_of(ENTRY)
            }
            Kind::Resolve => length == HEADER,
        };
        if !expected {
            faults.push((
                ViolationKind::WrongLength,
                Harmed::Client,
                format!("length {length} with status {}", self.status),
            ));
        }
        if self.opcode & 0x0f != RESOLVE {
            faults.push((
                ViolationKind::ChangedOpcode,
                Harmed::Client,
                format!("opcode {:#04x} instead of {RESOLVE:#04x}", self.opcode),
            ));
        } else if self.opcode & ACK == 0 {
            faults.push((
                ViolationKind::MissingAck,
                Harmed::Client,
                "no acknowledge bit in the opcode".into(),
            ));
        }
        if kind == Kind::Resolve && self.bytes[3..6] != [0; 3] {
            faults.push((
                ViolationKind::DirtyHeader,
                Harmed::Client,
                format!("data bytes {:02x?} in the header", &self.bytes[3..6]),
            ));
        }
        faults
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}, {} entries", self.status, self.entries())?;
        if let Some(path) = self.path() {
            write!(f, ", {path:?}")?;
        }
        Ok(())
    }
}

impl PartialEq for Reply {
    fn eq(&self, other: &Self) -> bool {
        let length = usize::from(self.length).min(LENGTH);
        self.length == other.length && self.bytes[..length] == other.bytes[..length]
    }
}
