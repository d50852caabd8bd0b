//! Tests with one thread and with many; the loom models test every order.

use super::*;

fn value<T: Copy>(registry: &Registry<T>, key: ContextKey) -> Option<T> {
    registry.enter(key).ok().map(|guest| **guest)
}

/// Closes a context that has no other guest.
fn close<T>(registry: &Registry<T>, key: ContextKey) -> Option<Arc<T>> {
    let guest = registry.enter(key).ok()?;
    assert!(guest.close());
    guest.leave()
}

#[test]
fn a_key_is_invalid_after_its_context_closes() {
    let registry = Registry::new();
    let first = registry.insert(Arc::new(1)).unwrap();
    assert_eq!(value(&registry, first), Some(1));
    assert_eq!(close(&registry, first).as_deref(), Some(&1));
    assert!(close(&registry, first).is_none());
    let second = registry.insert(Arc::new(2)).unwrap();
    assert_ne!(first, second, "the slot is reused under another key");
    assert_eq!(value(&registry, first), None);
    assert!(!registry.is_open(first) && registry.is_open(second));
    assert_eq!(value(&registry, second), Some(2));
}

#[test]
fn made_up_keys_name_nothing() {
    let registry = Registry::new();
    let key = registry.insert(Arc::new(7)).unwrap();
    for address in [
        2,
        FIRST_CHUNK + 1,
        INDEX_MASK,
        INDEX_MASK + 1,
        INDEX_MASK + 2,
        usize::MAX,
    ] {
        let key = ContextKey::from_context(std::ptr::without_provenance_mut(address)).unwrap();
        assert!(registry.enter(key).is_err_and(|last| last.is_none()));
        assert!(!registry.is_open(key));
    }
    assert!(ContextKey::from_context(std::ptr::null_mut()).is_none());
    assert_eq!(value(&registry, key), Some(7));
}

#[test]
fn the_last_guest_of_a_closed_context_gets_its_value() {
    let registry = Registry::new();
    let key = registry.insert(Arc::new(7)).unwrap();
    let [first, second, third] = [(); 3].map(|()| registry.enter(key).ok().unwrap());
    assert!(first.leave().is_none(), "it is open");
    assert!(second.close());
    assert!(!third.close(), "closed already");
    assert!(registry.enter(key).is_err_and(|last| last.is_none()));
    assert!(second.leave().is_none());
    assert_eq!(**third, 7);
    assert_eq!(third.leave().as_deref(), Some(&7));
    assert_eq!(registry.free.lock().slots, [0]);
}

#[test]
fn a_guest_that_is_dropped_has_left() {
    let registry = Registry::new();
    let kept = Arc::new(7);
    let key = registry.insert(Arc::clone(&kept)).unwrap();
    let guest = registry.enter(key).ok().unwrap();
    guest.close();
    drop(guest);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn reopening_reuses_slots() {
    let registry = Registry::new();
    for round in 0..1000 {
        let key = registry.insert(Arc::new(round)).unwrap();
        assert!(close(&registry, key).is_some());
    }
    let free = registry.free.lock();
    assert_eq!((free.used, &free.slots[..]), (1, &[0][..]));
}

#[test]
fn every_index_has_a_place_of_its_own() {
    let mut next = (0, 0);
    for index in 0..1_000 {
        assert_eq!(place(index), Some(next), "{index}");
        next.1 += 1;
        if next.1 == chunk_length(next.0) {
            next = (next.0 + 1, 0);
        }
    }
    let (chunk, _) = place(INDEX_MASK - 1).unwrap();
    assert_eq!(chunk, CHUNKS - 1, "the last slot is in the last chunk");
    let registry = Registry::new();
    let keys: Vec<ContextKey> = (0..100)
        .map(|number| registry.insert(Arc::new(number)).unwrap())
        .collect();
    for (number, key) in keys.into_iter().enumerate() {
        assert_eq!(value(&registry, key), Some(number));
    }
}

#[test]
fn a_slot_whose_generations_are_used_up_is_retired() {
    let registry = Registry::new();
    let key = registry.insert(Arc::new(1)).unwrap();
    close(&registry, key);
    let last = (usize::MAX >> INDEX_BITS) as u64;
    let word = &registry.slot(0).unwrap().word;
    word.store(last << GENERATION, Ordering::Relaxed);
    let key = registry.insert(Arc::new(2)).unwrap();
    assert_eq!(key.generation() as u64, last);
    assert_eq!(close(&registry, key).as_deref(), Some(&2));
    assert_eq!(value(&registry, key), None);
    registry.insert(Arc::new(3)).unwrap();
    assert_eq!(registry.free.lock().used, 2);
}

#[test]
fn too_many_guests_do_not_overflow_the_count() {
    let registry = Registry::new();
    let key = registry.insert(Arc::new(1)).unwrap();
    let word = &registry.slot(0).unwrap().word;
    word.fetch_add(MOST_GUESTS, Ordering::Relaxed);
    assert_eq!(value(&registry, key), None);
    word.fetch_sub(1, Ordering::Relaxed);
    assert_eq!(value(&registry, key), Some(1));
    word.fetch_sub(MOST_GUESTS - 1, Ordering::Relaxed);
    assert_eq!(word.load(Ordering::Relaxed) & GUESTS, 0);
}

/// Some threads visit while others open and close: each visit finds its own value or none, and every value is dropped once.
#[test]
fn visits_and_closes_of_many_threads() {
    use std::sync::atomic::AtomicUsize;

    struct Counted<'a>(usize, &'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    const ROUNDS: usize = if cfg!(miri) { 30 } else { 3_000 };
    let dropped = AtomicUsize::new(0);
    let registry = Registry::new();
    let newest = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let value = Arc::new(Counted(round, &dropped));
                    let key = registry.insert(value).unwrap();
                    newest.store(key.0.get(), Ordering::Release);
                    std::thread::yield_now();
                    let guest = registry
                        .enter(key)
                        .ok()
                        .expect("open until it is closed here");
                    assert_eq!(guest.0, round);
                    assert!(guest.close());
                    drop(guest.leave());
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS * 4 {
                    let Some(key) = NonZeroUsize::new(newest.load(Ordering::Acquire)) else {
                        continue;
                    };
                    if let Ok(guest) = registry.enter(ContextKey(key)) {
                        assert!(guest.0 < ROUNDS);
                        drop(guest.leave());
                    }
                }
            });
        }
    });
    assert_eq!(dropped.load(Ordering::Relaxed), 2 * ROUNDS);
    let free = registry.free.lock();
    assert_eq!(free.slots.len(), free.used, "no slot is lost");
}
