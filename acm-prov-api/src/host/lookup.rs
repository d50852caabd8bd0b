//! Fills the table from the symbols of the running process.

use std::ffi::{CStr, c_void};

use crate::abi::*;

use super::{HostTable, LogWriter, MissingHostFunctions, acm_provider_fault_fn};

/// The address of a symbol that the process exports to libraries.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym takes any terminated name; RTLD_DEFAULT is the process's own scope.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a function's name has no NUL"),
    }
}

/// Looks functions up by the name of the field that they fill, and notes those that are not there.
macro_rules! host_table {
    ($($field:ident: $signature:ident),* $(,)?) => {
        impl HostTable {
            /// The functions of the process that loaded this library.
            ///
            /// # Errors
            /// Names every function that the process does not export.
            pub fn from_process() -> Result<Self, MissingHostFunctions> {
                let mut names = Vec::new();
                let acm_write = acm_write();
                if acm_write.is_none() {
                    names.push("acm_write");
                }
                $(
                    let $field = symbol(const { c_name(concat!(stringify!($field), "\0")) });
                    if $field.is_none() {
                        names.push(stringify!($field));
                    }
                )*
                if let (Some(acm_write), $(Some($field)),*) = (acm_write, $($field),*) {
                    return Ok(Self {
                        acm_write,
                        // SAFETY: the process's symbol of this name is the core's function, whose signature (acm_prov.h,
                        // verbs.h) is the field's.
                        $($field: unsafe { std::mem::transmute::<*mut c_void, $signature>($field) },)*
                        acm_provider_fault: acm_provider_fault(),
                    });
                }
                Err(MissingHostFunctions { names })
            }
        }
    };
}

host_table!(
    acm_get_opts_file: acm_get_opts_file_fn,
    acm_increment_counter: acm_increment_counter_fn,
    acm_gid_index: acm_gid_index_fn,
    acm_get_gid: acm_get_gid_fn,
    acm_path_comp_mask: acm_path_comp_mask_fn,
    acm_resolve_response: acm_resolve_response_fn,
    acm_query_response: acm_query_response_fn,
    acm_get_rate: acm_get_rate_fn,
    acm_convert_mtu: acm_convert_mtu_fn,
    acm_convert_rate: acm_convert_rate_fn,
    acm_alloc_sa_mad: acm_alloc_sa_mad_fn,
    acm_free_sa_mad: acm_free_sa_mad_fn,
    acm_send_sa_mad: acm_send_sa_mad_fn,
    ibv_query_port: ibv_query_port_fn,
    ibv_query_pkey: ibv_query_pkey_fn,
);

/// The core's log alone: what is left to say that the rest is missing.
pub(crate) fn acm_write() -> Option<LogWriter> {
    let address = symbol(c"acm_write")?;
    // SAFETY: the process's symbol of this name is the core's function: int, format, arguments (acm_prov.h).
    Some(LogWriter::AcmWrite(unsafe {
        std::mem::transmute::<*mut c_void, acm_write_fn>(address)
    }))
}

/// Where a core that tests providers takes their faults. ibacm has no such function.
fn acm_provider_fault() -> Option<acm_provider_fault_fn> {
    let address = symbol(c"acm_provider_fault")?;
    // SAFETY: the process's symbol of this name takes the kind and a string (ProviderFault).
    Some(unsafe { std::mem::transmute::<*mut c_void, acm_provider_fault_fn>(address) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_a_core_every_function_is_named() {
        let Err(missing) = HostTable::from_process() else {
            panic!("this test process is no core")
        };
        for name in ["acm_write", "acm_resolve_response", "acm_send_sa_mad"] {
            assert!(missing.names.contains(&name), "{missing}");
        }
        assert!(missing.to_string().contains("acm_send_sa_mad"), "{missing}");
    }
}
