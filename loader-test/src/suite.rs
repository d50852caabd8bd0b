//! The conformance suite: checks of what a provider does to the core, to clients, to the SA and to other nodes.
//!
//! A [`Check`] is declared once, in its family's file; everything else (the list, the runner, the reports, the test that
//! each check has failed on its own faulty provider) goes over [`all`].

pub mod ability;
pub mod apart;
pub mod cli;
pub mod copies;
pub mod demands;
pub mod explain;
pub mod fixture;
#[macro_use]
pub mod fault;
pub mod fuzz;
pub mod info;
pub mod lines;
mod panics;
pub mod progress;
pub mod report;
pub mod right;
pub mod run;
pub mod summary;
pub mod table;

mod event;
mod hostile;
mod lifecycle;
mod load;
mod path;
mod perf;
mod process;
mod query;
mod resolve;
mod sa;
mod sa_pacing;
mod session;
pub mod wire;

use std::fmt;

use serde::Serialize;

use crate::stand_in::ledger::{Harmed, ViolationKind};
use ability::Ability;
use fault::Fault;
use fixture::Fixture;

/// One check.
pub struct Check {
    /// Kebab-case, family first.
    pub name: &'static str,
    /// The rule that a good provider keeps, in one sentence.
    pub rule: &'static str,
    /// Who suffers from a provider that fails it.
    pub harmed: Harmed,
    /// How the check sees it: what it does to the provider and what it looks at, in one sentence.
    pub how: &'static str,
    /// What the provider must be able to do for the check to say anything; each implies what that needs itself.
    pub needs: &'static [Ability],
    /// The check itself.
    pub run: fn(&mut Fixture) -> Outcome,
    /// The faulty provider that it must catch: a good one with one fault. Empty without the feature `faults`.
    pub fault: Fault,
}

/// What a check found; `Ok` is a pass, unless the ledger holds a breach.
pub type Outcome = Result<(), Finding>;

/// Why a check did not simply pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub enum Finding {
    /// Somebody is harmed.
    Failed {
        /// What should have happened.
        expected: String,
        /// What happened.
        seen: String,
    },
    /// A client is not served, in a check that is about something else: the rule is this breach's, not the check's.
    Breach {
        /// The breach.
        kind: ViolationKind,
        /// Who suffers.
        harmed: Harmed,
        /// What should have happened.
        expected: String,
        /// What happened.
        seen: String,
    },
    /// The provider departs from the contract, and nobody is harmed.
    Warned(String),
    /// The provider lacks an ability, and says so properly.
    Skipped(String),
    /// The check can say nothing without an ability that the provider should have.
    Blocked(Ability),
    /// The harness itself cannot go on, which says nothing about the provider.
    CannotRun(String),
}

impl Finding {
    /// Adds to what was expected and to what was seen, if somebody is harmed.
    pub fn told(self, tell: impl FnOnce(String, String) -> (String, String)) -> Self {
        match self {
            Self::Failed { expected, seen } => {
                let (expected, seen) = tell(expected, seen);
                Self::Failed { expected, seen }
            }
            Self::Breach {
                kind,
                harmed,
                expected,
                seen,
            } => {
                let (expected, seen) = tell(expected, seen);
                Self::Breach {
                    kind,
                    harmed,
                    expected,
                    seen,
                }
            }
            other => other,
        }
    }
}

/// Trouble of the harness's own, such as a full disk.
pub fn cannot_run(what: &'static str) -> impl Fn(std::io::Error) -> Finding + Copy {
    move |error| Finding::CannotRun(format!("{what}: {error}"))
}

/// A failure.
pub fn failed(expected: impl Into<String>, seen: impl Into<String>) -> Finding {
    Finding::Failed {
        expected: expected.into(),
        seen: seen.into(),
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// All is well.
    Passed,
    /// The provider lacks the ability.
    Skipped,
    /// An ability that every provider should have, and that the check needs, is missing.
    Blocked,
    /// A departure from the contract that harms nobody.
    Warned,
    /// Somebody is harmed.
    Failed,
    /// The provider did not come to an end.
    TimedOut,
    /// The provider ended the process.
    Crashed,
}

impl Status {
    /// As it is spelled in every report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped",
            Self::Blocked => "blocked",
            Self::Warned => "warned",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Crashed => "crashed",
        }
    }

    /// Whether a run with this status is not all well; with `strict`, warnings count.
    pub fn is_bad(self, strict: bool) -> bool {
        match self {
            // The run fails by the ability that is missing.
            Self::Passed | Self::Skipped | Self::Blocked => false,
            Self::Warned => strict,
            Self::Failed | Self::TimedOut | Self::Crashed => true,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Check {
    /// The family: the name's first word.
    pub fn family(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    /// How many times the usual limit the check may take: what is done thousands of times takes long on a busy machine, and
    /// a provider may look at its files every few seconds.
    fn time_factor(&self) -> u32 {
        match self.name {
            lifecycle::REOPEN_THOUSAND | wire::FLOOD_MEMORY => 10,
            event::HOSTS_UNREADABLE => 6,
            // Two nodes wait for each other.
            _ if self.family() == "wire" => 2,
            _ => 1,
        }
    }

    /// Its rule with the section of the docs; checks that are none of the suite's have none.
    pub fn told_rule(&self) -> String {
        match self.family() {
            _ if self.is_probe() => format!("{} (CHECKS.md, abilities)", self.rule),
            family if family == self.name => self.rule.to_owned(),
            family => format!("{} (CHECKS.md, {family})", self.rule),
        }
    }
}

/// Every check, by family.
pub fn all() -> impl Iterator<Item = &'static Check> {
    [
        load::CHECKS,
        process::CHECKS,
        lifecycle::CHECKS,
        resolve::DESTINATIONS,
        resolve::DEMANDS,
        resolve::ANSWERS,
        resolve::CLIENTS,
        resolve::MEMORY,
    ]
    .into_iter()
    .chain(path::CHECKS)
    .chain([
        query::CHECKS,
        sa::CHECKS,
        sa_pacing::CHECKS,
        event::CHECKS,
        perf::CHECKS,
        hostile::CHECKS,
    ])
    .chain(wire::CHECKS)
    .flatten()
}

/// The check of a name, of the suite or of a command of its own.
pub fn find(name: &str) -> Option<&'static Check> {
    all()
        .chain([
            &fuzz::FUZZ,
            &session::SESSION,
            &load::PROBE,
            &ability::DEADLINE,
        ])
        .chain(ability::Ability::ALL.map(ability::Ability::probe))
        .find(|check| check.name == name)
}
