//! What differs from a port's last opening.

use std::collections::HashMap;

use super::{CorePort, PortError, PortHandle};
use crate::address::{Gid, Guid, Lid, PKey};
use crate::sync::Mutex;

/// Ports whose last opening is remembered. A node has few; in tests each core has its own.
const LIMIT: usize = 256;

/// What differs from the port's last opening. Each flag is set, too, if there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct PortChanges {
    /// There is no earlier opening to compare with: the daemon has started, or the port has never been up.
    pub is_first: bool,
    /// The port has another base LID.
    pub lid: bool,
    /// The port answers to another number of LIDs.
    pub lmc: bool,
    /// The subnet manager is another one, or has moved.
    pub sm_lid: bool,
    /// The port has another GID at index 0, such as one of another subnet.
    pub gid: bool,
    /// The P_Key table has other entries. Their order counts: requests and queue pairs name entries by index.
    pub pkeys: bool,
}

impl PortChanges {
    /// Whether what was learnt before is worth nothing: something differs, or nothing was learnt.
    #[must_use]
    pub fn is_any(&self) -> bool {
        let Self {
            is_first,
            lid,
            lmc,
            sm_lid,
            gid,
            pkeys,
        } = *self;
        is_first || lid || lmc || sm_lid || gid || pkeys
    }
}

/// What the subnet manager has given a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    lid: Lid,
    lmc: u8,
    sm_lid: Lid,
    gid: Option<Gid>,
    pkeys: Vec<PKey>,
}

impl Identity {
    fn read(port: &PortHandle) -> Result<Self, PortError> {
        let attributes = port.attributes()?;
        let pkeys = 0..attributes.pkey_table_length;
        Ok(Self {
            lid: attributes.lid,
            lmc: attributes.lmc,
            sm_lid: attributes.sm_lid,
            gid: port.gid(0),
            pkeys: pkeys.map_while(|index| port.pkey(index).ok()).collect(),
        })
    }

    fn changes_from(&self, last: Option<&Self>) -> PortChanges {
        let differs =
            |is_same: fn(&Self, &Self) -> bool| !last.is_some_and(|last| is_same(self, last));
        PortChanges {
            is_first: last.is_none(),
            lid: differs(|one, other| one.lid == other.lid),
            lmc: differs(|one, other| one.lmc == other.lmc),
            sm_lid: differs(|one, other| one.sm_lid == other.sm_lid),
            gid: differs(|one, other| one.gid == other.gid),
            pkeys: differs(|one, other| one.pkeys == other.pkeys),
        }
    }
}

/// A port over all its openings. The core could have put another device's port where one was.
type Key = (CorePort, Guid, u8);

static LAST: Mutex<Option<HashMap<Key, Identity>>> = Mutex::new(None);

impl PortHandle {
    /// What differs from the port's last opening, for [`PortContext::open`](crate::PortContext::open) to keep or drop what was
    /// learnt before.
    ///
    /// The last opening is the last one in which this was called. The first call of an opening reads the port; later
    /// ones return the same.
    ///
    /// # Errors
    /// When the port is closed or `ibv_query_port` fails. Nothing is remembered then.
    pub fn changes(&self) -> Result<PortChanges, PortError> {
        let mut changes = self.0.changes.lock();
        if let Some(changes) = *changes {
            return Ok(changes);
        }
        let now = Identity::read(self)?;
        let key = (self.0.id, self.device().guid(), self.number());
        let mut last = LAST.lock();
        let last = last.get_or_insert_default();
        if last.len() >= LIMIT && !last.contains_key(&key) {
            // Their next opening counts as the first, which is safe.
            last.clear();
        }
        let before = last.insert(key, now.clone());
        Ok(*changes.insert(now.changes_from(before.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_first_opening_is_new() {
        let identity = Identity {
            lid: Lid(1),
            lmc: 0,
            sm_lid: Lid(1),
            gid: None,
            pkeys: vec![PKey(0xffff)],
        };
        let first = identity.changes_from(None);
        assert_eq!(
            first,
            PortChanges {
                is_first: true,
                lid: true,
                lmc: true,
                sm_lid: true,
                gid: true,
                pkeys: true,
            }
        );
        assert!(first.is_any());
        assert!(!identity.changes_from(Some(&identity)).is_any());
        let other = Identity {
            sm_lid: Lid(2),
            ..identity.clone()
        };
        assert!(other.changes_from(Some(&identity)).is_any());
    }
}
