//! Reads what was written, and refuses everything else.

use proptest::prelude::*;

use super::*;

const PORT: PortIdentity = PortIdentity {
    guid: 0x0010_0001,
    subnet_prefix: 0xfe80 << 48,
    lid: Lid(1),
    sm_lid: Lid(9),
    lmc: 3,
};

const SOURCE: Source = Source {
    gid: Gid::new(0xfe80 << 48, 0x0010_0001),
    lid: Lid(1),
    pkey: PKey(0x8001),
};

fn kept(lid: u16, by_lid: bool, age: u64) -> Kept {
    let dgid = Gid::new(0xfe80 << 48, 0x2000 + u64::from(lid));
    let mut path = PathRecord::default();
    path.set_sgid(SOURCE.gid)
        .set_slid(SOURCE.lid)
        .set_dgid(dgid)
        .set_dlid(Lid(lid))
        .set_pkey(SOURCE.pkey)
        .set_traffic_class(7)
        .set_sl(3);
    let target = if by_lid {
        Target::Lid(Lid(lid))
    } else {
        Target::Gid(dgid)
    };
    let age = Duration::from_secs(age);
    Kept { target, path, age }
}

prop_compose! {
    fn any_kept()(lid in 1_u16..0xc000, by_lid: bool, age: u32) -> Kept {
        kept(lid, by_lid, age.into())
    }
}

prop_compose! {
    fn any_section()(pkey: u16, paths in prop::collection::vec(any_kept(), 0..5)) -> Section {
        Section::new(PKey(pkey), paths)
    }
}

prop_compose! {
    fn any_snapshot()(time: u64, sections in prop::collection::vec(any_section(), 0..4)) -> Snapshot {
        Snapshot { port: PORT, time, sections }
    }
}

#[test]
fn a_path_comes_back_as_it_was_and_older() {
    let paths = [kept(7, true, 10), kept(8, false, 0)];
    let section = Section::new(SOURCE.pkey, paths);
    let later: Vec<Kept> = section.kept(SOURCE, Duration::from_secs(5)).collect();
    assert_eq!(later, [kept(7, true, 15), kept(8, false, 5)]);
}

#[test]
fn an_invalid_entry_is_skipped() {
    let mut section = Section::new(SOURCE.pkey, [kept(7, true, 10); 4]);
    section.entries[0][0] = 2;
    section.entries[1][1] = 1;
    section.entries[2][22..24].copy_from_slice(&[0xc0, 0]);
    assert_eq!(section.kept(SOURCE, Duration::ZERO).count(), 1);
}

#[test]
fn sizes_are_those_of_the_tables() {
    let size = |paths: usize| {
        let section = Section::new(SOURCE.pkey, vec![kept(7, true, 10); paths]);
        let snapshot = Snapshot {
            port: PORT,
            time: 1,
            sections: vec![section],
        };
        snapshot.to_bytes().len()
    };
    assert_eq!(size(0), 8 + 4 + 4 + 8 + 8 + 8 + 2 + 2 + 4 + 4 + 8 + 4);
    assert_eq!(size(3), size(0) + 3 * ENTRY);
}

#[test]
fn another_port_or_time_is_refused() {
    let snapshot = Snapshot {
        port: PORT,
        time: 1_000,
        sections: Vec::new(),
    };
    let limit = Duration::from_secs(60);
    let check = |port: &PortIdentity, now| snapshot.check(port, now, limit);
    assert_eq!(check(&PORT, 1_000), Ok(Duration::ZERO));
    assert_eq!(check(&PORT, 1_060), Ok(limit));
    let old = Refusal::Old { age: 61, limit: 60 };
    assert_eq!(check(&PORT, 1_061), Err(old));
    assert_eq!(check(&PORT, 999), Err(Refusal::Future(1)));
    let others: [(fn(&mut PortIdentity), _); 5] = [
        (|port| port.guid += 1, "port"),
        (|port| port.subnet_prefix += 1, "subnet prefix"),
        (|port| port.lid = Lid(2), "LID of the port"),
        (|port| port.lmc = 0, "LMC"),
        (|port| port.sm_lid = Lid(8), "LID of the subnet manager"),
    ];
    for (change, what) in others {
        let mut port = PORT;
        change(&mut port);
        assert_eq!(check(&port, 1_000), Err(Refusal::Other(what)));
    }
}

#[test]
fn another_version_is_named() {
    let snapshot = Snapshot {
        port: PORT,
        time: 1,
        sections: Vec::new(),
    };
    let mut bytes = snapshot.to_bytes();
    bytes[8] = 2;
    assert_eq!(Snapshot::from_bytes(&bytes), Err(Refusal::Version(2)));
}

proptest! {
    #[test]
    fn a_written_snapshot_can_be_read(snapshot in any_snapshot()) {
        prop_assert_eq!(Snapshot::from_bytes(&snapshot.to_bytes()), Ok(snapshot));
    }

    #[test]
    fn a_byte_that_changed_is_noticed(snapshot in any_snapshot(), at: prop::sample::Index, flip in 1_u8..) {
        let mut bytes = snapshot.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(Snapshot::from_bytes(&bytes).is_err());
    }

    #[test]
    fn a_truncated_file_is_refused(snapshot in any_snapshot(), at: prop::sample::Index, more: u8) {
        let mut bytes = snapshot.to_bytes();
        prop_assert_eq!(Snapshot::from_bytes(&bytes[..at.index(bytes.len())]), Err(Refusal::Torn));
        bytes.push(more);
        prop_assert_eq!(Snapshot::from_bytes(&bytes), Err(Refusal::Torn));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, after_magic: bool) {
        let start: &[u8] = if after_magic { b"acmpaths\x01\0\0\0" } else { b"" };
        let bytes = [start, &bytes].concat();
        if let Ok(snapshot) = Snapshot::from_bytes(&bytes) {
            for section in &snapshot.sections {
                prop_assert!(section.kept(SOURCE, Duration::MAX).count() <= section.len());
            }
        }
    }
}
