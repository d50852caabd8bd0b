//! The macros that make a library a provider.

/// Exports a [`Provider`](crate::Provider) type: the library's `provider_query`, which the core looks up.
///
/// One library exports one provider; two exporting crates do not link into one binary. The expansion contains the only
/// unsafe code that a provider needs, so your crate can `deny(unsafe_code)` elsewhere.
///
/// ```
/// # use acm_prov_api::prelude::*;
/// struct Nobody;
///
/// impl Provider for Nobody {
///     const NAME: &CStr = c"nobody";
///     type Endpoint = NoContext;
///
///     fn load(_: &Host, _: &Options) -> Result<Self, Error> {
///         Ok(Self)
///     }
///
///     fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
///         request.refuse(Status::ENODATA);
///     }
/// }
///
/// acm_prov_api::export_provider!(Nobody);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export_provider {
    ($provider:ty) => {
        $crate::provider_table!($provider);
        $crate::__export_symbols!($provider);
    };
}

/// The two symbols of a provider's library.
#[doc(hidden)]
#[macro_export]
macro_rules! __export_symbols {
    ($provider:ty) => {
        const _: () = {
            /// The function that ibacm looks up in the library (acm_prov.h).
            ///
            /// # Safety
            /// Both pointers are writable, as the core promises.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn provider_query(
                info: *mut *mut $crate::abi::acm_provider,
                version: *mut u32,
            ) -> ::core::ffi::c_int {
                // SAFETY: the caller's promise.
                unsafe { $crate::__provider_query::<$provider>(info, version) }
            }

            extern "C" fn root_module() -> $crate::__abi_stable::library::RootModuleResult {
                $crate::__abi_stable::library::__call_root_module_loader(|| {
                    $crate::introspection::describe::<$provider>(::core::env!("CARGO_PKG_VERSION"))
                })
            }

            /// What `introspection::read` looks up in the library.
            #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
            pub static ROOT_MODULE: $crate::__abi_stable::library::LibHeader =
                // SAFETY: the constructor makes the module that the export name promises.
                unsafe {
                    $crate::__abi_stable::library::LibHeader::from_constructor::<
                        $crate::introspection::ProviderInfoRef,
                    >(
                        root_module,
                        $crate::__abi_stable::library::CheckTypeLayout::Yes,
                    )
                };
        };
    };
}

/// Makes a [`Provider`](crate::Provider) type loadable by [`load`](crate::load()) without exporting it, for tests and for
/// several providers in one binary.
#[macro_export]
macro_rules! provider_table {
    ($provider:ty) => {
        $crate::__slot!($crate::Exported, $provider, $provider);
    };
}

/// The place for a provider's open contexts.
#[doc(hidden)]
#[macro_export]
macro_rules! __slot {
    ($trait:path, $type:ty, $provider:ty) => {
        #[cfg(not(panic = "unwind"))]
        ::core::compile_error!(
            "a provider must be built with panic = \"unwind\": with \"abort\" a panic would end the ibacm daemon"
        );

        impl $trait for $type {
            fn slot() -> &'static $crate::__Slot<$provider> {
                static SLOT: $crate::__Slot<$provider> = $crate::__Slot::new();
                &SLOT
            }
        }
    };
}
