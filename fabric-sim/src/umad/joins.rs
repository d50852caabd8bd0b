//! Learns multicast memberships from the subnet administrator's responses to the program (InfiniBand
//! Architecture Specification, volume 1, sections 15.2.5.17 MCMemberRecord, 15.4.4 administration query).

use crate::model::adapter::Adapter;
use crate::model::membership::{JoinState, Membership};

use super::packet::Packet;

const CLASS_SUBNET_ADMINISTRATION: u8 = 0x03;
const ATTRIBUTE_MC_MEMBER_RECORD: u16 = 0x0038;
const METHOD_SET: u8 = 0x02;
const METHOD_DELETE: u8 = 0x15;
const METHOD_GET_RESP: u8 = 0x81;
const METHOD_DELETE_RESP: u8 = 0x95;

/// Offsets in a MAD.
const STATUS: usize = 4;
const ATTRIBUTE: usize = 16;
const RECORD: usize = 56;
/// Offsets in the record.
const MGID: usize = 0;
const PORT_GID: usize = 16;
const MLID: usize = 36;
const SCOPE_AND_JOIN_STATE: usize = 48;
const RECORD_SIZE: usize = 52;

/// The fields of an MCMemberRecord that this crate uses. Host byte order, GIDs in network byte order.
struct McMemberRecord {
    mgid: [u8; 16],
    port_gid: [u8; 16],
    mlid: u16,
    state: JoinState,
}

impl McMemberRecord {
    /// Parses an SA MAD with that attribute.
    fn read(packet: &Packet) -> Option<Self> {
        let mad = packet.mad();
        if packet.class() != CLASS_SUBNET_ADMINISTRATION
            || mad.get(ATTRIBUTE..ATTRIBUTE + 2)? != ATTRIBUTE_MC_MEMBER_RECORD.to_be_bytes()
        {
            return None;
        }
        let record: &[u8; RECORD_SIZE] = mad.get(RECORD..)?.first_chunk()?;
        let gid = |offset: usize| std::array::from_fn(|index| record[offset + index]);
        Some(Self {
            mgid: gid(MGID),
            port_gid: gid(PORT_GID),
            mlid: u16::from_be_bytes([record[MLID], record[MLID + 1]]),
            state: JoinState::from_bits(record[SCOPE_AND_JOIN_STATE]),
        })
    }
}

/// Updates an adapter if a response makes its port a member of a group, or ends a membership.
///
/// GetResp answers both a join and a query; only the request tells them apart. The request says which join
/// states a Delete ends, since SAs differ in their responses. Joins on behalf of other ports are ignored.
pub(super) fn apply_response(adapter: &Adapter, port: u8, request: &Packet, answer: &Packet) {
    let (Some(requested), Some(granted)) =
        (McMemberRecord::read(request), McMemberRecord::read(answer))
    else {
        return;
    };
    let is_ours = adapter
        .port(port)
        .is_some_and(|known| known.has_gid(&requested.port_gid));
    if answer.mad()[STATUS..STATUS + 2] != [0, 0] || !is_ours {
        return;
    }
    // The port exists.
    let _ = match (request.method(), answer.method()) {
        (METHOD_SET, METHOD_GET_RESP) => adapter.joined(
            port,
            Membership {
                mgid: granted.mgid,
                mlid: granted.mlid,
                state: granted.state,
            },
        ),
        (METHOD_DELETE, METHOD_DELETE_RESP) => adapter.left(port, &requested.mgid, requested.state),
        _ => Ok(()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::adapter::Identity;
    use crate::model::port::PortSnapshot;
    use crate::smp::MAD_SIZE;

    const GROUP: [u8; 16] = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    /// Changes of a MAD: bytes at an offset.
    type Changes<'a> = &'a [(usize, &'a [u8])];

    fn mad(method: u8, changes: Changes<'_>) -> Packet {
        let mut mad = [0; MAD_SIZE];
        mad[1] = CLASS_SUBNET_ADMINISTRATION;
        mad[3] = method;
        mad[ATTRIBUTE + 1] = 0x38;
        mad[RECORD..RECORD + 16].copy_from_slice(&GROUP);
        mad[RECORD + PORT_GID + 15] = 7;
        mad[RECORD + MLID..RECORD + MLID + 2].copy_from_slice(&[0xc0, 0x05]);
        mad[RECORD + SCOPE_AND_JOIN_STATE] = 0x51;
        for (offset, bytes) in changes {
            mad[*offset..*offset + bytes.len()].copy_from_slice(bytes);
        }
        Packet::new(&mad, 1, 1)
    }

    fn after(exchanges: &[(Packet, Packet)]) -> Vec<Membership> {
        let port = PortSnapshot {
            guids: vec![7],
            ..PortSnapshot::down()
        };
        let adapter = Adapter::new(Identity::default(), vec![port]);
        for (request, answer) in exchanges {
            apply_response(&adapter, 1, request, answer);
        }
        adapter.memberships(1).unwrap()
    }

    fn joined() -> (Packet, Packet) {
        (mad(METHOD_SET, &[]), mad(METHOD_GET_RESP, &[]))
    }

    #[test]
    fn a_join_that_is_accepted_counts() {
        assert_eq!(after(&[joined()]), [Membership::full(GROUP, 0xc005)]);
    }

    #[test]
    fn nothing_else_is_a_join() {
        let state = RECORD + SCOPE_AND_JOIN_STATE;
        for (what, request, answer) in [
            ("a query", mad(0x01, &[]), mad(METHOD_GET_RESP, &[])),
            (
                "refused for a class's reason",
                mad(METHOD_SET, &[]),
                mad(METHOD_GET_RESP, &[(STATUS, &[2, 0])]),
            ),
            (
                "refused for a common reason",
                mad(METHOD_SET, &[]),
                mad(METHOD_GET_RESP, &[(STATUS, &[0, 1])]),
            ),
            (
                "another attribute",
                mad(METHOD_SET, &[(ATTRIBUTE, &[0, 0x31])]),
                mad(METHOD_GET_RESP, &[(ATTRIBUTE, &[0, 0x31])]),
            ),
            (
                "another port",
                mad(METHOD_SET, &[(RECORD + PORT_GID + 15, &[8])]),
                mad(METHOD_GET_RESP, &[(RECORD + PORT_GID + 15, &[8])]),
            ),
            (
                "another class",
                mad(METHOD_SET, &[(1, &[4])]),
                mad(METHOD_GET_RESP, &[(1, &[4])]),
            ),
        ] {
            assert_eq!(after(&[(request, answer)]), [], "{what}");
        }
        let only_sends = (
            mad(METHOD_SET, &[(state, &[0x54])]),
            mad(METHOD_GET_RESP, &[(state, &[0x54])]),
        );
        assert!(!after(&[only_sends])[0].state.receives());
    }

    #[test]
    fn a_delete_ends_the_membership() {
        let leave =
            |changes: Changes<'_>| (mad(METHOD_DELETE, &[]), mad(METHOD_DELETE_RESP, changes));
        assert_eq!(after(&[joined(), leave(&[])]), []);
        let refused = leave(&[(STATUS, &[2, 0])]);
        assert_eq!(after(&[joined(), refused]).len(), 1);
    }

    #[test]
    fn a_short_response_is_ignored() {
        let (request, answer) = joined();
        for length in [24, 57, 107] {
            let bytes = answer.bytes()[..super::super::packet::HEADER_SIZE + length].to_vec();
            let short = Packet::from_bytes(bytes).unwrap();
            assert_eq!(after(&[(request.clone(), short)]), [], "{length}");
        }
    }
}
