//! Messages from a supervisor to its owner: datagrams of a fixed size, made without allocating.

use rustix::process::Pid;

/// Bytes of a process's name, see proc_pid_comm(5).
pub const NAME: usize = 16;

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The program was started.
    Started(Pid),
    /// The supervisor starts to reap: pids may be reused from now on.
    Ending,
    /// The program left a process behind.
    Left { pid: i32, name: [u8; NAME] },
    /// All processes have ended; the program's wait(2) status.
    Ended(i32),
}

impl Message {
    pub const SIZE: usize = 8 + NAME;

    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let (kind, value, name) = match self {
            Self::Started(pid) => (1_i32, pid.as_raw_pid(), [0; NAME]),
            Self::Ending => (2, 0, [0; NAME]),
            Self::Left { pid, name } => (3, pid, name),
            Self::Ended(status) => (4, status, [0; NAME]),
        };
        let mut bytes = [0; Self::SIZE];
        let fields = kind.to_ne_bytes().into_iter().chain(value.to_ne_bytes());
        for (byte, value) in bytes.iter_mut().zip(fields.chain(name)) {
            *byte = value;
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        let (value, name) = rest.split_first_chunk::<4>()?;
        let value = i32::from_ne_bytes(*value);
        Some(match i32::from_ne_bytes(*kind) {
            1 => Self::Started(Pid::from_raw(value)?),
            2 => Self::Ending,
            3 => Self::Left {
                pid: value,
                name: *name.first_chunk()?,
            },
            4 => Self::Ended(value),
            _ => return None,
        })
    }
}

/// Returns a process's name up to its first NUL.
pub fn text(name: &[u8; NAME]) -> String {
    let end = name.iter().position(|byte| matches!(byte, 0 | b'\n'));
    String::from_utf8_lossy(&name[..end.unwrap_or(NAME)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_both_ways() {
        for message in [
            Message::Started(Pid::INIT),
            Message::Ending,
            Message::Left {
                pid: 77,
                name: *b"a name of 15 by\n",
            },
            Message::Ended(0x8b),
        ] {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
        }
        assert_eq!(Message::from_bytes(&[0; Message::SIZE]), None);
        assert_eq!(text(b"sleep\n\0\0\0\0\0\0\0\0\0\0"), "sleep");
    }
}
