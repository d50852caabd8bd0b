//! The network namespace of a run. Abstract sockets, which ibsim uses, and netlink belong to a namespace, so runs do not
//! interfere with each other, nor a daemon with the machine's kernel.
//!
//! The process `loader-test namespace` holds it and does nothing else. All programs of the run enter it, see
//! [`crate::launch`]. For an ordinary user it is inside a user namespace, in which the user is root.

mod refusal;

use std::fs;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, sendto, socket};
use rustix::process::{Pid, PidfdFlags, getegid, geteuid, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};
use supervisor::{Leftovers, Supervised};

use crate::error::{Context, Error, Result};
use crate::process::lock;
use refusal::Facts;

/// The line by which a holder reports that the namespace exists.
const READY: &str = "ready";

/// A namespace, which ends when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    holder: Mutex<Supervised>,
    pid: i32,
}

impl Namespace {
    /// Creates one; `loader_test` is the program of this crate.
    ///
    /// # Errors
    /// [`Error::NotStarted`] names the missing permission and the setting that grants it.
    pub fn new(loader_test: &Path) -> Result<Self> {
        let mut command = Command::new(loader_test);
        command
            .arg("namespace")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let operation = || format!("start {} namespace", loader_test.display());
        let mut holder = Supervised::spawn(&mut command, Leftovers::END).context(operation)?;
        let mut line = String::new();
        if let Some(output) = holder.take_stdout() {
            let mut output = BufReader::new(output);
            output.read_line(&mut line).context(operation)?;
        }
        if line.trim_end() != READY {
            return Err(Error::NotStarted {
                name: "the network namespace of the run".to_owned(),
                reason: line.trim_end().to_owned(),
            });
        }
        Ok(Self {
            pid: holder.pid().as_raw_pid(),
            holder: Mutex::new(holder),
        })
    }

    /// Returns the process that holds it.
    ///
    /// # Errors
    /// [`Error::NotStarted`] if that has ended.
    pub fn holder(&self) -> Result<i32> {
        let status = lock(&self.holder).try_wait();
        match status.context(|| "wait for the holder of the namespace".to_owned())? {
            None => Ok(self.pid),
            Some(status) => Err(Error::NotStarted {
                name: "a program in the network namespace of the run".to_owned(),
                reason: format!("the process that holds the namespace ended ({status})"),
            }),
        }
    }
}

/// Runs the holder: creates the namespace, reports it on standard output, and waits to be killed.
///
/// # Errors
/// If standard output is closed.
pub fn hold() -> Result<()> {
    let made = make();
    let line = match &made {
        Ok(()) => READY.to_owned(),
        Err(error) => format!("{error}; {}", Facts::of_this_machine().advice()),
    };
    writeln!(io::stdout(), "{line}").context(|| "report the namespace".to_owned())?;
    while made.is_ok() {
        thread::park();
    }
    Ok(())
}

/// Moves this process into a network and a mount namespace, and into a user namespace too if it lacks permission.
fn make() -> Result<()> {
    let flags = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    if let Ok(()) = unshare(flags).and_then(|()| set_up()) {
        return Ok(());
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(flags | UnshareFlags::NEWUSER)?;
    be_root(user, group)?;
    set_up()
}

fn unshare(flags: UnshareFlags) -> Result<()> {
    // SAFETY: the flags never contain FILES, the one that makes descriptors valid in one thread and not in another.
    let result = unsafe { rustix::thread::unshare_unsafe(flags) };
    let names = flags.iter_names().map(|(name, _)| name);
    result.context(|| format!("unshare({})", names.collect::<Vec<_>>().join(" | ")))
}

fn be_root(user: u32, group: u32) -> Result<()> {
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        let file = format!("/proc/self/{file}");
        fs::write(&file, &text).context(|| format!("write \"{text}\" to {file}"))?;
    }
    Ok(())
}

fn set_up() -> Result<()> {
    keep_mounts_inside()?;
    loopback_up()
}

/// Makes the mounts of this namespace private.
fn keep_mounts_inside() -> Result<()> {
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", all).context(|| "make the mounts of a new namespace private".to_owned())
}

/// Gives this process its own mount namespace, inside the run's.
///
/// # Errors
/// If the process is not in the run's namespace.
pub fn own_mounts() -> Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    keep_mounts_inside()
}

/// Moves this process into the namespaces of a holder. It must have one thread.
///
/// # Errors
/// If the holder has ended, or is another user's.
pub fn enter(holder: i32) -> Result<()> {
    let operation = || format!("enter the namespaces of the process {holder}");
    let pid = Pid::from_raw(holder)
        .ok_or(Errno::SRCH)
        .context(operation)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).context(operation)?;
    let mut kinds = ThreadNameSpaceType::NETWORK;
    let user = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
    // A process cannot enter its current user namespace.
    if user("self").context(operation)? != user(&holder.to_string()).context(operation)? {
        kinds |= ThreadNameSpaceType::USER;
    }
    move_into_thread_name_spaces(process.as_fd(), kinds).context(operation)
}

/// Switches the loopback interface on, by RTM_NEWLINK: see rtnetlink(7) and <linux/if_link.h>.
fn loopback_up() -> Result<()> {
    const NEW_LINK: u16 = 16;
    const ERROR: u16 = 2;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    /// The first interface of every namespace.
    const LOOPBACK: u32 = 1;
    const UP: u32 = 1;
    let operation = || "switch the loopback interface on".to_owned();
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    // Sequence number and port, then family and type.
    message.extend([0; 12]);
    for word in [LOOPBACK, UP, UP] {
        message.extend(word.to_ne_bytes());
    }
    // The protocol of the number 0 is NETLINK_ROUTE.
    let route = socket(AddressFamily::NETLINK, SocketType::RAW, None).context(operation)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&route, &message, SendFlags::empty(), &kernel).context(operation)?;
    let mut answer = [0; 64];
    let (length, _) = recv(&route, &mut answer[..], RecvFlags::empty()).context(operation)?;
    let is_error = length >= 20 && answer[4..6] == ERROR.to_ne_bytes();
    let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    match (is_error, code) {
        (true, 0) => Ok(()),
        (true, code) => Err(io::Error::from_raw_os_error(-code)),
        (false, _) => Err(io::Error::from(ErrorKind::InvalidData)),
    }
    .context(operation)
}
