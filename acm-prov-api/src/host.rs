//! What the core offers to a provider: log, options file, SA requests, GIDs, counters, port attributes.
//!
//! The services are a [table of functions](HostTable). [`HostTable::from_process`] fills it from the symbols of the
//! process that loaded the provider; a test or a stand-in core fills it with functions of its own. Nothing is linked, so
//! a provider's unit tests need no core, and a core that lacks a function is named in a clear message.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::path::PathBuf;

use crate::abi::{
    AcmCounter, acm_alloc_sa_mad_fn, acm_convert_mtu_fn, acm_convert_rate_fn, acm_free_sa_mad_fn,
    acm_get_gid_fn, acm_get_opts_file_fn, acm_get_rate_fn, acm_gid_index_fn,
    acm_increment_counter_fn, acm_path_comp_mask_fn, acm_query_response_fn,
    acm_resolve_response_fn, acm_send_sa_mad_fn, acm_write_fn, ibv_mtu, ibv_query_pkey_fn,
    ibv_query_port_fn, ibv_rate,
};

use crate::clock::Moment;
use crate::host::log_limit::LogLimit;
use crate::text::options::{Options, SaLimits};

pub(crate) mod counters;
pub(crate) mod guard;
pub(crate) mod log_limit;
mod lookup;
pub(crate) mod own_counters;

pub(crate) use lookup::acm_write;

/// How a line reaches the log.
#[derive(Clone, Copy)]
pub enum LogWriter {
    /// The core's `acm_write` (acm_prov.h), a printf-like function.
    AcmWrite(acm_write_fn),
    /// A plain function, for hosts that are written in Rust: the level and the text, which ends in a line feed.
    Plain(fn(level: c_int, text: &CStr)),
}

/// The core's functions as acm_prov.h declares them, and two of libibverbs'.
///
/// Every function may be called from any thread. Whoever fills the table promises that each entry does what the core's
/// function of that name does, for as long as the process lives.
#[derive(Clone, Copy)]
#[allow(
    missing_docs,
    reason = "each field is the core's function of that name"
)]
pub struct HostTable {
    pub acm_write: LogWriter,
    pub acm_get_opts_file: acm_get_opts_file_fn,
    pub acm_increment_counter: acm_increment_counter_fn,
    pub acm_gid_index: acm_gid_index_fn,
    pub acm_get_gid: acm_get_gid_fn,
    pub acm_path_comp_mask: acm_path_comp_mask_fn,
    pub acm_resolve_response: acm_resolve_response_fn,
    pub acm_query_response: acm_query_response_fn,
    pub acm_get_rate: acm_get_rate_fn,
    pub acm_convert_mtu: acm_convert_mtu_fn,
    pub acm_convert_rate: acm_convert_rate_fn,
    pub acm_alloc_sa_mad: acm_alloc_sa_mad_fn,
    pub acm_free_sa_mad: acm_free_sa_mad_fn,
    pub acm_send_sa_mad: acm_send_sa_mad_fn,
    pub ibv_query_port: ibv_query_port_fn,
    pub ibv_query_pkey: ibv_query_pkey_fn,
    /// Not ibacm's: a core that tests providers exports it, see [`ProviderFault`].
    pub acm_provider_fault: Option<acm_provider_fault_fn>,
}

/// A fault of a provider that the SDK keeps from the core.
///
/// Each is logged. A core that tests providers exports `void acm_provider_fault(int kind, const char *text)`, which the SDK
/// then calls for each one, on the thread of the fault. A provider in C may call it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct ProviderFault(pub c_int);

impl ProviderFault {
    /// A panic in a callback or on a guarded thread.
    pub const CAUGHT_PANIC: Self = Self(1);
    /// A request that the provider dropped: the SDK answers ENODATA.
    pub const DROPPED_REQUEST: Self = Self(2);
}

/// `acm_provider_fault`: the kind and a terminated text without a line feed, good during the call.
#[allow(non_camel_case_types, reason = "as the other functions of the core")]
pub type acm_provider_fault_fn = unsafe extern "C" fn(kind: ProviderFault, text: *const c_char);

/// Functions of the core that the process does not have: this is no ibacm, or one of another generation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host lacks {}; load this provider with ibacm 13 or later", .names.join(", "))]
pub struct MissingHostFunctions {
    /// Their names, in the order of [`HostTable`].
    pub names: Vec<&'static str>,
}

/// How much an operator wants to read (`log_level` in ibacm_opts.cfg).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLevel(pub c_int);

impl LogLevel {
    /// Always written: what an operator must know.
    pub const ALWAYS: Self = Self(0);
    /// Written from `log_level 1` on: openings, closings, unusual but harmless things.
    pub const VERBOSE: Self = Self(1);
    /// Written with `log_level 2`: every operation.
    pub const OPERATION: Self = Self(2);
}

/// The core that loaded this provider.
#[derive(Clone, Copy)]
pub struct Host {
    table: &'static HostTable,
    provider: &'static CStr,
    log_level: LogLevel,
    sa_limits: SaLimits,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("provider", &self.provider)
            .field("log_level", &self.log_level)
            .finish()
    }
}

impl Host {
    /// Binds a table to the provider that uses it. Lines above `log_level` are not even formatted.
    ///
    /// # Safety
    /// Each function of the table does what the core's function of its name does (acm_prov.h), on any thread.
    pub unsafe fn new(
        table: &'static HostTable,
        provider: &'static CStr,
        log_level: LogLevel,
    ) -> Self {
        Self {
            table,
            provider,
            log_level,
            sa_limits: Options::parse("", &b""[..]).sa_limits(),
        }
    }

    pub(crate) fn table(&self) -> &'static HostTable {
        self.table
    }

    /// The same host with the core's own options that the operator set.
    pub(crate) fn with_options(self, options: &Options) -> Self {
        Self {
            log_level: LogLevel(options.log_level()),
            sa_limits: options.sa_limits(),
            ..self
        }
    }

    /// How long the core tries a MAD, and how many of a port it sends at a time.
    pub(crate) fn sa_limits(&self) -> SaLimits {
        self.sa_limits
    }

    /// Whether a line of `level` would be written.
    pub fn logs(&self, level: LogLevel) -> bool {
        level <= self.log_level
    }

    /// Writes one line to the core's log, with the provider's name in front.
    ///
    /// Control characters are escaped: text from the network cannot forge a line.
    pub fn log(&self, level: LogLevel, text: fmt::Arguments<'_>) {
        if self.logs(level) {
            write(
                self.table.acm_write,
                level,
                &format!("{}: {text}", self.provider.to_string_lossy()),
            );
        }
    }

    /// Writes a line whatever the log level, unless too many came through `limit` lately.
    pub(crate) fn log_fault(&self, limit: &LogLimit, text: fmt::Arguments<'_>) {
        match limit.admits(Moment::now()) {
            Some(0) => self.log(LogLevel::ALWAYS, text),
            Some(count) => self.log(
                LogLevel::ALWAYS,
                format_args!("{text} ({count} lines like this were held back)"),
            ),
            None => {}
        }
    }

    /// Counts a fault of the provider's, logs it as [`log_fault`](Self::log_fault) does, and reports it to a core that tests providers.
    pub(crate) fn provider_fault(
        &self,
        kind: ProviderFault,
        limit: &LogLimit,
        text: fmt::Arguments<'_>,
    ) {
        own_counters::count_fault(kind);
        self.log_fault(limit, text);
        if let Some(report) = self.table.acm_provider_fault
            && let Ok(text) = CString::new(printable(&text.to_string()))
        {
            // SAFETY: a terminated string, which outlives the call.
            unsafe { report(kind, text.as_ptr()) };
        }
    }

    /// The path of ibacm_opts.cfg that the core itself reads.
    pub fn options_file(&self) -> Option<PathBuf> {
        options_file(self.table)
    }

    /// `acm_convert_mtu`: the IB code (1..=5) of an MTU in bytes.
    pub fn mtu_code(&self, bytes: i32) -> ibv_mtu {
        // SAFETY: a pure function of the core.
        unsafe { (self.table.acm_convert_mtu)(bytes) }
    }

    /// `acm_convert_rate`: the `ibv_rate` code of a rate in Gb/s.
    pub fn rate_code(&self, gbps: i32) -> ibv_rate {
        // SAFETY: a pure function of the core.
        unsafe { (self.table.acm_convert_rate)(gbps) }
    }

    /// Counts in the core's own set. The core itself counts errors, requests and requests without data; a provider adds
    /// the address and route counters only, see [`EndpointHandle::count`](crate::EndpointHandle::count).
    pub(crate) fn increment_counter(&self, counter: AcmCounter) {
        // SAFETY: the core checks the range.
        unsafe { (self.table.acm_increment_counter)(counter) }
    }
}

pub(crate) fn options_file(table: &HostTable) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: a getter without arguments.
    let path = unsafe { (table.acm_get_opts_file)() };
    if path.is_null() {
        return None;
    }
    // SAFETY: the core keeps the path in a global for as long as it lives.
    let path = unsafe { CStr::from_ptr(path) };
    Some(std::ffi::OsStr::from_bytes(path.to_bytes()).into())
}

/// Escapes control characters.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if character.is_control() {
            printable.extend(character.escape_default())
        } else {
            printable.push(character)
        }
    }
    printable
}

/// Writes `text` as one line.
pub(crate) fn write(writer: LogWriter, level: LogLevel, text: &str) {
    let mut line = printable(text);
    line.push('\n');
    // No NUL is left in the line: it is a control character.
    let Ok(line) = CString::new(line) else { return };
    match writer {
        // SAFETY: "%s" takes one string, which outlives the call; the text itself is never a format.
        LogWriter::AcmWrite(acm_write) => unsafe {
            acm_write(level.0, c"%s".as_ptr(), line.as_ptr())
        },
        LogWriter::Plain(plain) => plain(level.0, &line),
    }
}
