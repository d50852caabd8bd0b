//! A cache of negative answers.

use std::hash::Hash;
use std::time::Duration;

use lru::LruCache;

use crate::clock::{Moment, millis};

/// The most keys in [`Negatives`].
pub const MAX_NEGATIVES: usize = 1024;

/// Recent negative answers: queries without a record, names that no node has. Holds at most [`MAX_NEGATIVES`] keys
/// and evicts the least recently used.
pub struct Negatives<K: Hash + Eq> {
    ttl: u64,
    said: LruCache<K, Moment>,
}

impl<K: Hash + Eq> Negatives<K> {
    /// Creates a cache that keeps keys for `ttl`, in whole milliseconds; zero keeps none.
    #[must_use]
    pub fn new(ttl: Duration) -> Negatives<K> {
        Negatives {
            ttl: millis(ttl),
            said: LruCache::unbounded(),
        }
    }

    /// Stores a negative answer for `key`.
    pub fn insert(&mut self, key: K, now: Moment) {
        if self.ttl == 0 {
            return;
        }
        self.said.put(key, now);
        if self.said.len() > MAX_NEGATIVES {
            self.said.pop_lru();
        }
    }

    /// Whether there is a negative answer for `key`.
    pub fn contains(&mut self, key: &K, now: Moment) -> bool {
        if self.said.is_empty() {
            return false;
        }
        let Some(&said) = self.said.get(key) else {
            return false;
        };
        let remembered = now.since(said) < self.ttl;
        if !remembered {
            self.said.pop(key);
        }
        remembered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.said.is_empty()
    }

    /// Removes the negative answer for `key`.
    pub fn remove(&mut self, key: &K) {
        if !self.said.is_empty() {
            self.said.pop(key);
        }
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.said.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    #[test]
    fn remembered_for_the_ttl() {
        let mut negatives = Negatives::new(Duration::from_millis(100));
        negatives.insert("a", at(10));
        assert!(negatives.contains(&"a", at(109)));
        assert!(!negatives.contains(&"b", at(10)));
        assert!(!negatives.contains(&"a", at(110)));
        negatives.insert("a", at(200));
        negatives.remove(&"a");
        assert!(!negatives.contains(&"a", at(200)));
    }

    #[test]
    fn a_ttl_of_zero_is_off() {
        let mut negatives = Negatives::new(Duration::ZERO);
        negatives.insert(1, at(0));
        assert!(!negatives.contains(&1, at(0)));
    }

    #[test]
    fn bounded_and_the_least_used_goes() {
        let mut negatives = Negatives::new(Duration::from_millis(100));
        for key in 0..MAX_NEGATIVES {
            negatives.insert(key, at(0));
        }
        assert!(negatives.contains(&0, at(0)));
        negatives.insert(MAX_NEGATIVES, at(0));
        assert!(negatives.contains(&0, at(0)));
        assert!(!negatives.contains(&1, at(0)));
        assert!(negatives.contains(&MAX_NEGATIVES, at(0)));
    }
}
