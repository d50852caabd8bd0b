//! Random sequences of calls, datagrams from other nodes, and faults of the SA and the core.
//!
//! [`from_seed`] makes a sequence from a seed, and [`from_bytes`] from the bytes of a fuzzer. [`play`] plays it to the
//! provider of any [`StandIn`](super::StandIn), so that a vendor's fuzz target needs three lines:
//!
//! ```
//! # use acm_prov_api::prelude::*;
//! # struct Mine;
//! # impl Provider for Mine {
//! #     const NAME: &CStr = c"mine";
//! #     type Endpoint = NoContext;
//! #     fn load(_: &Host, _: &Options) -> Result<Self, Error> { Ok(Self) }
//! #     fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) { request.refuse(Status::ENODATA) }
//! # }
//! # acm_prov_api::provider_table!(Mine);
//! use acm_stand_in::in_process::InProcess;
//! use acm_stand_in::sequence;
//!
//! let data = [1, 2, 3];
//! let mut core = InProcess::load::<Mine>(sequence::OPTIONS).expect("the provider loads");
//! assert_eq!(sequence::play(&mut core, &sequence::from_bytes(&data)), []);
//! ```

mod choices;
mod datagrams;
mod player;
mod truth;

use serde::{Deserialize, Serialize};

use choices::Choices;
pub use player::{Player, play};

/// Options with short deadlines, which keep sequences short.
pub const OPTIONS: &[&str] = &["timeout 60", "retries 1"];

/// Number of actions in a sequence from a seed.
const LENGTH: usize = 60;
/// Maximum number of actions in a sequence from bytes.
const LONGEST: usize = 1000;

/// An action. One that makes no sense at its place does nothing, so every part of a sequence is a sequence too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The port comes up, with one endpoint and two addresses.
    Up,
    /// The port goes down.
    Down,
    /// The subnet manager gives the port another LID while it is down.
    NewLid(u16),
    /// The endpoint gets another address.
    AddAddress(u16),
    /// The endpoint loses an address.
    RemoveAddress(u16),
    /// The subnet manager requests a reregistration.
    Reregister,
    /// Another event.
    Event(u32),
    /// A peer gets another LID, and the subnet manager requests a reregistration.
    PeerMoves {
        /// The peer's number.
        peer: u16,
        /// Its LID from now on.
        lid: u16,
    },
    /// A client requests the path to a peer.
    Resolve {
        /// The peer's number.
        peer: u16,
        /// By its GID, not by its LID.
        by_gid: bool,
        /// The flags of the request's entry.
        flags: u32,
    },
    /// A client resolves a peer's name.
    ResolveName {
        /// The peer's number.
        peer: u16,
    },
    /// A client sends a query.
    Query {
        /// The peer's number.
        peer: u16,
    },
    /// A client sends random bytes.
    Hostile {
        /// Seed of the bytes.
        seed: u64,
    },
    /// Another node sends a datagram.
    Datagram {
        /// Seed of the datagram.
        seed: u64,
    },
    /// The last client leaves.
    Leave,
    /// Sets the SA's behaviour.
    Sa(SaMood),
    /// Sets the behaviour of the core's MAD functions.
    Mads(MadMood),
    /// Waits until the SA is idle, but not for long.
    Settle,
    /// Waits this many milliseconds.
    Wait(u8),
    /// An operator reads the counters.
    Perf,
}

/// How the SA behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaMood {
    /// Responds.
    Well,
    /// Refuses with a MAD status.
    Refuses(u16),
    /// Does not respond: MADs come back after the time-out.
    Silent,
    /// Responds after this many milliseconds.
    Slow(u16),
    /// MADs never come back.
    Never,
    /// Responds with a record for another query.
    Confused,
}

/// How the core's MAD functions behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MadMood {
    /// As they should.
    Well,
    /// There is no memory for MADs.
    NoMemory,
    /// Sending fails.
    Refused,
}

/// Returns the sequence of a seed.
pub fn from_seed(seed: u64) -> Vec<Action> {
    let mut choices = Choices::from_seed(seed);
    let mut actions: Vec<Action> = (0..LENGTH).map(|_| Action::choose(&mut choices)).collect();
    // Open the port first: most actions do nothing before that.
    if choices.below(8) > 0 {
        actions[0] = Action::Up;
    }
    actions
}

/// Returns the sequence for a fuzzer's bytes. Changed bytes at the end do not change the first actions.
pub fn from_bytes(bytes: &[u8]) -> Vec<Action> {
    let mut choices = Choices::from_bytes(bytes);
    std::iter::from_fn(|| (!choices.is_used_up()).then(|| Action::choose(&mut choices)))
        .take(LONGEST)
        .collect()
}

/// First peer that is in no hosts file, so that some providers send multicast requests for it.
const NOBODY_PRELOADED: u16 = 100;
/// Peers that clients request.
const PEERS: u16 = 19;
/// Peers that most requests name.
const FEW_PEERS: u16 = 4;
/// Number of LIDs for this node's port.
const OWN_LIDS: u16 = 50;
/// First of the LIDs that peers move to; initially no port has them.
const FREE_LIDS: u16 = 2000;

impl Action {
    fn choose(choices: &mut Choices<'_>) -> Self {
        let kind = choices.below(42);
        // Mostly a few peers, so that requests repeat.
        let peers = if choices.below(4) == 0 {
            PEERS
        } else {
            FEW_PEERS
        };
        let peer = 1 + u16::from(choices.below(peers));
        match kind {
            0..2 => Self::Up,
            2 => Self::Down,
            3 => Self::NewLid(OWN_LIDS + u16::from(choices.below(40))),
            4 => Self::AddAddress(u16::from(choices.below(5))),
            5 => Self::RemoveAddress(u16::from(choices.below(5))),
            6 => Self::Reregister,
            7 => Self::Event(u32::from(choices.below(25))),
            8..16 => {
                const NODELAY: u32 = 1 << 30;
                Self::Resolve {
                    peer,
                    by_gid: choices.below(2) == 0,
                    flags: if choices.below(4) == 0 { NODELAY } else { 0 },
                }
            }
            16 => Self::ResolveName { peer },
            17..20 => Self::Query { peer },
            20..23 => Self::Hostile {
                seed: choices.any(),
            },
            23 => Self::Leave,
            24..28 => Self::Sa(SaMood::choose(choices)),
            28 => Self::Mads(match choices.below(3) {
                0 => MadMood::NoMemory,
                1 => MadMood::Refused,
                _ => MadMood::Well,
            }),
            29 => Self::Settle,
            30 => Self::Perf,
            31 => Self::ResolveName {
                peer: peer + NOBODY_PRELOADED,
            },
            32 | 33 => Self::PeerMoves {
                peer,
                lid: FREE_LIDS + u16::from(choices.below(100)),
            },
            34 => Self::Wait(1 + choices.below(20)),
            _ => Self::Datagram {
                seed: choices.any(),
            },
        }
    }
}

impl SaMood {
    fn choose(choices: &mut Choices<'_>) -> Self {
        const STATUSES: [u16; 6] = [0x0001, 0x0100, 0x0200, 0x0300, 0x0500, 0x000c];
        match choices.below(8) {
            0 => Self::Refuses(STATUSES[usize::from(choices.below(6))]),
            1 => Self::Silent,
            2 => Self::Slow(1 + u16::from(choices.below(49))),
            3 => Self::Never,
            4 => Self::Confused,
            _ => Self::Well,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        assert_eq!(from_seed(7), from_seed(7));
        assert_ne!(from_seed(7), from_seed(8));
        assert_eq!(from_seed(7).len(), LENGTH);
    }

    #[test]
    fn bytes_are_a_sequence_and_more_bytes_go_on_with_it() {
        assert_eq!(from_bytes(&[]), []);
        let bytes: Vec<u8> = (0..200).map(|n: u8| n.wrapping_mul(37)).collect();
        let (short, long) = (from_bytes(&bytes[..100]), from_bytes(&bytes));
        assert!(short.len() > 10, "{short:?}");
        // The last one of the short sequence lacks some of its bytes.
        assert_eq!(short[..short.len() - 1], long[..short.len() - 1]);
        assert!(from_bytes(&vec![0; 100_000]).len() <= LONGEST);
    }

    #[test]
    fn every_action_comes_about() {
        let mut kinds: Vec<String> = (0..200)
            .flat_map(from_seed)
            .map(|action| {
                let text = format!("{action:?}");
                let end = text.find(|c: char| !c.is_alphanumeric());
                text[..end.unwrap_or(text.len())].to_owned()
            })
            .collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), 19, "{kinds:?}");
    }

    #[test]
    fn a_sequence_survives_a_file() {
        let sequence = from_seed(3);
        let text = serde_json::to_string(&sequence).unwrap();
        assert_eq!(
            serde_json::from_str::<Vec<Action>>(&text).unwrap(),
            sequence
        );
    }
}
