//! A port's state, and the events of its changes.

use super::event::PortEvent;
use crate::smp::PortInfo;

/// PortState "active".
pub const STATE_ACTIVE: u8 = 4;
/// PortState "down".
pub const STATE_DOWN: u8 = 1;

/// A port's attributes and tables at one moment. Host byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSnapshot {
    /// PortInfo.
    pub info: PortInfo,
    /// The P_Key table, unused entries (0) included.
    pub pkeys: Vec<u16>,
    /// The GUID table, unused entries (0) included: the lower halves of the GIDs.
    pub guids: Vec<u64>,
    /// Whether a subnet manager is at the port with LID `info.sm_lid`.
    pub manager_present: bool,
}

impl PortSnapshot {
    /// Returns a port that is down, with nothing else known.
    pub fn down() -> Self {
        let info = PortInfo {
            state: STATE_DOWN,
            physical_state: 2,
            ..PortInfo::default()
        };
        Self {
            info,
            ..Self::default()
        }
    }

    /// Returns a GID of the table in network byte order; `None` beyond its end.
    pub fn gid(&self, index: usize) -> Option<[u8; 16]> {
        let guid = *self.guids.get(index)?;
        Some((u128::from(self.info.gid_prefix) << 64 | u128::from(guid)).to_be_bytes())
    }

    /// Returns whether it passes data.
    pub fn is_active(&self) -> bool {
        self.info.state == STATE_ACTIVE
    }

    /// Returns its maximum payload in bytes.
    pub fn mtu(&self) -> usize {
        128 << self.info.neighbor_mtu.clamp(1, 5)
    }

    /// Returns the bits in which its own LIDs differ.
    fn path_mask(&self) -> u16 {
        (1 << self.info.lmc.min(7)) - 1
    }

    /// Returns whether a LID is one of its 2^LMC own.
    pub fn has_lid(&self, lid: u16) -> bool {
        let base = self.info.lid & !self.path_mask();
        base != 0 && lid & !self.path_mask() == base
    }

    /// Returns the offset of one of its LIDs from the base LID.
    pub fn path_bits(&self, lid: u16) -> u8 {
        (lid & self.path_mask()) as u8
    }

    /// Returns its LID with these path bits; bits beyond its LMC are ignored.
    pub fn lid_with(&self, path_bits: u8) -> u16 {
        self.info.lid | u16::from(path_bits) & self.path_mask()
    }

    /// Returns whether a GID is in its table; unused entries do not count.
    pub fn has_gid(&self, gid: &[u8; 16]) -> bool {
        let used = (0..self.guids.len()).filter(|index| self.guids[*index] != 0);
        used.into_iter()
            .any(|index| self.gid(index).as_ref() == Some(gid))
    }

    /// Returns the events, in order, that an adapter raises when this port becomes `next`.
    ///
    /// Order and conditions are those of the kernel's drivers: the loss of the port comes first and its
    /// activation last, so that a program that reopens it on `PORT_ACTIVE` finds everything in place.
    ///
    /// `CLIENT_REREGISTER` comes from a subnet manager: OpenSM sets ClientReregister in the PortInfo of each
    /// port that is new to it, and of all ports when it becomes master. ibsim does not keep that bit, so it is
    /// derived: an active port gets the event when it became active, when the manager's LID changed, and when a
    /// manager appeared (again) at that LID. A bit that is set, from a source other than ibsim, counts if it
    /// was clear before.
    pub fn events_of_change_to(&self, next: &Self) -> Vec<PortEvent> {
        let (old, new) = (&self.info, &next.info);
        let was_active = old.state == STATE_ACTIVE;
        let is_active = new.state == STATE_ACTIVE;
        let manager_changed = old.sm_lid != new.sm_lid;
        let manager_came = !self.manager_present && next.manager_present;

        let mut events = Vec::new();
        let mut raise = |event, condition: bool| {
            if condition {
                events.push(event);
            }
        };
        raise(PortEvent::PortErr, was_active && !is_active);
        raise(
            PortEvent::LidChange,
            (old.lid, old.lmc) != (new.lid, new.lmc),
        );
        raise(
            PortEvent::GidChange,
            old.gid_prefix != new.gid_prefix || self.guids != next.guids,
        );
        raise(PortEvent::PkeyChange, self.pkeys != next.pkeys);
        raise(
            PortEvent::SmChange,
            manager_changed || old.sm_sl != new.sm_sl,
        );
        raise(
            PortEvent::ClientReregister,
            (is_active && (!was_active || manager_changed || manager_came))
                || (new.client_reregister && !old.client_reregister),
        );
        raise(PortEvent::PortActive, !was_active && is_active);
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active() -> PortSnapshot {
        let info = PortInfo {
            gid_prefix: 0xfe80_0000_0000_0000,
            lid: 5,
            sm_lid: 1,
            state: STATE_ACTIVE,
            ..PortInfo::default()
        };
        PortSnapshot {
            info,
            pkeys: vec![0xffff, 0],
            guids: vec![0x0010_0001, 0],
            manager_present: true,
        }
    }

    fn events(change: impl FnOnce(&mut PortSnapshot)) -> Vec<PortEvent> {
        let mut next = active();
        change(&mut next);
        active().events_of_change_to(&next)
    }

    #[test]
    fn without_a_change_there_is_no_event() {
        assert_eq!(events(|_| {}), []);
        assert_eq!(events(|port| port.info.pkey_violations = 3), []);
    }

    #[test]
    fn each_change_has_its_event() {
        assert_eq!(
            events(|port| port.info.state = STATE_DOWN),
            [PortEvent::PortErr]
        );
        assert_eq!(events(|port| port.info.lid = 6), [PortEvent::LidChange]);
        assert_eq!(events(|port| port.info.lmc = 1), [PortEvent::LidChange]);
        assert_eq!(
            events(|port| port.pkeys[1] = 0x8001),
            [PortEvent::PkeyChange]
        );
        assert_eq!(
            events(|port| port.info.gid_prefix = 1),
            [PortEvent::GidChange]
        );
        assert_eq!(events(|port| port.guids[1] = 7), [PortEvent::GidChange]);
        assert_eq!(events(|port| port.info.sm_sl = 2), [PortEvent::SmChange]);
        assert_eq!(
            events(|port| port.info.sm_lid = 9),
            [PortEvent::SmChange, PortEvent::ClientReregister]
        );
        assert_eq!(
            events(|port| port.info.client_reregister = true),
            [PortEvent::ClientReregister]
        );
    }

    #[test]
    fn a_manager_that_comes_back_asks_for_registration() {
        let mut gone = active();
        gone.manager_present = false;
        assert_eq!(active().events_of_change_to(&gone), []);
        assert_eq!(
            gone.events_of_change_to(&active()),
            [PortEvent::ClientReregister]
        );
    }

    #[test]
    fn a_port_that_comes_up_gets_a_client_reregister() {
        let down = |present| {
            let mut port = active();
            port.info.state = STATE_DOWN;
            port.manager_present = present;
            port
        };
        assert_eq!(down(false).events_of_change_to(&down(true)), []);
        let events = down(true).events_of_change_to(&active());
        assert_eq!(events, [PortEvent::ClientReregister, PortEvent::PortActive]);
    }

    #[test]
    fn a_port_that_comes_up_is_active_last() {
        let mut before = active();
        before.info = PortInfo {
            state: 2,
            ..PortInfo::default()
        };
        assert_eq!(
            before.events_of_change_to(&active()),
            [
                PortEvent::LidChange,
                PortEvent::GidChange,
                PortEvent::SmChange,
                PortEvent::ClientReregister,
                PortEvent::PortActive
            ]
        );
    }

    #[test]
    fn a_port_that_was_not_active_raises_no_port_error() {
        let mut initialize = active();
        initialize.info.state = 2;
        let mut down = active();
        down.info.state = STATE_DOWN;
        assert_eq!(initialize.events_of_change_to(&down), []);
    }

    #[test]
    fn lids_are_as_many_as_the_lmc_says() {
        let mut port = active();
        port.info.lid = 0x10;
        assert!(port.has_lid(0x10) && !port.has_lid(0x11) && !port.has_lid(0xf));
        port.info.lmc = 2;
        for lid in 0x10..0x14 {
            assert!(port.has_lid(lid));
            assert_eq!(u16::from(port.path_bits(lid)), lid - 0x10);
        }
        assert!(!port.has_lid(0x14) && !port.has_lid(0xf));
        assert_eq!((port.lid_with(3), port.lid_with(0x7f)), (0x13, 0x13));
        port.info.lid = 0;
        assert!(!port.has_lid(0), "no LID yet is no LID");
    }

    #[test]
    fn unused_entries_are_no_gids() {
        let port = active();
        assert!(port.has_gid(&port.gid(0).unwrap()));
        assert!(!port.has_gid(&port.gid(1).unwrap()));
    }

    #[test]
    fn gids_join_prefix_and_guid() {
        let port = active();
        assert_eq!(
            port.gid(0),
            Some([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 1])
        );
        assert_eq!(port.gid(1).unwrap()[8..], [0; 8]);
        assert_eq!(port.gid(2), None);
    }
}
