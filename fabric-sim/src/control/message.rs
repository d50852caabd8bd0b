//! The protocol's messages.

use serde::{Deserialize, Serialize};

use crate::model::adapter::Adapter;
use crate::model::event::PortEvent;
use crate::model::link_faults::{LinkCounts, LinkFaults};
use crate::model::port::PortSnapshot;

/// Maximum length of a line in bytes, including its newline.
pub const MAX_LINE: usize = 256;

/// A command to the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Command {
    Event { port: u8, event: PortEvent },
    Status { port: u8 },
    Faults { port: u8 },
    SetFaults { port: u8, faults: LinkFaults },
}

/// The adapter's response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Success.
    Done,
    /// The state of the port.
    Status(PortStatus),
    /// The faults of the port's link.
    Faults(LinkStatus),
    /// The command was refused for this reason and changed nothing.
    Error(String),
}

/// A link's faults, and their counts since they were last set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The faults.
    pub faults: LinkFaults,
    /// How often each fault occurred.
    pub counts: LinkCounts,
}

/// An adapter's state of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// PortState: 1 down, 2 initialize, 3 armed, 4 active.
    pub state: u8,
    /// Base LID.
    pub lid: u16,
    /// LID mask control.
    pub lmc: u8,
    /// The subnet manager's LID.
    pub sm_lid: u16,
    /// The SL to the subnet manager.
    pub sm_sl: u8,
    /// Whether a subnet manager was found at that LID.
    pub manager_present: bool,
    /// Upper half of the GIDs.
    pub gid_prefix: u64,
    /// GUID of the port.
    pub guid: u64,
    /// The non-zero P_Keys, by index.
    pub pkeys: Vec<u16>,
}

impl From<&PortSnapshot> for PortStatus {
    fn from(snapshot: &PortSnapshot) -> Self {
        let info = &snapshot.info;
        let pkeys = snapshot.pkeys.iter().copied();
        Self {
            state: info.state,
            lid: info.lid,
            lmc: info.lmc,
            sm_lid: info.sm_lid,
            sm_sl: info.sm_sl,
            manager_present: snapshot.manager_present,
            gid_prefix: info.gid_prefix,
            guid: snapshot.guids.first().copied().unwrap_or(0),
            pkeys: pkeys.filter(|pkey| *pkey != 0).collect(),
        }
    }
}

/// Executes the command in a line.
pub(super) fn execute(line: &[u8], adapter: &Adapter) -> Answer {
    let command = match serde_json::from_slice(line) {
        Ok(command) => command,
        Err(error) => return Answer::Error(format!("not a command: {error}")),
    };
    let done = match command {
        Command::Event { port, event } => adapter.inject(port, event).map(|()| Answer::Done),
        Command::Status { port } => adapter
            .known_port(port)
            .map(|snapshot| Answer::Status((&*snapshot).into())),
        Command::Faults { port } => adapter
            .link_faults(port)
            .map(|(faults, counts)| Answer::Faults(LinkStatus { faults, counts })),
        Command::SetFaults { port, faults } => match faults.check() {
            Ok(()) => adapter.set_link_faults(port, faults).map(|()| Answer::Done),
            Err(error) => return Answer::Error(error.to_string()),
        },
    };
    done.unwrap_or_else(|error| Answer::Error(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::link_faults::MAX_DELAY;

    /// The examples in the protocol's documentation.
    #[test]
    fn commands_and_answers_are_lines_of_json() {
        let faults = LinkFaults {
            drop: 20,
            delay: Duration::from_millis(30),
            seed: 7,
            ..LinkFaults::default()
        };
        for (line, command) in [
            (
                r#"{"event":{"port":1,"event":"CLIENT_REREGISTER"}}"#,
                Command::Event {
                    port: 1,
                    event: PortEvent::ClientReregister,
                },
            ),
            (r#"{"status":{"port":2}}"#, Command::Status { port: 2 }),
            (r#"{"faults":{"port":3}}"#, Command::Faults { port: 3 }),
            (
                r#"{"set_faults":{"port":1,"faults":{"drop":20,"delay":30,"seed":7}}}"#,
                Command::SetFaults { port: 1, faults },
            ),
        ] {
            assert_eq!(serde_json::from_str::<Command>(line).unwrap(), command);
            let written = serde_json::to_string(&command).unwrap();
            assert_eq!(serde_json::from_str::<Command>(&written).unwrap(), command);
        }
        assert_eq!(serde_json::to_string(&Answer::Done).unwrap(), "\"done\"");
        let longest = Command::SetFaults {
            port: 255,
            faults: LinkFaults {
                drop: 100,
                duplicate: 100,
                reorder: 100,
                corrupt: 100,
                delay: MAX_DELAY,
                seed: u64::MAX,
            },
        };
        assert!(serde_json::to_string(&longest).unwrap().len() < MAX_LINE);
    }

    #[test]
    fn events_have_their_names_in_verbs_h() {
        for event in PortEvent::ALL {
            let json = serde_json::to_string(&event).unwrap();
            assert_eq!(json, format!("\"{}\"", event.name()));
        }
    }

    #[test]
    fn malformed_commands_say_what_is_wrong() {
        let adapter = Adapter::new(Default::default(), vec![]);
        for (line, part) in [
            ("", "EOF"),
            ("status", "expected"),
            (r#"{"evnt":{}}"#, "unknown variant `evnt`"),
            (r#"{"event":{"port":1}}"#, "missing field `event`"),
            (
                r#"{"event":{"port":1,"event":"PORT_MELTED"}}"#,
                "unknown variant `PORT_MELTED`",
            ),
            (r#"{"status":{"port":256}}"#, "256"),
            (r#"{"status":{"port":1}} x"#, "trailing"),
            (r#"{"status":{"port":9}}"#, "no port 9"),
            (
                r#"{"set_faults":{"port":1,"faults":{"loss":5}}}"#,
                "unknown field `loss`",
            ),
            (
                r#"{"set_faults":{"port":1,"faults":{"drop":101}}}"#,
                "drop is 101, at most 100",
            ),
            (
                r#"{"set_faults":{"port":1,"faults":{"delay":60001}}}"#,
                "delay is 60001 ms, at most 60000",
            ),
        ] {
            let Answer::Error(error) = execute(line.as_bytes(), &adapter) else {
                panic!("{line:?} was executed");
            };
            assert!(error.contains(part), "{line:?}: {error}");
        }
        assert!(matches!(execute(b"\xff", &adapter), Answer::Error(_)));
    }
}
