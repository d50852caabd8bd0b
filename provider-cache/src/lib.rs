//! `path-cache`: an ibacm provider that answers from a bounded cache of SA paths.
//!
//! Peers need neither a provider nor ibacm: every path comes from the subnet administrator, through the core's
//! SA requests. The SDK's policy layer does the work with its defaults: it takes names and IP addresses from an
//! `acm_hosts` file and accepts every path of the SA. This crate adds the options.

#![forbid(unsafe_code)]

mod settings;

#[cfg(test)]
mod tests;

use acm_prov_api::prelude::*;

/// Queries the SA for its clients and caches the responses.
struct PathCache;

impl Policy for PathCache {
    const NAME: &CStr = c"path-cache";

    fn read(_: &Options) -> Self {
        Self
    }

    fn settings(options: &Options) -> PolicySettings {
        settings::read(options)
    }
}

export_policy!(PathCache);
