//! Gathers the children's figures into cells of the results, and the disturbances of the run.

use std::collections::BTreeMap;

use super::case::Case;
use super::numbers::{NOISY_SPREAD, NOISY_STEAL, NOISY_SWITCHES, Summary};
use super::results::{Cell, Contestant, Found, Noise};

/// A contestant in a case of a size, with its figures in each round.
pub struct Rounds {
    /// The case.
    pub case: Case,
    /// Number of destinations.
    pub destinations: u32,
    /// The contestant's index.
    pub contestant: usize,
    /// The rounds.
    pub found: Vec<Found>,
}

/// Returns the cell of a contestant.
pub fn cell(rounds: &Rounds, contestants: &[Contestant]) -> Cell {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut remarks: Vec<String> = Vec::new();
    for found in &rounds.found {
        for (name, value) in &found.figures {
            values.entry(name.clone()).or_default().push(*value);
        }
        for remark in &found.remarks {
            if !remarks.contains(remark) {
                remarks.push(remark.clone());
            }
        }
    }
    let of = |count: fn(&Found) -> u64| rounds.found.iter().map(count).sum();
    let summaries = values.into_iter();
    let summaries = summaries.filter_map(|(name, values)| Some((name, Summary::of(&values)?)));
    Cell {
        case: rounds.case,
        destinations: rounds.destinations,
        contestant: contestants[rounds.contestant].name.clone(),
        figures: summaries.collect(),
        ratios: BTreeMap::new(),
        requests: of(|found| found.requests),
        wrong: of(|found| found.wrong),
        remarks,
    }
}

/// Returns the disturbances of the run, and whether they were too many.
pub fn noise(all: &[Rounds]) -> Noise {
    let found = || all.iter().flat_map(|rounds| &rounds.found);
    let seconds: f64 = found().map(|found| found.seconds).sum();
    let switches: u64 = found().map(|found| found.switches).sum();
    let stolen = found().map(|found| found.stolen).fold(0.0, f64::max);
    let mut noise = Noise {
        switches_per_second: switches as f64 / seconds.max(0.001),
        stolen,
        pinned: found().all(|found| found.pinned),
        verdict: Vec::new(),
    };
    let hits = all.iter().filter_map(|rounds| {
        let hits = rounds
            .found
            .iter()
            .filter_map(|found| found.figures.get("hit"));
        Summary::of(&hits.copied().collect::<Vec<f64>>())
    });
    let (noisy, measured) = hits.fold((0, 0), |(noisy, measured), hit| {
        (noisy + usize::from(hit.is_noisy()), measured + 1)
    });
    if noisy > 0 {
        noise.verdict.push(format!(
            "{noisy} of {measured} figures of hits differ by more than {:.0} % between rounds",
            NOISY_SPREAD * 100.0
        ));
    }
    if noise.switches_per_second > NOISY_SWITCHES {
        noise.verdict.push(format!(
            "{:.0} involuntary context switches per second: other programs used the processor",
            noise.switches_per_second
        ));
    }
    if stolen > NOISY_STEAL {
        noise.verdict.push(format!(
            "a hypervisor took up to {:.1} % of the processors' time",
            stolen * 100.0
        ));
    }
    if !noise.pinned {
        noise
            .verdict
            .push("threads could not be bound to processors".into());
    }
    noise
}

#[cfg(test)]
mod tests {
    use super::super::results::Role;
    use super::*;

    fn rounds(hits: &[f64], switches: u64, stolen: f64) -> Rounds {
        let found = hits.iter().map(|hit| Found {
            figures: BTreeMap::from([("hit".to_owned(), *hit)]),
            switches,
            stolen,
            seconds: 1.0,
            pinned: true,
            ..Found::default()
        });
        Rounds {
            case: Case::Lid,
            destinations: 1000,
            contestant: 0,
            found: found.collect(),
        }
    }

    #[test]
    fn a_noisy_machine_is_told_of() {
        let verdict = |rounds: Rounds| noise(&[rounds]).verdict.join("\n");
        assert_eq!(verdict(rounds(&[100.0, 101.0, 102.0], 3, 0.001)), "");
        assert!(verdict(rounds(&[100.0, 140.0, 102.0], 3, 0.0)).contains("between rounds"));
        assert!(verdict(rounds(&[100.0, 101.0], 500, 0.0)).contains("involuntary"));
        assert!(verdict(rounds(&[100.0, 101.0], 3, 0.05)).contains("5.0 %"));
        let mut unbound = rounds(&[100.0, 101.0], 3, 0.0);
        unbound.found[1].pinned = false;
        assert!(verdict(unbound).contains("bound"));
    }

    #[test]
    fn a_cell_has_what_all_rounds_found() {
        let contestants = [Contestant {
            name: "mine".into(),
            library: "libmine.so".into(),
            role: Role::Measured,
        }];
        let mut all = rounds(&[3.0, 1.0, 2.0], 0, 0.0);
        all.found[1].wrong = 2;
        all.found[0].remarks = vec!["it refuses".into()];
        all.found[2].remarks = vec!["it refuses".into()];
        let cell = cell(&all, &contestants);
        assert_eq!(cell.figures["hit"].median, 2.0);
        assert_eq!((cell.wrong, cell.remarks.len()), (2, 1));
    }
}
