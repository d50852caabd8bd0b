//! The macros that export a policy as a provider library.

/// Exports a [`Policy`](crate::policy::Policy) type as the library's provider, as
/// [`export_provider!`](crate::export_provider) does for a `Provider`.
#[macro_export]
macro_rules! export_policy {
    ($policy:ty) => {
        $crate::policy_table!($policy);
        $crate::__export_symbols!($crate::policy::PolicyProvider<$policy>);
    };
}

/// As [`provider_table!`](crate::provider_table), for a [`Policy`](crate::policy::Policy) type. The provider to load is
/// `PolicyProvider<$policy>`.
#[macro_export]
macro_rules! policy_table {
    ($policy:ty) => {
        $crate::__slot!(
            $crate::policy::ExportedPolicy,
            $policy,
            $crate::policy::PolicyProvider<$policy>
        );
    };
}
