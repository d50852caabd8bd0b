//! The supervisor's side. It runs between fork and exec of a process that may have had many threads: so it makes system
//! calls and nothing else, allocates nothing and cannot panic.

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

/// Leftovers that are named.
const MOST_NAMED: usize = 32;

/// What a supervisor has to know.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The process that wants the program.
    pub owner: Pid,
    /// The supervisor's end of the socket between them.
    pub link: RawFd,
    pub leftovers: Leftovers,
}

/// Forks. Returns in the process that becomes the program; the present process becomes its supervisor.
pub fn split(plan: &Plan) -> io::Result<()> {
    let owner = pidfd_open(plan.owner, PidfdFlags::empty())?;
    // A pid is not used again while its process is our parent.
    if getppid() != Some(plan.owner) {
        return Err(Errno::SRCH.into());
    }
    let supervisor = getpid();
    set_child_subreaper(Some(supervisor))?;
    // A signal to the owner's or the program's group is not for the supervisor.
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

/// Becomes the leader of a process group; a session's leader is one already.
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

/// Why the work is over.
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
        // SAFETY: ends this process and nothing of the owner's, whose exit handlers are not this process's to call.
        unsafe { libc::_exit(0) }
    }

    /// Waits for the end of the program, and of what it left behind for a while, or for the owner's word.
    fn watch(&self, ends: &OwnedFd, leftovers: Leftovers) -> Over {
        close_all_but([
            self.owner.as_raw_fd(),
            self.link.as_raw_fd(),
            ends.as_raw_fd(),
        ]);
        // So that ps tells them apart, and the program's folder can be unmounted. Neither matters much.
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

    /// Waits until a child ends, at most so long. True if the owner wants the end.
    fn sleep(&self, ends: &OwnedFd, limit: Option<Duration>) -> bool {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut all = [
            PollFd::new(&self.owner, PollFlags::IN),
            PollFd::new(&self.link, PollFlags::IN),
            PollFd::new(ends, PollFlags::IN),
        ];
        // All signals are blocked, so nothing interrupts it.
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

    /// Reaps children that have ended up to the program, which it leaves.
    fn has_ended(&self) -> bool {
        while let Some(pid) = ended_child() {
            if pid == self.program {
                return true;
            }
            // It has ended, so there is nothing to wait for.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        false
    }

    /// Reaps adopted children that have ended, once the program has; returns how many live.
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

    /// Kills and reaps children until there are none. Those of a child that has ended become children of this process.
    fn end_all(&mut self) {
        loop {
            let mut killed = false;
            let listed = each_child(&mut |pid| killed |= kill_process(pid, Signal::KILL).is_ok());
            if listed.is_err() {
                killed = kill_process(self.program, Signal::KILL).is_ok();
            }
            // What is left belongs to another user (a program with the set-user-ID bit): nobody here can end it.
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
        // It can fail only if the owner has ended.
        let _ = send(&self.link, &message.to_bytes(), SendFlags::NOSIGNAL);
    }
}

/// Blocks all signals, and gives a descriptor that is readable when a child has ended.
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
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The pid of a child that has ended and is not reaped, the first one of them.
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

/// Closes what this process has of its owner's. Among it is the pipe by which the owner learns that the program runs: it
/// waits for the pipe's end.
fn close_all_but(kept: [RawFd; 3]) {
    /// Descriptors that are closed one by one, where the kernel cannot close a range (before Linux 5.9).
    const MOST: RawFd = 4096;
    let mut kept = kept;
    kept.sort_unstable();
    let mut first = 0;
    for end in kept.into_iter().chain([RawFd::MAX]) {
        // SAFETY: nothing in this process uses these descriptors again.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0) };
        // An empty range is an error as well, and costs nothing here.
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
