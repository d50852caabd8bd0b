//! An entry of the table: a path, its origin, and its time.

use super::slot::{FIRST_WORD, Slot, Words};
use crate::address::Lid;
use crate::path::PathRecord;
use crate::sa::{Source, Target};

/// The key of a path: a destination in the endpoint's subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum TableKey {
    Lid(Lid),
    /// A GID with the endpoint's subnet prefix: its interface id, in wire order.
    Guid(u64),
}

impl TableKey {
    /// `None`: a GID of another subnet.
    #[inline]
    pub fn new(target: Target, source: &Source) -> Option<Self> {
        match target {
            Target::Lid(lid) => Some(Self::Lid(lid)),
            Target::Gid(gid) => {
                let [prefix, guid] = halves(&gid.0);
                (prefix == halves(&source.gid.0)[0]).then_some(Self::Guid(guid))
            }
        }
    }
}

/// Returns the two halves of a GID, in wire order.
#[inline]
fn halves(gid: &[u8; 16]) -> [u64; 2] {
    let [first, second] = [0, 8].map(|at| {
        gid[at..]
            .first_chunk()
            .map(|half| u64::from_ne_bytes(*half))
    });
    [first.unwrap_or(0), second.unwrap_or(0)]
}

/// The words of a slot. Bytes of the record are in wire order.
///
/// 1. when the answer was stored, in milliseconds (wraps after 34 years)
/// 2. interface id of the DGID
/// 3. DLID, SLID, P_Key, QoS class and SL
/// 4. reversible and number of paths, MTU, rate, lifetime, preference; 16 bits of the epoch; 8 flags
///
/// All zeros is an empty slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) struct Entry(pub(super) Words);

const EPOCH_AT: u32 = 40;
const USED: u64 = 1 << 56;
const IS_LID: u64 = 1 << 57;
const PRELOADED: u64 = 1 << 58;
const VISITED: u64 = 1 << 59;
const LOADED: u64 = 1 << 60;
/// Used in the current period of use, the previous one, the one before.
const IN_USE: u64 = 0b111 << 61;
const IN_USE_NOW: u64 = 1 << 61;
/// What a hit sets.
const HIT: u64 = VISITED | IN_USE_NOW;

impl Entry {
    pub(super) const EMPTY: Self = Self([0; 4]);
    pub(super) const VISITED: u64 = VISITED;

    /// Creates the entry of a path. `None` if the path does not fit: fields without room in an entry must be zero, or equal the
    /// endpoint's or the key's.
    pub fn new(
        key: TableKey,
        path: &PathRecord,
        source: &Source,
        learned: u64,
        epoch: u16,
    ) -> Option<Self> {
        let bytes = path.to_bytes();
        let word = |at: [usize; 8]| u64::from_ne_bytes(at.map(|at| bytes[at]));
        let guid = halves(&path.dgid().0)[1];
        let (is_the_keys, kind) = match key {
            TableKey::Lid(lid) => (path.dlid() == lid, IS_LID),
            TableKey::Guid(asked) => (asked == guid, 0),
        };
        let fits = is_the_keys
            && path.service_id() == 0
            && path.dgid().subnet_prefix() == source.gid.subnet_prefix()
            && path.sgid() == source.gid
            && bytes[44..49] == [0; 5];
        let codes = u64::from_le_bytes([
            bytes[49], bytes[54], bytes[55], bytes[56], bytes[57], 0, 0, 0,
        ]);
        fits.then_some(Self([
            learned & FIRST_WORD,
            guid,
            word([40, 41, 42, 43, 50, 51, 52, 53]),
            codes | u64::from(epoch) << EPOCH_AT | kind | USED,
        ]))
    }

    /// Marks the entry as one of an operator's dump.
    pub fn preloaded(self) -> Self {
        let [learned, guid, lids, codes] = self.0;
        Self([learned, guid, lids, codes | PRELOADED])
    }

    /// Marks the entry as loaded from a snapshot.
    pub fn loaded(self) -> Self {
        let [learned, guid, lids, codes] = self.0;
        Self([learned, guid, lids, codes | LOADED])
    }

    /// Copies the marks of use from the entry that it replaces, and marks it as used.
    pub fn in_use_as(self, last: Option<Self>) -> Self {
        let last = last.map_or(0, |last| last.0[3] & (IN_USE | VISITED));
        let use_of_last = match last & IN_USE {
            0 => last | IN_USE_NOW,
            _ => last,
        };
        let [learned, guid, lids, codes] = self.0;
        Self([learned, guid, lids, codes | use_of_last])
    }

    /// Returns the destination.
    pub fn target(&self, source: &Source) -> Target {
        match self.key() {
            TableKey::Lid(lid) => Target::Lid(lid),
            TableKey::Guid(_) => Target::Gid(self.path(source).dgid()),
        }
    }

    /// Returns the path, built word by word: a hit writes these words straight into its answer.
    #[inline(always)]
    pub fn path(&self, source: &Source) -> PathRecord {
        let [_, guid, lids, codes] = self.0;
        let [prefix, interface_id] = halves(&source.gid.0);
        // The lower half of `lids` holds the record's bytes from 40 on, the upper half the bytes from 50 on; `codes` is in
        // byte order.
        let lids = u64::from_le_bytes(lids.to_ne_bytes());
        let reversible = codes & 0xff;
        let [mtu_and_rate, lifetime_and_preference] = [codes >> 8 & 0xffff, codes >> 24 & 0xffff];
        let words = [
            [0; 8],
            prefix.to_ne_bytes(),
            guid.to_ne_bytes(),
            prefix.to_ne_bytes(),
            interface_id.to_ne_bytes(),
            (lids & 0xffff_ffff).to_le_bytes(),
            (reversible << 8 | lids >> 32 << 16 | mtu_and_rate << 48).to_le_bytes(),
            lifetime_and_preference.to_le_bytes(),
        ];
        let mut bytes = [0; PathRecord::LENGTH];
        for (room, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *room = word;
        }
        PathRecord::from_bytes(&bytes)
    }

    #[inline]
    fn dlid(&self) -> Lid {
        let [high, low, ..] = self.0[2].to_ne_bytes();
        Lid(u16::from_be_bytes([high, low]))
    }

    #[inline]
    pub(super) fn is(&self, key: TableKey) -> bool {
        let kind = self.0[3] & (USED | IS_LID);
        match key {
            TableKey::Lid(lid) => kind == USED | IS_LID && self.dlid() == lid,
            TableKey::Guid(guid) => kind == USED && self.0[1] == guid,
        }
    }

    pub fn key(&self) -> TableKey {
        match self.0[3] & IS_LID {
            0 => TableKey::Guid(self.0[1]),
            _ => TableKey::Lid(self.dlid()),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0[3] & USED == 0
    }

    #[inline]
    pub fn is_preloaded(&self) -> bool {
        self.0[3] & PRELOADED != 0
    }

    pub fn is_loaded(&self) -> bool {
        self.0[3] & LOADED != 0
    }

    /// Whether it was used in this period of use or in one of the two before.
    pub fn is_in_use(&self) -> bool {
        self.0[3] & IN_USE != 0
    }

    /// Notes in the entry's slot that a period of use ends.
    pub(super) fn end_period(&self, slot: &Slot) {
        let before = self.0[3] & IN_USE;
        // The shift drops the bit of the oldest period.
        slot.clear_bits(before);
        slot.set_bits(before << 1);
    }

    pub fn is_visited(&self) -> bool {
        self.0[3] & VISITED != 0
    }

    /// Marks the entry as used in its slot. Writes only if the mark is new, so that readers can share the cache line.
    #[inline]
    pub fn visit(&self, slot: &Slot) {
        if self.0[3] & HIT != HIT {
            slot.set_bits(HIT);
        }
    }

    /// Returns when the answer was stored, in milliseconds.
    #[inline]
    pub fn learned(&self) -> u64 {
        self.0[0]
    }

    /// Returns the lower bits of the answer's epoch.
    #[inline]
    pub fn epoch(&self) -> u16 {
        (self.0[3] >> EPOCH_AT) as u16
    }
}
