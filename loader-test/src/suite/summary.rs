//! The summary of a run: results that did not pass, worst first, causes before consequences.

use super::Status;
use super::progress::cut_list;
use super::report::counts;
use super::run::{CutShort, Report, Results};
use crate::stand_in::recorder::printable;
use crate::words::counted;

/// Maximum number of lines.
const LINES: usize = 20;
/// Maximum width of a line.
const WIDTH: usize = 200;

/// Returns the summary and the counts, as lines.
pub fn of(results: &Results, strict: bool) -> String {
    let mut lines = causes(results, strict);
    lines.extend(remarks(results));
    lines.extend(consequences(results));
    if lines.len() > LINES {
        let rest = lines.len() - (LINES - 1);
        lines.truncate(LINES - 1);
        lines.push(format!("and {rest} more: --json or the lines above"));
    }
    let mut text = String::new();
    if !lines.is_empty() {
        text.push('\n');
    }
    for line in lines {
        text += &cut(&line);
        text.push('\n');
    }
    text + &totals(results)
}

/// Returns the number of checks by outcome.
fn totals(results: &Results) -> String {
    let parts: Vec<String> = counts(results)
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    let mut text = format!(
        "{}: {}",
        counted(results.checks.len(), "check"),
        parts.join(", ")
    );
    match results.missing().count() {
        0 => {}
        1 => text += "; 1 ability is missing",
        count => text += &format!("; {count} abilities are missing"),
    }
    match &results.cut_short {
        None => {}
        Some(CutShort::Stopped) => text += "; stopped, so incomplete",
        Some(CutShort::MaxFailures) => text += "; incomplete: stopped by --max-failures",
        Some(CutShort::Trouble(_)) => text += "; incomplete",
    }
    text + "\n"
}

fn cut(line: &str) -> String {
    let line = printable(line);
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// Results of one cause.
struct Group<'a> {
    status: Status,
    cause: Option<&'a str>,
    reports: Vec<&'a Report>,
}

impl Group<'_> {
    fn line(&self) -> String {
        let status = self.status;
        match (&self.reports[..], self.cause) {
            ([only], _) => format!("{status:<9} {}: {}", only.name, gist(only)),
            (several, cause) => {
                let mut names: Vec<&str> = several.iter().map(|report| &*report.name).collect();
                if names[0].starts_with("ability-") {
                    // The missing ability is the cause.
                    let ability = names.remove(0);
                    return format!(
                        "{status:<9} {ability}: {} (so do {})",
                        gist(several[0]),
                        cut_list(&names)
                    );
                }
                format!(
                    "{status:<9} {}: {} ({}): {}",
                    counted(several.len(), "check"),
                    cause.unwrap_or_default(),
                    cut_list(&names),
                    gist(several[0])
                )
            }
        }
    }
}

/// Returns a result's main line: the actual behaviour, or the first line.
fn gist(report: &Report) -> &str {
    let seen = report
        .message
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("seen: "));
    seen.or_else(|| report.message.lines().next())
        .unwrap_or_default()
}

/// Returns the causes of failures and warnings: missing abilities, checks, then departures, worst first, one line per cause.
fn causes(results: &Results, strict: bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let of = |status| {
        results
            .checks
            .iter()
            .filter(move |report| report.status == status)
    };
    let causes: Vec<&str> = results
        .missing()
        .filter_map(|report| report.cause.as_deref())
        .collect();
    let is_of_an_ability = |report: &&Report| {
        report
            .cause
            .as_deref()
            .is_some_and(|cause| causes.contains(&cause))
    };
    let bad = [Status::Crashed, Status::TimedOut, Status::Failed];
    let same = bad.into_iter().flat_map(of).filter(is_of_an_ability);
    lines.extend(grouped(results.missing().chain(same)));
    for status in bad {
        lines.extend(grouped(
            of(status).filter(|report| !is_of_an_ability(report)),
        ));
    }
    let mut warned: Vec<String> = grouped(of(Status::Warned)).collect();
    warned.extend(results.breaches.iter().map(|breach| {
        let checks = counted(breach.seen_by.len(), "check");
        format!(
            "{:<9} {}: seen by {checks}: {}",
            breach.status,
            breach.name,
            gist(breach)
        )
    }));
    if strict || !warned.is_empty() {
        lines.append(&mut warned);
    }
    lines
}

/// Returns a line per cause; the cause with the most results first.
fn grouped<'a>(reports: impl Iterator<Item = &'a Report>) -> impl Iterator<Item = String> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for report in reports {
        let cause = report.cause.as_deref();
        let known = groups
            .iter_mut()
            .find(|group| cause.is_some() && group.cause == cause);
        match known {
            Some(group) => group.reports.push(report),
            None => groups.push(Group {
                status: report.status,
                cause,
                reports: vec![report],
            }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.reports.len()));
    groups.into_iter().map(|group| group.line())
}

/// Returns further remarks.
fn remarks(results: &Results) -> Vec<String> {
    let mut lines: Vec<String> = results
        .complaints
        .iter()
        .map(|line| format!("the provider's log about its options: {line}"))
        .collect();
    if let Some(deadline) = results.deadline {
        lines.push(format!(
            "clients of a silent SA wait {:.1} s, longer than timeout and retries allow; checks wait for answers as long",
            deadline.as_secs_f64()
        ));
    }
    let repeated: Vec<&str> = results
        .all()
        .filter(|report| report.repeated && report.status == Status::Passed)
        .map(|report| &*report.name)
        .collect();
    if !repeated.is_empty() {
        lines.push(format!(
            "passed only when repeated alone: {}",
            cut_list(&repeated)
        ));
    }
    lines
}

/// Returns the checks that did not run, for a missing or an absent ability.
fn consequences(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    for status in [Status::Blocked, Status::Skipped] {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for report in results
            .checks
            .iter()
            .filter(|report| report.status == status)
        {
            let reason = report.message.lines().next().unwrap_or_default();
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(&report.name),
                None => reasons.push((reason, vec![&report.name])),
            }
        }
        reasons.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
        lines.extend(reasons.iter().map(|(reason, names)| {
            let checks = counted(names.len(), "check");
            match status {
                Status::Blocked => format!("{status:<9} {checks}: {reason}"),
                _ => format!("{status:<9} {checks}: {reason} ({})", cut_list(names)),
            }
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::run::Results;

    fn report(name: &str, status: Status, cause: Option<&str>, message: &str) -> Report {
        Report {
            cause: cause.map(str::to_owned),
            ..Report::new(name, status, message.to_owned())
        }
    }

    #[test]
    fn causes_come_first_and_once() {
        let results = Results {
            abilities: vec![
                report("ability-loads", Status::Passed, None, ""),
                report(
                    "ability-closes",
                    Status::TimedOut,
                    None,
                    "expected: a\n  seen: it hangs",
                ),
            ],
            checks: vec![
                report("load-a", Status::Passed, None, ""),
                report(
                    "sa-a",
                    Status::Failed,
                    Some("never-answered"),
                    "expected: x\n  seen: none",
                ),
                report("sa-b", Status::Failed, None, "expected: x\n  seen: 7"),
                report(
                    "sa-c",
                    Status::Failed,
                    Some("never-answered"),
                    "expected: y\n  seen: none",
                ),
                report(
                    "sa-d",
                    Status::Crashed,
                    Some("SIGSEGV inside resolve"),
                    "seen: bang",
                ),
                report(
                    "sa-e",
                    Status::Blocked,
                    None,
                    "not run: it needs the ability closes, which is missing",
                ),
                report("sa-f", Status::Skipped, None, "no names"),
            ],
            ..Results::default()
        };
        let text = of(&results, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "",
                "timed-out ability-closes: it hangs",
                "crashed   sa-d: bang",
                "failed    2 checks: never-answered (sa-a, sa-c): none",
                "failed    sa-b: 7",
                "blocked   1 check: not run: it needs the ability closes, which is missing",
                "skipped   1 check: no names (sa-f)",
                "7 checks: 1 passed, 3 failed, 0 warned, 1 skipped, 1 blocked, 1 crashed, 0 timed-out; 1 ability is missing",
            ]
        );
    }

    #[test]
    fn twenty_lines_are_shown() {
        let checks = (0..30)
            .map(|number| report(&format!("sa-{number}"), Status::Failed, None, "seen: 7"))
            .collect();
        let results = Results {
            checks,
            ..Results::default()
        };
        let text = of(&results, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + LINES + 1);
        assert_eq!(lines[LINES], "and 11 more: --json or the lines above");
    }

    #[test]
    fn a_run_in_which_all_passed_is_one_line() {
        let results = Results {
            checks: vec![report("load-a", Status::Passed, None, "")],
            ..Results::default()
        };
        assert_eq!(of(&results, true).lines().count(), 1);
    }
}
