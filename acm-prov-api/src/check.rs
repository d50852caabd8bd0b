//! Is this a provider that `ibacm` takes, and if not, what exactly is wrong?
//!
//! The core takes a provider if its `provider_query` returns 0, the version that it stores is 1 and
//! the table's `size` is exactly that of the core's own `struct acm_provider` (120 bytes on a
//! 64-bit machine). Beyond that it trusts the table: a NULL table, name or slot crashes the
//! daemon, now or when the slot is called. This module judges the same things and names every one
//! that differs. It needs nothing else of this crate, so that any host can use it:
//!
//! ```
//! use acm_prov_api::abi::{acm_provider, provider_query_fn};
//! use acm_prov_api::check::{Finding, judge_query};
//!
//! # unsafe extern "C" fn from_dlsym(info: *mut *mut acm_provider, version: *mut u32) -> i32 {
//! #     // SAFETY: the caller passes pointers to variables.
//! #     unsafe { *info = std::ptr::null_mut(); *version = 1; }
//! #     0
//! # }
//! let provider_query: provider_query_fn = from_dlsym;
//! // SAFETY: the library that the function is from stays loaded.
//! let (table, report) = unsafe { judge_query(provider_query) };
//! assert!(table.is_null());
//! assert!(!report.is_accepted());
//! assert_eq!(report.findings(), [Finding::NullTable]);
//! println!("{report}"); // provider_query returned 0 but stored no table
//! ```

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use core::mem::{offset_of, size_of};
use std::ffi::CString;

use thiserror::Error;

use crate::abi::{ACM_MAX_PROV_NAME, ACM_PROV_VERSION, acm_provider, provider_query_fn};

/// Bytes of the table that the core knows.
const SIZE: usize = size_of::<acm_provider>();

/// One thing that is wrong with a provider.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Finding {
    /// `provider_query` refused to be loaded.
    #[error("provider_query returned {result} instead of 0")]
    QueryFailed {
        /// What it returned.
        result: c_int,
    },
    /// `provider_query` returned 0 but stored no table.
    #[error("provider_query returned 0 but stored no table")]
    NullTable,
    /// The version is below the core's: built for another, older interface, or never stored.
    #[error(
        "interface version {version} is older than ibacm's {ACM_PROV_VERSION}: \
         build the provider for version {ACM_PROV_VERSION} and store it in provider_query"
    )]
    OlderVersion {
        /// The version that `provider_query` stored.
        version: u32,
    },
    /// The version is above the core's.
    #[error(
        "interface version {version} is newer than ibacm's {ACM_PROV_VERSION}: \
         build the provider for version {ACM_PROV_VERSION}"
    )]
    NewerVersion {
        /// The version that `provider_query` stored.
        version: u32,
    },
    /// The table says that it is shorter than the core's.
    #[error(
        "a table of {size} bytes is older (shorter) than ibacm's {SIZE}: it ends before `{first_missing}`"
    )]
    ShorterTable {
        /// Bytes, as the table says.
        size: usize,
        /// The first field that does not lie wholly within them.
        first_missing: &'static str,
    },
    /// The table says that it is longer than the core's.
    #[error(
        "a table of {size} bytes is newer (longer) than ibacm's {SIZE}: build the provider for version {ACM_PROV_VERSION}"
    )]
    LongerTable {
        /// Bytes, as the table says.
        size: usize,
    },
    /// The table says that it has bytes that [`judge_bytes`] was not given.
    #[error("the table says that it has {size} bytes, but only {available} are there")]
    Truncated {
        /// Bytes, as the table says; 0 if not even that could be read.
        size: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The version inside the table is not the one that `provider_query` stored.
    #[error("the table says version {table}, provider_query says {query}: they should be the same")]
    VersionsDiffer {
        /// The table's version.
        table: u32,
        /// The version that `provider_query` stored.
        query: u32,
    },
    /// The table has no name.
    #[error("`name` is NULL")]
    NullName,
    /// A slot of the table is NULL.
    #[error("`{0}` is NULL")]
    NullSlot(
        /// The slot's name in `acm_prov.h`.
        &'static str,
    ),
    /// The name is empty.
    #[error("the name is empty")]
    EmptyName,
    /// The name does not fit where the core puts it.
    #[error(
        "the name has {length} bytes; ibacm shows and compares only {}",
        ACM_MAX_PROV_NAME - 1
    )]
    LongName {
        /// Bytes of the name, without its NUL.
        length: usize,
    },
    /// The name cannot be written in the options file, whose fields end at white space.
    #[error(
        "the name {name:?} contains white space or a control character: no line of the options file can name it"
    )]
    WhiteSpaceInName {
        /// The name.
        name: String,
    },
    /// The name is not UTF-8.
    #[error("the name {name} is not UTF-8")]
    NameNotUtf8 {
        /// The name, with escapes.
        name: String,
    },
}

/// What `ibacm` does about a [`Finding`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consequence {
    /// It unloads the provider and goes on without it.
    Refused,
    /// The daemon crashes while it loads the provider.
    CrashAtLoad,
    /// The daemon crashes when it calls the slot.
    CrashAtCall,
    /// The provider runs, and something about it does not work or confuses.
    Trouble,
}

impl Finding {
    /// What `ibacm` does about it.
    pub fn consequence(&self) -> Consequence {
        match self {
            Self::QueryFailed { .. }
            | Self::OlderVersion { .. }
            | Self::NewerVersion { .. }
            | Self::ShorterTable { .. }
            | Self::LongerTable { .. } => Consequence::Refused,
            Self::NullTable | Self::Truncated { .. } | Self::NullName => Consequence::CrashAtLoad,
            Self::NullSlot(_) => Consequence::CrashAtCall,
            Self::VersionsDiffer { .. }
            | Self::EmptyName
            | Self::LongName { .. }
            | Self::WhiteSpaceInName { .. }
            | Self::NameNotUtf8 { .. } => Consequence::Trouble,
        }
    }
}

/// Everything that is wrong with a provider; shown on one line.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    findings: Vec<Finding>,
    name: Option<CString>,
}

impl Report {
    /// What is wrong, in the order in which the core would stumble over it.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether the core would load the provider, which does not mean that it would run well.
    pub fn is_accepted(&self) -> bool {
        !self.findings.iter().any(|finding| {
            matches!(
                finding.consequence(),
                Consequence::Refused | Consequence::CrashAtLoad
            )
        })
    }

    /// The provider's name, if there is one and the table was followed that far.
    pub fn name(&self) -> Option<&CStr> {
        self.name.as_deref()
    }

    fn of(finding: Finding) -> Self {
        Self {
            findings: vec![finding],
            name: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return f.write_str("nothing is wrong");
        }
        for (i, finding) in self.findings.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{finding}")?;
        }
        Ok(())
    }
}

/// Calls `provider_query` as the core does and judges what it gives. The table is NULL unless
/// `provider_query` returned 0 and stored one.
///
/// # Safety
///
/// `query` is the `provider_query` of a library that stays loaded, and the table that it stores is
/// as [`judge`] wants it.
pub unsafe fn judge_query(query: provider_query_fn) -> (*const acm_provider, Report) {
    let mut table = core::ptr::null_mut();
    let mut version = 0;
    // SAFETY: the caller vouches for the function; both pointers are to live variables.
    let result = unsafe { query(&raw mut table, &raw mut version) };
    if result != 0 {
        return (
            core::ptr::null(),
            Report::of(Finding::QueryFailed { result }),
        );
    }
    // SAFETY: the caller vouches for the table.
    (table, unsafe { judge(table, version) })
}

/// Judges the table and the version that a `provider_query` stored when it returned 0.
///
/// Reads the table's `size` first and nothing beyond it. When the version is not the core's the
/// other fields may mean anything, and are left alone.
///
/// # Safety
///
/// `table` is NULL, or points to as many readable bytes as its first word (`size`) says and at least
/// to that word. `name`, if it lies within, is NULL or a NUL-terminated string.
pub unsafe fn judge(table: *const acm_provider, version: u32) -> Report {
    if table.is_null() {
        return Report::of(Finding::NullTable);
    }
    let start = table.cast::<u8>();
    let report = judge_fields(version, usize::MAX, &Live(start));
    let has_name = version == ACM_PROV_VERSION
        && !report.findings.iter().any(|finding| match finding {
            Finding::ShorterTable { size, .. } => *size < SLOTS[0].1,
            Finding::NullName => true,
            _ => false,
        });
    if !has_name {
        return report;
    }
    // SAFETY: the name lies within the table's size and is not NULL; the caller vouches for the
    // string. Nothing is assumed about alignment.
    let name = unsafe {
        let field = start
            .add(offset_of!(acm_provider, name))
            .cast::<*const c_char>();
        CStr::from_ptr(field.read_unaligned())
    };
    let mut findings = report.findings;
    findings.extend(judge_name(name.to_bytes()));
    Report {
        findings,
        name: Some(name.to_owned()),
    }
}

/// Judges a copy of a table's bytes, for instance of another process's, and the version that its
/// `provider_query` stored. Pointers are not followed: the name is only seen to be there.
pub fn judge_bytes(table: &[u8], version: u32) -> Report {
    judge_fields(version, table.len(), &table)
}

/// Judges a provider's name, without its NUL.
pub fn judge_name(name: &[u8]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if name.is_empty() {
        findings.push(Finding::EmptyName);
    }
    if name.len() >= ACM_MAX_PROV_NAME {
        findings.push(Finding::LongName { length: name.len() });
    }
    match core::str::from_utf8(name) {
        Ok(text) if text.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            findings.push(Finding::WhiteSpaceInName {
                name: text.to_owned(),
            });
        }
        Ok(_) => {}
        Err(_) => findings.push(Finding::NameNotUtf8 {
            name: name.escape_ascii().to_string(),
        }),
    }
    findings
}

macro_rules! slots {
    ($($slot:ident),* $(,)?) => {
        [$( (stringify!($slot), offset_of!(acm_provider, $slot)) ),*]
    };
}

/// The callbacks and where they stand in the table.
const SLOTS: [(&str, usize); 12] = slots![
    open_device,
    close_device,
    open_port,
    close_port,
    open_endpoint,
    close_endpoint,
    add_address,
    remove_address,
    resolve,
    query,
    handle_event,
    query_perf,
];

/// The first field that ends behind `size`.
fn first_missing(size: usize) -> &'static str {
    let head = [
        ("size", offset_of!(acm_provider, size) + size_of::<usize>()),
        (
            "version",
            offset_of!(acm_provider, version) + size_of::<u32>(),
        ),
        ("name", offset_of!(acm_provider, name) + size_of::<usize>()),
    ];
    head.into_iter()
        .chain(SLOTS.map(|(slot, offset)| (slot, offset + size_of::<usize>())))
        .find(|(_, end)| *end > size)
        .map_or("the end", |(field, _)| field)
}

/// Where a table's bytes come from.
trait Source {
    /// The bytes at `offset`. They lie within both the table's size and what is available, and
    /// within one field.
    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N];
}

impl Source for &[u8] {
    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self[offset..offset + N]);
        bytes
    }
}

/// A table in this process's memory, for which the caller of [`judge`] vouches.
struct Live(*const u8);

impl Source for Live {
    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: only `judge` makes a `Live`, and its caller vouches for the table's first word
        // and as many bytes as that says; `judge_fields` asks for no others, nor for padding.
        // Nothing is assumed about alignment.
        unsafe { self.0.add(offset).cast::<[u8; N]>().read_unaligned() }
    }
}

/// Judges all that can be told without following a pointer. `available` bytes can be had.
fn judge_fields(version: u32, available: usize, source: &impl Source) -> Report {
    if available < size_of::<usize>() {
        return Report::of(Finding::Truncated { size: 0, available });
    }
    let mut findings = Vec::new();
    if version < ACM_PROV_VERSION {
        findings.push(Finding::OlderVersion { version });
    } else if version > ACM_PROV_VERSION {
        findings.push(Finding::NewerVersion { version });
    }
    let size = usize::from_ne_bytes(source.bytes(offset_of!(acm_provider, size)));
    if size < SIZE {
        findings.push(Finding::ShorterTable {
            size,
            first_missing: first_missing(size),
        });
    } else if size > SIZE {
        findings.push(Finding::LongerTable { size });
    }
    if available < size.min(SIZE) {
        findings.push(Finding::Truncated { size, available });
    }
    if version == ACM_PROV_VERSION {
        let end = size.min(SIZE).min(available);
        let version_at = offset_of!(acm_provider, version);
        if version_at + size_of::<u32>() <= end {
            let table = u32::from_ne_bytes(source.bytes(version_at));
            if table != version {
                findings.push(Finding::VersionsDiffer {
                    table,
                    query: version,
                });
            }
        }
        let is_null = |offset| {
            offset + size_of::<usize>() <= end && source.bytes(offset) == [0; size_of::<usize>()]
        };
        if is_null(offset_of!(acm_provider, name)) {
            findings.push(Finding::NullName);
        }
        for (slot, offset) in SLOTS {
            if is_null(offset) {
                findings.push(Finding::NullSlot(slot));
            }
        }
    }
    Report {
        findings,
        name: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::c_void;

    use crate::abi::{
        Be64, acm_address, acm_device, acm_endpoint, acm_msg, acm_port, ibv_event_type,
    };

    unsafe extern "C" fn open_device(_: *const acm_device, _: *mut *mut c_void) -> c_int {
        0
    }
    unsafe extern "C" fn open_port(
        _: *const acm_port,
        _: *mut c_void,
        _: *mut *mut c_void,
    ) -> c_int {
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
        // SAFETY: the table is whole; where a test states another size, it is a smaller one or the
        // fields past the known ones are not looked at; the names are C strings.
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
        assert_eq!(report.findings(), [Finding::NullTable]);
        assert!(!report.is_accepted());
    }

    #[test]
    fn versions() {
        for (version, finding) in [
            (0, Finding::OlderVersion { version: 0 }),
            (2, Finding::NewerVersion { version: 2 }),
            (u32::MAX, Finding::NewerVersion { version: u32::MAX }),
        ] {
            let mut table = sound();
            table.version = version;
            // Not to be followed: with another version it may be anything.
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
                Finding::NewerVersion { version: 2 },
                Finding::LongerTable { size: 128 }
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
            [Finding::VersionsDiffer { table: 3, query: 1 }]
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
            assert_eq!(report.findings(), [Finding::LongerTable { size }]);
            assert!(!report.is_accepted());
            assert!(report.to_string().contains("newer"), "{report}");
            assert_eq!(report.name(), Some(c"sound"));
        }
    }

    #[test]
    fn a_shorter_table_is_older_and_is_not_read_past_its_end() {
        let table = sound();
        let shorter = |size, first_missing| Finding::ShorterTable {
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
            [Finding::ShorterTable {
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
        assert_eq!(report.findings(), [Finding::NullName]);
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
            assert_eq!(report.findings(), [Finding::NullSlot(slot)]);
            assert_eq!(report.to_string(), format!("`{slot}` is NULL"));
            assert!(report.is_accepted(), "the core sees it only when it calls");
        }
        let slots: Vec<_> = empty
            .iter()
            .map(|(slot, _)| Finding::NullSlot(slot))
            .collect();
        assert_eq!(judge_table(&all_empty, 1).findings(), slots);
        // What lies past the end is missing, not NULL.
        assert_eq!(
            cut::<40>(&all_empty, 1).findings(),
            [
                Finding::ShorterTable {
                    size: 40,
                    first_missing: "open_port"
                },
                Finding::NullSlot("open_device"),
                Finding::NullSlot("close_device"),
            ]
        );
    }

    #[test]
    fn names() {
        let long = "n".repeat(64);
        for (name, expected) in [
            (&b"plain"[..], None),
            (&long.as_bytes()[..63], None),
            (long.as_bytes(), Some(Finding::LongName { length: 64 })),
            (b"", Some(Finding::EmptyName)),
            (
                b"two words",
                Some(Finding::WhiteSpaceInName {
                    name: "two words".into(),
                }),
            ),
            (
                b"tab\t",
                Some(Finding::WhiteSpaceInName {
                    name: "tab\t".into(),
                }),
            ),
            (
                b"\xff",
                Some(Finding::NameNotUtf8 {
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
            [Finding::Truncated {
                size: 0,
                available: 7
            }]
        );
        let mut bytes = [0xff; 24];
        bytes[..8].copy_from_slice(&120_usize.to_ne_bytes());
        bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
        assert_eq!(
            judge_bytes(&bytes, 1).findings(),
            [Finding::Truncated {
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
            // SAFETY: the functions above store whole tables or none.
            let (table, report) = unsafe { judge_query(query) };
            if !table.is_null() {
                // SAFETY: made by Box::into_raw above, and nobody else has it.
                drop(unsafe { Box::from_raw(table.cast_mut()) });
            }
            (table.is_null(), report)
        };
        let (no_table, report) = ask(refuses);
        assert!(no_table && !report.is_accepted());
        assert_eq!(report.findings(), [Finding::QueryFailed { result: -3 }]);
        assert_eq!(ask(forgets).1.findings(), [Finding::NullTable]);
        assert_eq!(
            ask(forgets_version).1.findings(),
            [Finding::OlderVersion { version: 0 }]
        );
        let (no_table, report) = ask(answers);
        assert!(!no_table && report.is_sound());
    }
}
