//! Checks of the table that `provider_query` returns.

use acm_prov_api::check::TableFault as Fault;

use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::Peer;
use crate::stand_in::library::Library;
use crate::suite::ability::Ability;
use crate::suite::fixture::{Fixture, by_lid, not_loaded, refused, resolve};
use crate::suite::{Finding, Outcome, failed};

pub(super) fn query(fixture: &mut Fixture) -> Outcome {
    let report = fixture.judge()?;
    let seen: Vec<String> = report
        .findings()
        .iter()
        .filter(|fault| is_without_table(fault))
        .map(Fault::to_string)
        .collect();
    match seen.is_empty() {
        true => Ok(()),
        false => Err(failed("0 and a table", seen.join("; "))),
    }
}

fn is_without_table(fault: &Fault) -> bool {
    matches!(fault, Fault::QueryFailed { .. } | Fault::NullTable)
}

pub(super) fn version(fixture: &mut Fixture) -> Outcome {
    judge(fixture, "version 1 in both places", |fault| {
        matches!(
            fault,
            Fault::OlderVersion { .. } | Fault::NewerVersion { .. } | Fault::VersionsDiffer { .. }
        )
    })
}

pub(super) fn size(fixture: &mut Fixture) -> Outcome {
    judge(fixture, "a table of 120 bytes", |fault| {
        matches!(
            fault,
            Fault::ShorterTable { .. } | Fault::LongerTable { .. } | Fault::Truncated { .. }
        )
    })
}

pub(super) fn name(fixture: &mut Fixture) -> Outcome {
    judge(fixture, "a name that the options file can hold", |fault| {
        matches!(
            fault,
            Fault::NullName
                | Fault::EmptyName
                | Fault::LongName { .. }
                | Fault::WhiteSpaceInName { .. }
                | Fault::NameNotUtf8 { .. }
        )
    })
}

pub(super) fn slots(fixture: &mut Fixture) -> Outcome {
    judge(fixture, "twelve callbacks", |fault| {
        matches!(fault, Fault::NullSlot(_))
    })
}

/// Fails for the faults that `concerns` selects; other checks report a missing table.
fn judge(fixture: &mut Fixture, expected: &str, concerns: impl Fn(&Fault) -> bool) -> Outcome {
    let report = match fixture.judge() {
        Err(Finding::Failed { .. }) => return Err(Finding::Blocked(Ability::Loads)),
        judged => judged?,
    };
    if report.findings().iter().any(is_without_table) {
        return Err(Finding::Blocked(Ability::Loads));
    }
    let seen: Vec<String> = report
        .findings()
        .iter()
        .filter(|fault| concerns(fault))
        .map(Fault::to_string)
        .collect();
    if seen.is_empty() {
        Ok(())
    } else {
        Err(failed(expected, seen.join("; ")))
    }
}

pub(super) fn query_twice(fixture: &mut Fixture) -> Outcome {
    // The core makes the first call when it loads the library, this check the second.
    let (core, library) = fixture.core_and_library()?;
    let again = Library::open_by_any_name(library).map_err(not_loaded)?;
    let (_, report) = again.judge().map_err(not_loaded)?;
    if !report.is_accepted() {
        return Err(failed("the same the second time", report.to_string()));
    }
    let from = core.up(FIRST_PORT).map_err(refused)?;
    resolve(core, from, &by_lid(&Peer::number(1))).map(drop)
}
