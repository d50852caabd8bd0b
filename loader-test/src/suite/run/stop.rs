//! Ends a run early: after a signal, or if the reader of standard output went away.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::signals;

/// Ends a run early: no further check starts, and running ones are killed.
pub struct Stop {
    /// Becomes readable when the run is stopped.
    ended: OwnedFd,
    end: OwnedFd,
}

/// Returns the exit status for a signal that came since [`Stop::at_signals`].
pub fn signalled() -> Option<u8> {
    signals::came().map(|number| u8::try_from(128 + number).unwrap_or(1))
}

impl Stop {
    /// Returns a stop that SIGINT, SIGTERM and SIGHUP set, so that the run removes its files. A second signal ends the
    /// process and its running checks at once.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn at_signals() -> io::Result<Arc<Self>> {
        static STOP: Mutex<Option<Arc<Stop>>> = Mutex::new(None);
        let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = &*known {
            return Ok(Arc::clone(stop));
        }
        let stop = Arc::new(Self::new()?);
        signals::catch_and_write(&stop.end)?;
        Ok(Arc::clone(known.insert(stop)))
    }

    /// Stops the run when the reader of standard output closes its pipe, even while nothing is written.
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

    /// Returns a stop that is not set.
    ///
    /// # Errors
    /// If no descriptor is free.
    pub fn new() -> io::Result<Self> {
        let (ended, end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { ended, end })
    }

    /// Stops the run.
    pub fn now(&self) {
        // It can only fail by having been done very often already.
        let _ = rustix::io::write(&self.end, &[1]);
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Whether it is ended.
    pub fn is_set(&self) -> bool {
        let mut set = [PollFd::new(&self.ended, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}
