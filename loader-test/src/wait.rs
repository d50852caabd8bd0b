//! Waiting on conditions, with a deadline, so that a signal ends the wait.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Context, Error, Result};

/// How long a step may take that normally takes a fraction of a second: other programs may have the processors.
pub const PATIENCE: Duration = Duration::from_secs(60);

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The number of the signal that came, 0 for none.
fn signal() -> &'static Arc<AtomicUsize> {
    static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
    SIGNAL.get_or_init(Arc::default)
}

/// Lets SIGINT, SIGTERM and SIGHUP end waits with [`Error::Interrupted`], so that the values in scope clean up. A
/// second signal ends the process at once; the processes that it started end with it.
pub fn catch_signals() -> Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        let ask = || format!("install a handler of signal {number}");
        signal_hook::flag::register_conditional_default(number, Arc::clone(&again)).context(ask)?;
        signal_hook::flag::register(number, Arc::clone(&again)).context(ask)?;
        let value = usize::try_from(number).unwrap_or_default();
        signal_hook::flag::register_usize(number, Arc::clone(signal()), value).context(ask)?;
    }
    Ok(())
}

/// An error if a signal came since [`catch_signals`].
pub fn check_signals() -> Result<()> {
    match signal().load(Ordering::Relaxed) {
        0 => Ok(()),
        number => Err(Error::Interrupted(
            i32::try_from(number).unwrap_or_default(),
        )),
    }
}

/// Calls `probe` until it returns something, at most `limit` long; `what` names the condition in the error.
pub fn until<T>(
    what: impl Into<String>,
    limit: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut pause = SHORTEST_PAUSE;
    loop {
        check_signals()?;
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            let what = what.into();
            return Err(Error::Timeout { what, limit });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Like [`until`], for a condition that has no value.
pub fn until_true(
    what: impl Into<String>,
    limit: Duration,
    mut probe: impl FnMut() -> Result<bool>,
) -> Result<()> {
    until(what, limit, || Ok(probe()?.then_some(())))
}

/// Whether a read from a socket with a time-out may be tried again.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
