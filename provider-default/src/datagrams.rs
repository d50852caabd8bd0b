//! The queue pair of an endpoint: sends, receives and multicast attachment.

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::path::PathRecord;
use acm_prov_api::sa::MulticastMember;
use acm_prov_api::sync::{Arc, RwLock};
use rdma_access::ud::{
    AddressAttributes, AddressHandle, Completion, CompletionQueue, Destination, GRH_LENGTH,
    GlobalRoute, MemoryRegion, MulticastAttachment, PostError, ProtectionDomain, QueueId, Slot,
    UdAttributes, UdQueuePair,
};
use rdma_access::{QKey, Qpn};

use crate::device::DeviceVerbs;
use crate::groups::QKEY;
use crate::wire;

/// Bytes by which the largest UD datagram (4096) exceeds the protocol's (256).
const SPILL: u32 = 4096 - wire::LENGTH as u32;

/// Error from opening an endpoint's queue pair.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(
        "port {port} has no P_Key {pkey}; add the port to the partition (partitions.conf of OpenSM), or remove the P_Key from the address file"
    )]
    NoPKey { port: u8, pkey: PKey },
    #[error(transparent)]
    Verbs(#[from] rdma_access::Error),
    #[error(transparent)]
    Post(#[from] PostError),
}

/// The queue pair broke and is not replaced yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no queue pair; a new one follows within a second")]
pub(crate) struct NoPair;

/// Error from posting a datagram.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    NoPair(#[from] NoPair),
    #[error(transparent)]
    Verbs(#[from] rdma_access::Error),
    #[error(transparent)]
    Post(#[from] PostError),
}

/// Limits of the datagrams in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depths {
    pub requests: u32,
    pub answers: u32,
    pub receives: u32,
}

/// A queue pair with its buffers.
pub(crate) struct Datagrams {
    attributes: UdAttributes,
    /// `None` if replacing a broken queue pair failed.
    pair: RwLock<Option<Arc<UdQueuePair>>>,
    queue: Arc<CompletionQueue>,
    receives: Arc<MemoryRegion>,
    requests: Arc<MemoryRegion>,
    answers: Arc<MemoryRegion>,
    domain: Arc<ProtectionDomain>,
}

/// The shared group, attached.
pub(crate) struct Listening {
    address: Arc<AddressHandle>,
    attachment: MulticastAttachment,
}

/// The path to a peer.
pub(crate) struct PeerAddress {
    pub attributes: AddressAttributes,
    pub qp_number: Qpn,
}

impl Datagrams {
    /// Creates the queue pair and posts all receives.
    pub(crate) fn open(
        verbs: &DeviceVerbs,
        port: u8,
        pkey: PKey,
        depths: Depths,
    ) -> Result<Self, OpenError> {
        let context = &verbs.context;
        let pkey_index = context
            .pkey_index(port, pkey)?
            .ok_or(OpenError::NoPKey { port, pkey })?;
        let domain = Arc::clone(&verbs.domain);
        let capacity = depths.requests + depths.answers + depths.receives;
        let queue = Arc::new(CompletionQueue::new(
            context,
            capacity,
            Some(&verbs.channel),
        )?);
        let attributes = UdAttributes {
            port,
            pkey_index,
            qkey: QKey(QKEY),
            send_depth: depths.requests + depths.answers,
            receive_depth: depths.receives,
            spill: SPILL,
        };
        let region = |size, count| MemoryRegion::new(&domain, size, count).map(Arc::new);
        let datagrams = Self {
            attributes,
            pair: RwLock::new(None),
            receives: region(GRH_LENGTH + wire::LENGTH, depths.receives)?,
            requests: region(wire::LENGTH, depths.requests)?,
            answers: region(wire::LENGTH, depths.answers)?,
            queue,
            domain,
        };
        datagrams.renew()?;
        datagrams.queue.arm(false)?;
        Ok(datagrams)
    }

    /// Replaces a queue pair that broke after a failed work request. The new one has all receives posted and
    /// another number. No group may be attached meanwhile.
    pub(crate) fn renew(&self) -> Result<(), OpenError> {
        let mut pair = self.pair.write();
        // Its posted slots come back first.
        *pair = None;
        let new = Arc::new(UdQueuePair::new(
            &self.domain,
            &self.queue,
            &self.queue,
            &self.attributes,
        )?);
        while let Some(slot) = self.receives.take_slot() {
            new.post_receive(slot, 0)?;
        }
        *pair = Some(new);
        Ok(())
    }

    /// Uses the queue pair, which is not replaced meanwhile.
    fn with_pair<R>(
        &self,
        act: impl FnOnce(&Arc<UdQueuePair>) -> Result<R, SendError>,
    ) -> Result<R, SendError> {
        act(self.pair.read().as_ref().ok_or(NoPair)?)
    }

    /// Returns whether this is the current queue pair's number.
    pub(crate) fn is_in_use(&self, number: Qpn) -> bool {
        let pair = self.pair.read();
        pair.as_ref().is_some_and(|pair| pair.number() == number)
    }

    /// Returns the id that this queue pair's events carry.
    pub(crate) fn id(&self) -> QueueId {
        self.queue.id()
    }

    /// Posts a slot for the next datagram.
    pub(crate) fn receive(&self, slot: Slot) -> Result<(), SendError> {
        self.with_pair(|pair| Ok(pair.post_receive(slot, 0)?))
    }

    /// Arms the channel for the next completion.
    pub(crate) fn arm(&self) -> Result<(), rdma_access::Error> {
        self.queue.arm(false)
    }

    /// Takes some completions; returns how many the device had.
    pub(crate) fn poll(&self, into: &mut Vec<Completion>) -> Result<usize, rdma_access::Error> {
        self.queue.poll(into)
    }

    /// Returns a slot for a request; `None` while the maximum is in flight.
    pub(crate) fn request_slot(&self) -> Option<Slot> {
        self.requests.take_slot()
    }

    /// Returns a slot for an answer; `None` while the maximum is in flight.
    pub(crate) fn answer_slot(&self) -> Option<Slot> {
        self.answers.take_slot()
    }

    /// Sends to the shared group.
    pub(crate) fn send_to_group(
        &self,
        slot: Slot,
        bytes: &[u8; wire::LENGTH],
        group: &Listening,
    ) -> Result<(), SendError> {
        self.send(slot, bytes, &group.address, Qpn::MULTICAST)
    }

    /// Sends to a peer.
    pub(crate) fn send_to_peer(
        &self,
        slot: Slot,
        bytes: &[u8; wire::LENGTH],
        peer_address: &PeerAddress,
    ) -> Result<(), SendError> {
        let address = Arc::new(AddressHandle::new(&self.domain, &peer_address.attributes)?);
        self.send(slot, bytes, &address, peer_address.qp_number)
    }

    fn send(
        &self,
        mut slot: Slot,
        bytes: &[u8; wire::LENGTH],
        address: &Arc<AddressHandle>,
        qp_number: Qpn,
    ) -> Result<(), SendError> {
        slot.copy_from_slice(bytes);
        let to = Destination {
            address,
            qp_number,
            qkey: QKey(QKEY),
        };
        self.with_pair(|pair| Ok(pair.post_send(slot, bytes.len(), &to, 0)?))
    }

    /// Attaches to a joined group in place of the previous one.
    pub(crate) fn listen(
        &self,
        member: &MulticastMember,
        before: Option<Listening>,
    ) -> Result<Listening, SendError> {
        let address = Arc::new(AddressHandle::new(
            &self.domain,
            &self.group_address(member),
        )?);
        let MulticastMember { mgid, mlid, .. } = *member;
        let attachment = match before {
            Some(before)
                if before.attachment.group() == mgid && before.attachment.lid() == mlid =>
            {
                before.attachment
            }
            before => {
                drop(before);
                self.with_pair(|pair| Ok(MulticastAttachment::new(pair, mgid, mlid)?))?
            }
        };
        Ok(Listening {
            address,
            attachment,
        })
    }

    fn group_address(&self, member: &MulticastMember) -> AddressAttributes {
        self.address_in_group(member, member.mlid, member.mgid)
    }

    /// Returns the address of a group member, with the group record's attributes.
    pub(crate) fn address_in_group(
        &self,
        group: &MulticastMember,
        lid: Lid,
        gid: Gid,
    ) -> AddressAttributes {
        AddressAttributes {
            port: self.attributes.port,
            destination_lid: lid,
            sl: group.sl,
            source_path_bits: 0,
            static_rate: group.rate,
            route: Some(GlobalRoute {
                destination: gid,
                source_index: 0,
                flow_label: group.flow_label,
                hop_limit: group.hop_limit,
                traffic_class: group.tclass,
            }),
        }
    }

    /// Returns the address for a path record. It always has a GRH, which carries our GID to the other side.
    pub(crate) fn address_on_path(&self, path: &PathRecord, lmc: u8) -> AddressAttributes {
        AddressAttributes {
            port: self.attributes.port,
            destination_lid: path.dlid(),
            sl: path.sl(),
            source_path_bits: path_bits(path.slid(), lmc),
            static_rate: path.rate(),
            route: Some(GlobalRoute {
                destination: path.dgid(),
                source_index: 0,
                flow_label: path.flow_label(),
                hop_limit: path.hop_limit(),
                traffic_class: path.traffic_class(),
            }),
        }
    }
}

/// Returns the port's base LID for one of its LIDs.
pub(crate) fn base(lid: Lid, lmc: u8) -> Lid {
    Lid(lid.0 & u16::MAX << lmc.min(7))
}

/// Returns the path bits of one of the port's LIDs: the low bits that the LMC leaves to the port.
fn path_bits(lid: Lid, lmc: u8) -> u8 {
    (lid.0 - base(lid, lmc).0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault 11: path bits taken as slid & 0x7f whatever the LMC.
    #[test]
    fn path_bits_are_those_that_the_lmc_leaves_to_the_port() {
        for (lid, lmc, base_lid, bits) in [
            (5, 0, 5, 0),
            (0x7f, 0, 0x7f, 0),
            (5, 1, 4, 1),
            (6, 2, 4, 2),
            (0x1ff, 7, 0x180, 0x7f),
            // The largest LMC.
            (0x1ff, 200, 0x180, 0x7f),
        ] {
            assert_eq!(
                (base(Lid(lid), lmc), path_bits(Lid(lid), lmc)),
                (Lid(base_lid), bits)
            );
        }
    }
}
