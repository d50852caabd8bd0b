//! `provider_query`: loads the provider of a library that the core has just opened.

use std::ffi::{CStr, c_int};

use crate::abi::{ACM_MAX_PROV_NAME, ACM_PROV_VERSION, acm_provider};
use crate::door::callbacks;
use crate::door::check;
use crate::door::pin;
use crate::door::slot::{Exported, Loaded, Slot};
use crate::host::guard::{self, Refusal};
use crate::host::{self, Host, HostTable, LogLevel};
use crate::provider::Error;
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::text::options::Options;

impl<P: Exported> Slot<P> {
    #[doc(hidden)]
    #[allow(
        clippy::new_without_default,
        reason = "made by macros only, in constants"
    )]
    pub const fn new() -> Self {
        const {
            assert!(
                is_name(P::NAME),
                "a provider's name has 1 to 63 bytes and no white space"
            )
        };
        let table = acm_provider {
            size: size_of::<acm_provider>(),
            // The interface that this crate implements, which need not be the newest.
            version: ACM_PROV_VERSION,
            name: P::NAME.as_ptr(),
            open_device: Some(callbacks::open_device::<P>),
            close_device: Some(callbacks::close_device::<P>),
            open_port: Some(callbacks::open_port::<P>),
            close_port: Some(callbacks::close_port::<P>),
            open_endpoint: Some(callbacks::open_endpoint::<P>),
            close_endpoint: Some(callbacks::close_endpoint::<P>),
            add_address: Some(callbacks::add_address::<P>),
            remove_address: Some(callbacks::remove_address::<P>),
            resolve: Some(callbacks::resolve::<P>),
            query: Some(callbacks::query::<P>),
            handle_event: Some(callbacks::handle_event::<P>),
            query_perf: Some(callbacks::query_perf::<P>),
        };
        Self::with_table(table)
    }
}

/// Whether ibacm_opts.cfg can name it: fields end at white space, and the core's messages hold 64 bytes with a NUL.
const fn is_name(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index].is_ascii_whitespace() {
            return false;
        }
        index += 1;
    }
    !bytes.is_empty() && bytes.len() < ACM_MAX_PROV_NAME
}

/// The exclusive right of one core in this process to open contexts, until dropped.
pub struct Turn {
    _taken: MutexGuard<'static, ()>,
}

/// Waits until no other core in this process has a [`Turn`]. A provider has only one place for its open contexts, so cores
/// that [`load`] a provider into their own process, such as tests on many threads, take turns.
pub fn turn() -> Turn {
    static TAKEN: Mutex<()> = Mutex::new(());
    Turn {
        _taken: TAKEN.lock(),
    }
}

/// Loads a provider into this process with the caller's functions, and returns its table, as `provider_query` does but
/// without an export.
///
/// For tests and for hosts in Rust. Loading again replaces the provider; close everything that the previous one
/// opened first, see [`turn`].
///
/// # Errors
/// The error of [`Provider::load`](crate::Provider::load).
///
/// # Safety
/// Each function of the table does what the core's function of its name does (acm_prov.h), on any thread.
pub unsafe fn load<P: Exported>(
    functions: &'static HostTable,
) -> Result<&'static acm_provider, Error> {
    let slot = P::slot();
    // SAFETY: the caller's promise.
    let host = unsafe { Host::new(functions, P::NAME, LogLevel::ALWAYS) };
    let options = match host.options_file() {
        Some(file) => Options::read(&file),
        None => Options::none(),
    };
    let host = host.with_options(&options);
    let loaded = P::load(&host, &options);
    report_undeclared::<P>(&host, &options);
    for report in options.reports() {
        host.log(LogLevel::ALWAYS, format_args!("{report}"));
    }
    *slot.loaded.write() = Some(Loaded {
        host,
        provider: Arc::new(loaded?),
    });
    Ok(slot.table())
}

/// Logs which options introspection does not show, for the provider's author.
fn report_undeclared<P: Exported>(host: &Host, read: &Options) {
    let options = Options::none();
    P::declare_options(&options);
    let declared = options.declared();
    for option in read.declared() {
        if !declared.iter().any(|known| known.name == option.name) {
            host.log(
                LogLevel::VERBOSE,
                format_args!(
                    "option {}: not read by declare_options, so introspection does not show it",
                    option.name
                ),
            );
        }
    }
}

/// Unloads the provider that [`load`] loaded into this process, and drops its state. Close everything that it opened
/// first, and do not use its table afterwards.
pub fn unload<P: Exported>() {
    let loaded = P::slot().loaded.write().take();
    // Outside the lock: dropping the provider may take long.
    drop(loaded);
}

/// The body of an exported `provider_query`.
///
/// # Safety
/// `info` and `version` are NULL or may be written.
#[doc(hidden)]
pub unsafe fn provider_query<P: Exported>(
    info: *mut *mut acm_provider,
    version: *mut u32,
) -> c_int {
    const REFUSED: c_int = -1;
    guard::enter("provider_query", P::slot().host().as_ref(), REFUSED, || {
        if info.is_null() || version.is_null() {
            return Err(Refusal::error("the core passed a NULL pointer"));
        }
        let table = load_into_core::<P>()?;
        // SAFETY: not NULL, and the caller's promise. The core only reads the table.
        unsafe {
            info.write(std::ptr::from_ref(table).cast_mut());
            version.write(table.version);
        }
        Ok(0)
    })
}

fn load_into_core<P: Exported>() -> Result<&'static acm_provider, Refusal> {
    let slot = P::slot();
    if slot.host().is_some() {
        return Ok(slot.table());
    }
    let functions = match HostTable::from_process() {
        Ok(functions) => slot.functions.get_or_init(|| functions),
        Err(missing) => {
            let name = P::NAME.to_string_lossy();
            // A daemon's standard error goes nowhere, so use its log if it has one.
            if let Some(log) = host::acm_write() {
                host::write(
                    log,
                    LogLevel::ALWAYS,
                    &format!("{name}: {missing}; not loaded"),
                );
            }
            return Err(Refusal::error(format_args!(
                "{name}: {missing}; not loaded"
            )));
        }
    };
    // SAFETY: the functions of the process that loads providers: a core's.
    let host = unsafe { Host::new(functions, P::NAME, LogLevel::ALWAYS) };
    let table = guard::enter("provider_query", Some(&host), None, || {
        // SAFETY: as above.
        unsafe { load::<P>(functions) }
            .map(Some)
            .map_err(|error| Refusal::error(format_args!("not loaded: {error}")))
    });
    let table = table.ok_or_else(|| Refusal::error("not loaded; the log says why"))?;
    // SAFETY: our own table, complete and constant.
    let report = unsafe { check::judge(table, table.version) };
    if !report.is_sound() {
        *slot.loaded.write() = None;
        return Err(Refusal::error(format_args!("not loaded: {report}")));
    }
    // From here on the core uses the library, so it must stay loaded.
    if let Err(error) = pin::pin_library(std::ptr::from_ref(table).cast()) {
        *slot.loaded.write() = None;
        return Err(Refusal::error(format_args!("not loaded: {error}")));
    }
    Ok(table)
}
