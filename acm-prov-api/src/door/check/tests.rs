use super::*;
use core::ffi::c_void;

use crate::abi::{Be64, acm_address, acm_device, acm_endpoint, acm_msg, acm_port, ibv_event_type};

unsafe extern "C" fn open_device(_: *const acm_device, _: *mut *mut c_void) -> c_int {
    0
}
unsafe extern "C" fn open_port(_: *const acm_port, _: *mut c_void, _: *mut *mut c_void) -> c_int {
    0
}
unsafe extern "C" fn open_endpoint(
    _: *const acm_endpoint,
    _: *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    0
}
unsafe extern "C" fn add_address(
    _: *const acm_address,
    _: *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    0
}
unsafe extern "C" fn close(_: *mut c_void) {}
unsafe extern "C" fn resolve(_: *mut c_void, _: *mut acm_msg, _: u64) -> c_int {
    0
}
unsafe extern "C" fn handle_event(_: *mut c_void, _: ibv_event_type) -> c_int {
    0
}
unsafe extern "C" fn query_perf(_: *mut c_void, _: *mut Be64, _: *mut u8) {}

fn sound() -> acm_provider {
    acm_provider {
        size: SIZE,
        version: 1,
        name: c"sound".as_ptr(),
        open_device: Some(open_device),
        close_device: Some(close),
        open_port: Some(open_port),
        close_port: Some(close),
        open_endpoint: Some(open_endpoint),
        close_endpoint: Some(close),
        add_address: Some(add_address),
        remove_address: Some(close),
        resolve: Some(resolve),
        query: Some(resolve),
        handle_event: Some(handle_event),
        query_perf: Some(query_perf),
    }
}

fn judge_table(table: &acm_provider, version: u32) -> Report {
    // SAFETY: the table is complete; if a test states another size, it is smaller, or no
    // field past the known ones is read; the names are C strings.
    unsafe { judge(table, version) }
}

/// The first `N` bytes of a table, alone in memory: Miri and sanitizers see a read past them.
fn cut<const N: usize>(table: &acm_provider, version: u32) -> Report {
    let mut bytes = vec![0_u8; N].into_boxed_slice();
    for (offset, length) in [(0, 8), (8, 4)]
        .into_iter()
        .chain((16..SIZE).step_by(8).map(|at| (at, 8)))
    {
        for at in offset..(offset + length).min(N) {
            // SAFETY: within the table and not in its padding.
            bytes[at] = unsafe { (&raw const *table).cast::<u8>().add(at).read() };
        }
    }
    bytes[..8].copy_from_slice(&N.to_ne_bytes());
    // SAFETY: `N` bytes are there, as the first word says.
    let live = unsafe { judge(bytes.as_ptr().cast(), version) };
    let copied = judge_bytes(&bytes, version);
    assert_eq!(live.findings(), copied.findings());
    live
}

#[test]
fn a_sound_table() {
    let report = judge_table(&sound(), 1);
    assert!(report.is_sound() && report.is_accepted());
    assert_eq!(report.name(), Some(c"sound"));
    assert_eq!(report.to_string(), "nothing is wrong");
}

#[test]
fn the_size_is_that_of_c() {
    assert_eq!(SIZE, 120);
}

#[test]
fn null_table() {
    // SAFETY: NULL is allowed.
    let report = unsafe { judge(core::ptr::null(), 1) };
    assert_eq!(report.findings(), [TableFault::NullTable]);
    assert!(!report.is_accepted());
}

#[test]
fn versions() {
    for (version, finding) in [
        (0, TableFault::OlderVersion { version: 0 }),
        (2, TableFault::NewerVersion { version: 2 }),
        (u32::MAX, TableFault::NewerVersion { version: u32::MAX }),
    ] {
        let mut table = sound();
        table.version = version;
        // Must not be followed: with another version it may be anything.
        table.name = core::ptr::without_provenance(1);
        let report = judge_table(&table, version);
        assert_eq!(report.findings(), [finding]);
        assert!(!report.is_accepted());
        assert_eq!(report.name(), None);
    }
}

#[test]
fn version_and_size_are_both_named() {
    let mut table = sound();
    table.size = 128;
    assert_eq!(
        judge_table(&table, 2).findings(),
        [
            TableFault::NewerVersion { version: 2 },
            TableFault::LongerTable { size: 128 }
        ]
    );
}

#[test]
fn a_table_that_disagrees_with_its_query() {
    let mut table = sound();
    table.version = 3;
    let report = judge_table(&table, 1);
    assert_eq!(
        report.findings(),
        [TableFault::VersionsDiffer { table: 3, query: 1 }]
    );
    assert!(
        report.is_accepted(),
        "the core does not look at the table's own"
    );
}

#[test]
fn a_longer_table_is_newer() {
    for size in [121, 128, usize::MAX] {
        let mut table = sound();
        table.size = size;
        let report = judge_table(&table, 1);
        assert_eq!(report.findings(), [TableFault::LongerTable { size }]);
        assert!(!report.is_accepted());
        assert!(report.to_string().contains("newer"), "{report}");
        assert_eq!(report.name(), Some(c"sound"));
    }
}

#[test]
fn a_shorter_table_is_older_and_is_not_read_past_its_end() {
    let table = sound();
    let shorter = |size, first_missing| TableFault::ShorterTable {
        size,
        first_missing,
    };
    assert_eq!(
        cut::<119>(&table, 1).findings(),
        [shorter(119, "query_perf")]
    );
    assert_eq!(
        cut::<112>(&table, 1).findings(),
        [shorter(112, "query_perf")]
    );
    assert_eq!(
        cut::<60>(&table, 1).findings(),
        [shorter(60, "open_endpoint")]
    );
    assert_eq!(
        cut::<24>(&table, 1).findings(),
        [shorter(24, "open_device")]
    );
    assert_eq!(cut::<16>(&table, 1).findings(), [shorter(16, "name")]);
    assert_eq!(cut::<8>(&table, 1).findings(), [shorter(8, "version")]);
    assert_eq!(cut::<24>(&table, 1).name(), Some(c"sound"));
    assert_eq!(cut::<23>(&table, 1).name(), None);
    let report = cut::<112>(&table, 1);
    assert!(!report.is_accepted());
    assert!(report.to_string().contains("older") && report.to_string().contains("query_perf"));
}

#[test]
fn a_table_that_says_less_than_its_first_word() {
    let mut table = sound();
    table.size = 0;
    assert_eq!(
        judge_table(&table, 1).findings(),
        [TableFault::ShorterTable {
            size: 0,
            first_missing: "size"
        }]
    );
}

#[test]
fn null_name() {
    let mut table = sound();
    table.name = core::ptr::null();
    let report = judge_table(&table, 1);
    assert_eq!(report.findings(), [TableFault::NullName]);
    assert_eq!(report.findings()[0].consequence(), Consequence::CrashAtLoad);
    assert!(!report.is_accepted());
}

#[test]
fn each_null_slot_is_named() {
    type Clear = fn(&mut acm_provider);
    let empty: [(&str, Clear); 12] = [
        ("open_device", |table| table.open_device = None),
        ("close_device", |table| table.close_device = None),
        ("open_port", |table| table.open_port = None),
        ("close_port", |table| table.close_port = None),
        ("open_endpoint", |table| table.open_endpoint = None),
        ("close_endpoint", |table| table.close_endpoint = None),
        ("add_address", |table| table.add_address = None),
        ("remove_address", |table| table.remove_address = None),
        ("resolve", |table| table.resolve = None),
        ("query", |table| table.query = None),
        ("handle_event", |table| table.handle_event = None),
        ("query_perf", |table| table.query_perf = None),
    ];
    let mut all_empty = sound();
    for (slot, clear) in empty {
        let mut table = sound();
        clear(&mut table);
        clear(&mut all_empty);
        let report = judge_table(&table, 1);
        assert_eq!(report.findings(), [TableFault::NullSlot(slot)]);
        assert_eq!(report.to_string(), format!("`{slot}` is NULL"));
        assert!(report.is_accepted(), "the core sees it only when it calls");
    }
    let slots: Vec<_> = empty
        .iter()
        .map(|(slot, _)| TableFault::NullSlot(slot))
        .collect();
    assert_eq!(judge_table(&all_empty, 1).findings(), slots);
    // What lies past the end is missing, not NULL.
    assert_eq!(
        cut::<40>(&all_empty, 1).findings(),
        [
            TableFault::ShorterTable {
                size: 40,
                first_missing: "open_port"
            },
            TableFault::NullSlot("open_device"),
            TableFault::NullSlot("close_device"),
        ]
    );
}

#[test]
fn names() {
    let long = "n".repeat(64);
    for (name, expected) in [
        (&b"plain"[..], None),
        (&long.as_bytes()[..63], None),
        (long.as_bytes(), Some(TableFault::LongName { length: 64 })),
        (b"", Some(TableFault::EmptyName)),
        (
            b"two words",
            Some(TableFault::WhiteSpaceInName {
                name: "two words".into(),
            }),
        ),
        (
            b"tab\t",
            Some(TableFault::WhiteSpaceInName {
                name: "tab\t".into(),
            }),
        ),
        (
            b"\xff",
            Some(TableFault::NameNotUtf8 {
                name: "\\xff".into(),
            }),
        ),
    ] {
        assert_eq!(judge_name(name), Vec::from_iter(expected.clone()));
        let mut table = sound();
        let text = CString::new(name).unwrap();
        table.name = text.as_ptr();
        let report = judge_table(&table, 1);
        assert_eq!(report.findings(), Vec::from_iter(expected));
        assert_eq!(report.name(), Some(text.as_c_str()));
        assert!(report.is_accepted());
    }
}

#[test]
fn bytes_that_are_not_all_there() {
    assert_eq!(
        judge_bytes(&[0; 7], 1).findings(),
        [TableFault::Truncated {
            size: 0,
            available: 7
        }]
    );
    let mut bytes = [0xff; 24];
    bytes[..8].copy_from_slice(&120_usize.to_ne_bytes());
    bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
    assert_eq!(
        judge_bytes(&bytes, 1).findings(),
        [TableFault::Truncated {
            size: 120,
            available: 24
        }]
    );
}

#[test]
fn queries() {
    unsafe extern "C" fn refuses(_: *mut *mut acm_provider, _: *mut u32) -> c_int {
        -3
    }
    unsafe extern "C" fn forgets(_: *mut *mut acm_provider, _: *mut u32) -> c_int {
        0
    }
    unsafe extern "C" fn forgets_version(table: *mut *mut acm_provider, _: *mut u32) -> c_int {
        // SAFETY: the caller passes a pointer to a variable.
        unsafe { *table = Box::into_raw(Box::new(sound())) };
        0
    }
    unsafe extern "C" fn answers(table: *mut *mut acm_provider, version: *mut u32) -> c_int {
        // SAFETY: the caller passes pointers to variables.
        unsafe {
            *table = Box::into_raw(Box::new(sound()));
            *version = 1;
        }
        0
    }
    let ask = |query: provider_query_fn| {
        // SAFETY: the functions above store complete tables or none.
        let (table, report) = unsafe { judge_query(query) };
        if !table.is_null() {
            // SAFETY: made by Box::into_raw above, and not shared.
            drop(unsafe { Box::from_raw(table.cast_mut()) });
        }
        (table.is_null(), report)
    };
    let (no_table, report) = ask(refuses);
    assert!(no_table && !report.is_accepted());
    assert_eq!(report.findings(), [TableFault::QueryFailed { result: -3 }]);
    assert_eq!(ask(forgets).1.findings(), [TableFault::NullTable]);
    assert_eq!(
        ask(forgets_version).1.findings(),
        [TableFault::OlderVersion { version: 0 }]
    );
    let (no_table, report) = ask(answers);
    assert!(!no_table && report.is_sound());
}
