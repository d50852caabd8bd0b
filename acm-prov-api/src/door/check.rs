//! Checks whether `ibacm` accepts a provider, and names all faults.
//!
//! The core accepts a provider if its `provider_query` returns 0, the version that it stores is 1 and
//! the table's `size` equals that of the core's `struct acm_provider` (120 bytes on a
//! 64-bit machine). Apart from that it trusts the table: a NULL table, name or slot crashes the
//! daemon, at once or when it calls the slot. This module checks all of this and names every
//! fault. It depends on no other module of this crate, so that any host can use it:
//!
//! ```
//! use acm_prov_api::abi::{acm_provider, provider_query_fn};
//! use acm_prov_api::check::{TableFault, judge_query};
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
//! assert_eq!(report.findings(), [TableFault::NullTable]);
//! println!("{report}"); // provider_query returned 0 but stored no table
//! ```

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use core::mem::{offset_of, size_of};
use std::ffi::CString;

use thiserror::Error;

use crate::abi::{ACM_MAX_PROV_NAME, ACM_PROV_VERSION, acm_provider, provider_query_fn};

/// Bytes of the core's table.
const SIZE: usize = size_of::<acm_provider>();

/// A fault of a provider's table.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TableFault {
    /// `provider_query` returned an error.
    #[error("provider_query returned {result} instead of 0")]
    QueryFailed {
        /// Its return value.
        result: c_int,
    },
    /// `provider_query` returned 0 but stored no table.
    #[error("provider_query returned 0 but stored no table")]
    NullTable,
    /// The version is below the core's: built for an older interface, or not stored.
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
    /// The table's `size` is smaller than the core's.
    #[error(
        "a table of {size} bytes is older (shorter) than ibacm's {SIZE}: it ends before `{first_missing}`"
    )]
    ShorterTable {
        /// Bytes, as the table says.
        size: usize,
        /// The first field that does not fit into `size`.
        first_missing: &'static str,
    },
    /// The table's `size` is larger than the core's.
    #[error(
        "a table of {size} bytes is newer (longer) than ibacm's {SIZE}: build the provider for version {ACM_PROV_VERSION}"
    )]
    LongerTable {
        /// Bytes, as the table says.
        size: usize,
    },
    /// The table's `size` exceeds the bytes passed to [`judge_bytes`].
    #[error("the table's size is {size} bytes, but only {available} are there")]
    Truncated {
        /// Bytes, as the table says; 0 if `size` itself could not be read.
        size: usize,
        /// The bytes passed.
        available: usize,
    },
    /// The version in the table differs from the one that `provider_query` stored.
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
    /// The name is too long for the core's field.
    #[error(
        "the name has {length} bytes; ibacm shows and compares only {}",
        ACM_MAX_PROV_NAME - 1
    )]
    LongName {
        /// Bytes of the name, without its NUL.
        length: usize,
    },
    /// The name cannot appear in the options file, whose fields end at white space.
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

/// The reaction of `ibacm` to a [`TableFault`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consequence {
    /// It unloads the provider and continues without it.
    Refused,
    /// The daemon crashes while it loads the provider.
    CrashAtLoad,
    /// The daemon crashes when it calls the slot.
    CrashAtCall,
    /// The provider runs, but something does not work or confuses the operator.
    Trouble,
}

impl TableFault {
    /// Returns how `ibacm` reacts.
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

/// All faults of a provider; printed on one line.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    findings: Vec<TableFault>,
    name: Option<CString>,
}

impl Report {
    /// Returns the faults, in the order in which the core would meet them.
    pub fn findings(&self) -> &[TableFault] {
        &self.findings
    }

    /// Whether there is no fault.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether the core would load the provider; it may still fail later.
    pub fn is_accepted(&self) -> bool {
        !self.findings.iter().any(|finding| {
            matches!(
                finding.consequence(),
                Consequence::Refused | Consequence::CrashAtLoad
            )
        })
    }

    /// Returns the provider's name, if there is one and the table could be read that far.
    pub fn name(&self) -> Option<&CStr> {
        self.name.as_deref()
    }

    fn of(finding: TableFault) -> Self {
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

/// Calls `provider_query` as the core does and checks the result. The table is NULL unless
/// `provider_query` returned 0 and stored one.
///
/// # Safety
///
/// `query` is the `provider_query` of a library that stays loaded, and the table that it stores meets
/// the conditions of [`judge`].
pub unsafe fn judge_query(query: provider_query_fn) -> (*const acm_provider, Report) {
    let mut table = core::ptr::null_mut();
    let mut version = 0;
    // SAFETY: the caller vouches for the function; both pointers are to live variables.
    let result = unsafe { query(&raw mut table, &raw mut version) };
    if result != 0 {
        return (
            core::ptr::null(),
            Report::of(TableFault::QueryFailed { result }),
        );
    }
    // SAFETY: the caller vouches for the table.
    (table, unsafe { judge(table, version) })
}

/// Checks the table and the version that a `provider_query` stored when it returned 0.
///
/// Reads the table's `size` first and nothing beyond it. If the version is not the core's, the
/// other fields may mean anything, so it does not read them.
///
/// # Safety
///
/// `table` is NULL, or points to as many readable bytes as its first word (`size`) says and at least
/// to that word. `name`, if it lies within, is NULL or a NUL-terminated string.
pub unsafe fn judge(table: *const acm_provider, version: u32) -> Report {
    if table.is_null() {
        return Report::of(TableFault::NullTable);
    }
    let start = table.cast::<u8>();
    let report = judge_fields(version, usize::MAX, &Live(start));
    let has_name = version == ACM_PROV_VERSION
        && !report.findings.iter().any(|finding| match finding {
            TableFault::ShorterTable { size, .. } => *size < SLOTS[0].1,
            TableFault::NullName => true,
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

/// Checks a copy of a table's bytes, for instance from another process, and the version that its
/// `provider_query` stored. Follows no pointers: of the name it only checks that it is not NULL.
pub fn judge_bytes(table: &[u8], version: u32) -> Report {
    judge_fields(version, table.len(), &table)
}

/// Checks a provider's name, without its NUL.
pub fn judge_name(name: &[u8]) -> Vec<TableFault> {
    let mut findings = Vec::new();
    if name.is_empty() {
        findings.push(TableFault::EmptyName);
    }
    if name.len() >= ACM_MAX_PROV_NAME {
        findings.push(TableFault::LongName { length: name.len() });
    }
    match core::str::from_utf8(name) {
        Ok(text) if text.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            findings.push(TableFault::WhiteSpaceInName {
                name: text.to_owned(),
            });
        }
        Ok(_) => {}
        Err(_) => findings.push(TableFault::NameNotUtf8 {
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

/// The callbacks and their offsets in the table.
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

/// Returns the first field that ends beyond `size`.
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

/// The source of a table's bytes.
trait Source {
    /// Returns the bytes at `offset`. They lie within the table's size, within the available bytes, and
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

/// Checks everything that needs no pointer to be followed. `available` bytes can be read.
fn judge_fields(version: u32, available: usize, source: &impl Source) -> Report {
    if available < size_of::<usize>() {
        return Report::of(TableFault::Truncated { size: 0, available });
    }
    let mut findings = Vec::new();
    if version < ACM_PROV_VERSION {
        findings.push(TableFault::OlderVersion { version });
    } else if version > ACM_PROV_VERSION {
        findings.push(TableFault::NewerVersion { version });
    }
    let size = usize::from_ne_bytes(source.bytes(offset_of!(acm_provider, size)));
    if size < SIZE {
        findings.push(TableFault::ShorterTable {
            size,
            first_missing: first_missing(size),
        });
    } else if size > SIZE {
        findings.push(TableFault::LongerTable { size });
    }
    if available < size.min(SIZE) {
        findings.push(TableFault::Truncated { size, available });
    }
    if version == ACM_PROV_VERSION {
        let end = size.min(SIZE).min(available);
        let version_at = offset_of!(acm_provider, version);
        if version_at + size_of::<u32>() <= end {
            let table = u32::from_ne_bytes(source.bytes(version_at));
            if table != version {
                findings.push(TableFault::VersionsDiffer {
                    table,
                    query: version,
                });
            }
        }
        let is_null = |offset| {
            offset + size_of::<usize>() <= end && source.bytes(offset) == [0; size_of::<usize>()]
        };
        if is_null(offset_of!(acm_provider, name)) {
            findings.push(TableFault::NullName);
        }
        for (slot, offset) in SLOTS {
            if is_null(offset) {
                findings.push(TableFault::NullSlot(slot));
            }
        }
    }
    Report {
        findings,
        name: None,
    }
}

#[cfg(test)]
mod tests;
