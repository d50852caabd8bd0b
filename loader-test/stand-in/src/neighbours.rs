//! Ports of the fabric besides this node's and the peers'.

use super::StandIn;
use super::fabric::PortSpec;
use super::shared::lock;

impl StandIn {
    /// The SA knows these ports from now on, instead of all that [`add_neighbour`](Self::add_neighbour) has named, until a
    /// port of this node changes. One with a peer's GUID stands for that peer.
    pub fn set_neighbours(&self, ports: Vec<PortSpec>) {
        let own = self.devices.iter().map(|device| device.ports.len()).sum();
        let mut subnet = lock(&self.shared.subnet);
        subnet.ports.truncate(own);
        subnet.ports.extend(ports);
    }
}
