//! What `loader-test launch` does between fork and exec: ties the program to its parent's life and gives it its own
//! view of the file system. A process of its own, so that no code has to run in the half-alive state after a fork.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, SocketType, bind, socket};
use rustix::process::{Signal, getegid, geteuid, getppid, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use crate::error::{Context, Error, Result};

/// The program and its surroundings.
#[derive(Debug)]
pub struct Plan {
    /// The process whose end is the program's end as well.
    pub parent: i32,
    /// Variables to add to the environment, `NAME=VALUE`.
    pub environment: Vec<OsString>,
    /// Folders to show in place of others: (what, where). With any, the program gets its own mount namespace.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Whether the program gets a netlink socket at descriptor 3, as a service from systemd (sd_listen_fds(3)). See
    /// [`NETLINK`] for who can be talked to by it.
    pub netlink: bool,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The protocol of the netlink socket: the one in which programs talk to each other, so that somebody can play the kernel.
/// The socket's port is the program's process id.
pub const NETLINK: Protocol = netlink::USERSOCK;

/// The first descriptor that systemd passes on.
const FIRST_PASSED: i32 = 3;

/// Becomes the program. Returns only if that fails.
pub fn launch(plan: Plan) -> Result<std::convert::Infallible> {
    if !plan.binds.is_empty() {
        own_mounts()?;
        for (what, at) in &plan.binds {
            // With what is bound into that folder already.
            mount_bind_recursive(what.as_path(), at.as_path()).context(|| {
                format!(
                    "bind {} to {} in a mount namespace",
                    what.display(),
                    at.display()
                )
            })?;
        }
    }

    // After the change of credentials that a user namespace is, which would cancel it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .context(|| "ask for the parent's death signal".to_owned())?;
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(plan.parent) {
        return Err(Error::Input("the parent has ended".to_owned()));
    }

    let mut words = plan.command.into_iter();
    let program = words.next().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(words);
    for variable in plan.environment {
        let bytes = variable.as_bytes();
        let (name, value) = match bytes.iter().position(|&byte| byte == b'=') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (bytes, &b""[..]),
        };
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    if plan.netlink {
        pass_netlink_socket()?;
        // They say whom they are for; the program keeps this process's id.
        command.env("LISTEN_FDS", "1");
        command.env("LISTEN_PID", std::process::id().to_string());
    }
    ignore_broken_pipes(&mut command);
    let source = command.exec();
    Err(Error::Io {
        operation: format!("execute {}", program.display()),
        source,
    })
}

/// Opens the socket where the program looks for it.
fn pass_netlink_socket() -> Result<()> {
    let operation = || "open a netlink socket for the program".to_owned();
    let socket =
        socket(AddressFamily::NETLINK, SocketType::RAW, Some(NETLINK)).context(operation)?;
    let port = SocketAddrNetlink::new(std::process::id(), 0);
    bind(&socket, &port).context(operation)?;
    let socket = socket.into_raw_fd();
    // SAFETY: descriptor 3 is the socket already, or nothing that this process still uses: it only becomes the program.
    if socket != FIRST_PASSED && unsafe { libc::dup2(socket, FIRST_PASSED) } < 0 {
        return Err(std::io::Error::last_os_error()).context(operation);
    }
    Ok(())
}

/// Lets the program start with SIGPIPE ignored, as systemd starts services (IgnoreSIGPIPE in systemd.exec(5)). ibacm
/// relies on it: whatever its provider, it writes answers to clients that may have closed their end.
fn ignore_broken_pipes(command: &mut Command) {
    let ignore = || {
        // SAFETY: no handler is installed; the signal is ignored.
        match unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) } {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: all that runs between fork and exec, if there is a fork at all, is signal(2), which is async-signal-safe.
    unsafe { command.pre_exec(ignore) };
}

/// Enters a mount namespace from which nothing leaks out; where the user may not, by way of a user namespace in
/// which they are root.
fn own_mounts() -> Result<()> {
    let operation = || {
        "make a mount namespace (without root this needs user namespaces, see user_namespaces(7))"
            .to_owned()
    };
    match unshare(UnshareFlags::NEWNS) {
        Err(Errno::PERM) => {
            let (user, group) = (geteuid().as_raw(), getegid().as_raw());
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).context(operation)?;
            for (file, text) in [
                ("setgroups", "deny".to_owned()),
                ("uid_map", format!("0 {user} 1")),
                ("gid_map", format!("0 {group} 1")),
            ] {
                let file = format!("/proc/self/{file}");
                fs::write(&file, &text).context(|| format!("write \"{text}\" to {file}"))?;
            }
        }
        other => other.context(operation)?,
    }
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .context(|| "make the mounts of a new namespace private".to_owned())
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the flags never contain FILES, the one that makes descriptors valid in one thread and not in another.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
