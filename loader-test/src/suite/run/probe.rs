//! Probes the provider's abilities before the checks that need them.

use std::path::Path;
use std::time::Duration;

use super::plan::{Report, Results};
use super::verdict::blocked;
use crate::suite::ability::Ability;
use crate::suite::{Check, Status};

/// Number of opens by which a slow provider's limit grows.
const OPENINGS: u32 = 40;

/// The results of the probes.
#[derive(Debug, Default)]
pub(super) struct Found {
    missing: Vec<Ability>,
}

impl Found {
    /// Records an ability's probe.
    pub fn note(&mut self, ability: Ability, report: &Report) {
        if report.status.is_bad(false) {
            self.missing.push(ability);
        }
    }

    /// Returns the missing ability that blocks a probe or a check; if several are missing, the one that the others need.
    pub fn blocks(&self, needs: &[Ability]) -> Option<Ability> {
        Ability::closure(needs.iter().copied())
            .into_iter()
            .find(|ability| self.missing.contains(ability))
    }

    /// Returns the result of a check that does not run.
    pub fn blocked(&self, check: &Check) -> Option<Report> {
        let ability = self.blocks(check.needs)?;
        let mut report = Report::new(check.name, Status::Blocked, blocked(ability));
        report.blocked_by = Some(ability);
        Some(report)
    }
}

/// Returns the abilities in probing order, those of a step together.
pub(super) fn steps(wanted: &[Ability]) -> Vec<Vec<Ability>> {
    let depth = |ability: Ability| Ability::closure([ability]).len();
    let mut steps: Vec<Vec<Ability>> = Vec::new();
    let mut sorted = wanted.to_vec();
    sorted.sort_by_key(|ability| depth(*ability));
    for ability in sorted {
        match steps.last_mut() {
            Some(step) if depth(step[0]) == depth(ability) => step.push(ability),
            _ => steps.push(vec![ability]),
        }
    }
    steps
}

/// Returns by how much a check's limit grows if one open took this long.
pub(super) fn extra_time(opens_port: &Report) -> Duration {
    const USUAL: Duration = Duration::from_millis(100);
    Duration::from_millis(opens_port.duration_ms)
        .saturating_sub(USUAL)
        .saturating_mul(OPENINGS)
}

/// Returns the level-0 log lines that name an option or its value. `folder` is the run's folder, with a subfolder for each
/// probe.
pub(super) fn complaints(results: &Results, options: &[String], folder: &Path) -> Vec<String> {
    let mut words = vec!["ibacm_opts.cfg", "addr_preload", "addr_data_file"];
    for line in options {
        let mut pair = line.split_whitespace();
        words.extend(pair.next());
        // Short values, such as numbers, occur in unrelated lines.
        words.extend(pair.next().filter(|value| value.len() > 3));
    }
    words.retain(|word| !word.starts_with('#'));
    let mut found: Vec<String> = Vec::new();
    for line in results.abilities.iter().flat_map(|report| &report.log) {
        let is_about_options = words.iter().any(|word| has_word(line, word));
        let line = without_folder(line, folder);
        if is_about_options && !found.contains(&line) {
            found.push(line);
        }
    }
    found
}

/// Shortens the paths of a probe's files to their names, so that the probes' lines compare equal.
fn without_folder(line: &str, folder: &Path) -> String {
    let start = format!("{}/", folder.display());
    match line
        .split_once(&start)
        .and_then(|(before, rest)| Some((before, rest.split_once('/')?.1)))
    {
        Some((before, file)) => format!("{before}{file}"),
        None => line.to_owned(),
    }
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        !line[..start].ends_with(is_part) && !line[start + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_another_ability_is_probed_later() {
        use Ability::{AnswersByGid, AnswersByLid, Closes, Loads, OpensPort, Reregisters};
        let wanted = Ability::closure([Reregisters, Closes, AnswersByGid]);
        assert_eq!(
            steps(&wanted),
            [
                vec![Loads],
                vec![OpensPort],
                vec![AnswersByLid, AnswersByGid, Closes],
                vec![Reregisters]
            ]
        );
    }

    #[test]
    fn the_first_cause_blocks() {
        let mut found = Found::default();
        let bad = Report::new("ability-opens-port", Status::Failed, String::new());
        found.note(Ability::OpensPort, &bad);
        assert_eq!(
            found.blocks(&[Ability::Reregisters]),
            Some(Ability::OpensPort)
        );
        assert_eq!(found.blocks(&[Ability::Loads]), None);
        assert_eq!(found.blocks(&[]), None);
    }

    #[test]
    fn complaints_name_an_option_or_its_value() {
        let mut report = Report::new("ability-loads", Status::Passed, String::new());
        report.log = [
            "unknown option my_cache",
            "cannot open /etc/hosts.acm",
            "listening on port 1",
            "my_cache_size is 4",
            "unknown option my_cache",
            "/run/7/check-1/ibacm_opts.cfg:8: my_cache: not a number",
            "/run/7/check-2/ibacm_opts.cfg:8: my_cache: not a number",
        ]
        .map(str::to_owned)
        .into();
        let results = Results {
            abilities: vec![report],
            ..Results::default()
        };
        let options = ["# a remark", "my_cache 1", "my_hosts /etc/hosts.acm"].map(str::to_owned);
        assert_eq!(
            complaints(&results, &options, Path::new("/run/7")),
            [
                "unknown option my_cache",
                "cannot open /etc/hosts.acm",
                "ibacm_opts.cfg:8: my_cache: not a number"
            ]
        );
    }
}
