//! A simulated fabric as ibsim reports it: the nodes of the net file, with ibsim's GUIDs and the subnet manager's settings.

use crate::error::{Error, Result};
use crate::record::Lid;

/// All nodes, in the order of the net file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// A node of the fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id in the net file.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Node GUID, host order.
    pub guid: u64,
    /// Its ports, including a switch's port 0.
    pub ports: Vec<Port>,
}

/// The type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel adapter: a host.
    ChannelAdapter,
    /// A switch.
    Switch,
    /// A router.
    Router,
}

/// A port of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number on the node.
    pub number: u8,
    /// Port GUID, host order.
    pub guid: u64,
    /// Base LID, 0 until a subnet manager assigns one. Of a switch only port 0 has one.
    pub lid: Lid,
    /// The subnet manager's LID, as set by the subnet manager.
    pub sm_lid: Lid,
    /// Logical state: Down, Init, Armed or Active.
    pub state: String,
}

impl Port {
    /// Whether the subnet manager has brought the port up.
    pub fn is_active(&self) -> bool {
        self.state == "Active"
    }
}

impl Node {
    /// Returns the node's first port, to which ibsim attaches programs.
    pub fn attached_port(&self) -> Option<&Port> {
        self.ports.first()
    }
}

impl Fabric {
    /// Returns the node of a name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Iterates over all hosts.
    pub fn channel_adapters(&self) -> impl Iterator<Item = &Node> {
        self.nodes
            .iter()
            .filter(|node| node.kind == Kind::ChannelAdapter)
    }

    /// Iterates over all active host ports, the possible destinations of paths.
    pub fn destinations(&self) -> impl Iterator<Item = (&Node, &Port)> {
        self.channel_adapters()
            .flat_map(|node| node.ports.iter().map(move |port| (node, port)))
            .filter(|(_, port)| port.is_active())
    }

    /// Parses the output of ibsim's console command `Dump`.
    pub fn parse(dump: &str) -> Result<Self> {
        let mut fabric = Self::default();
        for line in dump.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || Error::protocol("ibsim", format!("Dump prints an unknown line: {line}"));
            if let Some(node) = parse_node(line) {
                fabric.nodes.push(node);
            } else {
                let node = fabric.nodes.last_mut().ok_or_else(wrong)?;
                node.ports.push(parse_port(line).ok_or_else(wrong)?);
            }
        }
        Ok(fabric)
    }
}

/// `Ca 2 "Hca1"<tab>nodeguid 100000<tab>sysimgguid 100000`
fn parse_node(line: &str) -> Option<Node> {
    let (head, rest) = line.split_once(" \"")?;
    let (name, rest) = rest.split_once("\"\tnodeguid ")?;
    let kind = match head.split_whitespace().next()? {
        "Ca" => Kind::ChannelAdapter,
        "Switch" => Kind::Switch,
        "Router" => Kind::Router,
        _ => return None,
    };
    Some(Node {
        name: name.to_owned(),
        kind,
        guid: u64::from_str_radix(rest.split_whitespace().next()?, 16).ok()?,
        ports: Vec::new(),
    })
}

/// `100001<tab>[1]<tab>"Switch1"[1]<tab> lid 1 lmc 0 smlid 1  4x  2.5G Active/LinkUp`; without the remote port when
/// down, without the LIDs on a switch, and with remarks behind a # when errors are simulated.
fn parse_port(line: &str) -> Option<Port> {
    let (guid, rest) = line.split_once("\t[")?;
    let (number, rest) = rest.split_once(']')?;
    // The remote node's name may contain any text, such as lid: parse after it.
    let (_, facts) = rest.rsplit_once("\t ")?;
    let facts = facts.split_once('#').map_or(facts, |(facts, _)| facts);
    let words: Vec<&str> = facts.split_whitespace().collect();
    let value = |key: &str| {
        let at = words.iter().position(|word| *word == key)?;
        words.get(at + 1)?.parse().ok()
    };
    let state = words.iter().rev().find_map(|word| word.split_once('/'))?.0;
    Some(Port {
        number: number.parse().ok()?,
        guid: u64::from_str_radix(guid, 16).ok()?,
        lid: Lid(value("lid").unwrap_or(0)),
        sm_lid: Lid(value("smlid").unwrap_or(0)),
        state: state.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "# Net status - Mon Nov 30 03:18:17 2026\n\n\
        Switch 8 \"Switch 1\"\tnodeguid 200000\tsysimgguid 200000\n\
        #\tlinearcap 30720 FDBtop 6 portchange 0\n\
        200000\t[0]\t\"Sma Port\"[0]\t lid 2 lmc 0 smlid 1  4x  2.5G Active/LinkUp\n\
        200000\t[1]\t\"Hca lid 7\"[1]\t  4x  2.5G Active/LinkUp\n\
        200000\t[4]\t\t\t  4x  2.5G Down/Polling\n\n\
        Ca 2 \"Hca lid 7\"\tnodeguid 100000\tsysimgguid 100000\n\
        100001\t[1]\t\"Switch 1\"[1]\t lid 10 lmc 0 smlid 1  4x  2.5G Init/LinkUp\t# err_rate 3\n\
        100002\t[2]\t\t\t lid 0 lmc 0 smlid 0  4x  2.5G Down/Polling\n\
        #  dumped 2 nodes\n";

    #[test]
    fn a_dump_is_read_whole() {
        let fabric = Fabric::parse(DUMP).unwrap();
        let names: Vec<_> = fabric
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.kind))
            .collect();
        assert_eq!(
            names,
            [
                ("Switch 1", Kind::Switch),
                ("Hca lid 7", Kind::ChannelAdapter)
            ]
        );
        let states: Vec<_> = fabric.nodes[0]
            .ports
            .iter()
            .map(|port| port.state.as_str())
            .collect();
        assert_eq!(states, ["Active", "Active", "Down"]);
        assert_eq!(
            fabric.node("Hca lid 7").unwrap().ports[0],
            Port {
                number: 1,
                guid: 0x100001,
                lid: Lid(10),
                sm_lid: Lid(1),
                state: "Init".to_owned()
            }
        );
        assert_eq!(fabric.destinations().count(), 0);
    }

    #[test]
    fn an_unknown_line_is_an_error_that_shows_it() {
        let error = Fabric::parse("100001 nonsense\n").unwrap_err();
        assert!(error.to_string().contains("100001 nonsense"), "{error}");
    }
}
