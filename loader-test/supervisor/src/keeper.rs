//! The supervisor's side. It runs after a fork of a process that may have had many threads: it only makes system calls, and
//! neither allocates nor panics.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, chdir, getpid, getppid, kill_process, pidfd_open,
    set_child_subreaper, set_parent_process_death_signal, setpgid, wait, waitpid,
};
use rustix::thread::set_name;
use rustix::time::{ClockId, clock_gettime};

use crate::Leftovers;
use crate::children::{each_child, name};
use crate::message::Message;

/// Number of leftover processes to report.
const MOST_NAMED: usize = 32;

/// The settings of a supervisor.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The owner's process id.
    pub owner: Pid,
    /// The supervisor's end of the socket between them.
    pub link: RawFd,
    pub leftovers: Leftovers,
}

/// Forks. Returns in the process that becomes the program; the parent becomes its supervisor.
pub fn split(plan: &Plan) -> io::Result<()> {
    let owner = pidfd_open(plan.owner, PidfdFlags::empty())?;
    // A pid is not reused while its process is our parent.
    if getppid() != Some(plan.owner) {
        return Err(Errno::SRCH.into());
    }
    let supervisor = getpid();
    set_child_subreaper(Some(supervisor))?;
    // Signals to the owner's or the program's group must not reach the supervisor.
    own_group()?;
    // SAFETY: SIG_DFL installs no handler. With SIGCHLD ignored there would be nothing to wait for.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: fork is async-signal-safe, and both processes go on with system calls.
    let program = unsafe { libc::fork() };
    match Pid::from_raw(program) {
        _ if program < 0 => Err(io::Error::last_os_error()),
        Some(program) => {
            let keeper = Keeper {
                owner,
                // SAFETY: the socket is open, and nothing else in this process uses it from here on.
                link: unsafe { OwnedFd::from_raw_fd(plan.link) },
                program,
                status: 0,
            };
            keeper.work(plan.leftovers)
        }
        None => {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(supervisor) {
                return Err(Errno::SRCH.into());
            }
            Ok(own_group()?)
        }
    }
}

/// Makes this process the leader of a process group; a session leader already is one.
fn own_group() -> Result<(), Errno> {
    match setpgid(None, None) {
        Err(Errno::PERM) => Ok(()),
        other => other,
    }
}

struct Keeper {
    owner: OwnedFd,
    link: OwnedFd,
    program: Pid,
    status: i32,
}

/// Why the wait ended.
#[derive(PartialEq)]
enum Over {
    /// The program has ended, and is not reaped yet.
    Ended,
    /// The owner has ended or closed its end of the link.
    Told,
}

impl Keeper {
    fn work(mut self, leftovers: Leftovers) -> ! {
        let over = match children_s_end() {
            Ok(ends) => self.watch(&ends, leftovers),
            Err(_) => Over::Told,
        };
        self.tell(Message::Ending);
        if over == Over::Ended && leftovers == Leftovers::Keep {
            self.reap_program();
        } else {
            self.end_all();
        }
        self.tell(Message::Ended(self.status));
        // SAFETY: ends only this process, without running the owner's exit handlers.
        unsafe { libc::_exit(0) }
    }

    /// Waits for the end of the program, then for a while for its leftover processes, or for the owner's request to end.
    fn watch(&self, ends: &OwnedFd, leftovers: Leftovers) -> Over {
        close_all_but([
            self.owner.as_raw_fd(),
            self.link.as_raw_fd(),
            ends.as_raw_fd(),
        ]);
        // A name for ps, and a folder that does not keep the program's mounts busy. Failures do no harm.
        let _ = set_name(c"supervisor");
        let _ = chdir(c"/");
        self.tell(Message::Started(self.program));
        while !self.has_ended() {
            if self.sleep(ends, None) {
                return Over::Told;
            }
        }
        let Leftovers::EndAfter(patience) = leftovers else {
            return Over::Ended;
        };
        let deadline = now() + patience;
        while self.reap_orphans() > 0 {
            let left = deadline.saturating_sub(now());
            if left.is_zero() {
                self.name_leftovers();
                break;
            }
            if self.sleep(ends, Some(left)) {
                return Over::Told;
            }
        }
        Over::Ended
    }

    /// Waits until a child ends or the time limit. Returns true if the owner requests the end.
    fn sleep(&self, ends: &OwnedFd, limit: Option<Duration>) -> bool {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut all = [
            PollFd::new(&self.owner, PollFlags::IN),
            PollFd::new(&self.link, PollFlags::IN),
            PollFd::new(ends, PollFlags::IN),
        ];
        // All signals are blocked, so none interrupts it.
        if poll(&mut all, limit.as_ref()).is_err() {
            return true;
        }
        let [owner, link, ends_now] = all.map(|one| !one.revents().is_empty());
        if ends_now {
            let mut information = [0; 128];
            let _ = rustix::io::read(ends, &mut information);
        }
        owner || link
    }

    /// Reaps ended children until it finds the program, which it does not reap.
    fn has_ended(&self) -> bool {
        while let Some(pid) = ended_child() {
            if pid == self.program {
                return true;
            }
            // The child has ended, so this does not block.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        false
    }

    /// Reaps ended adopted children after the program's end; returns the number of living ones.
    fn reap_orphans(&self) -> usize {
        let mut living = 0;
        let listed = each_child(&mut |pid| {
            if pid != self.program
                && !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_)))
            {
                living += 1;
            }
        });
        listed.map_or(0, |()| living)
    }

    fn name_leftovers(&self) {
        let mut count = 0;
        let _ = each_child(&mut |pid| {
            if pid != self.program && count < MOST_NAMED {
                count += 1;
                self.tell(Message::Left {
                    pid: pid.as_raw_pid(),
                    name: name(pid),
                });
            }
        });
    }

    /// Kills and reaps children until there are none. Children of an ended child become children of this process.
    fn end_all(&mut self) {
        loop {
            let mut killed = false;
            let listed = each_child(&mut |pid| killed |= kill_process(pid, Signal::KILL).is_ok());
            if listed.is_err() {
                killed = kill_process(self.program, Signal::KILL).is_ok();
            }
            // The rest belongs to another user (a set-user-ID program): this process cannot kill it.
            if !killed {
                return;
            }
            let mut options = WaitOptions::empty();
            loop {
                match wait(options) {
                    Ok(Some((pid, status))) => {
                        if pid == self.program {
                            self.status = status.as_raw();
                        }
                    }
                    Ok(None) => break,
                    Err(_) => return,
                }
                options = WaitOptions::NOHANG;
            }
        }
    }

    fn reap_program(&mut self) {
        if let Ok(Some((_, status))) = waitpid(Some(self.program), WaitOptions::empty()) {
            self.status = status.as_raw();
        }
    }

    fn tell(&self, message: Message) {
        // The send fails only if the owner has ended.
        let _ = send(&self.link, &message.to_bytes(), SendFlags::NOSIGNAL);
    }
}

/// Blocks all signals, and returns a descriptor that is readable when a child has ended.
fn children_s_end() -> io::Result<OwnedFd> {
    // SAFETY: a set of signals is plain data; the calls are given room for it, and initialise it.
    let descriptor = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut one: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, libc::SIGCHLD);
        libc::signalfd(-1, &raw const one, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and owned by no one else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns the pid of the first zombie child.
fn ended_child() -> Option<Pid> {
    // SAFETY: plain data, which the call fills.
    let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: there is room for what the call stores.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut information, options) };
    if result < 0 {
        return None;
    }
    // SAFETY: the call stores a pid, zero if no child has ended.
    Pid::from_raw(unsafe { information.si_pid() })
}

/// Closes the owner's descriptors. One is the pipe through which the owner detects the exec: the owner waits until it is
/// closed.
fn close_all_but(kept: [RawFd; 3]) {
    /// Descriptors that are closed one by one, where the kernel cannot close a range (before Linux 5.9).
    const MOST: RawFd = 4096;
    let mut kept = kept;
    kept.sort_unstable();
    let mut first = 0;
    for end in kept.into_iter().chain([RawFd::MAX]) {
        // SAFETY: nothing in this process uses these descriptors again.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0) };
        // An empty range fails too, which does no harm here.
        if closed < 0 {
            for descriptor in first..end.min(MOST) {
                // SAFETY: the same.
                unsafe { libc::close(descriptor) };
            }
        }
        first = end.saturating_add(1);
    }
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}
