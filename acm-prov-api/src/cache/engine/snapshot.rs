//! The thread of a port that keeps its paths in a file, so that a daemon that starts again knows them.
//!
//! Paths read from the file are stale: they answer requests, and those in use are renewed. If the SA contradicts one of them,
//! all are dropped. The file is not rewritten while they may be in use, so that a path that was never renewed does not become
//! younger by a restart.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::files::touched;
use super::warm_up::SNAPSHOT;
use super::worker::AFTER_A_PANIC;
use super::{CacheSettings, EndpointId, OpenEndpoint, OpenError, Shared, State};
use crate::cache::snapshot::file::{self, FileError};
use crate::cache::snapshot::{ENTRY, PortIdentity, Refusal, Section, Snapshot};
use crate::cache::store::Kept;
use crate::clock::{Moment, millis};
use crate::handles::{PortAttributes, PortError, PortHandle};
use crate::host::LogLevel;
use crate::host::guard;
use crate::path::PathRecord;
use crate::sa::Source;
use crate::sync::Arc;

/// Milliseconds until it is tried again after a file could not be written.
const AFTER_A_FAILURE: u64 = 3_600_000;

/// Milliseconds in which the endpoints of a port open: they follow it at once.
const OPENING: u64 = 60_000;

/// The largest file that is read, in bytes.
const FILE_LIMIT: u64 = 1 << 30;

/// Where snapshots are kept, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSetting {
    /// A directory of the daemon's own. It is created if its parent exists.
    pub directory: PathBuf,
    /// The shortest time between two writings.
    pub interval: Duration,
    /// What is older is not read.
    pub max_age: Duration,
}

impl SnapshotSetting {
    /// Snapshots in a directory, written once a minute at most and read if they are an hour old at most.
    #[must_use]
    pub fn in_directory(directory: PathBuf) -> Self {
        Self {
            directory,
            interval: Duration::from_mins(1),
            max_age: Duration::from_hours(1),
        }
    }
}

/// What a port knows of its snapshot.
pub(super) struct SnapshotState {
    /// None if there is to be none.
    port: Option<PortIdentity>,
    content: Content,
    /// The file stays as it is until then.
    stays_until: Moment,
}

/// What the port's file held when the port opened.
enum Content {
    Unread,
    Read(Arc<Snapshot>, SystemTime),
    /// No file exists, or its paths do not count (any more).
    None,
}

impl SnapshotState {
    pub(super) fn new(
        settings: &CacheSettings,
        port: &PortHandle,
        attributes: &PortAttributes,
    ) -> Result<Self, OpenError> {
        let identity = match &settings.snapshot {
            Some(_) => {
                let gid = port.gid(0).ok_or(PortError::NoGid(port.number()))?;
                Some(PortIdentity {
                    guid: gid.interface_id(),
                    subnet_prefix: gid.subnet_prefix(),
                    lid: attributes.lid,
                    sm_lid: attributes.sm_lid,
                    lmc: attributes.lmc,
                })
            }
            None => None,
        };
        Ok(Self {
            content: match identity {
                Some(_) => Content::Unread,
                None => Content::None,
            },
            port: identity,
            stays_until: Moment::default(),
        })
    }

    /// Whether an endpoint is to wait for the snapshot.
    pub(super) fn is_awaited_by(&self, source: &Source) -> bool {
        self.has(source) && !matches!(self.content, Content::None)
    }

    /// Whether it was read, and was written before that time.
    pub(super) fn was_written_before(&self, time: SystemTime) -> bool {
        // The file has whole seconds.
        matches!(self.content, Content::Read(_, written) if seconds(time) >= seconds(written))
    }

    /// Whether the port's file holds an endpoint's paths. It holds those of the port's first GID only.
    fn has(&self, source: &Source) -> bool {
        self.port.is_some_and(|port| {
            source.gid.interface_id() == port.guid
                && source.gid.subnet_prefix() == port.subnet_prefix
        })
    }
}

impl State {
    /// Drops all paths of the snapshot that were not renewed, also for endpoints that open later. The file can be written
    /// again. False if no endpoint had one.
    pub(super) fn forget_snapshot(&mut self) -> bool {
        self.snapshot.content = Content::None;
        self.snapshot.stays_until = Moment::default();
        let mut dropped = false;
        for endpoint in self.endpoints.values() {
            dropped |= endpoint.store.drop_loaded();
        }
        dropped
    }

    /// Drops all paths of the snapshot that were not renewed, since the SA contradicts one of them.
    pub(super) fn drop_snapshot(&mut self, shared: &Shared, found: &PathRecord) {
        if self.forget_snapshot() {
            let (port, gid, lid) = (shared.port.number(), found.dgid(), found.dlid());
            self.log(
                LogLevel::ALWAYS,
                format!(
                    "port {port}: the SA's path to {gid}, LID {lid}, contradicts the snapshot: dropped all paths of the snapshot \
                     that were not renewed"
                ),
            );
        }
    }
}

/// Runs until the port is closed.
pub(super) fn run(shared: &Arc<Shared>) {
    let Some(mut keeper) = Keeper::new(shared) else {
        return;
    };
    let host = *shared.port.host();
    loop {
        // A panic ends one turn, not the snapshots.
        let rest = guard::enter(
            "thread for the snapshot",
            Some(&host),
            AFTER_A_PANIC,
            || Ok(keeper.turn(shared)),
        );
        let mut state = shared.state.lock();
        if state.closed {
            return;
        }
        // An endpoint may have opened meanwhile.
        if !keeper.has_unfilled(&state) {
            state.wait(&shared.wake_files, Some(rest));
        }
        if state.closed {
            return;
        }
    }
}

struct Keeper {
    setting: SnapshotSetting,
    port: PortIdentity,
    file: PathBuf,
    is_read: bool,
    /// An endpoint that opens later than that does without.
    opens_until: Moment,
    /// Endpoints that have what the file has for them.
    filled: Vec<EndpointId>,
    next_writing: Moment,
    /// The changes of all stores that are in the file.
    written: u64,
    /// Whether the log says that the file stays as it is.
    is_held: bool,
}

impl Keeper {
    fn new(shared: &Shared) -> Option<Self> {
        let setting = shared.settings.snapshot.clone()?;
        let port = shared.state.lock().snapshot.port?;
        let now = Moment::now();
        Some(Self {
            file: file::path(&setting.directory, port.guid),
            next_writing: now.after(millis(setting.interval)),
            opens_until: now.after(OPENING),
            setting,
            port,
            is_read: false,
            filled: Vec::new(),
            written: 0,
            is_held: false,
        })
    }

    /// Does what is due. Gives the time until the next turn.
    fn turn(&mut self, shared: &Shared) -> Duration {
        if !self.is_read {
            self.is_read = true;
            let content = self.read(shared);
            let mut state = shared.state.lock();
            // Else it was forgotten while it was read.
            if matches!(state.snapshot.content, Content::Unread) {
                state.snapshot.content = content;
            }
            let flushed = state.flushed;
            if flushed.is_some_and(|time| state.snapshot.was_written_before(time)) {
                state.forget_snapshot();
            }
        }
        self.fill(shared);
        let now = Moment::now();
        if self.opens_until <= now {
            shared.state.lock().snapshot.content = Content::None;
        }
        if self.next_writing <= now {
            self.next_writing = now.after(millis(self.setting.interval));
            if let Err(error) = self.write_if_changed(shared, now) {
                self.next_writing = now.after(AFTER_A_FAILURE);
                log(
                    shared,
                    format_args!("{error}; paths are not saved, the next try is in an hour"),
                );
            }
        }
        let next = match self.opens_until {
            until if until > now => until.min(self.next_writing),
            _ => self.next_writing,
        };
        Duration::from_millis(next.since(Moment::now()))
    }

    fn read(&self, shared: &Shared) -> Content {
        match self.read_file(shared) {
            Ok(Some(snapshot)) => {
                let written =
                    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(snapshot.time));
                match written {
                    Some(written) => return Content::Read(Arc::new(snapshot), written),
                    None => log(shared, format_args!("{}", self.refused(Refusal::Torn))),
                }
            }
            Ok(None) => {}
            Err(line) => log(shared, format_args!("{line}")),
        }
        Content::None
    }

    /// The file's content if there is one that can be used, or a line for the operator.
    fn read_file(&self, shared: &Shared) -> Result<Option<Snapshot>, String> {
        let capacity = shared.settings.store.capacity as u64;
        let limit = FILE_LIMIT.min(capacity.saturating_mul(ENTRY as u64 * 128));
        let not_used = |error: FileError| format!("{error}; going on without the paths in it");
        let Some(bytes) = file::read(&self.file, limit).map_err(not_used)? else {
            return Ok(None);
        };
        let snapshot = Snapshot::from_bytes(&bytes).map_err(|refusal| self.refused(refusal))?;
        let flush_file = shared.settings.flush_file.as_deref();
        let flushed = flush_file.and_then(touched).map(seconds);
        if flushed.is_some_and(|flushed| flushed >= snapshot.time) {
            return Err(self.refused(Refusal::Flushed));
        }
        snapshot
            .check(&self.port, seconds(SystemTime::now()), self.setting.max_age)
            .map_err(|refusal| self.refused(refusal))?;
        Ok(Some(snapshot))
    }

    fn refused(&self, refusal: Refusal) -> String {
        format!(
            "{}: the snapshot is not used: {refusal}",
            self.file.display()
        )
    }

    /// Endpoints that have not got what the file has.
    fn unfilled<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a Arc<OpenEndpoint>> {
        let open = state.endpoints.values();
        open.filter(|endpoint| {
            state.snapshot.has(&endpoint.source) && !self.filled.contains(&endpoint.id())
        })
    }

    fn has_unfilled(&self, state: &State) -> bool {
        self.unfilled(state).next().is_some()
    }

    /// Gives endpoints what the file has for them.
    fn fill(&mut self, shared: &Shared) {
        let (endpoints, content) = {
            let state = shared.state.lock();
            let endpoints: Vec<_> = self.unfilled(&state).map(Arc::clone).collect();
            let content = match &state.snapshot.content {
                Content::Read(snapshot, written) => Some((Arc::clone(snapshot), *written)),
                Content::Unread | Content::None => None,
            };
            (endpoints, content)
        };
        for endpoint in endpoints {
            self.filled.push(endpoint.id());
            let source = endpoint.source;
            let section = content.as_ref().and_then(|(snapshot, written)| {
                let section = snapshot.sections.iter().find(|s| s.pkey == source.pkey)?;
                Some((section, written.elapsed().unwrap_or_default()))
            });
            let loaded = section.map_or(0, |(section, age)| {
                let kept = section.kept(source, age);
                // The rules are the provider's code: not with the store locked.
                let kept: Vec<Kept> = kept
                    .filter(|kept| shared.rules.accept(kept, &source))
                    .collect();
                endpoint.store.load(kept, Moment::now())
            });
            let now = Moment::now();
            let mut state = shared.state.lock();
            if let Some((_, age)) = section
                && loaded > 0
            {
                let (port, pkey) = (shared.port.number(), source.pkey);
                let age_s = age.as_secs();
                let file = self.file.display();
                state.log(
                    LogLevel::ALWAYS,
                    format!("port {port}, P_Key {pkey}: {loaded} paths from {file}, {age_s} s old, are renewed as they are used"),
                );
                let rest = self.setting.max_age.saturating_sub(age);
                let stays = millis(rest.min(shared.settings.store.stale_ttl));
                state.snapshot.stays_until = now.after(stays);
                state.renewals.all_stale(now);
            }
            state.has_file(endpoint.id(), SNAPSHOT);
        }
    }

    /// Writes the file if it is time for it and other paths are known than those in it.
    fn write_if_changed(&mut self, shared: &Shared, now: Moment) -> Result<(), FileError> {
        let endpoints: Vec<Arc<OpenEndpoint>> = {
            let mut state = shared.state.lock();
            let rest = state.snapshot.stays_until.since(now);
            let was_held = std::mem::replace(&mut self.is_held, rest > 0);
            if rest > 0 {
                if !was_held {
                    let (port, file) = (shared.port.number(), self.file.display());
                    let line = format!(
                        "port {port}: {file} stays as it is for {rest} ms, while its paths are used"
                    );
                    state.log(LogLevel::VERBOSE, line);
                }
                return Ok(());
            }
            // The port is going down: what its endpoints knew is what is in the file.
            let has_closed = |id: &EndpointId| !state.endpoints.contains_key(id);
            if state.closed || self.filled.iter().any(has_closed) {
                return Ok(());
            }
            let endpoints = state.endpoints.values();
            let endpoints = endpoints.filter(|endpoint| state.snapshot.has(&endpoint.source));
            endpoints.cloned().collect()
        };
        // What changes from here on is written next time.
        let changes = endpoints.iter().map(|open| open.store.changes());
        let changes: u64 = changes.sum();
        if changes == self.written {
            return Ok(());
        }
        let sections = endpoints.iter().map(|endpoint| {
            let store = &endpoint.store;
            Section::new(endpoint.source.pkey, store.fresh(now))
        });
        let snapshot = Snapshot {
            port: self.port,
            time: seconds(SystemTime::now()),
            sections: sections.collect(),
        };
        file::write(&self.file, &snapshot.to_bytes())?;
        self.written = changes;
        let (port, paths) = (shared.port.number(), snapshot.len());
        let file = self.file.display();
        shared.port.host().log(
            LogLevel::VERBOSE,
            format_args!("port {port}: {paths} paths written to {file}"),
        );
        Ok(())
    }
}

fn log(shared: &Shared, line: std::fmt::Arguments<'_>) {
    shared.port.host().log(LogLevel::ALWAYS, line);
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
