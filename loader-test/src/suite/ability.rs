//! Abilities of a provider that checks need.
//!
//! A run probes an ability once, with one ordinary peer, before the checks that need it. A probe is not a check: a wrong field
//! in an answer does not count against the ability.

mod probes;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Check;

pub(super) use probes::DEADLINE;

/// An ability of most providers that many checks need.
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
    /// A port still resolves after a reregistration.
    Reregisters,
    /// The opened port closes.
    Closes,
}

/// Needs of a check that opens a port, and so closes it too.
pub const OPENS: &[Ability] = &[Ability::OpensPort, Ability::Closes];

/// Needs of most checks: a port that opens, resolves a LID, and closes.
pub const SERVES: &[Ability] = &[Ability::AnswersByLid, Ability::Closes];

impl Ability {
    /// All abilities, each after those that it needs.
    pub const ALL: [Self; 7] = [
        Self::Loads,
        Self::OpensPort,
        Self::AnswersByLid,
        Self::AnswersByGid,
        Self::AnswersQuery,
        Self::Reregisters,
        Self::Closes,
    ];

    /// Returns the name used in all reports.
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

    /// Returns the abilities that this one needs directly.
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

    /// Returns these abilities and all that they need, each after its own needs.
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

    /// Returns the probe: a check outside the suite that ends without closing what it opened.
    pub fn probe(self) -> &'static Check {
        probes::of(self)
    }
}

impl Check {
    /// Whether it only probes the provider for other checks.
    pub fn is_probe(&self) -> bool {
        self.name == DEADLINE.name || probes::all().any(|probe| probe.name == self.name)
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
