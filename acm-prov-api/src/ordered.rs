//! A sorted map that is usually empty or nearly empty.

use std::collections::BTreeMap;
use std::mem;

/// As [`BTreeMap`], but with the first entry outside the tree, so that a map with one entry costs a few comparisons.
#[derive(Debug)]
pub(crate) struct Ordered<K, V> {
    /// Smaller than every key of `rest`. `None` only while `rest` is empty.
    first: Option<(K, V)>,
    rest: BTreeMap<K, V>,
}

impl<K: Ord + Copy, V> Ordered<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            rest: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns the entry with the smallest key.
    pub(crate) fn first(&self) -> Option<(K, &V)> {
        self.first.as_ref().map(|(key, value)| (*key, value))
    }

    /// Inserts an entry; replaces one with the same key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match &mut self.first {
            None => self.first = Some((key, value)),
            Some((first, old)) if *first == key => *old = value,
            Some((first, _)) if *first < key => {
                self.rest.insert(key, value);
            }
            Some(first) => {
                let (later, old) = mem::replace(first, (key, value));
                self.rest.insert(later, old);
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) {
        match &self.first {
            Some((first, _)) if first == key => {
                self.pop_first();
            }
            Some(_) => {
                self.rest.remove(key);
            }
            None => {}
        }
    }

    /// Takes out the entry with the smallest key.
    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        let next = match self.rest.is_empty() {
            true => None,
            false => self.rest.pop_first(),
        };
        mem::replace(&mut self.first, next)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Returns all entries in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let rest = self.rest.iter().map(|(key, value)| (*key, value));
        self.first().into_iter().chain(rest)
    }
}

impl<K: Ord + Copy, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u8),
        Remove(u8),
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..8_u8, any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
            (0..8_u8).prop_map(Step::Remove),
            Just(Step::Pop),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_tree(steps in prop::collection::vec(step(), 0..40)) {
            let (mut ordered, mut tree) = (Ordered::new(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        ordered.insert(key, value);
                        tree.insert(key, value);
                    }
                    Step::Remove(key) => {
                        ordered.remove(&key);
                        tree.remove(&key);
                    }
                    Step::Pop => prop_assert_eq!(ordered.pop_first(), tree.pop_first()),
                }
                let entries = tree.iter().map(|(key, value)| (*key, value));
                prop_assert!(ordered.iter().eq(entries));
                prop_assert_eq!(ordered.first(), tree.first_key_value().map(|(key, value)| (*key, value)));
                prop_assert_eq!((ordered.len(), ordered.is_empty()), (tree.len(), tree.is_empty()));
            }
        }
    }
}
