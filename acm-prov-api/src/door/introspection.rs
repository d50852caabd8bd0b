//! A provider's description, readable without starting the provider.
//!
//! Besides `provider_query`, a library made by [`export_provider!`](crate::export_provider) exports an abi_stable root
//! module: name and version of the provider, of this SDK and of the C interface, the options that it reads, the counters
//! that it keeps. [`read`] opens it with abi_stable's check of every type's layout. A provider in C has none.

use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};

use abi_stable::StableAbi;
use abi_stable::library::{LibraryError, RootModule, lib_header_from_path};
use abi_stable::package_version_strings;
use abi_stable::prefix_type::PrefixTypeTrait as _;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RSlice, RStr};

use crate::abi::{ACM_PROV_VERSION, AcmCounter};
use crate::door::shown_counters;
use crate::door::slot::Exported;
use crate::host::own_counters::Counter;
use crate::text::options::{OptionInfo, Options};

/// A provider's description.
#[derive(Clone, Debug, StableAbi)]
#[repr(C)]
#[sabi(kind(Prefix(prefix_ref = ProviderInfoRef)))]
#[sabi(missing_field(panic))]
pub struct ProviderInfo {
    /// The name that ibacm_opts.cfg knows it by.
    pub name: RStr<'static>,
    /// The version of the provider's package.
    pub version: RStr<'static>,
    /// The version of acm-prov-api that it was built with.
    pub sdk_version: RStr<'static>,
    /// The version of the C interface (`ACM_PROV_VERSION`) that it was written for.
    pub abi_version: u32,
    /// The options that it reads.
    pub options: RSlice<'static, OptionInfo>,
    /// The counters that `query_perf` shows, in their order.
    pub counters: RSlice<'static, RStr<'static>>,
    /// The provider's own counters, then the SDK's.
    #[sabi(last_prefix_field)]
    pub own_counters: RSlice<'static, CounterInfo>,
}

/// A counter of a provider's own.
#[derive(Clone, Copy, Debug, StableAbi)]
#[repr(C)]
pub struct CounterInfo {
    /// The name, as the log has it.
    pub name: RStr<'static>,
    /// What it counts.
    pub summary: RStr<'static>,
}

impl From<&'static Counter> for CounterInfo {
    fn from(counter: &'static Counter) -> Self {
        Self {
            name: RStr::from_str(counter.name()),
            summary: RStr::from_str(counter.help()),
        }
    }
}

impl RootModule for ProviderInfoRef {
    abi_stable::declare_root_module_statics! {ProviderInfoRef}
    const BASE_NAME: &'static str = "acm_provider";
    const NAME: &'static str = "acm_provider";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}

/// The counters of acm.h.
const COUNTERS: &[RStr<'static>] = &{
    let mut names = [RStr::empty(); AcmCounter::NAMED.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = RStr::from_str(AcmCounter::NAMED[index].0);
        index += 1;
    }
    names
};

/// The root module of a provider; for the macro.
#[doc(hidden)]
pub fn describe<P: Exported>(version: &'static str) -> ProviderInfoRef {
    let options = Options::none();
    P::declare_options(&options);
    let declared: Vec<OptionInfo> = options
        .declared()
        .into_iter()
        .map(OptionInfo::from)
        .collect();
    // Leaked: the library stays loaded.
    let declared: &'static [OptionInfo] = declared.leak();
    let own_counters = shown_counters::counters::<P>().into_iter();
    let own_counters: Vec<CounterInfo> = own_counters.map(CounterInfo::from).collect();
    ProviderInfo {
        name: RStr::from_str(P::NAME.to_str().unwrap_or("?")),
        version: RStr::from_str(version),
        sdk_version: RStr::from_str(env!("CARGO_PKG_VERSION")),
        abi_version: ACM_PROV_VERSION,
        options: RSlice::from_slice(declared),
        counters: RSlice::from_slice(COUNTERS),
        own_counters: RSlice::from_slice(own_counters.leak()),
    }
    .leak_into_prefix()
}

/// An error of reading a library's introspection.
#[derive(Debug, thiserror::Error)]
pub enum IntrospectionError {
    /// The library cannot be opened.
    #[error("{}: {reason}", .library.display())]
    Open {
        /// The library.
        library: PathBuf,
        /// What the loader says.
        reason: String,
    },
    /// It has no root module: a provider in C, or one of another kit.
    #[error("{}: no introspection: not a provider made with acm-prov-api", .0.display())]
    None(PathBuf),
    /// It has one of another layout.
    #[error("{}: introspection of another version: {reason}", .library.display())]
    Incompatible {
        /// The library.
        library: PathBuf,
        /// The first difference.
        reason: String,
    },
}

/// A provider's description, copied out of its library.
#[derive(Clone, Debug)]
pub struct Description {
    /// See [`ProviderInfo::name`].
    pub name: String,
    /// See [`ProviderInfo::version`].
    pub version: String,
    /// See [`ProviderInfo::sdk_version`].
    pub sdk_version: String,
    /// See [`ProviderInfo::abi_version`].
    pub abi_version: u32,
    /// See [`ProviderInfo::options`].
    pub options: Vec<OptionInfo>,
    /// See [`ProviderInfo::counters`].
    pub counters: Vec<String>,
    /// See [`ProviderInfo::own_counters`].
    pub own_counters: Vec<CounterInfo>,
}

/// Opens a library and reads what it tells about itself. The library's constructors run, and it is never closed again:
/// best done in a process of its own.
///
/// # Errors
/// When it cannot be opened, has no description, or one of another layout.
pub fn read(library: &Path) -> Result<Description, IntrospectionError> {
    let owned = library.to_owned();
    // A name without a slash would be searched for.
    let absolute = match std::path::absolute(library) {
        Ok(absolute) => absolute,
        Err(error) => {
            return Err(IntrospectionError::Open {
                library: owned,
                reason: error.to_string(),
            });
        }
    };
    keep_loaded(&absolute);
    let header = lib_header_from_path(&absolute).map_err(|error| match error {
        LibraryError::OpenError { err, .. } => IntrospectionError::Open {
            library: owned.clone(),
            reason: err.to_string(),
        },
        LibraryError::GetSymbolError { .. } => IntrospectionError::None(owned.clone()),
        other => IntrospectionError::Incompatible {
            library: owned.clone(),
            reason: first_error(&other),
        },
    })?;
    let info = header
        .init_root_module::<ProviderInfoRef>()
        .map_err(|error| IntrospectionError::Incompatible {
            library: owned,
            reason: first_error(&error),
        })?;
    Ok(Description {
        name: info.name().to_string(),
        version: info.version().to_string(),
        sdk_version: info.sdk_version().to_string(),
        abi_version: info.abi_version(),
        options: info.options().to_vec(),
        counters: info.counters().iter().map(ToString::to_string).collect(),
        own_counters: info.own_counters().to_vec(),
    })
}

/// Keeps a library loaded, so that closing it later does not unmap code that a thread of its constructor runs. The next
/// attempt to open the library reports why it cannot be opened.
fn keep_loaded(library: &Path) {
    let Ok(name) = CString::new(library.as_os_str().as_encoded_bytes()) else {
        return;
    };
    // SAFETY: a terminated string. The library's constructors run, as the caller wants.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
}

/// abi_stable describes both layouts over hundreds of lines; the point is after the first "Error:".
fn first_error(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    let start = text.find("Error:").unwrap_or(0);
    text[start..]
        .lines()
        .take(4)
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_export_name_in_the_macro_is_abi_stable_s() {
        assert_eq!(
            abi_stable::library::ROOT_MODULE_LOADER_NAME,
            "_1as_0lib_1header_0root_bmodule_bloader"
        );
    }
}
