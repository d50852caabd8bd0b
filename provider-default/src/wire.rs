//! The datagram of the ACM multicast protocol: a MAD of 256 bytes. Parses it with checks, and writes it.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | base version, 1 |
//! | 1 | 1 | management class, 0x2C |
//! | 2 | 1 | class version, 1 |
//! | 3 | 1 | method: 0x01 request, 0x81 answer |
//! | 4 | 2 | status |
//! | 6 | 2 | control, 0x0001: resolve |
//! | 8 | 8 | transaction id |
//! | 16 | 4 | type and length of the destination, type and length of the source |
//! | 20 | 4 | number of groups, three unused bytes |
//! | 24 | 64 | destination |
//! | 88 | 64 | source |
//! | 152 | 16 each | MGIDs of groups, the most preferred last |
//!
//! Numbers are big-endian. The format has room for ten groups, but only six fit 256 bytes. Address lengths are
//! written as 64 and ignored when received: the type says how many bytes count.

use acm_prov_api::address::{ADDRESS_LENGTH, Address, Gid};

/// Length of the datagram in bytes, without the GRH in front of it.
pub(crate) const LENGTH: usize = 256;
/// Maximum number of groups.
pub(crate) const MAX_GROUPS: usize = (LENGTH - GROUPS) / GID;

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 0x2c;
const CLASS_VERSION: u8 = 1;
const REQUEST: u8 = 0x01;
const ANSWER: u8 = 0x81;
const RESOLVE: u16 = 1;

const DESTINATION: usize = 24;
const SOURCE: usize = DESTINATION + ADDRESS_LENGTH;
const GROUPS: usize = SOURCE + ADDRESS_LENGTH;
const GID: usize = 16;

/// Why a datagram is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("{0} bytes instead of {LENGTH}")]
    Length(usize),
    #[error("base version {0}")]
    BaseVersion(u8),
    #[error("management class {0:#04x}")]
    Class(u8),
    #[error("class version {0}")]
    ClassVersion(u8),
    #[error("method {0:#04x}")]
    Method(u8),
    #[error("control {0:#06x}")]
    Control(u16),
    #[error("{0} groups, of which {MAX_GROUPS} fit")]
    GroupCount(u8),
    #[error("{0} of type {1}")]
    AddressType(&'static str, u8),
    #[error("an empty name as {0}")]
    EmptyName(&'static str),
}

/// The groups that a datagram names, in order of preference, the most preferred last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    mgids: [Gid; MAX_GROUPS],
    count: usize,
}

impl Groups {
    /// Makes the list to send. If there are too many, drops the least preferred, which are in front.
    pub(crate) fn new(mgids: &[Gid]) -> Self {
        let kept = &mgids[mgids.len().saturating_sub(MAX_GROUPS)..];
        let mut groups = Self {
            mgids: [Gid::ZERO; MAX_GROUPS],
            count: kept.len(),
        };
        groups.mgids[..kept.len()].copy_from_slice(kept);
        groups
    }

    /// Returns the groups, the most preferred last.
    pub(crate) fn as_slice(&self) -> &[Gid] {
        &self.mgids[..self.count]
    }
}

/// A well-formed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// The transaction id, which an answer repeats.
    pub tid: u64,
    /// The sender's groups; in an answer, the common one.
    pub groups: Groups,
    pub body: Body,
}

/// The purpose of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Asks who has `destination`; the sender has `source`.
    Request {
        destination: Address,
        source: Address,
    },
    /// The sender has the requested address. Stock's answers contain no address.
    Answer {
        status: u16,
        destination: Option<Address>,
        source: Option<Address>,
    },
}

impl Datagram {
    /// Parses the bytes after the GRH.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; LENGTH] = bytes
            .try_into()
            .map_err(|_| Malformed::Length(bytes.len()))?;
        let be16 = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        match (bytes[0], bytes[1], bytes[2]) {
            (BASE_VERSION, CLASS, CLASS_VERSION) => {}
            (BASE_VERSION, CLASS, other) => return Err(Malformed::ClassVersion(other)),
            (BASE_VERSION, other, _) => return Err(Malformed::Class(other)),
            (other, _, _) => return Err(Malformed::BaseVersion(other)),
        }
        let (method, status, control) = (bytes[3], be16(4), be16(6));
        if method != REQUEST && method != ANSWER {
            return Err(Malformed::Method(method));
        }
        if control != RESOLVE {
            return Err(Malformed::Control(control));
        }
        let count = usize::from(bytes[20]);
        if count > MAX_GROUPS {
            return Err(Malformed::GroupCount(bytes[20]));
        }
        let groups = Groups {
            count,
            mgids: std::array::from_fn(|index| match index < count {
                true => Gid(std::array::from_fn(|byte| {
                    bytes[GROUPS + index * GID + byte]
                })),
                false => Gid::ZERO,
            }),
        };
        let destination = address(bytes, "destination", bytes[16], DESTINATION)?;
        let source = address(bytes, "source", bytes[18], SOURCE)?;
        let body = if method == ANSWER {
            Body::Answer {
                status,
                destination,
                source,
            }
        } else {
            Body::Request {
                destination: destination.ok_or(Malformed::AddressType("destination", 0))?,
                source: source.ok_or(Malformed::AddressType("source", 0))?,
            }
        };
        let tid = u64::from_be_bytes(std::array::from_fn(|index| bytes[8 + index]));
        Ok(Self { tid, groups, body })
    }

    /// Returns the datagram's bytes. Unused bytes are zero, including the padding of addresses: stock compares
    /// all 64 bytes.
    pub(crate) fn to_bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let (method, status, destination, source) = match self.body {
            Body::Request {
                destination,
                source,
            } => (REQUEST, 0, Some(destination), Some(source)),
            Body::Answer {
                status,
                destination,
                source,
            } => (ANSWER, status, destination, source),
        };
        bytes[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, method]);
        bytes[4..6].copy_from_slice(&status.to_be_bytes());
        bytes[6..8].copy_from_slice(&RESOLVE.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.tid.to_be_bytes());
        for (address, kind, field) in [(destination, 16, DESTINATION), (source, 18, SOURCE)] {
            let Some(address) = address else { continue };
            bytes[kind] = address.kind() as u8;
            bytes[kind + 1] = ADDRESS_LENGTH as u8;
            bytes[field..field + ADDRESS_LENGTH].copy_from_slice(&address.to_field());
        }
        bytes[20] = self.groups.count as u8;
        for (mgid, place) in self
            .groups
            .as_slice()
            .iter()
            .zip(bytes[GROUPS..].chunks_exact_mut(GID))
        {
            place.copy_from_slice(&mgid.0);
        }
        bytes
    }
}

/// Returns the address of a type at an offset; `None` for type 0.
fn address(
    bytes: &[u8; LENGTH],
    which: &'static str,
    kind: u8,
    at: usize,
) -> Result<Option<Address>, Malformed> {
    if kind == 0 {
        return Ok(None);
    }
    let field: [u8; ADDRESS_LENGTH] = std::array::from_fn(|index| bytes[at + index]);
    match Address::parse(kind.into(), &field) {
        Ok(Address::Name(name)) if name.is_empty() => Err(Malformed::EmptyName(which)),
        Ok(address) => Ok(Some(address)),
        Err(_) => Err(Malformed::AddressType(which, kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acm_prov_api::address::Name;
    use proptest::prelude::*;

    const SHARED: Gid = Gid([
        0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0,
    ]);

    /// Datagrams recorded from the stock provider.
    const STOCKS: &str = include_str!("../tests/fixtures/stock-datagrams.txt");

    /// Returns one of the stock provider's datagrams.
    fn stocks(what: &str) -> Vec<u8> {
        let lines = STOCKS.lines().filter_map(|line| line.split_once(": "));
        let (_, hex) = { lines }.find(|(known, _)| *known == what).expect(what);
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    /// Returns a request that lists the default group only: host 10.0.0.1 asks for the name `node2` with tid 5.
    fn bytes_of_request() -> Vec<u8> {
        let mut bytes = vec![1, 0x2c, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5];
        bytes.extend([1, 64, 2, 64, 1, 0, 0, 0]);
        bytes.extend(b"node2");
        bytes.resize(88, 0);
        bytes.extend([10, 0, 0, 1]);
        bytes.resize(152, 0);
        bytes.extend(SHARED.0);
        bytes.resize(256, 0);
        bytes
    }

    fn request() -> Datagram {
        Datagram {
            tid: 5,
            groups: Groups::new(&[SHARED]),
            body: Body::Request {
                destination: Address::Name(Name::new("node2").unwrap()),
                source: Address::Ip([10, 0, 0, 1].into()),
            },
        }
    }

    #[test]
    fn stocks_datagrams_are_read_and_written() {
        let name = |name: &str| Address::Name(Name::new(name).unwrap());
        let ip = |last| Address::Ip([10, 0, 0, last].into());
        let ip6 = |text: &str| Address::Ip6(text.parse().unwrap());
        let slow = "ff15:4001:ffff:3:300::".parse().unwrap();
        let request = |tid, destination, source| Datagram {
            tid,
            groups: Groups::new(&[slow, SHARED]),
            body: Body::Request {
                destination,
                source,
            },
        };
        let answer = Datagram {
            tid: 0x0102_0304_0506_0708,
            groups: Groups::new(&[SHARED]),
            body: Body::Answer {
                status: 0,
                destination: None,
                source: None,
            },
        };
        let own_ip = Address::Ip([10, 1, 0, 201].into());
        for (what, datagram) in [
            (
                "a request for a name",
                request(3, name("Peer-3"), name("Stock-Host")),
            ),
            ("a request for an IPv4 address", request(4, ip(3), own_ip)),
            (
                "a request for an IPv6 address",
                request(5, ip6("fd00::3"), ip6("fd00::201")),
            ),
            ("an answer", answer),
        ] {
            let bytes = stocks(what);
            assert_eq!(Datagram::parse(&bytes), Ok(datagram), "{what}");
            assert_eq!(datagram.to_bytes().as_slice(), bytes, "{what}");
        }
    }

    /// Fault 1: padding and lengths do not count.
    #[test]
    fn bytes_behind_an_address_do_not_count() {
        let mut bytes = bytes_of_request();
        bytes[17] = 3;
        bytes[19] = 0;
        bytes[24 + 6..88].fill(0xa5);
        bytes[88 + 4..152].fill(0xa5);
        bytes[21..24].fill(0xa5);
        bytes[152 + 16..].fill(0xa5);
        assert_eq!(Datagram::parse(&bytes), Ok(request()));
    }

    /// Fault 30: the length of a received MAD unchecked.
    #[test]
    fn another_length_is_malformed() {
        for length in [0, 1, 16, 24, 152, 255, 257, 4096] {
            let mut bytes = bytes_of_request();
            bytes.resize(length, 0);
            assert_eq!(Datagram::parse(&bytes), Err(Malformed::Length(length)));
        }
    }

    /// Fault 31: MADs of another class, SA's among them.
    #[test]
    fn every_field_is_checked() {
        let cases: [(usize, u8, Malformed); 14] = [
            (0, 2, Malformed::BaseVersion(2)),
            (1, 3, Malformed::Class(3)),
            (2, 2, Malformed::ClassVersion(2)),
            (3, 2, Malformed::Method(2)),
            (3, 0x80, Malformed::Method(0x80)),
            (6, 0x80, Malformed::Control(0x8001)),
            (7, 0, Malformed::Control(0)),
            (20, 7, Malformed::GroupCount(7)),
            (20, 255, Malformed::GroupCount(255)),
            (16, 0, Malformed::AddressType("destination", 0)),
            (16, 6, Malformed::AddressType("destination", 6)),
            (18, 0, Malformed::AddressType("source", 0)),
            (18, 0x10, Malformed::AddressType("source", 0x10)),
            (24, 0, Malformed::EmptyName("destination")),
        ];
        for (at, value, malformed) in cases {
            let mut bytes = bytes_of_request();
            bytes[at] = value;
            assert_eq!(
                Datagram::parse(&bytes),
                Err(malformed),
                "byte {at} = {value}"
            );
        }
    }

    #[test]
    fn an_answer_may_carry_addresses_of_known_types() {
        let mut bytes = stocks("an answer");
        bytes[16] = 2;
        let body = Body::Answer {
            status: 0,
            destination: Some(Address::Ip([0, 0, 0, 0].into())),
            source: None,
        };
        assert_eq!(Datagram::parse(&bytes).unwrap().body, body);
        bytes[16] = 9;
        assert_eq!(
            Datagram::parse(&bytes),
            Err(Malformed::AddressType("destination", 9))
        );
    }

    /// Fault 2: a name of 64 bytes without a NUL.
    #[test]
    fn a_name_may_fill_its_field() {
        let mut bytes = bytes_of_request();
        bytes[24..88].fill(b'n');
        let Body::Request { destination, .. } = Datagram::parse(&bytes).unwrap().body else {
            panic!("a request");
        };
        assert_eq!(destination, Address::Name(Name::new([b'n'; 64]).unwrap()));
    }

    #[test]
    fn as_many_groups_as_fit_the_most_preferred_ones() {
        let mgids: Vec<Gid> = (0..8).map(|n| Gid::new(n, n)).collect();
        let groups = Groups::new(&mgids);
        assert_eq!(groups.as_slice(), &mgids[2..]);
        let datagram = Datagram {
            groups,
            ..request()
        };
        assert_eq!(Datagram::parse(&datagram.to_bytes()), Ok(datagram));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Datagram::parse(&bytes);
        }

        #[test]
        fn parsed_datagrams_encode_to_the_same_bytes(changes in proptest::collection::vec((0_usize..256, any::<u8>()), 0..12)) {
            let mut bytes = bytes_of_request();
            for (at, value) in changes {
                bytes[at] = value;
            }
            if let Ok(datagram) = Datagram::parse(&bytes) {
                prop_assert_eq!(Datagram::parse(&datagram.to_bytes()), Ok(datagram));
            }
        }
    }
}
