//! Runs a program under its own supervisor process.
//!
//! ```text
//! owner (the caller) ── supervisor ── program ── whatever it starts
//! ```
//!
//! The supervisor is a fork of the owner that only waits. It is a subreaper (PR_SET_CHILD_SUBREAPER in prctl(2)): a process
//! whose parent has ended becomes its child, even after setsid(2). When the program ends, when the owner requests it, or when
//! the owner ends, even by SIGKILL, the supervisor kills and reaps all its remaining descendants. If the supervisor is
//! killed, the kernel kills the program too; only processes that the program started may then survive.
//!
//! A program can find its supervisor and kill it, as it can kill every process of its user.

mod children;
mod keeper;
mod message;

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use message::Message;

/// What to do with processes that a program leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// Kill them if they have not ended after this time.
    EndAfter(Duration),
    /// Leave them running: a compiler cache leaves its server on purpose.
    Keep,
}

impl Leftovers {
    /// Kill them at once.
    pub const END: Self = Self::EndAfter(Duration::ZERO);
}

/// A leftover process that the supervisor killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its process id.
    pub pid: i32,
    /// Its name, as in /proc/PID/comm.
    pub name: String,
}

/// A running program and its supervisor. Dropping it ends both, and everything that the program started.
#[derive(Debug)]
pub struct Supervised {
    supervisor: Child,
    link: OwnedFd,
    pid: Pid,
    /// `None` if the program ended before it could be opened.
    program: Option<OwnedFd>,
    leftovers: Vec<Leftover>,
    ended: Option<ExitStatus>,
}

impl Supervised {
    /// Starts a program. It becomes the leader of its own process group.
    ///
    /// # Errors
    /// If the fork fails, or the program cannot be executed.
    pub fn spawn(command: &mut Command, leftovers: Leftovers) -> io::Result<Self> {
        let (link, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let plan = keeper::Plan {
            owner: rustix::process::getpid(),
            link: theirs.as_raw_fd(),
            leftovers,
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&is_over);
        // The command keeps this closure for its next start, whose supervisor gets its own link.
        let split = move || match heard.load(Ordering::Relaxed) {
            true => Ok(()),
            false => keeper::split(&plan),
        };
        // SAFETY: between fork and exec, and in the supervisor, only system calls are made: nothing is allocated and no lock
        // is taken. `theirs` is open until the fork is done.
        unsafe { command.pre_exec(split) };
        let supervisor = command.spawn();
        is_over.store(true, Ordering::Relaxed);
        drop(theirs);
        let mut supervised = Self {
            supervisor: supervisor?,
            link,
            pid: rustix::process::getpid(),
            program: None,
            leftovers: Vec::new(),
            ended: None,
        };
        match supervised.receive(RecvFlags::empty())? {
            Some(Message::Started(pid)) => supervised.open(pid)?,
            _ => {
                return Err(io::Error::other(
                    "the supervisor ended before it started the program",
                ));
            }
        }
        Ok(supervised)
    }

    /// Opens a descriptor of the program: its pid may be reused once the supervisor has reaped it.
    fn open(&mut self, pid: Pid) -> io::Result<()> {
        self.pid = pid;
        let program = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(program) => program,
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // The supervisor reports this before it reaps.
        let mut byte = [0; Message::SIZE];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        if recv(&self.link, &mut byte, flags) == Err(Errno::AGAIN) {
            self.program = Some(program);
        }
        Ok(())
    }

    /// Returns the program's process id. It may be reused once the program has ended.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the supervisor's process id.
    pub fn supervisor(&self) -> Pid {
        Pid::from_child(&self.supervisor)
    }

    /// Sends a signal only to the program.
    ///
    /// # Errors
    /// ESRCH if it has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.program {
            Some(program) => Ok(pidfd_send_signal(program, signal)?),
            None => Err(Errno::SRCH.into()),
        }
    }

    /// Whether the program has ended, ignoring leftover processes.
    ///
    /// # Errors
    /// If the program cannot be polled.
    pub fn has_ended(&self) -> io::Result<bool> {
        let Some(program) = &self.program else {
            return Ok(true);
        };
        let mut end = [PollFd::new(program, PollFlags::IN)];
        Ok(poll(&mut end, Some(&Timespec::default()))? > 0)
    }

    /// Takes the other end of a piped standard input.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.supervisor.stdin.take()
    }

    /// Takes the other end of a piped standard output.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.supervisor.stdout.take()
    }

    /// Takes the other end of a piped standard error.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.supervisor.stderr.take()
    }

    /// Returns the program's exit status, once it and all descendants of the supervisor have ended.
    ///
    /// # Errors
    /// If the supervisor cannot be waited for.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.collect(RecvFlags::DONTWAIT)
    }

    /// Waits for the end of the program and of all descendants of the supervisor. Returns the program's exit status, or the
    /// supervisor's if it was killed.
    ///
    /// # Errors
    /// If the supervisor cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.collect(RecvFlags::empty())? {
                return Ok(status);
            }
        }
    }

    /// Kills the program and everything that it started, and waits for their end. Returns the program's exit status.
    ///
    /// # Errors
    /// If the supervisor cannot be waited for.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        // The send fails only if the supervisor has ended.
        let _ = rustix::net::shutdown(&self.link, rustix::net::Shutdown::Write);
        self.wait()
    }

    /// Returns the leftover processes that were killed; complete after the end.
    pub fn leftovers(&self) -> &[Leftover] {
        &self.leftovers
    }

    fn collect(&mut self, flags: RecvFlags) -> io::Result<Option<ExitStatus>> {
        while self.ended.is_none() {
            match self.receive(flags) {
                Ok(Some(Message::Left { pid, name })) => self.leftovers.push(Leftover {
                    pid,
                    name: message::text(&name),
                }),
                Ok(Some(Message::Ended(status))) => {
                    self.supervisor.wait()?;
                    self.ended = Some(ExitStatus::from_raw(status));
                }
                Ok(Some(Message::Started(_) | Message::Ending)) => {}
                Ok(None) => self.ended = Some(self.supervisor.wait()?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(self.ended)
    }

    /// Returns the next message; `None` after the supervisor's end.
    fn receive(&self, flags: RecvFlags) -> io::Result<Option<Message>> {
        let mut bytes = [0; Message::SIZE];
        loop {
            match recv(&self.link, &mut bytes, flags) {
                Ok((_, 0)) => return Ok(None),
                Ok(_) => return Ok(Message::from_bytes(&bytes)),
                Err(Errno::INTR) => {}
                // The supervisor ended with unread data.
                Err(Errno::CONNRESET) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns a descriptor that is readable when the program ends: [`Supervised::wait`] then returns soon.
impl AsFd for Supervised {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
