//! From a request to a path that is known, or to somebody who waits for it.

use std::time::Duration;

use super::asking::Waiter;
use super::client::Client;
use super::{Asker, LookupKey, OpenEndpoint, Resolution, State, qos};
use crate::abi::AcmStatus;
use crate::cache::counters::{NEGATIVE_HITS, STALE_ANSWERS};
use crate::cache::store::Known;
use crate::clock::{Moment, millis};
use crate::lookups::{Locked, Urgency};
use crate::path::PathRecord;
use crate::sa::PathQuery;

/// What is known of a query's answer.
enum Sought<'a> {
    /// The path, or that there is none.
    Known(Option<PathRecord>),
    /// Somebody has to ask. The port's state is locked: an answer that comes meanwhile is not overlooked.
    Unknown {
        state: Locked<'a, State>,
        stale: Option<PathRecord>,
    },
}

impl Asker {
    /// Waits for files that are not read yet, then answers or asks. The client waits as long as the settings say, unless he
    /// has said so himself.
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
        if self.endpoint.awaited.is_over() || client.bypasses_the_cache() {
            self.find(query, client, now, deadline)
        } else {
            self.wait_for_files(query, client, now, deadline)
        }
    }

    /// Finds out whether service ids count for this SA, then answers or asks.
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

    /// Answers from what is known, or asks the SA.
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
        match self.seek(query, now) {
            Sought::Known(path) => {
                self.answer(client, path);
                Resolution::Known
            }
            Sought::Unknown { mut state, stale } => {
                let stands_in = stale.filter(|_| state.health.is_silent());
                if stands_in.is_none() && !client.is_nodelay() {
                    return self.wait(state, now, query, client, stale, deadline);
                }
                // Whatever becomes of the client, somebody has to notice when the SA is back.
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

    /// Gives back what it was given if the endpoint is open; else refuses the client.
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

    /// Lets a client wait for the SA's answer. One that could have a `stale` path waits a timeout for a better one.
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
            // The next one gets a fresh path.
            state.paths.want(now, key, deadline, Urgency::Usual);
        }
        Resolution::Asked
    }

    fn seek(&self, query: &PathQuery, now: Moment) -> Sought<'_> {
        let OpenEndpoint { source, store, .. } = &*self.endpoint;
        // The table was asked for a plain path already.
        if (self.shared.preload.is_some() || !query.is_plain(source))
            && let Known::Fresh(path) = store.look_up(query, now)
        {
            return Sought::Known(Some(path));
        }
        if let Some(path) = self.preloaded(query, now) {
            return Sought::Known(Some(path));
        }
        let mut state = self.shared.state.lock();
        // Looked at again: answers are stored with the state locked, so that one which has just come is not asked for a
        // second time.
        let stale = match store.look_up(query, now) {
            Known::Fresh(path) => return Sought::Known(Some(path)),
            Known::Missing => {
                NEGATIVE_HITS.increment();
                return Sought::Known(None);
            }
            Known::Renewed(path) => {
                state.renewals.stale_used(now);
                STALE_ANSWERS.increment();
                return Sought::Known(Some(path));
            }
            Known::Stale(path) => Some(path),
            Known::Nothing => None,
        };
        Sought::Unknown { state, stale }
    }

    /// What the dump says. The answer to a plain query is a hit from then on.
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
            // The port's thread learns when hits must be told the time.
            if store.next_tick().is_some() {
                drop(self.shared.state.lock());
            }
        }
        Some(path)
    }

    /// Whether the source that a client names is one of the port's: others have daemons of their own to ask for them.
    fn is_ours_to_ask(&self, query: &PathQuery) -> bool {
        let sgid = query.values().sgid();
        sgid == self.endpoint.source.gid || self.shared.port.has_gid(sgid)
    }

    /// Answers from what is known: with a path, or that there is none.
    fn answer(&self, client: Client<'_>, path: Option<PathRecord>) {
        match path {
            Some(path) => client.reply_from_cache(&self.endpoint.handle, &path),
            None => client.reply(Err(AcmStatus::ENODATA)),
        }
    }
}
