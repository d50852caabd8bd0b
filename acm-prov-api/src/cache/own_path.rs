//! The path from a port to itself, for its own addresses (`loopback_prot local`).

use crate::handles::EndpointHandle;
use crate::path::{PathRecord, Selector};

/// Returns the record that the SA has for the port itself, made from the port's attributes: no hop, no delay, SL 0.
///
/// `None` if the attributes do not suffice, as with a link of unknown width or speed. Query the SA then, as for any other
/// destination.
#[must_use]
pub fn own_path(endpoint: &EndpointHandle) -> Option<PathRecord> {
    let port = endpoint.port();
    let mut path = endpoint.subnet_path(port.gid(0)?, port.attributes().ok()?.lid)?;
    path.set_packet_lifetime(Selector::Exactly, 0);
    Some(path)
}
