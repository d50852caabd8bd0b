//! What ends a run early: a signal, or a reader that went away.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Ends a run early: no further check begins, and those at work are killed.
pub struct Stop(OwnedFd);

/// The exit status that a signal asks for; 0 while none came.
static SIGNALLED: AtomicU8 = AtomicU8::new(0);

/// The exit status that a signal asks for, if one came that [`Stop::at_signals`] heard.
pub fn signalled() -> Option<u8> {
    Some(SIGNALLED.load(Ordering::Relaxed)).filter(|status| *status != 0)
}

impl Stop {
    /// The one that SIGINT, SIGTERM and SIGHUP end, so that what a run has made is removed. A second signal ends the
    /// process at once; the checks at work end with it.
    ///
    /// # Errors
    /// If the signals cannot be heard.
    pub fn at_signals() -> io::Result<Arc<Self>> {
        static STOP: Mutex<Option<Arc<Stop>>> = Mutex::new(None);
        let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = &*known {
            return Ok(Arc::clone(stop));
        }
        let stop = Arc::new(Self::new()?);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let heard = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for number in &mut signals {
                    if signalled().is_some() {
                        let _ = emulate_default_handler(number);
                    }
                    let status = u8::try_from(128 + number).unwrap_or(1);
                    SIGNALLED.store(status, Ordering::Relaxed);
                    heard.now();
                }
            })?;
        Ok(Arc::clone(known.insert(stop)))
    }

    /// Ends it when standard output is a pipe that nobody reads any longer, also while there is nothing to write.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn when_nobody_reads(self: &Arc<Self>) -> io::Result<()> {
        let stop = Arc::clone(self);
        let watch = move || {
            let stdout = io::stdout();
            let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
            while let Ok(_) | Err(Errno::INTR) = poll(&mut pipe, None) {
                if pipe[0]
                    .revents()
                    .intersects(PollFlags::ERR | PollFlags::HUP)
                {
                    return stop.now();
                }
            }
        };
        std::thread::Builder::new()
            .name("reader".into())
            .spawn(watch)
            .map(drop)
    }

    /// Of a run that goes on.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Ends it.
    pub fn now(&self) {
        // It can only fail by having been done very often already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether it is ended.
    pub fn is_set(&self) -> bool {
        let mut set = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}
