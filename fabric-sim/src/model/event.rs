//! Asynchronous events.

use std::fmt;
use std::sync::Weak;

use serde::{Deserialize, Serialize};

use super::completion::CompletionQueue;

/// An asynchronous event of a port, by its name in `enum ibv_event_type` without the prefix `IBV_EVENT_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PortEvent {
    /// The port became active.
    PortActive,
    /// The port is no longer active.
    PortErr,
    /// Its LID or LID mask changed.
    LidChange,
    /// Its P_Key table changed.
    PkeyChange,
    /// The subnet manager's LID or SL changed.
    SmChange,
    /// The subnet manager asks ports to subscribe and join multicast groups again.
    ClientReregister,
    /// Its GID table changed.
    GidChange,
}

impl PortEvent {
    /// All port events.
    pub const ALL: [Self; 7] = [
        Self::PortActive,
        Self::PortErr,
        Self::LidChange,
        Self::PkeyChange,
        Self::SmChange,
        Self::ClientReregister,
        Self::GidChange,
    ];

    /// Returns the number in `enum ibv_event_type`.
    pub fn code(self) -> i32 {
        match self {
            Self::PortActive => 9,
            Self::PortErr => 10,
            Self::LidChange => 11,
            Self::PkeyChange => 12,
            Self::SmChange => 13,
            Self::ClientReregister => 17,
            Self::GidChange => 18,
        }
    }

    /// Returns the name in `enum ibv_event_type`, without `IBV_EVENT_`.
    pub fn name(self) -> &'static str {
        match self {
            Self::PortActive => "PORT_ACTIVE",
            Self::PortErr => "PORT_ERR",
            Self::LidChange => "LID_CHANGE",
            Self::PkeyChange => "PKEY_CHANGE",
            Self::SmChange => "SM_CHANGE",
            Self::ClientReregister => "CLIENT_REREGISTER",
            Self::GidChange => "GID_CHANGE",
        }
    }
}

impl fmt::Display for PortEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An asynchronous event as a context receives it.
#[derive(Clone, Debug)]
pub enum AsyncEvent {
    /// An event of a port, with its number.
    Port(PortEvent, u8),
    /// A completion queue overran (`IBV_EVENT_CQ_ERR`).
    CqErr(Weak<CompletionQueue>),
}
