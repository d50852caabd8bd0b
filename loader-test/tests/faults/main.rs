//! Every check of the suite passes on a correct provider and fails on its own faulty one. On that one no other check fails
//! except those that the fault declares.
//!
//! The whole suite runs on each of them, about 50,000 runs of a check. A run takes about 10 ms of processor time, and sleeps
//! for the rest.
//!
//! `FAULTS=RE` in the environment restricts all of this to the checks whose names match, for work on one of them.

#[allow(dead_code, reason = "part of it serves other tests")]
mod compiler;
mod operators;
#[path = "../shared/products.rs"]
mod products;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use loader_test::suite::fault::DEPARTURES;
use loader_test::suite::run::{Plan, Report, Results, run_all};
use loader_test::suite::{Check, Status, all, find};
use regex_lite::Regex;

/// More than the processors: a check sleeps most of its time.
const CHECKS_AT_A_TIME: usize = 8;
/// Each with so many checks: what takes time is waiting for deadlines.
const PROVIDERS_AT_A_TIME: usize = 4;
/// More than any check takes on a provider that does not hang.
const TIME_LIMIT: Duration = Duration::from_secs(14);

fn plan(jobs: usize) -> Plan {
    Plan {
        // Checks of multicast groups need a provider that joins one; it must not disturb the others.
        options: vec!["sa_example_join yes".to_owned()],
        strict: true,
        time_limit: TIME_LIMIT,
        jobs,
        // The test is about the other checks that a fault breaks.
        blocks: false,
        // No repetitions: the test itself retries where time matters.
        repeats: 0,
        ..Plan::new(env!("CARGO_BIN_EXE_loader-test"))
    }
}

/// Returns the checks of this run.
fn chosen() -> Vec<&'static Check> {
    let only = env::var("FAULTS").ok().map(|only| {
        Regex::new(&only).unwrap_or_else(|error| panic!("FAULTS is no regular expression: {error}"))
    });
    let checks: Vec<_> = all()
        .filter(|check| only.as_ref().is_none_or(|only| only.is_match(check.name)))
        .collect();
    assert!(!checks.is_empty(), "no check has such a name");
    checks
}

/// Does something for each of the checks, `threads` at a time, and fails with everything that went wrong.
fn for_each_check(threads: usize, judge: impl Fn(&'static Check) -> Result<(), String> + Sync) {
    let checks = chosen();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some(check) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(problem) = judge(check) {
                wrong.lock().unwrap().insert(check.name, problem);
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    fail_if_any(&wrong.into_inner().unwrap(), checks.len());
}

fn fail_if_any(wrong: &BTreeMap<&str, String>, of: usize) {
    let list: Vec<_> = wrong
        .iter()
        .map(|(name, problem)| format!("{name}: {problem}"))
        .collect();
    assert!(
        list.is_empty(),
        "{} of {of} checks:\n{}",
        list.len(),
        list.join("\n")
    );
}

/// Checks whose fault is the file's and not the source's.
const OF_THE_FILE: [&str; 2] = ["load-file-name", "load-regular-file"];

/// The library with a fault.
fn faulty(check: &Check) -> Result<PathBuf, String> {
    if OF_THE_FILE.contains(&check.name) {
        return compiler::badly_filed(check.name).map_err(|error| error.to_string());
    }
    let source = check
        .fault
        .apply(good_source(check))
        .map_err(|error| error.to_string())?;
    Ok(compiler::compile(check.name, &source))
}

/// The good provider from which the faulty one is made.
fn good_source(check: &Check) -> &'static str {
    static SA: OnceLock<String> = OnceLock::new();
    static MCAST: OnceLock<String> = OnceLock::new();
    match check.family() {
        "wire" => MCAST.get_or_init(compiler::mcast_provider),
        _ => SA.get_or_init(compiler::sa_provider),
    }
}

fn run(checks: &[&'static Check], library: &Path, jobs: usize) -> Vec<Report> {
    results(checks, library, &plan(jobs)).checks
}

fn results(checks: &[&'static Check], library: &Path, plan: &Plan) -> Results {
    run_all(checks, library, plan).expect("a child that runs a check")
}

fn shown(report: &Report) -> String {
    let mut text = format!("{} {}", report.name, report.status);
    for line in report.message.lines().chain(report.output.lines()).take(6) {
        text += &format!("\n    {line}");
    }
    text
}

/// path-cache, built from the present source.
fn path_cache() -> PathBuf {
    products::folder().join("libibacm_path_cache.so")
}

#[test]
fn every_fault_is_well_declared() {
    let everything: Vec<_> = all().collect();
    for_each_check(1, |check| {
        let made = match OF_THE_FILE.contains(&check.name) {
            true => Ok(String::new()),
            false => check.fault.apply(good_source(check)),
        };
        made.and_then(|_| check.fault.examine(&everything))
            .map_err(|error| error.to_string())
    });
}

#[test]
fn every_check_passes_on_a_good_provider_that_has_the_ability() {
    let checks = chosen();
    let mut reports = run(&checks, &compiler::good(), CHECKS_AT_A_TIME);
    for other in [compiler::good_mcast, path_cache] {
        let skipped: Vec<_> = reports
            .iter()
            .filter(|report| report.status == Status::Skipped)
            .filter_map(|report| find(&report.name))
            .collect();
        reports.retain(|report| report.status != Status::Skipped);
        if !skipped.is_empty() {
            reports.extend(run(&skipped, &other(), CHECKS_AT_A_TIME));
        }
    }
    let wrong = reports
        .iter()
        .filter(|report| report.status != Status::Passed)
        .map(|report| (&*report.name, shown(report)))
        .collect();
    fail_if_any(&wrong, checks.len());
}

#[test]
fn every_check_fails_on_its_own_faulty_provider_which_has_the_abilities_that_it_needs() {
    let plan = Plan {
        blocks: true,
        ..plan(1)
    };
    for_each_check(CHECKS_AT_A_TIME, |check| {
        let results = results(&[check], &faulty(check)?, &plan);
        let missing: Vec<_> = results.missing().map(shown).collect();
        if !missing.is_empty() {
            return Err(format!(
                "abilities are missing:\n  {}",
                missing.join("\n  ")
            ));
        }
        let [report] = &results.checks[..] else {
            return Err("was not run".to_owned());
        };
        if check.fault.status.contains(&report.status) {
            Ok(())
        } else {
            let expected: Vec<_> = check
                .fault
                .status
                .iter()
                .map(|status| status.name())
                .collect();
            Err(format!(
                "ends otherwise than {}: {}",
                expected.join(" or "),
                shown(report)
            ))
        }
    });
}

/// Checks in which requests are answered, with success and with an error.
const ANSWERED: [&str; 3] = ["resolve-by-lid", "resolve-unknown-lid", "resolve-many"];

#[test]
fn every_departure_is_one_result_and_fails_no_check() {
    let checks = ANSWERED.map(|name| find(name).expect("a check of this name"));
    for (breach, fault) in DEPARTURES {
        let source = fault
            .apply(&compiler::sa_provider())
            .unwrap_or_else(|error| panic!("{breach}: {error}"));
        let library = compiler::compile(breach, &source);
        let results = results(&checks, &library, &plan(1));
        for report in &results.checks {
            assert_eq!(report.status, Status::Passed, "{breach}: {}", shown(report));
        }
        let [seen] = &results.breaches[..] else {
            panic!("{breach}: {:?}", results.breaches);
        };
        assert_eq!(seen.name, *breach);
        assert!(fault.status.contains(&seen.status), "{}", shown(seen));
        assert_eq!(seen.seen_by, ANSWERED, "{breach}");
    }
}

#[test]
#[ignore = "takes minutes: `cargo xtask matrix` runs it"]
fn no_other_check_fails_on_a_faulty_provider() {
    let everything: Vec<_> = all().collect();
    for_each_check(PROVIDERS_AT_A_TIME, |check| {
        let library = faulty(check)?;
        let fault = &check.fault;
        // Without a queue pair there is nothing that a check of the multicast protocol could look at.
        let has_pair = check.family() == "wire";
        let others: Vec<_> = everything
            .iter()
            .copied()
            .filter(|other| other.name != check.name && !fault.may_fail(other))
            .filter(|other| has_pair || other.family() != "wire")
            .collect();
        let undeclared_of = |checks: &[&'static Check], jobs: usize| -> Vec<Report> {
            let results = results(checks, &library, &plan(jobs));
            let is_undeclared =
                |report: &Report| report.status.is_bad(true) && !fault.may_show(&report.name);
            results
                .all()
                .filter(|report| is_undeclared(report))
                .cloned()
                .collect()
        };
        let suspects = undeclared_of(&others, CHECKS_AT_A_TIME);
        let suspects: Vec<_> = others
            .iter()
            .copied()
            .filter(|other| {
                let is_it = |report: &Report| {
                    report.name == other.name
                        || report.seen_by.iter().any(|name| name == other.name)
                };
                suspects.iter().any(is_it)
            })
            .collect();
        // Once more alone: on an overloaded machine even a correct provider misses its deadlines.
        let undeclared: Vec<_> = undeclared_of(&suspects, 1).iter().map(shown).collect();
        if undeclared.is_empty() {
            Ok(())
        } else {
            Err(format!("these fail, too:\n  {}", undeclared.join("\n  ")))
        }
    });
}
