//! The path from a port to itself, for its own addresses (`loopback_prot local`).

use crate::handle::EndpointHandle;
use crate::path::{PathRecord, Selector};

/// The record that the SA has for the port itself, made from the port's attributes: no hop, no delay, SL 0.
///
/// `None` when the port does not say enough, as with a rate that the core does not know (HDR and newer): the SA is then
/// asked like for any other destination.
#[must_use]
pub fn own_path(endpoint: &EndpointHandle) -> Option<PathRecord> {
    let port = endpoint.port();
    let gid = port.gid(0)?;
    let attributes = port.attributes().ok()?;
    let rate = port
        .host()
        .rate(attributes.active_width, attributes.active_speed);
    let rate = u8::try_from(rate.0).ok().filter(|&code| code != 0)?;
    if !attributes.lid.is_unicast() {
        return None;
    }
    let mut path = PathRecord::default();
    path.set_sgid(gid)
        .set_dgid(gid)
        .set_slid(attributes.lid)
        .set_dlid(attributes.lid)
        .set_pkey(endpoint.pkey())
        .set_reversible(true)
        .set_mtu(Selector::Exactly, attributes.active_mtu)
        .set_rate(Selector::Exactly, rate)
        .set_packet_lifetime(Selector::Exactly, 0);
    Some(path)
}
