//! The test's side.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::message::{Answer, Command, LinkStatus, PortStatus};
use crate::model::event::PortEvent;
use crate::model::link_faults::LinkFaults;

/// A program that does not answer within this is not going to.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The adapter refused it, for the reason given.
    #[error("{command:?} was refused: {reason}")]
    Refused {
        /// The line.
        command: String,
        /// The answer.
        reason: String,
    },
    /// Nobody answers.
    #[error("control socket {}: {error}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An answer of another kind, or none at all.
    #[error("{command:?} was answered with {answer:?}")]
    Answer {
        /// The line.
        command: String,
        /// The answer.
        answer: String,
    },
}

/// A connection to an adapter's control socket. See the [module](super) for what its commands do.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    /// If nobody serves it.
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

    /// Over a connection to the socket at a path, for callers whose path is too long for an address.
    ///
    /// # Errors
    /// If the connection takes no time limit.
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

    /// Sends a line and returns the answer.
    ///
    /// # Errors
    /// If it is refused, or the connection fails.
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

    /// Sends a command, and takes of its answer what `expected` finds in it.
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

    /// Reads what the adapter knows of a port.
    ///
    /// # Errors
    /// If the adapter has no such port, or the connection fails.
    pub fn status(&mut self, port: u8) -> Result<PortStatus, ControlError> {
        self.command(Command::Status { port }, |answer| match answer {
            Answer::Status(status) => Some(status.clone()),
            _ => None,
        })
    }

    /// Sets what happens to datagrams that leave a port; the default is nothing. Counting and chance begin anew.
    ///
    /// # Errors
    /// If a percentage or the delay is too large, the adapter has no such port, or the connection fails.
    pub fn set_link_faults(&mut self, port: u8, faults: LinkFaults) -> Result<(), ControlError> {
        self.command(Command::SetFaults { port, faults }, done)
    }

    /// Reads what happens to datagrams that leave a port, and to how many it did since that was set.
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
