//! Answers from a fixed table: a small `Provider`, without the cache engine.
//! `static_table_file` in ibacm_opts.cfg names a file of `GID LID` lines, such as `fe80::10:5 7`.

use acm_prov_api::prelude::*;
use std::{collections::HashMap, fs};

struct StaticTable(HashMap<Gid, Lid>);

impl Provider for StaticTable {
    const NAME: &CStr = c"static-table";
    type Endpoint = NoContext;

    fn load(host: &Host, options: &Options) -> Result<Self, Error> {
        let file = options.named("static_table_file").optional_path();
        let text = file.map_or(Ok(String::new()), |file| {
            fs::read_to_string(&file)
                .map_err(|error| format!("static_table_file {}: {error}", file.display()))
        })?;
        let bad = |line| host.log(LogLevel::ALWAYS, format_args!("not `GID LID`: {line}"));
        let known = |line| parse(line).ok_or(line).map_err(bad).ok();
        Ok(Self(text.lines().filter_map(known).collect()))
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let Address::Gid(gid) = request.destination() else {
            return request.refuse(Status::EDESTTYPE);
        };
        let lid = self.0.get(&gid).copied().unwrap_or_default();
        match from.endpoint().handle().subnet_path(gid, lid) {
            Some(path) => request.answer(&path),
            None => request.refuse(Status::ENODATA),
        }
    }
}

fn parse(line: &str) -> Option<(Gid, Lid)> {
    let (gid, lid) = line.split_once(' ')?;
    Some((gid.parse().ok()?, Lid(lid.trim().parse().ok()?)))
}

export_provider!(StaticTable);
