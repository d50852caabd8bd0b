//! Forks of this process, and their ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::suite::run::signal_name;

/// How a fork ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With an exit code.
    Exit(i32),
    /// By a signal.
    Signal(String),
}

/// A running fork. Dropping it kills the fork.
pub(super) struct Copy {
    pid: Pid,
    end: OwnedFd,
    is_reaped: bool,
}

/// The exit code of a fork whose work panicked.
pub(super) const PANICKED: i32 = 101;

/// Runs `work` in a fork of this process, which must have only one thread. Its result is the exit code.
///
/// # Errors
/// If the fork fails.
pub(super) fn start(work: impl FnOnce() -> i32) -> io::Result<Copy> {
    // SAFETY: this process has one thread, so the copy lacks nothing.
    match unsafe { libc::fork() } {
        0 => {
            let code = panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
            // SAFETY: ends the fork at once; it has nothing to clean up.
            unsafe { libc::_exit(code) }
        }
        child => {
            let Some(pid) = Pid::from_raw(child).filter(|_| child > 0) else {
                return Err(io::Error::last_os_error());
            };
            let end = pidfd_open(pid, PidfdFlags::empty())?;
            Ok(Copy {
                pid,
                end,
                is_reaped: false,
            })
        }
    }
}

impl Copy {
    /// Returns how it ended; `None` while it runs.
    ///
    /// # Errors
    /// If the wait fails, as when the provider has already reaped it.
    pub(super) fn ended(&mut self) -> io::Result<Option<Ended>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::PidFd(self.end.as_fd()), options) {
            Err(Errno::INTR) => return Ok(None),
            status => status.map_err(|error| {
                let pid = self.pid.as_raw_nonzero();
                io::Error::other(format!("waiting for process {pid}: {error}"))
            })?,
        };
        let Some(status) = status else {
            return Ok(None);
        };
        self.is_reaped = true;
        Ok(Some(match status.terminating_signal() {
            Some(signal) => Ended::Signal(signal_name(signal)),
            None => Ended::Exit(status.exit_status().unwrap_or(-1)),
        }))
    }

    /// Kills it.
    pub(super) fn kill(&self) {
        // It may have ended by itself.
        let _ = pidfd_send_signal(&self.end, Signal::KILL);
    }

    /// Waits for its end, and kills it after the time limit.
    ///
    /// # Errors
    /// As [`ended`](Self::ended).
    pub(super) fn wait(mut self, limit: Duration) -> io::Result<Option<Ended>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(ended) = self.ended()? {
                return Ok(Some(ended));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            wait_for_any(&[self.as_fd()], left)?;
        }
    }
}

impl AsFd for Copy {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            // The result no longer matters.
            let _ = waitid(WaitId::PidFd(self.end.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

/// Waits until one of the forks has ended, or until the time limit.
///
/// # Errors
/// If the wait fails.
pub(super) fn wait_for_any(ends: &[BorrowedFd<'_>], limit: Duration) -> io::Result<()> {
    let mut ends: Vec<PollFd<'_>> = ends
        .iter()
        .map(|end| PollFd::from_borrowed_fd(*end, PollFlags::IN))
        .collect();
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    match poll(&mut ends, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
