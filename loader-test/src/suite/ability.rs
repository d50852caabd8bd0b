//! What a check needs the provider to be able to do.
//!
//! An ability is probed once in a run, before the checks that need it, for one ordinary peer. It is not the verdict of a
//! check: a wrong field in an answer takes no ability away.

mod probes;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Check;

pub(super) use probes::DEADLINE;

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

/// What a check needs that opens a port: that it closes as well.
pub const OPENS: &[Ability] = &[Ability::OpensPort, Ability::Closes];

/// What most checks need: a port that opens, the answer to a request for a LID, and a port that closes.
pub const SERVES: &[Ability] = &[Ability::AnswersByLid, Ability::Closes];

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

    /// The abilities that this one needs itself.
    pub const fn needs(self) -> &'static [Self] {
        match self {
            Self::Loads => &[],
            Self::OpensPort => &[Self::Loads],
            Self::AnswersByLid | Self::AnswersByGid | Self::AnswersQuery | Self::Closes => {
                &[Self::OpensPort]
            }
            Self::Reregisters => &[Self::AnswersByLid],
        }
    }

    /// These abilities and all that they need, each after those that it needs itself.
    pub fn closure(of: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut open: Vec<Self> = of.into_iter().collect();
        let mut known = Vec::new();
        while let Some(ability) = open.pop() {
            if !known.contains(&ability) {
                known.push(ability);
                open.extend(ability.needs());
            }
        }
        known.sort_unstable();
        known
    }

    /// The probe: a check that is none of the suite's, and ends without closing what it opened.
    pub fn probe(self) -> &'static Check {
        probes::of(self)
    }
}

impl Check {
    /// Whether it only finds out about the provider, for other checks.
    pub fn is_probe(&self) -> bool {
        self.name == DEADLINE.name || probes::all().any(|probe| probe.name == self.name)
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
