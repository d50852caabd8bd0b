//! Paths within a port's subnet, made from the port's attributes.

use super::EndpointHandle;
use crate::address::{Gid, Lid};
use crate::path::{PathRecord, Selector};

impl EndpointHandle {
    /// A path from the port to another one of its subnet, as if all links on the way were like the port's own: its GID, LID,
    /// P_Key, active MTU, rate and subnet timeout, SL 0. Use it for destinations found without the SA.
    ///
    /// `None` when `dlid` is not unicast, when the port is closed or has no GID or LID, or for a link of unknown
    /// [rate](crate::PortHandle::rate).
    #[must_use]
    pub fn subnet_path(&self, dgid: Gid, dlid: Lid) -> Option<PathRecord> {
        let port = self.port();
        let sgid = port.gid(0)?;
        let attributes = port.attributes().ok()?;
        let rate = port.rate_of(&attributes)?;
        if !attributes.lid.is_unicast() || !dlid.is_unicast() {
            return None;
        }
        let mut path = PathRecord::default();
        path.set_sgid(sgid)
            .set_dgid(dgid)
            .set_slid(attributes.lid)
            .set_dlid(dlid)
            .set_pkey(self.pkey())
            .set_reversible(true)
            .set_mtu(Selector::Exactly, attributes.active_mtu)
            .set_rate(Selector::Exactly, rate)
            .set_packet_lifetime(Selector::Exactly, attributes.subnet_timeout);
        Some(path)
    }
}
