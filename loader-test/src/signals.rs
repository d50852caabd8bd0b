//! SIGINT, SIGTERM and SIGHUP: the first one ends the work cleanly, a second one ends the process and its child processes at
//! once.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

const ALL: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// The number of the received signal, 0 for none.
fn number() -> &'static Arc<AtomicUsize> {
    static NUMBER: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
    NUMBER.get_or_init(Arc::default)
}

/// Installs the handlers.
///
/// # Errors
/// If a handler cannot be installed.
pub fn catch() -> io::Result<()> {
    static IS_CAUGHT: Mutex<bool> = Mutex::new(false);
    let mut is_caught = IS_CAUGHT.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_caught {
        return Ok(());
    }
    let again = Arc::new(AtomicBool::new(false));
    for signal in ALL {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&again))?;
        signal_hook::flag::register(signal, Arc::clone(&again))?;
        let value = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, Arc::clone(number()), value)?;
    }
    *is_caught = true;
    Ok(())
}

/// Installs the handlers, which write a byte to the pipe at each signal.
///
/// # Errors
/// If a handler cannot be installed.
pub fn catch_and_write(pipe: &OwnedFd) -> io::Result<()> {
    catch()?;
    for signal in ALL {
        signal_hook::low_level::pipe::register(signal, pipe.try_clone()?)?;
    }
    Ok(())
}

/// Returns the signal received since [`catch`].
pub fn came() -> Option<i32> {
    let number = number().load(Ordering::Relaxed);
    i32::try_from(number).ok().filter(|number| *number != 0)
}
