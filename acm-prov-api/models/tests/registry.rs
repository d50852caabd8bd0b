//! Contexts visited, closed and reopened on several threads at a time.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use acm_prov_api_models::sync;
use loom::cell::UnsafeCell;
use loom::thread;
use sync::Arc;
use sync::atomic::{AtomicPtr, Ordering};

// rustfmt would look for the file's own tests, which are not compiled here.
#[rustfmt::skip]
#[allow(dead_code, reason = "the models use a part of it")]
#[path = "../../src/door/registry.rs"]
mod registry;

use registry::{ContextKey, Registry};

/// A context's value. Loom detects a visit that is not over when the value is dropped.
struct Value {
    number: usize,
    touched: UnsafeCell<()>,
    dropped: std::sync::Arc<AtomicUsize>,
}

impl Value {
    fn new(number: usize, dropped: &std::sync::Arc<AtomicUsize>) -> Arc<Self> {
        let touched = UnsafeCell::new(());
        // Every visitor must see this write.
        touched.with_mut(|_| ());
        Arc::new(Self {
            number,
            touched,
            dropped: std::sync::Arc::clone(dropped),
        })
    }

    fn number(&self) -> usize {
        self.touched.with(|_| ());
        self.number
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.touched.with_mut(|_| ());
        self.dropped.fetch_add(1, Relaxed);
    }
}

/// Visits a context. Returns its number, if it was open.
fn visit(registry: &Registry<Value>, key: ContextKey) -> Option<usize> {
    match registry.enter(key) {
        Ok(guest) => {
            let number = guest.number();
            drop(guest.leave());
            Some(number)
        }
        Err(last) => {
            drop(last);
            None
        }
    }
}

/// Closes a context. Returns whether this call closed it.
fn close(registry: &Registry<Value>, key: ContextKey) -> bool {
    match registry.enter(key) {
        Ok(guest) => {
            let closed = guest.close();
            drop(guest.leave());
            closed
        }
        Err(last) => {
            drop(last);
            false
        }
    }
}

/// The body of a thread.
type Body = Box<dyn FnOnce(&Registry<Value>)>;

/// Runs each body on its own thread.
fn threads<const N: usize>(registry: &Arc<Registry<Value>>, bodies: [Body; N]) {
    let threads = bodies.map(|body| {
        let registry = Arc::clone(registry);
        thread::spawn(move || body(&registry))
    });
    for thread in threads {
        thread.join().expect("it does not panic");
    }
}

#[test]
fn a_close_during_a_visit_drops_the_value_once_and_after_it() {
    loom::model(|| {
        let dropped = std::sync::Arc::new(AtomicUsize::new(0));
        let registry = Arc::new(Registry::new());
        let key = registry.insert(Value::new(1, &dropped)).expect("room");
        threads(
            &registry,
            [
                Box::new(move |registry| assert!(matches!(visit(registry, key), None | Some(1)))),
                Box::new(move |registry| assert!(close(registry, key))),
            ],
        );
        assert_eq!(dropped.load(Relaxed), 1);
        assert_eq!(visit(&registry, key), None);
    });
}

#[test]
fn of_two_who_close_one_does() {
    loom::model(|| {
        let dropped = std::sync::Arc::new(AtomicUsize::new(0));
        let registry = Arc::new(Registry::new());
        let key = registry.insert(Value::new(1, &dropped)).expect("room");
        let closed = std::sync::Arc::new(AtomicUsize::new(0));
        let closer = || {
            let closed = std::sync::Arc::clone(&closed);
            Box::new(move |registry: &Registry<Value>| {
                closed.fetch_add(close(registry, key).into(), Relaxed);
            }) as Body
        };
        threads(&registry, [closer(), closer()]);
        assert_eq!((closed.load(Relaxed), dropped.load(Relaxed)), (1, 1));
    });
}

#[test]
fn a_slot_that_is_used_again_answers_to_its_new_key_only() {
    loom::model(|| {
        let dropped = std::sync::Arc::new(AtomicUsize::new(0));
        let registry = Arc::new(Registry::new());
        let old = registry.insert(Value::new(1, &dropped)).expect("room");
        let opened = std::sync::Arc::clone(&dropped);
        threads(
            &registry,
            [
                Box::new(move |registry| assert!(matches!(visit(registry, old), None | Some(1)))),
                Box::new(move |registry| {
                    assert!(close(registry, old));
                    let new = registry.insert(Value::new(2, &opened)).expect("room");
                    assert_eq!(visit(registry, new), Some(2));
                }),
            ],
        );
        assert_eq!(dropped.load(Relaxed), 1);
        drop(registry);
        assert_eq!(dropped.load(Relaxed), 2);
    });
}

#[test]
fn a_visitor_sees_the_whole_value_however_it_got_the_key() {
    loom::model(|| {
        let dropped = std::sync::Arc::new(AtomicUsize::new(0));
        let registry = Arc::new(Registry::new());
        let told = std::sync::Arc::new(AtomicPtr::new(std::ptr::null_mut()));
        let hears = std::sync::Arc::clone(&told);
        let opened = std::sync::Arc::clone(&dropped);
        threads(
            &registry,
            [
                Box::new(move |registry| {
                    let key = registry.insert(Value::new(1, &opened)).expect("room");
                    told.store(key.to_context(), Ordering::Relaxed);
                }),
                Box::new(move |registry| {
                    if let Some(key) = ContextKey::from_context(hears.load(Ordering::Relaxed)) {
                        assert!(matches!(visit(registry, key), None | Some(1)));
                    }
                }),
            ],
        );
        assert_eq!(dropped.load(Relaxed), 0);
    });
}
