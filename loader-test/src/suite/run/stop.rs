//! What ends a run early: a signal, or a reader that went away.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::signals;

/// Ends a run early: no further check begins, and those at work are killed.
pub struct Stop {
    /// Can be read from once it is ended.
    ended: OwnedFd,
    end: OwnedFd,
}

/// The exit status that a signal asks for, if one came since [`Stop::at_signals`].
pub fn signalled() -> Option<u8> {
    signals::came().map(|number| u8::try_from(128 + number).unwrap_or(1))
}

impl Stop {
    /// The one that SIGINT, SIGTERM and SIGHUP end, so that what a run has made is removed. A second signal ends the
    /// process at once; the checks at work end with it.
    ///
    /// # Errors
    /// If the signals cannot be caught.
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
        let (ended, end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { ended, end })
    }

    /// Ends it.
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
