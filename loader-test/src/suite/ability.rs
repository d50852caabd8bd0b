//! What a check needs the provider to be able to do.
//!
//! An ability is probed once in a run, before the checks that need it, for one ordinary peer. It is not the verdict of a
//! check: a wrong field in an answer takes no ability away.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that most providers can do, and many checks need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ability {
    /// ibacm loads the library and accepts its table.
    Loads,
    /// A device, a port, an endpoint and an address open.
    OpensPort,
    /// A request for a peer's LID is answered.
    AnswersByLid,
    /// A request for a peer's GID is answered.
    AnswersByGid,
    /// A query is answered.
    AnswersQuery,
    /// A port goes on after its subnet manager asked for a re-registration.
    Reregisters,
    /// What was opened closes.
    Closes,
}

impl Ability {
    /// All of them; each stands after those that it needs itself.
    pub const ALL: [Self; 7] = [
        Self::Loads,
        Self::OpensPort,
        Self::AnswersByLid,
        Self::AnswersByGid,
        Self::AnswersQuery,
        Self::Reregisters,
        Self::Closes,
    ];

    /// As it is spelled in every report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loads => "loads",
            Self::OpensPort => "opens-port",
            Self::AnswersByLid => "answers-by-lid",
            Self::AnswersByGid => "answers-by-gid",
            Self::AnswersQuery => "answers-query",
            Self::Reregisters => "reregisters",
            Self::Closes => "closes",
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
