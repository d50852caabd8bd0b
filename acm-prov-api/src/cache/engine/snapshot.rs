//! The thread of a port that keeps its paths in a file over a restart of the daemon.
//!
//! Paths read from the file are stale: they answer requests, and the engine renews those in use. If the SA contradicts one of
//! them, it drops all. It does not rewrite the file while they may be in use: otherwise a restart would make paths look younger
//! that were never renewed.

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

/// Milliseconds until the next try after writing failed.
const AFTER_A_FAILURE: u64 = 3_600_000;

/// Milliseconds in which the endpoints of a port open. Normally they open right after it.
const OPENING: u64 = 60_000;

/// The largest file to read, in bytes.
const FILE_LIMIT: u64 = 1 << 30;

/// Where snapshots are kept, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSetting {
    /// The daemon's own directory. It is created if its parent exists.
    pub directory: PathBuf,
    /// The shortest time between two writes.
    pub interval: Duration,
    /// Older files are not used.
    pub max_age: Duration,
}

impl SnapshotSetting {
    /// Returns the setting for a directory: written at most once a minute, read if at most an hour old.
    #[must_use]
    pub fn in_directory(directory: PathBuf) -> Self {
        Self {
            directory,
            interval: Duration::from_mins(1),
            max_age: Duration::from_hours(1),
        }
    }
}

/// A port's state of its snapshot.
pub(super) struct SnapshotState {
    /// `None` if snapshots are off.
    port: Option<PortIdentity>,
    content: Content,
    /// The file is not rewritten until then.
    stays_until: Moment,
}

/// The content of the port's file when the port opened.
enum Content {
    Unread,
    Read(Arc<Snapshot>, SystemTime),
    /// No file exists, or its paths are not valid (any more).
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

    /// Whether an endpoint must wait for the snapshot.
    pub(super) fn is_pending_for(&self, source: &Source) -> bool {
        self.has(source) && !matches!(self.content, Content::None)
    }

    /// Whether the snapshot was read, and written before `time`.
    pub(super) fn was_written_before(&self, time: SystemTime) -> bool {
        // The file has whole seconds.
        matches!(self.content, Content::Read(_, written) if seconds(time) >= seconds(written))
    }

    /// Whether the port's file holds an endpoint's paths. It holds only paths from the port's first GID.
    fn has(&self, source: &Source) -> bool {
        self.port.is_some_and(|port| {
            source.gid.interface_id() == port.guid
                && source.gid.subnet_prefix() == port.subnet_prefix
        })
    }
}

impl State {
    /// Drops all paths of the snapshot that were not renewed, also for endpoints that open later. The file may be written
    /// again. False if no endpoint had such a path.
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
        // A panic ends one turn, not the thread.
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
    /// Endpoints that open later get no paths of the snapshot.
    opens_until: Moment,
    /// Endpoints that have got their paths of the file.
    filled: Vec<EndpointId>,
    next_writing: Moment,
    /// The change counts of all stores when the file was written.
    written: u64,
    /// Whether the log says that the file is not rewritten for now.
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

    /// Does what is due. Returns the time until the next turn.
    fn turn(&mut self, shared: &Shared) -> Duration {
        if !self.is_read {
            self.is_read = true;
            let content = self.read(shared);
            let mut state = shared.state.lock();
            // Otherwise it was dropped while this thread read it.
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
                    format_args!("{error}; paths are not saved, retrying in an hour"),
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

    /// Returns the content of a usable file, `None` without a file, or a line for the log.
    fn read_file(&self, shared: &Shared) -> Result<Option<Snapshot>, String> {
        let capacity = shared.settings.store.capacity as u64;
        let limit = FILE_LIMIT.min(capacity.saturating_mul(ENTRY as u64 * 128));
        let not_used = |error: FileError| format!("{error}; continuing without its paths");
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

    /// Returns the endpoints that have not yet got their paths of the file.
    fn unfilled<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a Arc<OpenEndpoint>> {
        let open = state.endpoints.values();
        open.filter(|endpoint| {
            state.snapshot.has(&endpoint.source) && !self.filled.contains(&endpoint.id())
        })
    }

    fn has_unfilled(&self, state: &State) -> bool {
        self.unfilled(state).next().is_some()
    }

    /// Gives endpoints their paths of the file.
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
                // The rules are the provider's code: do not call them with the store locked.
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

    /// Writes the file if it is due and the paths have changed.
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
            // The port is going down: keep the file with all its endpoints' paths.
            let has_closed = |id: &EndpointId| !state.endpoints.contains_key(id);
            if state.closed || self.filled.iter().any(has_closed) {
                return Ok(());
            }
            let endpoints = state.endpoints.values();
            let endpoints = endpoints.filter(|endpoint| state.snapshot.has(&endpoint.source));
            endpoints.cloned().collect()
        };
        // Later changes are written next time.
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
