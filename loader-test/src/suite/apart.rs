//! Runs a piece of a check in its own process: it may crash, and its changes to the process end with it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::panic::{self, AssertUnwindSafe};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::fixture::{Fixture, judge};
use super::run::signal_name;
use super::{Finding, Outcome, failed};
use crate::stand_in::StandIn;

/// How the piece ended.
#[derive(Debug)]
pub enum End {
    /// It returned this outcome.
    Came(Outcome),
    /// The process ended before it: by this signal or exit code.
    Lost(String),
}

/// How the process ends after the piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// At once, as the daemon does.
    AtOnce,
    /// By `exit`, with all exit handlers.
    WithHandlers,
}

impl Fixture {
    /// Runs `piece` in a fork of this process, closes everything there, and judges its ledger.
    ///
    /// # Errors
    /// If the fork fails, or the result cannot be stored.
    pub fn apart(
        &mut self,
        exit: Exit,
        piece: impl FnOnce(&mut Self) -> Outcome,
    ) -> io::Result<End> {
        // In memory, independent of full disks and deleted folders.
        let result = File::from(memfd_create("apart", MemfdFlags::CLOEXEC)?);
        // SAFETY: in a check's process no other thread runs before its core is started. With --in-process, threads of
        // earlier checks may exist; the fork does not need them or their data.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => self.copy_runs(exit, piece, &result),
            child => wait(child, &result),
        }
    }

    fn copy_runs(
        &mut self,
        exit: Exit,
        piece: impl FnOnce(&mut Self) -> Outcome,
        mut result: &File,
    ) -> ! {
        // The fork ends with its parent, so that a killed run leaves nothing behind. If this fails, the time limit ends it.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        StandIn::abandon_installed();
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            let outcome = piece(self);
            let (harm, _) = judge(self.finish());
            match (outcome, harm.first()) {
                (Ok(()), Some(breach)) => Err(Finding::Breach {
                    kind: breach.kind,
                    harmed: breach.harmed,
                    expected: "no violation of the contract".into(),
                    seen: breach.text.clone(),
                }),
                (outcome, _) => outcome,
            }
        }))
        .unwrap_or_else(|_| Err(failed("a check that can be run", "a panic")));
        let written = serde_json::to_vec(&outcome)
            .map_err(io::Error::from)
            .and_then(|text| result.write_all(&text));
        if written.is_ok() && exit == Exit::WithHandlers {
            // SAFETY: the fork needs nothing afterwards; the check tests the library's exit handlers.
            unsafe { libc::exit(0) };
        }
        // SAFETY: ends the fork at once.
        unsafe { libc::_exit(written.is_err().into()) }
    }
}

fn wait(child: libc::pid_t, mut result: &File) -> io::Result<End> {
    let mut status = 0;
    // SAFETY: our own child, waited for once.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if libc::WIFSIGNALED(status) {
        return Ok(End::Lost(signal_name(libc::WTERMSIG(status))));
    }
    let code = libc::WEXITSTATUS(status);
    let mut text = Vec::new();
    result.rewind()?;
    result.read_to_end(&mut text)?;
    if code != 0 || text.is_empty() {
        return Ok(End::Lost(format!("exit code {code}")));
    }
    Ok(End::Came(serde_json::from_slice(&text)?))
}
