//! The protocol's text.

use std::fmt;
use std::str::FromStr;

use crate::model::adapter::Adapter;
use crate::model::event::PortEvent;
use crate::model::link_faults::{LinkCounts, LinkFaults};
use crate::model::port::PortSnapshot;

/// Bytes of a line, its newline included.
pub const MAX_LINE: usize = 256;

/// A line that was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Event(PortEvent, u8),
    Status(u8),
    Faults(u8),
    SetFaults(u8, LinkFaults),
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["event", name, port] => {
                let event = name.parse().map_err(|unknown| format!("{unknown}"))?;
                Ok(Self::Event(event, port_number(port)?))
            }
            ["status", port] => Ok(Self::Status(port_number(port)?)),
            ["faults", port] => Ok(Self::Faults(port_number(port)?)),
            ["faults", port, ref faults @ ..] => {
                let faults = faults.join(" ").parse();
                let faults = faults.map_err(|error| format!("{error}"))?;
                Ok(Self::SetFaults(port_number(port)?, faults))
            }
            ["event", ..] => Err("say: event NAME PORT".to_owned()),
            ["status", ..] => Err("say: status PORT".to_owned()),
            ["faults"] => Err("say: faults PORT, or faults PORT none or which".to_owned()),
            [word, ..] => Err(format!(
                "unknown command {word:?}: say event, status or faults"
            )),
            [] => Err("empty line: say event, status or faults".to_owned()),
        }
    }
}

fn port_number(word: &str) -> Result<u8, String> {
    word.parse()
        .map_err(|_| format!("{word:?} is no port number"))
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event, port) => write!(f, "event {event} {port}"),
            Self::Status(port) => write!(f, "status {port}"),
            Self::Faults(port) => write!(f, "faults {port}"),
            Self::SetFaults(port, faults) => write!(f, "faults {port} {faults}"),
        }
    }
}

/// Does what a line says and returns the line to answer with.
pub(super) fn obey(line: &str, adapter: &Adapter) -> String {
    let done = line.parse().and_then(|command| match command {
        Command::Event(event, port) => adapter
            .inject(port, event)
            .map(|()| "ok".to_owned())
            .map_err(|error| error.to_string()),
        Command::Status(port) => adapter
            .known_port(port)
            .map(|snapshot| format!("ok {}", PortStatus::of(&snapshot)))
            .map_err(|error| error.to_string()),
        Command::Faults(port) => adapter
            .link_faults(port)
            .map(|(faults, counts)| format!("ok {}", LinkStatus { faults, counts }))
            .map_err(|error| error.to_string()),
        Command::SetFaults(port, faults) => adapter
            .set_link_faults(port, faults)
            .map(|()| "ok".to_owned())
            .map_err(|error| error.to_string()),
    });
    done.unwrap_or_else(|why| format!("error: {why}"))
}

/// A link's faults, and what they did since they were set: the answer to `faults PORT`. Written and read as the one's words
/// and then the other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// What happens.
    pub faults: LinkFaults,
    /// To how many datagrams it did.
    pub counts: LinkCounts,
}

impl fmt::Display for LinkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.faults, self.counts)
    }
}

/// Not the answer to `faults PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a link's status")]
pub struct NotALinkStatus(String);

impl FromStr for LinkStatus {
    type Err = NotALinkStatus;

    fn from_str(text: &str) -> Result<Self, NotALinkStatus> {
        let read = || {
            let counts = text.find("sent=")?;
            Some(Self {
                faults: text[..counts].parse().ok()?,
                counts: text[counts..].parse().ok()?,
            })
        };
        read().ok_or_else(|| NotALinkStatus(text.to_owned()))
    }
}

/// What an adapter knows of a port: the answer to `status PORT`. Written and read as words `key=value` in the order of
/// the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// PortState: 1 down, 2 initialize, 3 armed, 4 active. Decimal.
    pub state: u8,
    /// Base LID, decimal.
    pub lid: u16,
    /// LID mask control, decimal.
    pub lmc: u8,
    /// The subnet manager's LID, decimal.
    pub sm_lid: u16,
    /// The SL towards it, decimal.
    pub sm_sl: u8,
    /// Whether a subnet manager was found there, `true` or `false`.
    pub manager_present: bool,
    /// Upper half of the GIDs, 16 hex digits.
    pub gid_prefix: u64,
    /// GUID of the port, 16 hex digits.
    pub guid: u64,
    /// The P_Keys that are not 0, by index; 4 hex digits each, separated by commas.
    pub pkeys: Vec<u16>,
}

impl PortStatus {
    fn of(snapshot: &PortSnapshot) -> Self {
        let info = &snapshot.info;
        Self {
            state: info.state,
            lid: info.lid,
            lmc: info.lmc,
            sm_lid: info.sm_lid,
            sm_sl: info.sm_sl,
            manager_present: snapshot.manager_present,
            gid_prefix: info.gid_prefix,
            guid: snapshot.guids.first().copied().unwrap_or(0),
            pkeys: snapshot
                .pkeys
                .iter()
                .copied()
                .filter(|pkey| *pkey != 0)
                .collect(),
        }
    }
}

impl fmt::Display for PortStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            state,
            lid,
            lmc,
            sm_lid,
            sm_sl,
            manager_present,
            gid_prefix,
            guid,
            pkeys,
        } = self;
        let pkeys: Vec<_> = pkeys.iter().map(|pkey| format!("{pkey:04x}")).collect();
        write!(
            f,
            "state={state} lid={lid} lmc={lmc} sm_lid={sm_lid} sm_sl={sm_sl} manager_present={manager_present} "
        )?;
        write!(
            f,
            "gid_prefix={gid_prefix:016x} guid={guid:016x} pkeys={}",
            pkeys.join(",")
        )
    }
}

/// Not the answer to `status PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a port's status")]
pub struct NotAStatus(String);

impl FromStr for PortStatus {
    type Err = NotAStatus;

    fn from_str(text: &str) -> Result<Self, NotAStatus> {
        read_status(text).ok_or_else(|| NotAStatus(text.to_owned()))
    }
}

fn read_status(text: &str) -> Option<PortStatus> {
    let mut words = text.split(' ');
    let mut value = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
    Some(PortStatus {
        state: value("state")?.parse().ok()?,
        lid: value("lid")?.parse().ok()?,
        lmc: value("lmc")?.parse().ok()?,
        sm_lid: value("sm_lid")?.parse().ok()?,
        sm_sl: value("sm_sl")?.parse().ok()?,
        manager_present: value("manager_present")?.parse().ok()?,
        gid_prefix: u64::from_str_radix(value("gid_prefix")?, 16).ok()?,
        guid: u64::from_str_radix(value("guid")?, 16).ok()?,
        pkeys: value("pkeys")?
            .split(',')
            .filter(|pkey| !pkey.is_empty())
            .map(|pkey| u16::from_str_radix(pkey, 16).ok())
            .collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_and_written() {
        assert_eq!(
            "event CLIENT_REREGISTER 1".parse(),
            Ok(Command::Event(PortEvent::ClientReregister, 1))
        );
        assert_eq!(
            " event  ibv_event_port_err\t2 ".parse(),
            Ok(Command::Event(PortEvent::PortErr, 2))
        );
        for event in PortEvent::ALL {
            let command = Command::Event(event, 3);
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        let faults = "drop=5 delay=3 seed=9".parse().unwrap();
        for command in [
            Command::Status(1),
            Command::Faults(2),
            Command::SetFaults(3, faults),
        ] {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        assert_eq!(
            "faults 1 none".parse(),
            Ok(Command::SetFaults(1, LinkFaults::default()))
        );
        let longest = LinkFaults {
            drop: 100,
            duplicate: 100,
            reorder: 100,
            corrupt: 100,
            delay: crate::model::link_faults::MAX_DELAY,
            seed: u64::MAX,
        };
        assert!(Command::SetFaults(255, longest).to_string().len() < MAX_LINE);
    }

    #[test]
    fn malformed_commands_say_what_is_wrong() {
        for (line, part) in [
            ("", "empty line"),
            ("evnt PORT_ERR 1", "unknown command \"evnt\""),
            ("event", "event NAME PORT"),
            ("event PORT_ERR", "event NAME PORT"),
            ("event PORT_ERR 1 2", "event NAME PORT"),
            ("event PORT_MELTED 1", "unknown event \"PORT_MELTED\""),
            ("event PORT_ERR -1", "\"-1\" is no port number"),
            ("event PORT_ERR 256", "\"256\" is no port number"),
            ("status", "status PORT"),
            ("status one", "\"one\" is no port number"),
            ("faults", "faults PORT"),
            ("faults x none", "\"x\" is no port number"),
            ("faults 1 drop=200", "0 to 100"),
            ("faults 1 none drop=1", "say none"),
        ] {
            let error = line.parse::<Command>().unwrap_err();
            assert!(error.contains(part), "{line:?}: {error}");
        }
    }

    #[test]
    fn link_status_goes_both_ways() {
        let status = LinkStatus {
            faults: "drop=5 seed=9".parse().unwrap(),
            counts: LinkCounts {
                sent: 20,
                dropped: 1,
                ..LinkCounts::default()
            },
        };
        let text = status.to_string();
        assert_eq!(
            text,
            "drop=5 duplicate=0 reorder=0 corrupt=0 delay=0 seed=9 sent=20 dropped=1 duplicated=0 reordered=0 corrupted=0 delayed=0"
        );
        assert_eq!(text.parse(), Ok(status));
        assert!("drop=5".parse::<LinkStatus>().is_err());
    }

    #[test]
    fn status_goes_both_ways() {
        let status = PortStatus {
            state: 4,
            lid: 5,
            lmc: 1,
            sm_lid: 1,
            sm_sl: 2,
            manager_present: true,
            gid_prefix: 0xfe80_0000_0000_0000,
            guid: 0x10_0004,
            pkeys: vec![0xffff, 0x8001],
        };
        let text = status.to_string();
        assert_eq!(
            text,
            "state=4 lid=5 lmc=1 sm_lid=1 sm_sl=2 manager_present=true gid_prefix=fe80000000000000 guid=0000000000100004 pkeys=ffff,8001"
        );
        assert_eq!(text.parse(), Ok(status.clone()));
        let none = PortStatus {
            pkeys: vec![],
            ..status
        };
        assert_eq!(none.to_string().parse(), Ok(none));
        assert!("state=4 lid=5".parse::<PortStatus>().is_err());
    }
}
