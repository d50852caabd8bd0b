//! The conformance suite: checks a provider's effects on the core, on clients, on the SA and on other nodes.
//!
//! A [`Check`] is declared once, in its family's file. The list, the runner, the reports and the test that each check fails on
//! its faulty provider iterate over [`all`].

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
    /// Name in kebab case, family first.
    pub name: &'static str,
    /// The rule that a correct provider keeps, in one sentence.
    pub rule: &'static str,
    /// Whom a provider affects that breaks the rule.
    pub harmed: Harmed,
    /// The check's procedure, in one sentence: its input to the provider and what it inspects.
    pub how: &'static str,
    /// The abilities that the check needs; each implies its own needs.
    pub needs: &'static [Ability],
    /// The check's function.
    pub run: fn(&mut Fixture) -> Outcome,
    /// The faulty provider that it must detect: a correct one with one fault. Empty without the feature `faults`.
    pub fault: Fault,
}

/// The outcome of a check; `Ok` is a pass, unless the ledger holds a violation.
pub type Outcome = Result<(), Finding>;

/// Why a check did not simply pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub enum Finding {
    /// The provider breaks the rule, which affects others.
    Failed {
        /// The expected behaviour.
        expected: String,
        /// The actual behaviour.
        seen: String,
    },
    /// A client gets no service in a check with another subject: the broken rule is this violation's, not the check's.
    Breach {
        /// The kind of violation.
        kind: ViolationKind,
        /// Whom it affects.
        harmed: Harmed,
        /// The expected behaviour.
        expected: String,
        /// The actual behaviour.
        seen: String,
    },
    /// The provider departs from the contract without affecting others.
    Warned(String),
    /// The provider lacks an optional ability, and reports so properly.
    Skipped(String),
    /// The check needs an ability that every provider should have.
    Blocked(Ability),
    /// The harness failed, which says nothing about the provider.
    CannotRun(String),
}

impl Finding {
    /// Changes the expected and the actual text of a failure.
    pub fn map_texts(self, map: impl FnOnce(String, String) -> (String, String)) -> Self {
        match self {
            Self::Failed { expected, seen } => {
                let (expected, seen) = map(expected, seen);
                Self::Failed { expected, seen }
            }
            Self::Breach {
                kind,
                harmed,
                expected,
                seen,
            } => {
                let (expected, seen) = map(expected, seen);
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

/// Returns a function that turns an error of the harness, such as a full disk, into a finding.
pub fn cannot_run(what: &'static str) -> impl Fn(std::io::Error) -> Finding + Copy {
    move |error| Finding::CannotRun(format!("{what}: {error}"))
}

/// Returns a failure.
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
    /// The provider keeps the rule.
    Passed,
    /// The provider lacks the ability.
    Skipped,
    /// An ability that every provider should have, and that the check needs, is missing.
    Blocked,
    /// A departure from the contract that affects no one.
    Warned,
    /// The provider breaks the rule, which affects others.
    Failed,
    /// The check did not end in time.
    TimedOut,
    /// The provider ended the process.
    Crashed,
}

impl Status {
    /// Returns the name used in all reports.
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

    /// Whether this status fails a run; with `strict`, warnings do.
    pub fn is_bad(self, strict: bool) -> bool {
        match self {
            // The missing ability fails the run.
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
    /// Returns the family, the name's first word.
    pub fn family(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    /// Returns the multiple of the usual time limit: thousands of rounds take long on a busy machine, and a provider may poll
    /// its files only every few seconds.
    fn time_factor(&self) -> u32 {
        match self.name {
            lifecycle::REOPEN_THOUSAND | wire::FLOOD_MEMORY => 10,
            event::HOSTS_UNREADABLE => 6,
            // Two nodes wait for each other.
            _ if self.family() == "wire" => 2,
            _ => 1,
        }
    }

    /// Returns the rule with its section of CHECKS.md, if the check belongs to the suite.
    pub fn rule_and_section(&self) -> String {
        match self.family() {
            _ if self.is_probe() => format!("{} (CHECKS.md, abilities)", self.rule),
            family if family == self.name => self.rule.to_owned(),
            family => format!("{} (CHECKS.md, {family})", self.rule),
        }
    }
}

/// Iterates over every check, by family.
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

/// Finds a check by name, including the internal checks of other commands.
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
