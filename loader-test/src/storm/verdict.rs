//! Compares the runs with the reference.

use std::fmt::{self, Write as _};
use std::fs;
use std::time::Duration;

use serde::Serialize;

use crate::bench::numbers::{Summary, exceeds_in_every_round};
use crate::error::{Context, Error, Result};

/// One part of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// Its duration.
    pub seconds: f64,
    /// Number of requests.
    pub requests: usize,
    /// Number of answers with another path than the requested one.
    pub wrong: usize,
    /// Path queries from the daemon to the SA.
    pub queries: usize,
    /// Requests that were refused or not answered in 2 s: the kernel then queries the SA itself.
    pub kernel_asks: usize,
}

impl Phase {
    /// Returns the total number of path queries.
    fn load(&self) -> usize {
        self.queries + self.kernel_asks
    }
}

/// One run of a provider.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// Clients with an empty cache.
    pub cold: Phase,
    /// Clients with a warm cache.
    pub warm: Phase,
    /// The kernel's requests.
    pub job: Phase,
    /// Queries for ClassPortInfo in the whole run.
    pub class_port_info: usize,
    /// Microseconds of processor time of the daemon for 1,000 answers of the warm phase.
    pub cpu_us_per_1000: f64,
}

impl Run {
    fn phases(&self) -> [(&'static str, &Phase); 3] {
        [
            ("cold", &self.cold),
            ("warm", &self.warm),
            ("job", &self.job),
        ]
    }

    /// Returns the number of SA queries except ClassPortInfo.
    fn load(&self) -> usize {
        self.phases().iter().map(|(_, phase)| phase.load()).sum()
    }

    fn wrong(&self) -> usize {
        self.phases().iter().map(|(_, phase)| phase.wrong).sum()
    }
}

/// All runs of a provider.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Runs {
    /// The provider's name.
    pub name: String,
    /// One run per round.
    pub runs: Vec<Run>,
}

impl Runs {
    fn summary(&self, value: impl Fn(&Run) -> f64) -> Summary {
        let values: Vec<f64> = self.runs.iter().map(value).collect();
        let nothing = || Summary {
            median: 0.0,
            least: 0.0,
            most: 0.0,
            rounds: Vec::new(),
        };
        Summary::of(&values).unwrap_or_else(nothing)
    }
}

/// A requirement on a provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The provider.
    pub provider: String,
    /// The claim, with its numbers.
    pub text: String,
    /// Whether it holds.
    pub holds: bool,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds { "holds" } else { "FAILS" };
        write!(f, "{verdict}  {}: {}", self.provider, self.text)
    }
}

/// The ClassPortInfo queries that a port may send beyond the reference's queries.
const CLASS_PORT_INFOS: usize = 1;

/// Minimum number of rounds to judge times: fewer rounds show no spread.
const ROUNDS_FOR_TIMES: usize = 3;

/// Returns the claims about a provider compared with the reference.
pub fn claims(own: &Runs, reference: &Runs) -> Vec<Claim> {
    let claim = |text: String, holds: bool| Claim {
        provider: own.name.clone(),
        text,
        holds,
    };
    let wrong: usize = own.runs.iter().map(Run::wrong).sum();
    let mut claims = vec![claim(
        format!("all answers right, {wrong} wrong"),
        wrong == 0,
    )];

    // Per round: one query too many in any round fails.
    let pairs = own.runs.iter().zip(&reference.runs);
    let worst = pairs
        .map(|(own, reference)| (own.load() + own.class_port_info, reference.load()))
        .max_by_key(|(own, reference)| own.saturating_sub(*reference));
    if let Some((queries, allowed)) = worst {
        claims.push(claim(
            format!(
                "{queries} SA queries, {} of {} and {CLASS_PORT_INFOS} ClassPortInfo allowed",
                allowed, reference.name
            ),
            queries <= allowed + CLASS_PORT_INFOS,
        ));
    }
    if own.runs.len() < ROUNDS_FOR_TIMES {
        return claims;
    }
    for (phase, seconds) in TIMES {
        let (mine, theirs) = (own.summary(seconds), reference.summary(seconds));
        claims.push(claim(
            format!(
                "{phase}: {:.3} s ({:.3} to {:.3}), {} {:.3} s ({:.3} to {:.3})",
                mine.median,
                mine.least,
                mine.most,
                reference.name,
                theirs.median,
                theirs.least,
                theirs.most
            ),
            !exceeds_in_every_round(&mine, &theirs),
        ));
    }
    claims
}

/// The time of a part of a run.
type Time = (&'static str, fn(&Run) -> f64);

const TIMES: [Time; 3] = [
    ("cold", |run| run.cold.seconds),
    ("warm", |run| run.warm.seconds),
    ("job", |run| run.job.seconds),
];

/// A part of a run, by its name.
type Part = (&'static str, fn(&Run) -> &Phase);

/// Returns the medians as a Markdown table.
pub fn table(title: &str, all: &[Runs]) -> String {
    let mut out = format!("{title}\n\n");
    let names: Vec<&str> = all.iter().map(|runs| runs.name.as_str()).collect();
    let _ = writeln!(out, "| part | figure | {} |", names.join(" | "));
    let _ = writeln!(out, "| --- | --- |{}", " --- |".repeat(names.len()));
    let mut row = |part: &str, figure: &str, digits: usize, value: &dyn Fn(&Run) -> f64| {
        let cells = all.iter().map(|runs| {
            let summary = runs.summary(value);
            match summary.least == summary.most {
                true => format!("{:.digits$}", summary.median),
                false => format!(
                    "{:.digits$} ({:.digits$} to {:.digits$})",
                    summary.median, summary.least, summary.most
                ),
            }
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(out, "| {part} | {figure} | {} |", cells.join(" | "));
    };
    let parts: [Part; 3] = [
        ("cold", |run| &run.cold),
        ("warm", |run| &run.warm),
        ("job", |run| &run.job),
    ];
    for (part, phase) in parts {
        row(part, "seconds", 3, &|run| phase(run).seconds);
        row(part, "answers a second", 0, &|run| {
            phase(run).requests as f64 / phase(run).seconds.max(1e-9)
        });
        row(part, "SA path queries", 0, &|run| phase(run).queries as f64);
    }
    row("job", "refused, or later than 2 s", 0, &|run| {
        run.job.kernel_asks as f64
    });
    row("all", "ClassPortInfo queries", 0, &|run| {
        run.class_port_info as f64
    });
    row("warm", "daemon's CPU, us for 1,000 answers", 0, &|run| {
        run.cpu_us_per_1000
    });
    row("warm", "answers a second of one core", 0, &|run| {
        1e9 / run.cpu_us_per_1000.max(1e-9)
    });
    out.push('\n');
    out
}

/// Returns the processor time of all threads of a process so far.
///
/// # Errors
/// If the process is not running.
pub fn cpu_time(pid: Option<i32>) -> Result<Duration> {
    let pid = pid.ok_or_else(|| Error::Input("ibacm is not running".to_owned()))?;
    let folder = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&folder).context(|| format!("read {folder}"))?;
    let mut nanoseconds = 0;
    for thread in threads.flatten() {
        // A thread that has ended meanwhile has no file.
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let on_cpu = text.split_whitespace().next();
        nanoseconds += on_cpu.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64, queries: usize, class_port_info: usize) -> Run {
        let phase = Phase {
            seconds,
            requests: 100,
            queries,
            ..Phase::default()
        };
        Run {
            cold: phase.clone(),
            warm: Phase {
                queries: 0,
                ..phase.clone()
            },
            job: phase,
            class_port_info,
            cpu_us_per_1000: 5000.0,
        }
    }

    fn runs(name: &str, runs: Vec<Run>) -> Runs {
        Runs {
            name: name.to_owned(),
            runs,
        }
    }

    fn failing(own: &Runs) -> Vec<String> {
        let reference = runs(
            "stock",
            vec![run(1.0, 50, 0), run(1.2, 50, 0), run(1.1, 50, 0)],
        );
        let mut own = own.clone();
        own.runs.push(own.runs[1].clone());
        let claims = claims(&own, &reference);
        assert_eq!(claims.len(), 5);
        claims
            .into_iter()
            .filter(|claim| !claim.holds)
            .map(|claim| claim.text)
            .collect()
    }

    #[test]
    fn one_class_port_info_is_allowed_and_no_query_more() {
        assert_eq!(
            failing(&runs("mine", vec![run(1.0, 50, 1), run(1.0, 50, 1)])),
            [""; 0]
        );
        assert_eq!(
            failing(&runs("mine", vec![run(1.0, 40, 0), run(1.0, 30, 0)])),
            [""; 0]
        );
        let more = failing(&runs("mine", vec![run(1.0, 50, 1), run(1.0, 51, 0)]));
        assert_eq!(more.len(), 1);
        assert!(
            more[0].starts_with("102 SA queries, 100 of stock"),
            "{more:?}"
        );
        let twice = failing(&runs("mine", vec![run(1.0, 50, 2), run(1.0, 50, 1)]));
        assert_eq!(twice.len(), 1, "{twice:?}");
    }

    #[test]
    fn what_the_kernel_asks_itself_counts() {
        let mut late = run(1.0, 50, 0);
        late.job.kernel_asks = 2;
        assert_eq!(failing(&runs("mine", vec![late, run(1.0, 50, 0)])).len(), 1);
    }

    #[test]
    fn slower_in_every_round_fails_and_wrong_answers_do() {
        assert_eq!(
            failing(&runs("mine", vec![run(1.2, 50, 0), run(1.25, 50, 0)])),
            [""; 0]
        );
        let slow = failing(&runs("mine", vec![run(1.5, 50, 0), run(1.5, 50, 0)]));
        assert_eq!(slow.len(), 3, "{slow:?}");
        let mut wrong = run(1.0, 50, 0);
        wrong.warm.wrong = 1;
        let wrong = failing(&runs("mine", vec![wrong, run(1.0, 50, 0)]));
        assert_eq!(wrong, ["all answers right, 1 wrong"]);
    }

    #[test]
    fn one_round_says_nothing_of_times() {
        let reference = runs("stock", vec![run(1.0, 50, 0)]);
        let claims = claims(&runs("mine", vec![run(9.0, 50, 0)]), &reference);
        assert_eq!(claims.len(), 2);
        assert!(claims.iter().all(|claim| claim.holds));
    }

    #[test]
    fn the_table_has_medians_and_ranges() {
        let all = [runs("stock", vec![run(1.0, 50, 0), run(1.2, 50, 0)])];
        let table = table("title", &all);
        assert!(
            table.contains("| cold | seconds | 1.100 (1.000 to 1.200) |"),
            "{table}"
        );
        assert!(table.contains("| cold | SA path queries | 50 |"), "{table}");
        assert!(
            table.contains("| warm | answers a second of one core | 200000 |"),
            "{table}"
        );
    }

    #[test]
    fn the_processor_time_of_a_process_is_seen() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = cpu_time(Some(own)).unwrap();
        let mut sum = 0_u64;
        while cpu_time(Some(own)).unwrap() <= before {
            sum = (0..100_000).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
        }
        assert!(cpu_time(None).is_err());
    }
}
