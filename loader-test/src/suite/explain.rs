//! `loader-test explain`: describes a check, an ability or a violation.

use std::io;

use super::ability::Ability;
use super::{Check, find, table};
use crate::stand_in::ledger::ViolationKind;

/// Returns the description of a name.
///
/// # Errors
/// If no check, ability or violation has that name.
pub fn of(name: &str) -> io::Result<String> {
    if let Some(check) = find(name).filter(|check| check.is_probe() || !check.how.is_empty()) {
        return Ok(of_check(check));
    }
    let breach = name.strip_prefix("breach-").unwrap_or(name);
    let kind = serde_json::from_value::<ViolationKind>(breach.into());
    match kind {
        Ok(kind) => Ok(format!(
            "breach-{breach}\n  rule: {}\n  how: in every check the core keeps a ledger of all requests, messages and MADs\n",
            kind.rule()
        )),
        Err(_) => Err(io::Error::other(format!(
            "nothing is named {name}; loader-test list shows all checks, CHECKS.md the violations"
        ))),
    }
}

fn of_check(check: &Check) -> String {
    let mut text = format!(
        "{}\n  rule: {}\n  affects: {}\n  how: {}\n",
        check.name, check.rule, check.harmed, check.how
    );
    let names = |abilities: &[Ability]| -> String {
        let names: Vec<&str> = abilities.iter().map(|ability| ability.name()).collect();
        names.join(", ")
    };
    let all = Ability::closure(check.needs.iter().copied());
    text += &match all.is_empty() {
        true => "  needs: nothing\n".to_owned(),
        false => format!("  needs: {}\n", names(&all)),
    };
    if let Some(row) = table::rows().get(check.name) {
        let why = match row.why.is_empty() {
            true => String::new(),
            false => format!(": {}", row.why),
        };
        text += &format!("  libibacmp.so: {}{why}\n", row.outcomes.join(" or "));
    }
    text
}
