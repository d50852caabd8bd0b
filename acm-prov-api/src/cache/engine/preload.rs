//! The paths of an operator's dump, for one port.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::path::{PathRecord, Selector};
use crate::sa::{Component, PathQuery, Source, Target};
use crate::sync::{Arc, Mutex};
use crate::text::dump::Routes;
use crate::text::watched_file::{Follow, WatchedFile};

/// A watched dump, and the ports that have moved since it was written.
pub(super) struct Preload {
    file: PathBuf,
    routes: WatchedFile<Routes>,
    base_lid: Lid,
    /// Packet lifetime of paths to other ports: the port's subnet timeout.
    lifetime: u8,
    /// How long a dump is valid after it was read.
    ttl: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    read: Moment,
    /// GUIDs of ports that are now at another LID.
    moved: HashSet<u64>,
}

impl Preload {
    /// Names a dump; the first [`look`](Self::look) reads it.
    pub(super) fn new(
        file: &Path,
        guid: u64,
        base_lid: Lid,
        lifetime: u8,
        ttl: Option<Duration>,
    ) -> Self {
        Self {
            file: file.to_owned(),
            routes: WatchedFile::routes(file, guid, base_lid),
            base_lid,
            lifetime,
            ttl,
            state: Mutex::new(State {
                read: Moment::default(),
                moved: HashSet::new(),
            }),
        }
    }

    /// Reads the dump if it has changed. Returns lines for the log, and whether its earlier content is invalid now.
    pub(super) fn look(&self) -> (Vec<String>, bool) {
        let before = self.routes.get();
        let mut told = self.routes.look(Moment::now());
        let routes = self.routes.get();
        let is_new = !Arc::ptr_eq(&before, &routes);
        if is_new {
            let mut state = self.state.lock();
            if state.read == Moment::default() && !routes.is_empty() {
                told.push(format!("{}: {} paths", self.file.display(), routes.len()));
            }
            *state = State {
                read: Moment::now(),
                moved: HashSet::new(),
            };
        }
        (told, is_new)
    }

    /// Returns the path that answers a query, and when the dump was read. A dump holds answers to plain queries.
    pub(super) fn path(
        &self,
        query: &PathQuery,
        source: &Source,
        now: Moment,
    ) -> Option<(PathRecord, Moment)> {
        let lid = query.names(Component::Dlid).then(|| query.values().dlid());
        let by_gid = query.names(Component::Dgid);
        let by_gid = by_gid.then(|| Target::Gid(query.values().dgid()));
        [by_gid, lid.map(Target::Lid)]
            .into_iter()
            .flatten()
            .find_map(|target| {
                let (path, read) = self.path_to(target, source, now)?;
                let plain = PathQuery::to(target).complete(source);
                query.is_answered_by(&plain, &path).then_some((path, read))
            })
    }

    fn path_to(
        &self,
        target: Target,
        source: &Source,
        now: Moment,
    ) -> Option<(PathRecord, Moment)> {
        let (dlid, route) = self.routes.with(|routes| {
            let dlid = match target {
                Target::Lid(lid) => lid,
                Target::Gid(gid) if gid.subnet_prefix() == source.gid.subnet_prefix() => {
                    routes.lid_of(gid.interface_id())?
                }
                Target::Gid(_) => return None,
            };
            Some((dlid, routes.by_lid(dlid)?))
        })?;
        let state = self.state.lock();
        let read = state.read;
        let is_young = |ttl: Duration| Duration::from_millis(now.since(read)) < ttl;
        let is_good = self.ttl.is_none_or(is_young) && !state.moved.contains(&route.guid);
        drop(state);
        if !is_good {
            return None;
        }
        let lifetime = if dlid == self.base_lid {
            0
        } else {
            self.lifetime
        };
        let mut path = PathRecord::default();
        path.set_sgid(source.gid)
            .set_slid(source.lid)
            .set_dgid(Gid::new(source.gid.subnet_prefix(), route.guid))
            .set_dlid(dlid)
            .set_pkey(source.pkey)
            .set_reversible(true)
            .set_sl(route.sl)
            .set_mtu(Selector::Exactly, route.mtu)
            .set_rate(Selector::Exactly, route.rate)
            .set_packet_lifetime(Selector::Exactly, lifetime);
        Some((path, read))
    }

    /// Notes where a port of the subnet is. If the dump has another LID, its paths to that port are ignored from now on,
    /// and this returns true.
    pub(super) fn seen(&self, guid: u64, is_there: impl Fn(Lid) -> bool) -> bool {
        let known = self.routes.with(|routes| routes.lid_of(guid));
        let has_moved = known.is_some_and(|known| !is_there(known));
        if has_moved {
            self.state.lock().moved.insert(guid);
        }
        has_moved
    }
}
