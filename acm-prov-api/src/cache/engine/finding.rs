//! Answers a request with a cached path, or lets it wait for one.

use std::time::Duration;

use super::client::Client;
use super::path_query::Waiter;
use super::{Asker, LookupKey, OpenEndpoint, Resolution, State, qos};
use crate::abi::AcmStatus;
use crate::cache::counters::{NEGATIVE_HITS, STALE_ANSWERS};
use crate::cache::store::Known;
use crate::clock::{Moment, millis};
use crate::lookups::{Locked, Urgency};
use crate::path::PathRecord;
use crate::sa::PathQuery;

/// What the cache has for a query.
enum Cached<'a> {
    /// A path, or `None` if the SA has no such path.
    Known(Option<PathRecord>),
    /// Nothing: query the SA. The port's state is locked, so that no answer is missed meanwhile.
    Unknown {
        state: Locked<'a, State>,
        stale: Option<PathRecord>,
    },
}

impl Asker {
    /// Waits for unread files, then answers or queries the SA. The client waits as long as the settings say, unless its
    /// request has its own limit.
    #[cold]
    pub(super) fn start(
        &self,
        query: &PathQuery,
        client: Client<'_>,
        patience: Option<Duration>,
    ) -> Resolution {
        let now = Moment::now();
        if let Err(error) = query.target() {
            client.reply(Err(error.status()));
            return Resolution::Refused;
        }
        if !self.is_ours_to_ask(query) {
            client.reply(Err(AcmStatus::ESRCADDR));
            return Resolution::Refused;
        }
        let patience = patience.unwrap_or(self.shared.settings.lookups.patience());
        let deadline = now.after(millis(patience));
        if !client.bypasses_the_cache()
            && let Some(path) = self.shared.rules.path(query)
        {
            self.answer(client, Some(path));
            return Resolution::Known;
        }
        if self.endpoint.unread.is_over() || client.bypasses_the_cache() {
            self.find(query, client, now, deadline)
        } else {
            self.wait_for_files(query, client, now, deadline)
        }
    }

    /// Finds out whether service ids matter to this SA, then answers or queries the SA.
    pub(super) fn find(
        &self,
        query: &PathQuery,
        client: Client<'_>,
        now: Moment,
        deadline: Moment,
    ) -> Resolution {
        if !qos::is_named(query) {
            return self.go_on(query, true, client, now, deadline);
        }
        match self.shared.qos.get(now) {
            Some((counts, false)) => self.go_on(query, counts, client, now, deadline),
            Some((counts, true)) => {
                self.shared.state.lock().qos.refresh(now);
                self.go_on(query, counts, client, now, deadline)
            }
            None => self.wait_for_qos(query, client, now, deadline),
        }
    }

    /// Answers from the cache, or queries the SA.
    pub(super) fn go_on(
        &self,
        query: &PathQuery,
        qos_counts: bool,
        client: Client<'_>,
        now: Moment,
        deadline: Moment,
    ) -> Resolution {
        let query = &qos::apply(query, qos_counts);
        if qos::is_the_kernels_class(query, &client) {
            client.reply(Err(AcmStatus::ENODATA));
            return Resolution::Refused;
        }
        if client.bypasses_the_cache() {
            return self.wait(self.shared.state.lock(), now, query, client, None, deadline);
        }
        match self.look_in_cache(query, now) {
            Cached::Known(path) => {
                self.answer(client, path);
                Resolution::Known
            }
            Cached::Unknown { mut state, stale } => {
                let stands_in = stale.filter(|_| state.health.is_silent());
                if stands_in.is_none() && !client.is_nodelay() {
                    return self.wait(state, now, query, client, stale, deadline);
                }
                // Ask again even so: a response shows that the SA is back.
                if state.endpoints.contains_key(&self.endpoint.id()) {
                    let key = LookupKey::new(&self.endpoint, query);
                    state.paths.want(now, key, deadline, Urgency::Usual);
                }
                drop(state);
                self.answer(client, stands_in);
                match stands_in {
                    Some(_) => {
                        STALE_ANSWERS.increment();
                        Resolution::Known
                    }
                    None => Resolution::Asked,
                }
            }
        }
    }

    /// Returns its arguments if the endpoint is open; otherwise refuses the client.
    pub(super) fn if_open<'s, 'c>(
        &self,
        state: Locked<'s, State>,
        client: Client<'c>,
    ) -> Option<(Locked<'s, State>, Client<'c>)> {
        if state.endpoints.contains_key(&self.endpoint.id()) {
            return Some((state, client));
        }
        drop(state);
        client.reply(Err(AcmStatus::ENOTCONN));
        None
    }

    /// Lets a client wait for the SA's answer. If there is a `stale` path, it waits only one timeout for a better one.
    fn wait(
        &self,
        state: Locked<'_, State>,
        now: Moment,
        query: &PathQuery,
        client: Client<'_>,
        stale: Option<PathRecord>,
        deadline: Moment,
    ) -> Resolution {
        let Some((mut state, client)) = self.if_open(state, client) else {
            return Resolution::Refused;
        };
        let key = LookupKey::new(&self.endpoint, query);
        let until = match stale {
            Some(_) => deadline.min(now.after(millis(self.shared.settings.lookups.timeout))),
            None => deadline,
        };
        let waiter = Waiter {
            client: client.keep(),
            stale: stale.map(Box::new),
        };
        if !state.paths.ask(now, key, waiter, until) {
            return Resolution::Refused;
        }
        if stale.is_some() {
            // Query the SA, so that the next request gets a fresh path.
            state.paths.want(now, key, deadline, Urgency::Usual);
        }
        Resolution::Asked
    }

    fn look_in_cache(&self, query: &PathQuery, now: Moment) -> Cached<'_> {
        let OpenEndpoint { source, store, .. } = &*self.endpoint;
        // The caller has already looked in the table for a plain path.
        if (self.shared.preload.is_some() || !query.is_plain(source))
            && let Known::Fresh(path) = store.look_up(query, now)
        {
            return Cached::Known(Some(path));
        }
        if let Some(path) = self.preloaded(query, now) {
            return Cached::Known(Some(path));
        }
        let mut state = self.shared.state.lock();
        // Look again: answers are stored with the state locked, so this finds one that has just arrived.
        let stale = match store.look_up(query, now) {
            Known::Fresh(path) => return Cached::Known(Some(path)),
            Known::Missing => {
                NEGATIVE_HITS.increment();
                return Cached::Known(None);
            }
            Known::Renewed(path) => {
                state.renewals.stale_used(now);
                STALE_ANSWERS.increment();
                return Cached::Known(Some(path));
            }
            Known::Stale(path) => Some(path),
            Known::Nothing => None,
        };
        Cached::Unknown { state, stale }
    }

    /// Returns the dump's path. The answer to a plain query is a hit from then on.
    fn preloaded(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        let OpenEndpoint { source, store, .. } = &*self.endpoint;
        let preload = self.shared.preload.as_ref()?;
        let preloads = store.preloads();
        let (path, read) = preload.path(query, source, now)?;
        if !self.shared.rules.prefer(query, &path) {
            return None;
        }
        if query.is_plain(source) {
            let target = query.target().ok();
            store.preload(target.map(|target| (target, path)), read, preloads, now);
            // Wake the port's thread: it must now call the store's tick in time.
            if store.next_tick().is_some() {
                drop(self.shared.state.lock());
            }
        }
        Some(path)
    }

    /// Whether the source that a client names is one of the port's. For other sources, other daemons query the SA.
    fn is_ours_to_ask(&self, query: &PathQuery) -> bool {
        let sgid = query.values().sgid();
        sgid == self.endpoint.source.gid || self.shared.port.has_gid(sgid)
    }

    /// Answers from the cache: with a path, or ENODATA.
    fn answer(&self, client: Client<'_>, path: Option<PathRecord>) {
        match path {
            Some(path) => client.reply_from_cache(&self.endpoint.handle, &path),
            None => client.reply(Err(AcmStatus::ENODATA)),
        }
    }
}
