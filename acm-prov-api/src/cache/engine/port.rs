//! The cache of one port, from open_port to close_port.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashMap;

use super::endpoint::EndpointCache;
use super::preload::Preload;
use super::qos::{Qos, QosState};
use super::renew::{self, Renewals};
use super::snapshot::{self, SnapshotState};
use super::warm_up::{self, UnreadFiles};
use super::{Asker, CacheSettings, OpenEndpoint, OpenError, Shared, State, files, parked, worker};
use crate::cache::rules::{PathRules, Rules};
use crate::cache::sm_health::SmHealth;
use crate::cache::store::PathStore;
use crate::clock::Moment;
use crate::handles::{Closed, EndpointHandle, PortError, PortHandle, SpawnError};
use crate::host::LogLevel;
use crate::lookups::{DeliveringMutex, Limits, Lookups};
use crate::sync::{Arc, Condvar, Mutex, Weak};
use crate::text::watched_file::Follow;

/// The cache of one open port.
pub struct PortCache {
    shared: Arc<Shared>,
    looks_after_files: Mutex<bool>,
}

impl PortCache {
    /// Opens a port's cache and starts its threads.
    ///
    /// # Errors
    /// If the port's attributes cannot be read, or a thread does not start.
    pub fn open(port: &PortHandle, settings: CacheSettings) -> Result<Self, OpenError> {
        Self::open_by(port, settings, None)
    }

    /// As [`open`](Self::open), with the provider's rules for the paths that clients get.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with_rules(
        port: &PortHandle,
        settings: CacheSettings,
        rules: Arc<dyn PathRules>,
    ) -> Result<Self, OpenError> {
        Self::open_by(port, settings, Some(rules))
    }

    fn open_by(
        port: &PortHandle,
        settings: CacheSettings,
        rules: Option<Arc<dyn PathRules>>,
    ) -> Result<Self, OpenError> {
        let attributes = port.attributes()?;
        let sm_lid = attributes.sm_lid;
        let preload = match &settings.routes_file {
            Some(file) => {
                let gid = port.gid(0).ok_or(PortError::NoGid(port.number()))?;
                Some(Preload::new(
                    file,
                    gid.interface_id(),
                    attributes.lid,
                    attributes.subnet_timeout,
                    settings.store.ttl,
                ))
            }
            None => None,
        };
        let now = Moment::now();
        let snapshot = SnapshotState::new(&settings, port, &attributes)?;
        let renewals = Renewals::new(&settings, now);
        let host = *port.host();
        let limits = settings.lookups;
        let qos = Qos::new(settings.qos);
        let state = |shared: &Weak<Shared>| State {
            shared: shared.clone(),
            paths: Lookups::new(
                Limits {
                    lookups: limits.lookups,
                    waiters: limits.waiters,
                    // The SDK's queue paces the queries to the core.
                    tries: usize::MAX,
                    try_timeout: None,
                    rest: (limits.timeout / 16, limits.timeout),
                },
                Some(host),
                RandomState::new().hash_one(port.number()),
            ),
            qos: QosState::new(Arc::clone(&qos), limits.waiters, host),
            health: SmHealth::new(),
            endpoints: HashMap::new(),
            lines: Vec::new(),
            wakes_at: Moment::NEVER,
            reported_sm_lid: sm_lid,
            flushed: None,
            files: warm_up::nobody(limits.waiters, host),
            parked: parked::none(limits.waiters, host),
            are_files_read: false,
            renewals,
            snapshot,
            sm_lid_at: now,
            closed: false,
        };
        let shared = Arc::new_cyclic(|shared| Shared {
            state: DeliveringMutex::new(state(shared)),
            port: port.clone(),
            settings,
            sm_lid,
            lid_mask: u16::MAX << attributes.lmc.min(7),
            rules: Rules::new(rules, host),
            qos: Arc::clone(&qos),
            preload,
            followed: Mutex::default(),
            wake: Condvar::new(),
            wake_files: Condvar::new(),
        });
        let cache = Self {
            shared,
            looks_after_files: Mutex::new(false),
        };
        cache.start("path-cache", worker::run)?;
        if cache.shared.settings.snapshot.is_some() {
            cache.start("path-snapshot", snapshot::run)?;
        }
        if files::has_some(&cache.shared) {
            cache.look_after_files()?;
        }
        Ok(cache)
    }

    /// Watches a file for changes, in a thread of the port. If the thread does not start, logs that.
    pub fn follow(&self, file: Arc<dyn Follow>) {
        self.shared.followed.lock().push(file);
        if let Err(error) = self.look_after_files() {
            self.shared.port.host().log(
                LogLevel::ALWAYS,
                format_args!("{error}; changed files will not be read"),
            );
        }
    }

    /// Starts the thread that checks files, if it does not run yet.
    fn look_after_files(&self) -> Result<(), OpenError> {
        let mut looks_after_files = self.looks_after_files.lock();
        if !*looks_after_files {
            self.start("path-files", files::run)?;
            *looks_after_files = true;
        }
        Ok(())
    }

    /// Starts one of the port's threads. It ends when the cache is closed, and the port's close waits for it.
    fn start(&self, name: &str, run: fn(&Arc<Shared>)) -> Result<(), SpawnError> {
        let shared = Arc::clone(&self.shared);
        self.shared.port.spawn(name, move |_| run(&shared))
    }

    /// Opens the cache of one of the port's endpoints.
    ///
    /// # Errors
    /// If the port's attributes cannot be read, or it has no GID.
    pub fn open_endpoint(&self, handle: &EndpointHandle) -> Result<EndpointCache, OpenError> {
        let source = handle.source()?;
        let store = PathStore::new(source, self.shared.settings.store);
        store.set_renewing(renew::renewing(&self.shared.settings));
        let endpoint = {
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(Closed.into());
            }
            let endpoint = Arc::new(OpenEndpoint {
                handle: handle.clone(),
                source,
                store,
                unread: UnreadFiles::new(self.shared.unread_files(&state, &source)),
            });
            state.endpoints.insert(endpoint.id(), Arc::clone(&endpoint));
            endpoint
        };
        self.shared.wake_files.notify_all();
        Ok(EndpointCache(Asker {
            shared: Arc::clone(&self.shared),
            endpoint,
        }))
    }

    /// Makes all cached answers stale: the subnet manager has asked clients to register again.
    pub fn reregister(&self) {
        let now = Moment::now();
        {
            let mut state = self.shared.state.lock();
            if !self.shared.settings.renewal.is_on() {
                state.forget_snapshot();
            }
            for endpoint in state.endpoints.values() {
                endpoint.store.reregister(now);
            }
            state.supersede(now);
            state.renewals.all_stale(now);
        }
        self.shared.watch_sm_lid();
    }

    /// Asks the cache's threads to end, and refuses all waiting requests. The port's close waits for the threads.
    pub fn close(&self) {
        {
            let mut state = self.shared.state.lock();
            state.closed = true;
            state.endpoints.clear();
            state.paths.close(|_| true);
            state.qos.lookups.close(|()| true);
            state.files.close(|_| true);
            state.parked.close(|_| true);
        }
        self.shared.wake.notify_one();
        self.shared.wake_files.notify_all();
    }
}

impl Drop for PortCache {
    fn drop(&mut self) {
        self.close();
    }
}
