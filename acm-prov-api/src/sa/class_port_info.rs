//! The SA's ClassPortInfo (IBA vol. 1, 13.4.8.1 and 15.2.4).

use crate::abi::{UMAD_BASE_VERSION, UMAD_LEN_SA_DATA, UMAD_SA_CLASS_VERSION};
use crate::sa::SaError;

/// The attribute's id.
pub(super) const ATTRIBUTE: u16 = 0x0001;

/// Bit of CapabilityMask2: service id and QoS class affect path queries (IBA vol. 1, annex A13).
const QOS: u32 = 1 << 1;

/// The part of the SA's ClassPortInfo that affects path queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassPortInfo {
    /// CapabilityMask2, 27 bits, host order.
    pub capability_mask2: u32,
}

impl ClassPortInfo {
    /// Whether service id and QoS class affect a path. If not, both are reserved in queries to this SA.
    #[must_use]
    pub const fn has_qos(&self) -> bool {
        self.capability_mask2 & QOS != 0
    }

    /// Reads the attribute at the front of an SA MAD's data.
    pub(super) fn from_data(data: &[u8; UMAD_LEN_SA_DATA]) -> Result<Self, SaError> {
        let word = u32::from_be_bytes([data[4], data[5], data[6], data[7]]);
        match (data[0], data[1]) {
            (UMAD_BASE_VERSION, UMAD_SA_CLASS_VERSION) => Ok(Self {
                capability_mask2: word >> 5,
            }),
            (base, class) => Err(SaError::UnknownVersion { base, class }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: [u8; 8]) -> Result<ClassPortInfo, SaError> {
        let mut data = [0xff; UMAD_LEN_SA_DATA];
        data[..8].copy_from_slice(&bytes);
        ClassPortInfo::from_data(&data)
    }

    #[test]
    fn the_bit_says_whether_service_ids_choose_a_path() {
        // CapabilityMask2 of OpenSM, with a RespTimeValue of 0x12 in the low bits, which must be ignored.
        for (mask, has_qos) in [(0xb5e8_u32, false), (0xb5ea, true), (0x07ff_ffff, true)] {
            let [a, b, c, d] = (mask << 5 | 0x12).to_be_bytes();
            let info = read([1, 2, 0xff, 0xff, a, b, c, d]).unwrap();
            assert_eq!((info.capability_mask2, info.has_qos()), (mask, has_qos));
        }
    }

    #[test]
    fn another_version_is_not_read() {
        for (base, class) in [(0, 2), (1, 1), (1, 3), (2, 2)] {
            let error = read([base, class, 0, 0, 0, 0, 0, 0]);
            assert_eq!(error, Err(SaError::UnknownVersion { base, class }));
        }
    }
}
