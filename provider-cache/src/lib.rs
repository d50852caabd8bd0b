//! `path-cache`: an ibacm provider that answers from a bounded cache of SA paths.
//!
//! Peers need neither a provider nor ibacm: every path comes from the subnet administrator, through the core's SA requests.
//! The SDK's policy layer does the work, with its defaults: names and IP addresses by an `acm_hosts` file, any path that the
//! SA gives. Here are the options.

#![forbid(unsafe_code)]

mod settings;

#[cfg(test)]
mod tests;

use acm_prov_api::prelude::*;

/// Asks the SA for what its clients want, and keeps the answers.
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
