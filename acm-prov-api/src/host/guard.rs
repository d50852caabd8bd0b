//! The guard around every entry of the core.
//!
//! Every callback, SA handler and `provider_query` runs its body in [`enter`]: a panic stops there, its message and place
//! go to the core's log, and the core gets the callback's fallback value. A refusal is logged the same way.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};

use crate::host::log_limit::LogLimit;
use crate::host::{Host, ProviderFault};
use crate::sync::OnceLock;

/// Why a callback did not do what the core asked.
#[derive(Debug)]
pub(crate) struct Refusal {
    reason: String,
}

impl Refusal {
    /// Creates a refusal that is logged at every log level.
    pub(crate) fn error(reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
        }
    }
}

thread_local! {
    /// Where the panic that is being caught happened. Never dropped in place: a destructor of the cell would keep the
    /// library mapped after a refused load.
    static PLACE: Cell<Option<ManuallyDrop<Box<str>>>> = const { Cell::new(None) };
    /// How many guards are active on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The hook that was there before ours.
static PREVIOUS: OnceLock<Hook> = OnceLock::new();

/// Installs a panic hook that notes the place of panics inside a guard. The previous hook handles all others.
///
/// Ours captures nothing and so allocates nothing: a library that is refused is unloaded with it.
#[inline]
fn keep_places() {
    if PREVIOUS.get().is_none() {
        set_hook();
    }
}

#[cold]
fn set_hook() {
    // A thread that unwinds must not change the hook. If this is the first door, a panic behind it is logged without its place.
    if std::thread::panicking() {
        return;
    }
    PREVIOUS.get_or_init(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(keep_place));
        previous
    });
}

fn keep_place(info: &PanicHookInfo<'_>) {
    if DEPTH.get() == 0 {
        return PREVIOUS.get().map_or((), |previous| previous(info));
    }
    if let Some(place) = info.location() {
        set_place(Some(place.to_string().into_boxed_str()));
    }
}

/// Returns the place that was set before.
fn set_place(place: Option<Box<str>>) -> Option<Box<str>> {
    let before = PLACE.replace(place.map(ManuallyDrop::new));
    before.map(ManuallyDrop::into_inner)
}

/// The text of a panic.
fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is no text")
}

/// Runs a body of a provider's own thread: what it gives, or `fallback` if it panics. The panic's message and place go to
/// the core's log, and `what` says whose it was.
pub fn guard<R>(host: &Host, what: &str, fallback: R, body: impl FnOnce() -> R) -> R {
    enter(what, Some(host), fallback, || Ok(body()))
}

/// Runs one callback's body: what it answers, or `fallback` if it refuses or panics.
#[inline]
pub(crate) fn enter<R>(
    callback: &str,
    host: Option<&Host>,
    fallback: R,
    body: impl FnOnce() -> Result<R, Refusal>,
) -> R {
    keep_places();
    let outcome = DEPTH.with(|depth| {
        depth.set(depth.get() + 1);
        // Unwind safety: state that a panic could leave half-changed sits behind locks whose holders restore it or answer
        // for single values; a request token dropped by the unwinding answers its client.
        let outcome = panic::catch_unwind(AssertUnwindSafe(body));
        depth.set(depth.get() - 1);
        outcome
    });
    match outcome {
        Ok(Ok(value)) => value,
        Ok(Err(refusal)) => {
            failed(callback, host, Ok(refusal));
            fallback
        }
        Err(payload) => {
            failed(callback, host, Err(payload));
            fallback
        }
    }
}

/// Says why a callback did not do what the core asked.
#[cold]
fn failed(callback: &str, host: Option<&Host>, why: Result<Refusal, Box<dyn Any + Send>>) {
    match why {
        Ok(refusal) => report(host, format_args!("{callback}: {}", refusal.reason)),
        Err(payload) => {
            let place = set_place(None);
            let text = message(&*payload);
            let at = place.as_deref().unwrap_or("an unknown place");
            // Refusals, however many, hold no panic back.
            static LIMIT: LogLimit = LogLimit::new();
            let text = format_args!("{callback}: panic: {text} (at {at}); the provider goes on");
            match host {
                Some(host) => host.provider_fault(ProviderFault::CAUGHT_PANIC, &LIMIT, text),
                None => say(None, &LIMIT, text),
            }
            // A payload's own destructor may panic; that must not cross either.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(payload)));
        }
    }
}

/// Says something through the core's log or, without a core, on standard error. What repeats itself with every call is not
/// said every time.
pub(crate) fn report(host: Option<&Host>, text: fmt::Arguments<'_>) {
    static LIMIT: LogLimit = LogLimit::new();
    say(host, &LIMIT, text);
}

fn say(host: Option<&Host>, limit: &LogLimit, text: fmt::Arguments<'_>) {
    match host {
        Some(host) => host.log_fault(limit, text),
        // Not eprintln!, which panics where nothing can be written: this runs outside the barrier.
        None => {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;
    use crate::testing;

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn host() -> Host {
        testing::host_that_logs(|_, text| LINES.lock().push(text.to_string_lossy().into_owned()))
    }

    #[test]
    fn a_panic_becomes_a_log_line_with_its_place() {
        let value = enter("resolve", Some(&host()), 7, || {
            panic!("number {}\nforged line", 42)
        });
        assert_eq!(value, 7);
        let lines = LINES.lock().clone();
        let line = lines
            .iter()
            .find(|line| line.contains("number 42"))
            .expect("logged");
        assert!(
            line.contains("resolve: panic") && line.contains("guard.rs:"),
            "{line}"
        );
        assert!(
            line.contains("\\nforged") && line.matches('\n').count() == 1,
            "{line}"
        );
    }

    #[test]
    fn a_refusal_is_logged_and_falls_back() {
        let value = enter("open_port", Some(&host()), -1, || {
            Err(Refusal::error("port 3: no such luck"))
        });
        assert_eq!(value, -1);
        assert!(
            LINES
                .lock()
                .iter()
                .any(|line| line.contains("open_port: port 3: no such luck"))
        );
    }

    #[test]
    fn a_payload_that_panics_when_dropped_stays_inside() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("second panic");
            }
        }
        assert_eq!(
            enter("resolve", Some(&host()), 3, || panic::panic_any(Bomb)),
            3
        );
    }
}
