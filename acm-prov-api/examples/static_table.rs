//! Answers from a fixed table: the smallest useful provider.
//! `static_table_file` in ibacm_opts.cfg names a file of `GID DLID` lines, such as `fe80::10:5 7`.

use acm_prov_api::prelude::*;
use std::{collections::HashMap, path::Path};

struct StaticTable(HashMap<Gid, PathRecord>);

impl Provider for StaticTable {
    const NAME: &CStr = c"static-table";
    type Endpoint = Plain;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        let file = options.path(
            "static_table_file",
            Path::new("/etc/rdma/static_table.data"),
        );
        let text =
            std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(Self(text.lines().filter_map(parse).collect()))
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
        match request.destination() {
            Address::Gid(gid) if self.0.contains_key(&gid) => request.answer(&self.0[&gid]),
            Address::Gid(_) => request.refuse(Status::ENODATA),
            _ => request.refuse(Status::EDESTTYPE),
        }
    }
}

fn parse(line: &str) -> Option<(Gid, PathRecord)> {
    let (gid, dlid) = line.split_once(' ')?;
    let mut path = PathRecord::default();
    path.set_dgid(gid.parse().ok()?)
        .set_dlid(Lid(dlid.trim().parse().ok()?));
    Some((path.dgid(), path))
}

export_provider!(StaticTable);
