//! Applies the rules of [`super::data_path`]: which datagrams leave a port, and which queue pairs receive those
//! that arrive.

use std::sync::{Arc, Weak};

use super::adapter::{Adapter, LinkLayer};
use super::data_path::Datagram;
use super::port::PortSnapshot;
use super::queue_pair::QueuePair;

impl Adapter {
    /// Sends a datagram from one of the adapter's queue pairs.
    pub(super) fn send(&self, port: u8, datagram: Datagram) {
        let Some((snapshot, link)) = self.usable(port).zip(self.link(port)) else {
            return;
        };
        if datagram.is_multicast() {
            if !self.with_memberships(port, |joined| joined.sends_to(datagram.destination_lid)) {
                return;
            }
            self.give_to_group(port, &datagram, Some(datagram.source_qp));
            link.send(datagram);
        } else if !snapshot.has_lid(datagram.destination_lid) {
            link.send(datagram);
        } else if !self.give_to_pair(port, &snapshot, &datagram) {
            // Another process at the same port may have the queue pair.
            link.send_unharmed(&datagram);
        }
    }

    /// Handles a datagram that arrives at a port. Drops it if it is not for the port, or may not be received.
    pub fn arrive(&self, port: u8, datagram: &Datagram) {
        let Some(snapshot) = self.usable(port) else {
            return;
        };
        if datagram.payload.len() > snapshot.mtu() {
            return;
        }
        if datagram.is_multicast() {
            if self.with_memberships(port, |joined| {
                joined.receives_from(datagram.destination_lid)
            }) {
                self.give_to_group(port, datagram, None);
            }
        } else if snapshot.has_lid(datagram.destination_lid) {
            self.give_to_pair(port, &snapshot, datagram);
        }
    }

    fn usable(&self, port: u8) -> Option<Arc<PortSnapshot>> {
        let snapshot = self.port(port)?;
        (snapshot.is_active() && self.link_layer(port) == LinkLayer::InfiniBand).then_some(snapshot)
    }

    fn give_to_group(&self, port: u8, datagram: &Datagram, except: Option<u32>) {
        let Some(group) = datagram.group() else {
            return;
        };
        let pairs: Vec<Arc<QueuePair>> = self
            .queue_pairs()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for pair in pairs {
            if Some(pair.number()) != except && pair.is_attached(&group) {
                pair.receive(port, datagram, 0);
            }
        }
    }

    /// Returns false if this process has no such queue pair.
    fn give_to_pair(&self, port: u8, snapshot: &PortSnapshot, datagram: &Datagram) -> bool {
        let pair = self
            .queue_pairs()
            .get(&datagram.destination_qp)
            .and_then(Weak::upgrade);
        let Some(pair) = pair else { return false };
        let to_this_port = datagram
            .grh
            .is_none_or(|grh| snapshot.has_gid(&grh.destination));
        if to_this_port {
            pair.receive(port, datagram, snapshot.path_bits(datagram.destination_lid));
        }
        true
    }
}
