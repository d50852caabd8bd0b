//! `loader-test launch`: enters the run's namespaces, gives the program its own view of the file system, and executes it. A
//! separate process, so that little code runs between fork and exec.

use std::ffi::{OsStr, OsString};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::mount::mount_bind_recursive;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, SocketType, bind, socket};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::error::{Context, Error, Result};
use crate::namespace::{enter, own_mounts};

/// The program and its environment.
#[derive(Debug)]
pub struct Plan {
    /// The process that holds the run's namespaces.
    pub namespace: i32,
    /// Variables to add to the environment, `NAME=VALUE`.
    pub environment: Vec<OsString>,
    /// Bind mounts: (what, where). With at least one, the program gets its own mount namespace.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Whether the program gets a netlink socket at descriptor 3, as a service from systemd (sd_listen_fds(3)), of the protocol
    /// [`NETLINK`].
    pub netlink: bool,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The protocol of the netlink socket: one for messages between programs, so that a test can play the kernel. The socket's
/// port is the program's process id.
pub const NETLINK: Protocol = netlink::USERSOCK;

/// The first descriptor that systemd passes on.
const FIRST_PASSED: i32 = 3;

/// Executes the program. Returns only on failure.
pub fn launch(plan: Plan) -> Result<std::convert::Infallible> {
    let supervisor = getppid();
    enter(plan.namespace)?;
    if !plan.binds.is_empty() {
        own_mounts()?;
        for (what, at) in &plan.binds {
            // Recursively, with the mounts inside that folder.
            mount_bind_recursive(what.as_path(), at.as_path()).context(|| {
                format!(
                    "bind {} to {} in a mount namespace",
                    what.display(),
                    at.display()
                )
            })?;
        }
    }

    // Set it again: entering a user namespace changes credentials, which cancels it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .context(|| "ask for the parent's death signal".to_owned())?;
    if getppid() != supervisor {
        return Err(Error::Input("the supervisor has ended".to_owned()));
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
        // The variables name the receiving process; exec keeps this process's id.
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

/// Opens the socket at the descriptor that the program expects.
fn pass_netlink_socket() -> Result<()> {
    let operation = || "open a netlink socket for the program".to_owned();
    let socket =
        socket(AddressFamily::NETLINK, SocketType::RAW, Some(NETLINK)).context(operation)?;
    let port = SocketAddrNetlink::new(std::process::id(), 0);
    bind(&socket, &port).context(operation)?;
    let socket = socket.into_raw_fd();
    // SAFETY: descriptor 3 is the socket, or unused: this process only executes the program.
    if socket != FIRST_PASSED && unsafe { libc::dup2(socket, FIRST_PASSED) } < 0 {
        return Err(std::io::Error::last_os_error()).context(operation);
    }
    Ok(())
}

/// Makes the program start with SIGPIPE ignored, as systemd does (IgnoreSIGPIPE in systemd.exec(5)). ibacm relies on it: it
/// writes answers to clients that may have closed their end.
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
