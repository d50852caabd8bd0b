//! Packets and their addresses, as in the kernel's `struct ib_user_mad`.

use std::ffi::c_void;

use super::ffi::Functions;
use super::user_mad::{ib_mad_addr, ib_user_mad};
use crate::address::{Gid, Lid, QKey, Qpn};

/// The other side of a MAD: its destination or its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadAddress {
    /// LID.
    pub lid: Lid,
    /// Queue pair: 0 for subnet management, 1 for all other classes.
    pub qpn: Qpn,
    /// Q_Key: 0 to queue pair 0, [`MadAddress::GSI_QKEY`] to queue pair 1.
    pub qkey: QKey,
    /// Service level.
    pub sl: u8,
    /// Index of the P_Key in the port's table.
    pub pkey_index: u16,
    /// Offset from the port's base LID to the local LID.
    pub path_bits: u8,
    /// A Global Route Header.
    pub route: Option<MadRoute>,
}

/// The Global Route Header of a [`MadAddress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadRoute {
    /// The other side's GID.
    pub gid: Gid,
    /// Index of the local GID in the port's table.
    pub gid_index: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

impl MadAddress {
    /// The Q_Key of queue pair 1 (InfiniBand Architecture Specification volume 1, section 9.2.5.2).
    pub const GSI_QKEY: QKey = QKey(0x8001_0000);

    /// The subnet management agent at the end of a directed route; the route is in the packet.
    pub const DIRECTED_ROUTE: Self = Self {
        lid: Lid(0xffff),
        qpn: Qpn(0),
        qkey: QKey(0),
        sl: 0,
        pkey_index: 0,
        path_bits: 0,
        route: None,
    };

    /// Returns the address of the general services (queue pair 1) at a LID.
    pub fn gsi(lid: Lid, sl: u8) -> Self {
        Self {
            lid,
            qpn: Qpn(1),
            qkey: Self::GSI_QKEY,
            sl,
            ..Self::default()
        }
    }

    fn to_c(self) -> ib_mad_addr {
        let route = self.route.unwrap_or_default();
        ib_mad_addr {
            qpn: self.qpn.0.to_be(),
            qkey: self.qkey.0.to_be(),
            lid: self.lid.0.to_be(),
            sl: self.sl,
            path_bits: self.path_bits,
            grh_present: self.route.is_some().into(),
            gid_index: route.gid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
            gid: route.gid.0,
            flow_label: route.flow_label.to_be(),
            // libibumad sets it, because only it knows the kernel's version of the structure.
            pkey_index: 0,
            reserved: [0; 6],
        }
    }

    fn from_c(c: &ib_mad_addr, pkey_index: u16) -> Self {
        Self {
            lid: Lid(u16::from_be(c.lid)),
            qpn: Qpn(u32::from_be(c.qpn)),
            qkey: QKey(u32::from_be(c.qkey)),
            sl: c.sl,
            pkey_index,
            path_bits: c.path_bits,
            route: (c.grh_present != 0).then(|| MadRoute {
                gid: Gid(c.gid),
                gid_index: c.gid_index,
                flow_label: u32::from_be(c.flow_label),
                hop_limit: c.hop_limit,
                traffic_class: c.traffic_class,
            }),
        }
    }
}

/// A MAD for one of a port's agents: received, or returned because it got no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Id of the agent, see [`Agent::id`](super::Agent::id).
    pub agent: u32,
    /// 0, or the error number of a returned MAD, usually 110 (ETIMEDOUT).
    pub status: u32,
    /// The sender.
    pub from: MadAddress,
    /// The MAD: 256 bytes, up to 2048 on Omni-Path.
    pub mad: Vec<u8>,
}

impl Received {
    /// Returns whether it is an own MAD that could not be sent or got no response.
    pub fn is_returned(&self) -> bool {
        self.status != 0
    }

    /// Returns the transaction ID; `None` if the MAD is shorter than a header. The kernel sets the high half.
    pub fn transaction_id(&self) -> Option<u64> {
        transaction_id(&self.mad)
    }
}

pub fn transaction_id(mad: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*mad.get(8..)?.first_chunk()?))
}

/// Memory for a packet: the kernel's header followed by a MAD.
pub struct Buffer {
    // Words, since the header needs alignment 4 and a MAD's transaction ID 8.
    words: Vec<u64>,
    capacity: usize,
}

impl Buffer {
    /// Makes room for a MAD of `length` bytes.
    pub fn new(length: usize) -> Self {
        let bytes = size_of::<ib_user_mad>() + length;
        Self {
            words: vec![0; bytes.div_ceil(8)],
            capacity: length,
        }
    }

    /// Makes a packet to send.
    pub fn filled(functions: &Functions, to: &MadAddress, mad: &[u8]) -> Self {
        let mut buffer = Self::new(mad.len());
        buffer.header_mut().addr = to.to_c();
        // SAFETY: the buffer starts with a header.
        unsafe { (functions.set_pkey)(buffer.as_mut_ptr(), to.pkey_index.into()) };
        let at = buffer.mad_offset(functions);
        buffer.bytes_mut()[at..at + mad.len()].copy_from_slice(mad);
        buffer
    }

    /// Returns the room for a MAD in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn as_mut_ptr(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    /// Returns the received packet: its MAD has `length` bytes, or as many as fit.
    pub fn received(&mut self, functions: &Functions, length: usize) -> Received {
        let at = self.mad_offset(functions);
        // SAFETY: the buffer starts with a header.
        let pkey_index = unsafe { (functions.get_pkey)(self.as_mut_ptr()) };
        let header = *self.header_mut();
        let bytes = self.bytes_mut();
        let end = at.saturating_add(length).min(bytes.len());
        Received {
            agent: header.agent_id,
            status: header.status,
            from: MadAddress::from_c(&header.addr, u16::try_from(pkey_index).unwrap_or(0)),
            mad: bytes.get(at..end).unwrap_or_default().to_vec(),
        }
    }

    /// Returns the offset of the MAD; the kernel's first interface had a shorter header.
    fn mad_offset(&mut self, functions: &Functions) -> usize {
        let start = self.as_mut_ptr();
        // SAFETY: the buffer starts with a header; the function only computes an address after it.
        let mad = unsafe { (functions.get_mad)(start) };
        mad.addr()
            .wrapping_sub(start.addr())
            .min(size_of::<ib_user_mad>())
    }

    fn header_mut(&mut self) -> &mut ib_user_mad {
        // SAFETY: there is room for an aligned header, which consists of plain numbers.
        unsafe { &mut *self.words.as_mut_ptr().cast() }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: any initialised words are valid bytes.
        unsafe {
            std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.words.len() * 8)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_through_c() {
        let address = MadAddress {
            lid: Lid(0x1234),
            qpn: Qpn(0x0056_789a),
            qkey: QKey(0x8001_0000),
            sl: 3,
            pkey_index: 0,
            path_bits: 2,
            route: Some(MadRoute {
                gid: Gid([9; 16]),
                gid_index: 1,
                flow_label: 0xabcde,
                hop_limit: 64,
                traffic_class: 7,
            }),
        };
        let c = address.to_c();
        assert_eq!(
            (c.lid.to_ne_bytes(), c.qpn.to_ne_bytes()),
            ([0x12, 0x34], [0, 0x56, 0x78, 0x9a])
        );
        assert_eq!(MadAddress::from_c(&c, 0), address);
        let without = MadAddress {
            route: None,
            ..address
        };
        assert_eq!(
            MadAddress::from_c(&without.to_c(), 5),
            MadAddress {
                pkey_index: 5,
                ..without
            }
        );
    }

    #[test]
    fn a_transaction_id_is_read_from_a_whole_header_only() {
        let mut mad = [0; 24];
        mad[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(transaction_id(&mad), Some(0x0102_0304_0506_0708));
        assert_eq!(transaction_id(&mad[..15]), None);
        assert_eq!(transaction_id(&[]), None);
    }
}
