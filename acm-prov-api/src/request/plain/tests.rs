//! The short check on the bytes agrees with the check of the query.

use proptest::prelude::*;

use super::*;
use crate::abi::acm_msg;
use crate::path::{PathRecord, Selector};
use crate::request::message::Message;
use crate::sa::{Component, PathQuery};

const PREFIX: u64 = 0xfec0_0000_0000_0005;

const SOURCE: Source = Source {
    gid: Gid::new(PREFIX, 0x1001),
    lid: Lid(1),
    pkey: PKey(0x8003),
};

/// Generates a field of the record, most often the plain value.
fn field<T: Clone + std::fmt::Debug + 'static>(
    plain: impl Into<Vec<T>>,
    others: impl Into<Vec<T>>,
) -> impl Strategy<Value = T> {
    prop_oneof![
        9 => proptest::sample::select(plain.into()),
        1 => proptest::sample::select(others.into()),
    ]
}

fn gid() -> impl Strategy<Value = Gid> {
    proptest::sample::select(vec![
        Gid::ZERO,
        Gid::new(PREFIX, 7),
        Gid::new(0xfe80 << 48, 7),
        Gid::new(0xfebf_ffff_ffff_ffff, 7),
        Gid::new(0xfec0 << 48, 7),
        Gid::new(0xff12_401b_ffff_0000, 7),
    ])
}

fn lid() -> impl Strategy<Value = Lid> {
    proptest::sample::select(vec![0, 0, 0, 1, 7, 0xbfff, 0xc000, 0xffff]).prop_map(Lid)
}

fn limit() -> impl Strategy<Value = (Selector, u8)> {
    field(
        [(Selector::GreaterThan, 0), (Selector::GreaterThan, 4)],
        [
            (Selector::LessThan, 4),
            (Selector::Exactly, 4),
            (Selector::Best, 0),
        ],
    )
}

fn record() -> impl Strategy<Value = PathRecord> {
    let ends = (
        gid(),
        lid(),
        field(
            [Gid::ZERO, SOURCE.gid, Gid::new(0xfe80 << 48, 0x1001)],
            [Gid::new(PREFIX, 0x1002), Gid::new(0xff80 << 48, 0x1001)],
        ),
        field([0u16], [1, 0x100]),
        field([0u16, 0x8000, 0x8003, 0x0003], [0x8004, 0xffff]),
    );
    let classes = (
        field([0u64], [1, 1 << 63]),
        field([0u16], [1, 0xfff]),
        field([0u8], [1, 0xff]),
        field([0u32], [1, 0xf_ffff, 0x8_0000]),
        field([0u8], [1, 0xf]),
    );
    let limits = (limit(), limit(), limit());
    let ignored = (any::<u8>(), any::<u8>(), any::<bool>(), any::<u8>());
    (ends, classes, limits, ignored).prop_map(
        |(
            (dgid, dlid, sgid, slid, pkey),
            (service, class, traffic, flow, sl),
            (mtu, rate, lifetime),
            (hops, paths, reversible, preference),
        )| {
            let mut record = PathRecord::default();
            record
                .set_dgid(dgid)
                .set_dlid(dlid)
                .set_sgid(sgid)
                .set_slid(Lid(slid))
                .set_pkey(PKey(pkey))
                .set_service_id(service)
                .set_qos_class(class)
                .set_traffic_class(traffic)
                .set_flow_label(flow)
                .set_sl(sl)
                .set_mtu(mtu.0, mtu.1)
                .set_rate(rate.0, rate.1)
                .set_packet_lifetime(lifetime.0, lifetime.1)
                .set_hop_limit(hops)
                .set_numb_path(paths)
                .set_reversible(reversible)
                .set_preference(preference);
            record
        },
    )
}

/// A message's entries: kind and field.
type RawEntries = Vec<(u16, [u8; 64])>;

/// Generates a path request, or an address with or without a path record beside it, with any reserved bits.
fn entries() -> impl Strategy<Value = RawEntries> {
    const PATH: u16 = AcmEpType::PATH.0;
    let wire = || {
        (record(), any::<[u8; 6]>(), 0..16u8).prop_map(|(record, reserved, above)| {
            let mut bytes = record.to_bytes();
            bytes[58..].copy_from_slice(&reserved);
            bytes[44] |= above << 4;
            bytes
        })
    };
    let address = || {
        (1..6u16, gid(), lid(), any::<[u8; 64]>()).prop_map(|(kind, gid, lid, noise)| {
            let mut field = noise;
            match AcmEpType(kind) {
                AcmEpType::ADDRESS_GID => field[..16].copy_from_slice(&gid.0),
                AcmEpType::ADDRESS_LID => field[..2].copy_from_slice(&lid.0.to_be_bytes()),
                _ => {}
            }
            (kind, field)
        })
    };
    prop_oneof![
        wire().prop_map(|wire| vec![(PATH, wire)]),
        address().prop_map(|address| vec![address]),
        (address(), wire()).prop_map(|(address, wire)| vec![address, (PATH, wire)]),
    ]
}

/// Builds the core's message, with the source after the entries.
fn message(entries: &RawEntries) -> Box<[u8; size_of::<acm_msg>()]> {
    let mut bytes = Box::new([0; size_of::<acm_msg>()]);
    let length = 16 + 72 * entries.len() as u16;
    bytes[4] = entries.len() as u8;
    bytes[6..8].copy_from_slice(&length.to_ne_bytes());
    for (index, (kind, field)) in entries.iter().enumerate() {
        let at = 16 + 72 * index;
        bytes[at + 4..at + 6].copy_from_slice(&kind.to_ne_bytes());
        bytes[at + 8..at + 72].copy_from_slice(field);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 20_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_plain_target_is_that_of_a_query_that_is_plain(entries in entries(), gid in gid(), lid in lid()) {
        let bytes = message(&entries);
        // SAFETY: a complete message that does not change.
        let message = unsafe { Message::new(bytes.as_ptr().cast()) };
        if let Ok(parsed) = Entries::read(message) {
            let target = |query: PathQuery| {
                let query = query.complete(&SOURCE);
                query.target().ok().filter(|_| query.is_plain(&SOURCE))
            };
            let mut query = parsed.path_query();
            prop_assert_eq!(parsed.plain_target(&SOURCE, Qos::Counts), target(query));
            for other in [Target::Gid(gid), Target::Lid(lid)] {
                let short = parsed.plain_target_to(other, &SOURCE);
                prop_assert_eq!(short, target(*query.clone().set_target(other)));
            }
            query.leave_open(Component::ServiceId).leave_open(Component::QosClass);
            prop_assert_eq!(parsed.plain_target(&SOURCE, Qos::IsIgnored), target(query));
        } else {
            let (kind, field) = entries[0];
            let record = PathRecord::from_bytes(&field);
            let is_empty = record.dgid().is_zero() && record.dlid().is_zero();
            prop_assert!(kind == AcmEpType::PATH.0 && is_empty, "{} {:?}", kind, record);
        }
    }
}

/// The generator above yields both kinds of requests; otherwise its test would show nothing.
#[test]
fn plain_and_other_requests_are_both_drawn() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut counts = [0; 6];
    for _ in 0..if cfg!(miri) { 0 } else { 2_000 } {
        let entries = entries().new_tree(&mut runner).expect("drawn").current();
        let bytes = message(&entries);
        // SAFETY: as above.
        let message = unsafe { Message::new(bytes.as_ptr().cast()) };
        let Ok(parsed) = Entries::read(message) else {
            continue;
        };
        let [counts_qos, ignores_qos] =
            [Qos::Counts, Qos::IsIgnored].map(|qos| parsed.plain_target(&SOURCE, qos).is_some());
        let sort = usize::from(counts_qos) + usize::from(ignores_qos);
        counts[usize::from(parsed.is_path()) * 3 + sort] += 1;
    }
    assert!(
        cfg!(miri) || counts.iter().all(|count| *count > 5),
        "{counts:?}"
    );
}
