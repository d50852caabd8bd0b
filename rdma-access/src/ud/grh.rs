//! The Global Route Header in front of a received datagram.

use crate::address::Gid;

/// Length of the area in front of a received payload, whether or not it holds a GRH.
pub const GRH_LENGTH: usize = 40;

/// A Global Route Header (InfiniBand Architecture Specification volume 1, section 8.3), which has the form of
/// an IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Number of bytes after the header, including the invariant CRC.
    pub payload_length: u16,
    /// Next header: 0x1B for InfiniBand transport.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The sender's GID.
    pub source: Gid,
    /// The destination: a port or a multicast group.
    pub destination: Gid,
}

impl Grh {
    /// Parses a header; `None` if its version is not 6 (RoCE over IPv4 has an IPv4 header in the last 20
    /// bytes).
    pub fn from_bytes(bytes: &[u8; GRH_LENGTH]) -> Option<Self> {
        let word = u32::from_be_bytes(*bytes.first_chunk()?);
        if word >> 28 != 6 {
            return None;
        }
        let gid = |at: usize| Some(Gid(*bytes.get(at..)?.first_chunk()?));
        Some(Self {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0x000f_ffff,
            payload_length: u16::from_be_bytes([bytes[4], bytes[5]]),
            next_header: bytes[6],
            hop_limit: bytes[7],
            source: gid(8)?,
            destination: gid(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> [u8; GRH_LENGTH] {
        let mut bytes = [0; GRH_LENGTH];
        bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0x01, 0x04, 0x1b, 0x3f]);
        bytes[8..24].copy_from_slice(&[1; 16]);
        bytes[24..].copy_from_slice(&[2; 16]);
        bytes
    }

    #[test]
    fn every_field_is_read_from_its_place() {
        let expected = Grh {
            traffic_class: 0xab,
            flow_label: 0x12345,
            payload_length: 0x104,
            next_header: 0x1b,
            hop_limit: 0x3f,
            source: Gid([1; 16]),
            destination: Gid([2; 16]),
        };
        assert_eq!(Grh::from_bytes(&header()), Some(expected));
    }

    #[test]
    fn another_version_is_no_header() {
        for version in (0..16).filter(|&version| version != 6) {
            let mut bytes = header();
            bytes[0] = version << 4 | 0xa;
            assert_eq!(Grh::from_bytes(&bytes), None, "{version}");
        }
    }
}
