//! Collects the violations that affect no one from all checks: each kind is one result.

use std::collections::BTreeMap;

use super::plan::Report;
use crate::suite::Status;

/// Returns one result for each kind of departure that the checks detected.
pub(super) fn collect(reports: &[Report]) -> Vec<Report> {
    let mut kinds: BTreeMap<String, Report> = BTreeMap::new();
    for report in reports {
        for departure in &report.departures {
            let name = departure.name();
            let entry = kinds.entry(name.clone()).or_insert_with(|| {
                let text = format!("{}\nseen: {}", departure.rule(), departure.text);
                Report::new(&name, Status::Warned, text)
            });
            if !entry.seen_by.contains(&report.name) {
                entry.seen_by.push(report.name.clone());
            }
        }
    }
    kinds.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Departure;
    use super::*;
    use crate::stand_in::ledger::ViolationKind;

    #[test]
    fn each_kind_is_one_result_with_the_checks_that_saw_it() {
        let report = |name: &str, kinds: &[ViolationKind]| Report {
            departures: kinds
                .iter()
                .map(|kind| Departure::of(*kind, format!("{kind:?} in {name}")))
                .collect(),
            ..Report::new(name, Status::Passed, String::new())
        };
        use ViolationKind::{DirtyHeader, MissingAck};
        let breaches = collect(&[
            report("load-quiet", &[MissingAck]),
            report("load-name", &[]),
            report("sa-storm", &[MissingAck, DirtyHeader, MissingAck]),
        ]);
        let shown: Vec<_> = breaches
            .iter()
            .map(|breach| (&*breach.name, breach.seen_by.join(" "), breach.status))
            .collect();
        assert_eq!(
            shown,
            [
                ("breach-dirty-header", "sa-storm".to_owned(), Status::Warned),
                (
                    "breach-missing-ack",
                    "load-quiet sa-storm".to_owned(),
                    Status::Warned
                ),
            ]
        );
        assert!(breaches[1].message.contains("MissingAck in load-quiet"));
    }
}
