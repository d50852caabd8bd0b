//! Waits for conditions, with a deadline; a signal ends the wait.

use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};
use crate::signals;

/// Time limit for a step that normally takes a fraction of a second: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Makes SIGINT, SIGTERM and SIGHUP end waits with [`Error::Interrupted`], so that destructors clean up. A second signal ends
/// the process at once.
pub fn catch_signals() -> Result<()> {
    signals::catch().context(|| "install handlers of signals".to_owned())
}

/// Returns an error if a signal came since [`catch_signals`].
pub fn check_signals() -> Result<()> {
    match signals::came() {
        None => Ok(()),
        Some(number) => Err(Error::Interrupted(number)),
    }
}

/// Calls `probe` until it returns a value, at most for `limit`; `what` names the condition in the error.
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

/// Waits like [`until`], for a condition without a value.
pub fn until_true(
    what: impl Into<String>,
    limit: Duration,
    mut probe: impl FnMut() -> Result<bool>,
) -> Result<()> {
    until(what, limit, || Ok(probe()?.then_some(())))
}

/// Whether to retry a read from a socket with a time-out.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
