//! Resolves names and IP addresses with a hosts file, and queries the SA for paths: a complete provider.
//!
//! In ibacm_opts.cfg:
//!
//!     provider names-and-sa default
//!     addr_preload acm_hosts
//!     addr_data_file /etc/rdma/ibacm_hosts.data

use acm_prov_api::prelude::*;

struct NamesAndSa;

impl Policy for NamesAndSa {
    const NAME: &CStr = c"names-and-sa";

    fn read(_: &Options) -> Self {
        Self
    }
}

export_policy!(NamesAndSa);
