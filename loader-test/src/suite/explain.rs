//! `loader-test explain`: what is to be known of a check, an ability or a breach.

use std::io;

use super::ability::Ability;
use super::{Check, find, table};
use crate::stand_in::ledger::ViolationKind;

/// The text for a name.
///
/// # Errors
/// If nothing has that name.
pub fn of(name: &str) -> io::Result<String> {
    if let Some(check) = find(name).filter(|check| check.is_probe() || !check.how.is_empty()) {
        return Ok(of_check(check));
    }
    let breach = name.strip_prefix("breach-").unwrap_or(name);
    let kind = serde_json::from_value::<ViolationKind>(breach.into());
    match kind {
        Ok(kind) => Ok(format!(
            "breach-{breach}\n  rule: {}\n  seen: the core keeps books on every request, message and MAD, whatever a check is about\n",
            kind.rule()
        )),
        Err(_) => Err(io::Error::other(format!(
            "nothing is called {name}; loader-test list shows all checks, CHECKS.md the breaches"
        ))),
    }
}

fn of_check(check: &Check) -> String {
    let mut text = format!(
        "{}\n  rule: {}\n  harmed: {}\n  seen: {}\n",
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
