//! The components of a query, and the records that answer it.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

const PREFIX: u64 = 0xfec0_0000_0000_0001;

fn gid(id: u64) -> Gid {
    Gid::new(PREFIX, id)
}

fn source() -> Source {
    Source {
        gid: gid(1),
        lid: Lid(1),
        pkey: PKey(0xffff),
    }
}

fn plain() -> PathQuery {
    PathQuery::to(Target::Gid(gid(2))).complete(&source())
}

type Put = fn(&mut PathRecord);
type Ask = fn(&mut PathQuery);

/// A component, its mask bits, the value that [`path`] has, another one, and zero.
struct Row {
    component: Component,
    bits: &'static [u32],
    put: Put,
    put_other: Put,
    name: Ask,
    name_other: Ask,
    name_zero: Ask,
}

macro_rules! rows {
    ($($component:ident $setter:ident $bits:expr, $value:tt, $other:tt, $zero:tt;)+) => {
        [$(Row {
            component: Component::$component,
            bits: &$bits,
            put: |record| rows!(@ record $setter $value),
            put_other: |record| rows!(@ record $setter $other),
            name: |query| rows!(@ query $setter $value),
            name_other: |query| rows!(@ query $setter $other),
            name_zero: |query| rows!(@ query $setter $zero),
        }),+]
    };
    (@ $on:ident $setter:ident ($($value:expr),+)) => {{
        $on.$setter($($value),+);
    }};
}

use Selector::{Best, Exactly, GreaterThan, LessThan};

/// Bits as IBA vol. 1, 15.2.5.16 numbers the components.
fn rows() -> [Row; 13] {
    rows! {
        ServiceId set_service_id [0, 1], (0x0106_1234), (9), (0);
        Dgid set_dgid [2], (gid(2)), (gid(3)), (Gid::ZERO);
        Sgid set_sgid [3], (gid(1)), (gid(3)), (Gid::ZERO);
        Dlid set_dlid [4], (Lid(2)), (Lid(3)), (Lid(0));
        Slid set_slid [5], (Lid(1)), (Lid(3)), (Lid(0));
        FlowLabel set_flow_label [8], (0xabcde), (9), (0);
        TrafficClass set_traffic_class [10], (5), (9), (0);
        PKey set_pkey [13], (PKey(0xffff)), (PKey(0x8001)), (PKey(0));
        QosClass set_qos_class [14], (0xfff), (9), (0);
        Sl set_sl [15], (6), (9), (0);
        Mtu set_mtu [16, 17], (Exactly, 4), (Exactly, 5), (GreaterThan, 0);
        Rate set_rate [18, 19], (Exactly, 7), (Exactly, 3), (GreaterThan, 0);
        PacketLifetime set_packet_lifetime [20, 21], (Exactly, 18), (Exactly, 19), (GreaterThan, 0);
    }
}

fn row(component: Component) -> Row {
    let row = rows().into_iter().find(|row| row.component == component);
    row.expect("each component has a row")
}

/// Components that only choose a path.
const CHOOSERS: [Component; 4] = [
    Component::ServiceId,
    Component::QosClass,
    Component::TrafficClass,
    Component::FlowLabel,
];

/// Returns a path as OpenSM answers it: zero in the components that only choose a path.
fn path() -> PathRecord {
    let mut path = PathRecord::default();
    for row in rows() {
        if !CHOOSERS.contains(&row.component) {
            (row.put)(&mut path);
        }
    }
    path.set_reversible(true);
    path
}

fn changed(change: impl FnOnce(&mut PathRecord)) -> PathRecord {
    let mut path = path();
    change(&mut path);
    path
}

fn with(mut query: PathQuery, name: impl FnOnce(&mut PathQuery)) -> PathQuery {
    name(&mut query);
    query
}

#[test]
fn a_clients_record_names_what_is_not_zero() {
    let open = PathQuery::from_client(&PathRecord::default());
    assert_eq!(
        (open.mask(), *open.values()),
        (0x1800, PathRecord::default())
    );
    for row in rows() {
        let mut record = PathRecord::default();
        (row.put)(&mut record);
        let query = PathQuery::from_client(&record);
        for component in Component::ALL {
            assert_eq!(
                query.names(component),
                component == row.component,
                "{query:?}"
            );
        }
        let bits = row.bits.iter().fold(0, |bits, bit| bits | 1 << bit);
        assert_eq!(row.component.mask(), bits, "{}", row.component);
        assert_eq!(query.mask(), 0x1800 | bits, "{query:?}");
        assert_eq!(*query.values(), record);
        record.set_reversible(true).set_numb_path(1);
        assert_eq!(query.record(), record);
    }
}

#[test]
fn components_that_only_the_sa_sets_are_ignored_in_a_clients_record() {
    let mut record = PathRecord::default();
    record.set_reversible(true).set_numb_path(7);
    record.set_hop_limit(64).set_preference(3);
    let open = PathQuery::from_client(&PathRecord::default());
    assert_eq!(PathQuery::from_client(&record), open);
}

#[test]
fn a_selector_of_zero_and_the_p_key_0x8000_are_not_constraints() {
    let open = PathQuery::from_client(&PathRecord::default());
    let silent: [Put; 4] = [
        |r| _ = r.set_mtu(GreaterThan, 4),
        |r| _ = r.set_rate(GreaterThan, 3),
        |r| _ = r.set_packet_lifetime(GreaterThan, 18),
        |r| _ = r.set_pkey(PKey(0x8000)),
    ];
    for set in silent {
        let mut record = PathRecord::default();
        set(&mut record);
        assert_eq!(PathQuery::from_client(&record), open, "{record:?}");
    }
    // Any other selector counts, though its code is zero.
    for selector in [LessThan, Exactly, Best] {
        let mut record = PathRecord::default();
        record.set_mtu(selector, 0).set_rate(selector, 0);
        record.set_packet_lifetime(selector, 0);
        assert_eq!(PathQuery::from_client(&record).mask(), 0x1800 | 0x3f << 16);
    }
}

#[test]
fn the_best_keeps_its_code() {
    // OpenSM refuses invalid codes even where it ignores the value.
    let mut record = PathRecord::default();
    record.set_mtu(Best, 4).set_rate(Best, 3);
    record.set_packet_lifetime(Best, 18);
    let query = PathQuery::from_client(&record);
    assert_eq!(query.record().to_bytes()[54..57], [0xc4, 0xc3, 0xd2]);
}

#[test]
fn a_named_zero_is_a_value() {
    let open = PathQuery::from_client(&PathRecord::default());
    for row in rows() {
        let zero = with(open, row.name_zero);
        assert!(zero.names(row.component));
        assert_eq!(zero.record(), open.record(), "{zero:?}");
        assert_eq!(zero.mask(), open.mask() | row.component.mask());
        assert_ne!(zero, open);
        assert_ne!(zero, with(open, row.name));
        let mut again = with(open, row.name);
        assert_eq!(*again.leave_open(row.component), open);
    }
}

#[test]
fn another_target_replaces_both() {
    let mut query = PathQuery::to(Target::Gid(gid(2)));
    query.set_dlid(Lid(2)).set_sl(3);
    let to_lid = with(PathQuery::to(Target::Lid(Lid(7))), |q| _ = q.set_sl(3));
    assert_eq!(*query.set_target(Target::Lid(Lid(7))), to_lid);
    let to_gid = with(PathQuery::to(Target::Gid(gid(7))), |q| _ = q.set_sl(3));
    assert_eq!(*query.set_target(Target::Gid(gid(7))), to_gid);
}

#[test]
fn a_plain_query_names_source_destination_partition_and_one_reversible_path() {
    let mut record = PathRecord::default();
    record.set_sgid(gid(1)).set_pkey(PKey(0xffff));
    record.set_reversible(true).set_numb_path(1);
    let mut by_gid = record;
    by_gid.set_dgid(gid(2));
    assert_eq!((plain().mask(), plain().record()), (0x380c, by_gid));
    let query = PathQuery::to(Target::Lid(Lid(2))).complete(&source());
    record.set_dlid(Lid(2));
    assert_eq!((query.mask(), query.record()), (0x3818, record));
    assert!(query.is_plain(&source()) && plain().is_plain(&source()));
}

#[test]
fn a_further_component_or_another_source_is_not_plain() {
    for row in rows() {
        let named = with(plain(), row.name_other);
        let is_target = row.component == Component::Dgid;
        assert_eq!(named.is_plain(&source()), is_target, "{named:?}");
    }
    for component in [Component::Dgid, Component::Sgid, Component::PKey] {
        let less = *plain().leave_open(component);
        assert!(!less.is_plain(&source()), "{less:?}");
    }
}

#[test]
fn a_query_is_completed_with_the_endpoints_gid_and_p_key() {
    let completed = |name: Ask| {
        let query = with(PathQuery::to(Target::Gid(gid(2))), name).complete(&source());
        (query.values().sgid(), query.values().pkey())
    };
    let full = PKey(0xffff);
    assert_eq!(completed(|_| ()), (gid(1), full));
    assert_eq!(completed(|q| _ = q.set_sgid(gid(9))), (gid(9), full));
    // The membership bit is the endpoint's, or the full member's.
    assert_eq!(completed(|q| _ = q.set_pkey(PKey(0x7fff))), (gid(1), full));
    let other = (gid(1), PKey(0x8123));
    assert_eq!(completed(|q| _ = q.set_pkey(PKey(0x8123))), other);
    assert_eq!(completed(|q| _ = q.set_pkey(PKey(0x0123))), other);
    let limited = Source {
        pkey: PKey(0x7fff),
        ..source()
    };
    for pkey in [0xffff, 0x7fff] {
        let query = with(plain(), |q| _ = q.set_pkey(PKey(pkey))).complete(&limited);
        assert_eq!(query.values().pkey(), PKey(0x7fff));
    }
    assert_eq!(plain().complete(&source()), plain(), "once is enough");
}

#[test]
fn link_local_gids_are_the_ports_own_subnets() {
    for (prefix, is_own) in [
        (0xfe80_0000_0000_0000, true),
        (0xfebf_ffff_ffff_ffff, true),
        (0xfec0_0000_0000_0000, false),
        (0xfe7f_ffff_ffff_ffff, false),
        (0xfd00_0000_0000_0000, false),
    ] {
        let asked = |id| Gid::new(prefix, id);
        let expected = |id| if is_own { gid(id) } else { asked(id) };
        let mut query = PathQuery::to(Target::Gid(asked(2)));
        query.set_sgid(asked(1));
        let query = query.complete(&source());
        assert_eq!(query.values().dgid(), expected(2));
        assert_eq!(query.values().sgid(), expected(1));
    }
    let by_lid = PathQuery::to(Target::Lid(Lid(2))).complete(&source());
    assert!(!by_lid.names(Component::Dgid));
}

#[test]
fn destinations_that_are_not_a_port_are_refused() {
    let target = |name: Ask| with(PathQuery::from_client(&PathRecord::default()), name).target();
    let group: Gid = "ff12::1".parse().unwrap();
    assert_eq!(target(|_| ()), Err(PathQueryError::NoDestination));
    assert_eq!(
        target(|q| _ = q.set_dgid(Gid::ZERO)),
        Err(PathQueryError::NoDestination)
    );
    assert_eq!(target(|q| _ = q.set_dlid(Lid(2))), Ok(Target::Lid(Lid(2))));
    assert_eq!(target(|q| _ = q.set_dgid(gid(2))), Ok(Target::Gid(gid(2))));
    assert_eq!(
        target(|q| _ = q.set_dgid(gid(2)).set_dlid(Lid(5))),
        Ok(Target::Gid(gid(2)))
    );
    for lid in [0, 0xc000, 0xffff] {
        for dgid in [None, Some(gid(2))] {
            let mut query = PathQuery::to(Target::Lid(Lid(lid)));
            if let Some(dgid) = dgid {
                query.set_dgid(dgid);
            }
            let error = query.target().unwrap_err();
            assert_eq!(error, PathQueryError::LidNotUnicast(Lid(lid)));
            assert_eq!(error.status(), AcmStatus::EDESTADDR);
        }
    }
    for dlid in [None, Some(Lid(2))] {
        let mut query = PathQuery::to(Target::Gid(group));
        if let Some(dlid) = dlid {
            query.set_dlid(dlid);
        }
        assert_eq!(query.target(), Err(PathQueryError::GidNotUnicast(group)));
    }
}

#[test]
fn a_record_that_differs_in_one_component_is_refused() {
    let all = rows()
        .iter()
        .fold(plain(), |query, row| with(query, row.name));
    assert_eq!(all.check(&path()), Ok(()));
    for row in rows() {
        let other = changed(row.put_other);
        let mismatch = all.check(&other).unwrap_err();
        assert_eq!(mismatch.component, row.component, "{mismatch}");
        // Components that choose the path may also be repeated.
        assert_eq!(all.check(&changed(row.put)), Ok(()));
    }
}

#[test]
fn of_open_components_only_ports_source_and_partition_are_compared() {
    use Component::{Dgid, Dlid, PKey as Pkey, Sgid, Slid};
    let by_lid = PathQuery::to(Target::Lid(Lid(2))).complete(&source());
    for row in rows() {
        let other = changed(row.put_other);
        let differs = [Dgid, Sgid, Pkey].contains(&row.component);
        assert_eq!(plain().check(&other).is_err(), differs, "{other:?}");
        let differs = [Dlid, Sgid, Pkey].contains(&row.component);
        assert_eq!(by_lid.check(&other).is_err(), differs, "{other:?}");
    }
    let no_ports: [(Component, Put); 8] = [
        (Dgid, |p| _ = p.set_dgid(Gid::ZERO)),
        (Dgid, |p| _ = p.set_dgid(Gid([0xff; 16]))),
        (Dlid, |p| _ = p.set_dlid(Lid(0))),
        (Dlid, |p| _ = p.set_dlid(Lid(0xc000))),
        (Dlid, |p| _ = p.set_dlid(Lid(0xffff))),
        (Slid, |p| _ = p.set_slid(Lid(0))),
        (Slid, |p| _ = p.set_slid(Lid(0xc000))),
        (Slid, |p| _ = p.set_slid(Lid(0xffff))),
    ];
    for (component, put) in no_ports {
        let query = if component == Dgid { by_lid } else { plain() };
        let mismatch = query.check(&changed(put)).unwrap_err();
        assert_eq!(mismatch.component, component);
    }
    let the_sas: [Put; 5] = [
        |p| _ = p.set_hop_limit(64),
        |p| _ = p.set_preference(3),
        |p| _ = p.set_numb_path(7),
        |p| _ = p.set_reversible(false),
        |p| _ = p.set_pkey(PKey(0x7fff)),
    ];
    for put in the_sas {
        assert_eq!(plain().check(&changed(put)), Ok(()));
    }
}

/// A constraint with a selector, and whether [`path`] meets it.
#[rustfmt::skip]
const LIMITS: [(Ask, bool); 28] = [
    (|q| _ = q.set_mtu(Exactly, 4), true),
    (|q| _ = q.set_mtu(Exactly, 3), false),
    (|q| _ = q.set_mtu(Exactly, 5), false),
    (|q| _ = q.set_mtu(GreaterThan, 0), true),
    (|q| _ = q.set_mtu(GreaterThan, 3), true),
    (|q| _ = q.set_mtu(GreaterThan, 4), false),
    (|q| _ = q.set_mtu(LessThan, 5), true),
    (|q| _ = q.set_mtu(LessThan, 4), false),
    (|q| _ = q.set_mtu(LessThan, 0), false),
    // Rate codes follow no order. The path has 7, 40 Gb/s; 11 is 14, 8 is 60, 16 is 100, 4 is 30, 9 is 80, 12 is 56.
    (|q| _ = q.set_rate(Exactly, 7), true),
    (|q| _ = q.set_rate(Exactly, 8), false),
    (|q| _ = q.set_rate(Exactly, 63), false),
    (|q| _ = q.set_rate(GreaterThan, 11), true),
    (|q| _ = q.set_rate(GreaterThan, 4), true),
    (|q| _ = q.set_rate(GreaterThan, 7), false),
    (|q| _ = q.set_rate(GreaterThan, 12), false),
    (|q| _ = q.set_rate(LessThan, 12), true),
    (|q| _ = q.set_rate(LessThan, 16), true),
    (|q| _ = q.set_rate(LessThan, 7), false),
    (|q| _ = q.set_rate(LessThan, 4), false),
    (|q| _ = q.set_packet_lifetime(Exactly, 18), true),
    (|q| _ = q.set_packet_lifetime(Exactly, 17), false),
    (|q| _ = q.set_packet_lifetime(GreaterThan, 0), true),
    (|q| _ = q.set_packet_lifetime(GreaterThan, 17), true),
    (|q| _ = q.set_packet_lifetime(GreaterThan, 18), false),
    (|q| _ = q.set_packet_lifetime(LessThan, 19), true),
    (|q| _ = q.set_packet_lifetime(LessThan, 18), false),
    (|q| _ = q.set_packet_lifetime(LessThan, 0), false),
];

#[test]
fn limits_are_compared_by_meaning() {
    for (name, is_met) in LIMITS {
        let query = with(plain(), name);
        assert_eq!(query.check(&path()).is_ok(), is_met, "{query:?}");
        assert_eq!(query.is_answered_by(&plain(), &path()), is_met, "{query:?}");
    }
}

#[test]
fn only_the_sa_can_judge_the_best_and_unknown_rates() {
    let judged_by_the_sa: [Ask; 5] = [
        |q| _ = q.set_mtu(Best, 0),
        |q| _ = q.set_rate(Best, 0),
        |q| _ = q.set_packet_lifetime(Best, 0),
        |q| _ = q.set_rate(GreaterThan, 63),
        |q| _ = q.set_rate(LessThan, 63),
    ];
    for name in judged_by_the_sa {
        let query = with(plain(), name);
        assert_eq!(query.check(&path()), Ok(()));
        assert!(!query.is_answered_by(&plain(), &path()), "{query:?}");
        assert!(query.is_answered_by(&query, &path()), "{query:?}");
    }
    let unknown = changed(|p| _ = p.set_rate(Exactly, 63));
    let query = with(plain(), |q| _ = q.set_rate(GreaterThan, 3));
    assert_eq!(query.check(&unknown), Ok(()));
    assert!(!query.is_answered_by(&plain(), &unknown));
    let same = with(plain(), |q| _ = q.set_rate(Exactly, 63));
    assert!(same.is_answered_by(&plain(), &unknown));
}

#[test]
fn an_answer_serves_queries_that_name_no_less_if_it_has_the_rest() {
    assert!(plain().is_answered_by(&plain(), &path()));
    for row in rows() {
        let named = with(plain(), row.name);
        let other = with(plain(), row.name_other);
        let chooses = CHOOSERS.contains(&row.component);
        let of_all = plain().names(row.component);
        // The path shows components that `asked` did not name, unless they only choose the path.
        assert_eq!(
            named.is_answered_by(&plain(), &path()),
            !chooses,
            "{named:?}"
        );
        assert!(!other.is_answered_by(&plain(), &path()), "{other:?}");
        // Components that `asked` named must be named again, with the same value.
        assert!(named.is_answered_by(&named, &path()), "{named:?}");
        assert!(!other.is_answered_by(&named, &path()), "{other:?}");
        assert_eq!(plain().is_answered_by(&named, &path()), of_all, "{named:?}");
        if !of_all {
            assert!(!plain().is_answered_by(&other, &path()), "{other:?}");
            let zero = with(plain(), row.name_zero);
            assert!(!plain().is_answered_by(&zero, &path()), "{zero:?}");
        }
    }
    // If an SA repeats such a value, this does not show that it used it; and zero is a value, too.
    for component in CHOOSERS {
        let named = with(plain(), row(component).name);
        let repeating = changed(row(component).put);
        assert!(!named.is_answered_by(&plain(), &repeating), "{named:?}");
        let zero = with(plain(), row(component).name_zero);
        assert!(!zero.is_answered_by(&plain(), &path()), "{zero:?}");
    }
    // The same constraint in another form is another query.
    let exactly = with(plain(), |q| _ = q.set_mtu(Exactly, 4));
    let above = with(plain(), |q| _ = q.set_mtu(GreaterThan, 3));
    assert!(!exactly.is_answered_by(&above, &path()));
    assert!(!above.is_answered_by(&exactly, &path()));
}

#[test]
fn a_gid_and_a_lid_need_separate_queries() {
    let by_lid = PathQuery::to(Target::Lid(Lid(2))).complete(&source());
    assert!(!by_lid.is_answered_by(&plain(), &path()));
    assert!(!plain().is_answered_by(&by_lid, &path()));
    let both = with(plain(), |q| _ = q.set_dlid(Lid(2)));
    assert!(both.is_answered_by(&plain(), &path()) && both.is_answered_by(&by_lid, &path()));
    let others = with(plain(), |q| _ = q.set_dlid(Lid(5)));
    assert!(!others.is_answered_by(&plain(), &path()));
    let others = with(by_lid, |q| _ = q.set_dgid(gid(5)));
    assert!(!others.is_answered_by(&by_lid, &path()));
}

#[test]
fn the_membership_bit_is_not_a_constraint() {
    for got in [0xffff, 0x7fff] {
        let path = changed(|p| _ = p.set_pkey(PKey(got)));
        for named in [0xffff, 0x7fff] {
            let query = with(plain(), |q| _ = q.set_pkey(PKey(named)));
            assert_eq!(query.check(&path), Ok(()));
            assert!(query.is_answered_by(&plain(), &path));
            assert!(plain().is_answered_by(&query, &path));
        }
    }
}

#[test]
fn a_repeated_record_is_its_own_answer() {
    // `asked` named more than the client repeats: only the repetition rule answers.
    let asked = with(plain(), |q| _ = q.set_service_id(7).set_sl(9));
    let repeated = |path: &PathRecord| PathQuery::from_client(path).complete(&source());
    for handed_out in [
        path(),
        changed(|p| _ = p.set_sl(0)),
        changed(|p| _ = p.set_pkey(PKey(0x7fff))),
        changed(|p| _ = p.set_hop_limit(64).set_flow_label(7).set_traffic_class(3)),
        changed(|p| _ = p.set_packet_lifetime(Exactly, 0)),
    ] {
        let query = repeated(&handed_out);
        assert!(query.is_answered_by(&asked, &handed_out), "{handed_out:?}");
    }
    let query = repeated(&path());
    for row in rows() {
        // Changed, left open, or one of the two components that are not part of the repetition.
        let other = with(query, row.name_other);
        assert!(!other.is_answered_by(&asked, &path()), "{other:?}");
        if query.names(row.component) {
            let less = with(query, |q| _ = q.leave_open(row.component));
            assert!(!less.is_answered_by(&asked, &path()), "{less:?}");
        } else {
            let more = with(query, row.name);
            assert!(!more.is_answered_by(&asked, &path()), "{more:?}");
        }
    }
    let in_other_words: [Ask; 6] = [
        |q| _ = q.set_mtu(GreaterThan, 3),
        |q| _ = q.set_mtu(Best, 0),
        |q| _ = q.set_rate(LessThan, 8),
        |q| _ = q.set_rate(Best, 0),
        |q| _ = q.set_packet_lifetime(LessThan, 19),
        |q| _ = q.set_packet_lifetime(Best, 0),
    ];
    for name in in_other_words {
        let other = with(query, name);
        assert_eq!(other.check(&path()), Ok(()));
        assert!(!other.is_answered_by(&asked, &path()), "{other:?}");
    }
    // A named 0 is the path's own value.
    let without_sl = changed(|p| _ = p.set_sl(0));
    let named = with(repeated(&without_sl), |q| _ = q.set_sl(0));
    assert!(named.is_answered_by(&asked, &without_sl));
    // Service id and QoS class count even if they are zero.
    for component in [Component::ServiceId, Component::QosClass] {
        let named = with(query, row(component).name_zero);
        assert!(!named.is_answered_by(&asked, &path()), "{named:?}");
    }
}

#[test]
fn lines_for_the_log_are_short_and_name_both_values() {
    let mismatch = |query: PathQuery, path: PathRecord| {
        let mismatch = query.check(&path).unwrap_err();
        assert_eq!(format!("{mismatch:?}"), mismatch.to_string());
        mismatch.to_string()
    };
    let exactly = with(plain(), |q| {
        _ = q.set_mtu(Exactly, 5).set_rate(GreaterThan, 12)
    });
    assert_eq!(
        mismatch(exactly, path()),
        "the SA's path to fec0:0:0:1::2 (LID 2) has MTU code 4, asked for: code 5"
    );
    assert_eq!(
        mismatch(exactly, changed(|p| _ = p.set_mtu(Exactly, 5))),
        "the SA's path to fec0:0:0:1::2 (LID 2) has rate code 7, asked for: above code 12"
    );
    assert_eq!(
        mismatch(plain(), changed(|p| _ = p.set_sgid(gid(3)))),
        "the SA's path to fec0:0:0:1::2 (LID 2) has SGID fec0:0:0:1::3, asked for: fec0:0:0:1::1"
    );
    assert_eq!(
        mismatch(plain(), changed(|p| _ = p.set_dlid(Lid(0)))),
        "the SA's path to fec0:0:0:1::2 (LID 0) has DLID 0, which no port has"
    );
    let all = rows()
        .iter()
        .fold(plain(), |query, row| with(query, row.name));
    let shown = format!("{all:?}");
    assert_eq!(
        shown,
        "{DGID: fec0:0:0:1::2, DLID: 2, SGID: fec0:0:0:1::1, SLID: 1, P_Key: 0x7fff, service id: 0x1061234, \
         QoS class: 4095, traffic class: 5, flow label: 0xabcde, SL: 6, MTU: code 4, rate: code 7, \
         packet lifetime: code 18}"
    );
    let best = with(PathQuery::to(Target::Lid(Lid(2))), |q| {
        q.set_mtu(Best, 0).set_rate(LessThan, 3);
    });
    assert_eq!(
        format!("{best:?}"),
        "{DLID: 2, MTU: the best, rate: below code 3}"
    );
}

#[test]
fn any_bytes_make_one_harmless_line() {
    for byte in 0..=u8::MAX {
        let record = PathRecord::from_bytes(&[byte; PathRecord::LENGTH]);
        let query = PathQuery::from_client(&record);
        let mut lines = vec![format!("{query:?}")];
        lines.extend(query.check(&path()).err().map(|error| error.to_string()));
        lines.extend(plain().check(&record).err().map(|error| error.to_string()));
        for line in lines {
            assert!(
                line.chars().all(|c| c == ' ' || c.is_ascii_graphic()),
                "{line}"
            );
            assert!(line.len() < 400, "{line}");
        }
    }
}

/// How a random query names a component.
#[derive(Clone, Copy, Debug)]
enum Naming {
    Open,
    AsThePath,
    Other,
    Zero,
    Limit(usize),
    /// As the first query does.
    AsAsked,
}

fn naming(of: [u32; 6]) -> impl Strategy<Value = [Naming; 13]> {
    let [open, same, other, zero, limit, asked] = of;
    prop::array::uniform13(prop_oneof![
        open => Just(Naming::Open),
        same => Just(Naming::AsThePath),
        other => Just(Naming::Other),
        zero => Just(Naming::Zero),
        limit => (0..LIMITS.len()).prop_map(Naming::Limit),
        asked => Just(Naming::AsAsked),
    ])
}

fn query(naming: [Naming; 13], asked: &PathQuery) -> PathQuery {
    let mut query = PathQuery::from_client(&PathRecord::default());
    for (row, naming) in rows().into_iter().zip(naming) {
        match naming {
            Naming::Open => {}
            Naming::AsThePath => (row.name)(&mut query),
            Naming::Other => (row.name_other)(&mut query),
            Naming::Zero => (row.name_zero)(&mut query),
            Naming::Limit(index) => LIMITS[index].0(&mut query),
            Naming::AsAsked if asked.names(row.component) => {
                query.name(row.component, asked.values());
            }
            Naming::AsAsked => {}
        }
    }
    query.complete(&source())
}

/// Every answer from the cache would pass as the SA's answer, and constraints that are not repeated are never inherited.
#[test]
fn an_answer_to_another_query_is_right_for_this_one() {
    let [follows, repeats, refused] = [(); 3].map(|()| std::cell::Cell::new(0));
    let strategy = (
        naming([12, 6, 1, 1, 1, 0]),
        naming([4, 2, 1, 1, 1, 16]),
        prop::bool::weighted(0.2),
        prop::collection::vec((0..13usize, any::<bool>()), 0..3),
    );
    let config = ProptestConfig {
        cases: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&strategy, |(asks, names, is_repetition, changes)| {
        let path = changed(|path| {
            for (index, to_other) in &changes {
                let row = &rows()[*index];
                if *to_other {
                    (row.put_other)(path)
                } else {
                    (row.put)(path)
                }
            }
        });
        let asked = query(asks, &PathQuery::from_client(&PathRecord::default()));
        let wanted = if is_repetition {
            PathQuery::from_client(&path).complete(&source())
        } else {
            query(names, &asked)
        };
        if asked.check(&path).is_err() {
            return Ok(());
        }
        if !wanted.is_answered_by(&asked, &path) {
            refused.set(refused.get() + 1);
            return Ok(());
        }
        prop_assert_eq!(wanted.check(&path), Ok(()), "{:?} for {:?}", asked, wanted);
        let is_plainer = |component| asked.names(component) && !wanted.names(component);
        if Component::ALL.into_iter().any(is_plainer) {
            prop_assert!(wanted.repeats(&path), "{:?} for {:?}", asked, wanted);
            repeats.set(repeats.get() + 1);
        } else {
            follows.set(follows.get() + 1);
        }
        Ok(())
    });
    result.unwrap();
    for cases in [follows, repeats, refused] {
        assert!(cases.get() > 20, "only {} cases", cases.get());
    }
}
