//! The adapter's side of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use super::message::{Answer, MAX_LINE, execute};
use crate::config;
use crate::model::adapter::Adapter;
use crate::report::report;

/// Maximum number of open connections; further ones are refused.
const MAX_CONNECTIONS: usize = 32;

/// Error from creating the control socket.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process serves it.
    #[error("control socket {} is in use by another process; give each its own path", .0.display())]
    InUse(PathBuf),
    /// The path exists and is not a socket.
    #[error("cannot create the control socket {}: the path exists and is not a socket", .0.display())]
    NoSocket(PathBuf),
    /// Any other error.
    #[error("cannot create the control socket {}: {error}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// Creates the socket that the environment requests, once in a process. Reports errors on stderr, so that the
/// tested program does not fail because of its test.
pub fn serve_once(adapters: &[Arc<Adapter>]) {
    static ONCE: Once = Once::new();
    let (Some(path), Some(adapter)) = (config::control_path(), adapters.first()) else {
        return;
    };
    ONCE.call_once(|| {
        if let Err(error) = serve(&path, adapter.clone()) {
            report(&error);
        }
    });
}

/// Serves an adapter at a path, in own threads, as long as the process lives.
///
/// # Errors
/// If creating the socket fails.
pub fn serve(path: &Path, adapter: Arc<Adapter>) -> Result<(), ServeError> {
    let listener = bind(path)?;
    std::thread::spawn(move || {
        let live = Arc::new(());
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Probably out of descriptors: do not retry at once.
                std::thread::sleep(std::time::Duration::from_millis(100));
                continue;
            };
            if Arc::strong_count(&live) > MAX_CONNECTIONS {
                let why = format!("{MAX_CONNECTIONS} connections are open already");
                let _ = say(&stream, &Answer::Error(why));
                continue;
            }
            let (adapter, live) = (adapter.clone(), live.clone());
            std::thread::spawn(move || {
                // The client disconnected; nothing to do.
                let _ = talk(&stream, &adapter);
                drop(live);
            });
        }
    });
    Ok(())
}

fn bind(path: &Path) -> Result<UnixListener, ServeError> {
    let io = |error| ServeError::Io {
        path: path.to_owned(),
        error,
    };
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        result => return result.map_err(io),
    }
    if !path.symlink_metadata().map_err(io)?.file_type().is_socket() {
        return Err(ServeError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        _ => return Err(ServeError::InUse(path.to_owned())),
    }
    std::fs::remove_file(path).map_err(io)?;
    UnixListener::bind(path).map_err(io)
}

fn talk(stream: &UnixStream, adapter: &Adapter) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(line) = next_line(&mut reader)? {
        let answer = match line {
            Some(line) => execute(&line, adapter),
            None => Answer::Error(format!("the line is longer than {MAX_LINE} bytes")),
        };
        say(stream, &answer)?;
    }
    Ok(())
}

fn say(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Returns the next line without its newline; `Some(None)` for one that is too long; `None` at the end. A last
/// line without a newline is dropped, because its client was cut off.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<Option<Vec<u8>>>> {
    let mut too_long = false;
    loop {
        let mut line = Vec::new();
        reader
            .by_ref()
            .take(MAX_LINE as u64)
            .read_until(b'\n', &mut line)?;
        if line.pop_if(|last| *last == b'\n').is_some() {
            return Ok(Some((!too_long).then_some(line)));
        }
        if line.len() < MAX_LINE {
            return Ok(None);
        }
        too_long = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut reader = text;
        std::iter::from_fn(|| next_line(&mut reader).unwrap()).collect()
    }

    #[test]
    fn lines_are_bounded() {
        let longest = vec![b'x'; MAX_LINE - 1];
        let mut text = [b"a\n\n".to_vec(), longest.clone(), b"\n".to_vec()].concat();
        assert_eq!(
            lines(&text),
            [Some(b"a".to_vec()), Some(vec![]), Some(longest)]
        );
        text.extend(vec![b'y'; 5 * MAX_LINE]);
        text.extend(b"\nb\nno end");
        assert_eq!(lines(&text)[3..], [None, Some(b"b".to_vec())]);
        assert_eq!(lines(&vec![b'z'; 3 * MAX_LINE]), [], "no end at all");
    }
}
