//! The test's side of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::message::{Answer, Command, LinkStatus, PortStatus};
use crate::model::event::PortEvent;
use crate::model::link_faults::LinkFaults;

/// Maximum time to wait for a response.
const PATIENCE: Duration = Duration::from_secs(60);

/// Error from a command.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The adapter refused the command.
    #[error("{command:?} was refused: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// The reason.
        reason: String,
    },
    /// The connection failed.
    #[error("control socket {}: {error}", path.display())]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// An unexpected response, or none.
    #[error("unexpected response {answer:?} to {command:?}")]
    Answer {
        /// The command.
        command: String,
        /// The response.
        answer: String,
    },
}

/// A connection to an adapter's control socket. The [module](super) describes the commands.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    /// If no process serves it.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ControlError> {
        let path = path.as_ref();
        match UnixStream::connect(path) {
            Ok(stream) => Self::over(stream, path),
            Err(error) => Err(ControlError::Io {
                path: path.to_owned(),
                error,
            }),
        }
    }

    /// Uses a connection to the socket at a path, for callers whose path is too long for a socket address.
    ///
    /// # Errors
    /// If setting the time limit fails.
    pub fn over(stream: UnixStream, path: impl Into<PathBuf>) -> Result<Self, ControlError> {
        let path = path.into();
        match stream.set_read_timeout(Some(PATIENCE)) {
            Ok(()) => Ok(Self {
                path,
                stream: BufReader::new(stream),
            }),
            Err(error) => Err(ControlError::Io { path, error }),
        }
    }

    /// Sends a line and returns the response.
    ///
    /// # Errors
    /// If the adapter refuses the command, or the connection fails.
    pub fn send(&mut self, line: &str) -> Result<Answer, ControlError> {
        let mut answer = String::new();
        let exchanged = self
            .stream
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| match self.stream.read_line(&mut answer)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            });
        exchanged.map_err(|error| self.io(error))?;
        match serde_json::from_str(&answer) {
            Ok(Answer::Error(reason)) => Err(ControlError::Refused {
                command: line.to_owned(),
                reason,
            }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(ControlError::Answer {
                command: line.to_owned(),
                answer,
            }),
        }
    }

    fn io(&self, error: io::Error) -> ControlError {
        ControlError::Io {
            path: self.path.clone(),
            error,
        }
    }

    /// Sends a command and extracts the expected response.
    fn command<R>(
        &mut self,
        command: Command,
        expected: impl FnOnce(&Answer) -> Option<R>,
    ) -> Result<R, ControlError> {
        let line = serde_json::to_string(&command).map_err(|error| self.io(error.into()))?;
        let answer = self.send(&line)?;
        expected(&answer).ok_or_else(|| ControlError::Answer {
            command: line,
            answer: format!("{answer:?}"),
        })
    }

    /// Raises an event of a port.
    ///
    /// # Errors
    /// If the adapter has no such port, or the connection fails.
    pub fn event(&mut self, event: PortEvent, port: u8) -> Result<(), ControlError> {
        self.command(Command::Event { port, event }, done)
    }

    /// Reads the adapter's state of a port.
    ///
    /// # Errors
    /// If the adapter has no such port, or the connection fails.
    pub fn status(&mut self, port: u8) -> Result<PortStatus, ControlError> {
        self.command(Command::Status { port }, |answer| match answer {
            Answer::Status(status) => Some(status.clone()),
            _ => None,
        })
    }

    /// Sets the faults of datagrams that leave a port; the default is no faults. Restarts counts and random
    /// sequence.
    ///
    /// # Errors
    /// If a percentage or the delay is too large, the adapter has no such port, or the connection fails.
    pub fn set_link_faults(&mut self, port: u8, faults: LinkFaults) -> Result<(), ControlError> {
        self.command(Command::SetFaults { port, faults }, done)
    }

    /// Reads the faults of datagrams that leave a port, and their counts since they were last set.
    ///
    /// # Errors
    /// If the adapter has no such port, or the connection fails.
    pub fn link_faults(&mut self, port: u8) -> Result<LinkStatus, ControlError> {
        self.command(Command::Faults { port }, |answer| match answer {
            Answer::Faults(status) => Some(*status),
            _ => None,
        })
    }
}

fn done(answer: &Answer) -> Option<()> {
    matches!(answer, Answer::Done).then_some(())
}
