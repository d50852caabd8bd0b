//! The run of one library: probes, then the checks, up to the planned number at a time, then the repetitions.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::child::Job;
use super::plan::{CutShort, Event, Plan, Report, Results};
use super::probe::{self, Found};
use super::repeat::Repeats;
use super::stop::Stop;
use super::{breach, could_not_run, keep, milliseconds_since, verdict};
use crate::stand_in::recorder;
use crate::suite::ability::{Ability, DEADLINE};
use crate::suite::copies::Copies;
use crate::suite::fixture::{Subject, Time};
use crate::suite::{Check, Status};

/// The shortest deadline that checks set: a provider that keeps it keeps all of them.
const LEAST_DEADLINE: Duration = Duration::from_secs(1);

/// The run of one library.
pub(super) struct Run<'a> {
    library: &'a Path,
    plan: &'a Plan,
    stop: &'a Stop,
    tell: &'a (dyn Fn(Event<'_>) + Sync),
    /// For a run in this process.
    copies: Option<Arc<Copies>>,
    folder: &'a Path,
    /// Bad results so far.
    failures: AtomicUsize,
    /// A check in which the harness failed, possibly because the machine is busy.
    troubled: Mutex<Option<&'static Check>>,
    trouble: Mutex<Option<io::Error>>,
}

impl<'a> Run<'a> {
    pub fn new(
        library: &'a Path,
        plan: &'a Plan,
        stop: &'a Stop,
        tell: &'a (dyn Fn(Event<'_>) + Sync),
        folder: &'a Path,
    ) -> io::Result<Self> {
        let copies = match plan.in_process {
            true => Some(Arc::new(Copies::new()?)),
            false => None,
        };
        Ok(Self {
            library,
            plan,
            stop,
            tell,
            copies,
            folder,
            failures: AtomicUsize::new(0),
            troubled: Mutex::new(None),
            trouble: Mutex::new(None),
        })
    }

    /// Runs everything, until it is done or cut short.
    pub fn whole(&self, checks: &[&'static Check]) -> Results {
        let mut results = Results::default();
        let mut repeats = Repeats::new(self.plan.repeats);
        let mut time = Time {
            limit: self.plan.time_limit,
            extra: Duration::ZERO,
            deadline: None,
        };
        let found = match self.plan.blocks {
            true => self.probe(checks, &mut time, &mut repeats, &mut results),
            false => Found::default(),
        };
        results.deadline = time.deadline;
        results.complaints = probe::complaints(&results, &self.plan.options, self.folder);
        let (blocked, open): (Vec<_>, Vec<_>) = checks
            .iter()
            .copied()
            .partition(|check| found.blocks(check.needs).is_some());
        for report in blocked.iter().filter_map(|check| found.blocked(check)) {
            (self.tell)(Event::Ended(&report));
            results.checks.push(report);
        }
        // The longest checks start first.
        let mut open = open;
        open.sort_by_key(|check| std::cmp::Reverse(check.time_factor()));
        let mut reports = self.some(&open, time, &repeats);
        self.repeat(&mut reports, time, &mut repeats);
        results.checks.extend(reports);
        let place = |report: &Report| checks.iter().position(|check| check.name == report.name);
        results.checks.sort_by_key(place);
        results.breaches = breach::collect(&results.checks);
        for breach in &results.breaches {
            (self.tell)(Event::Ended(breach));
        }
        results.cut_short = self.cut_short(results.checks.len() < checks.len());
        results
    }

    fn cut_short(&self, is_incomplete: bool) -> Option<CutShort> {
        let trouble = self
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if self.stop.is_set() {
            return Some(CutShort::Stopped);
        }
        if let Some(trouble) = trouble {
            return Some(CutShort::Trouble(could_not_run(trouble)));
        }
        is_incomplete.then_some(CutShort::MaxFailures)
    }

    /// Whether no further check starts.
    fn is_over(&self) -> bool {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = self.failures.load(Ordering::Relaxed);
        self.stop.is_set()
            || trouble.is_some()
            || self.plan.max_failures.is_some_and(|most| failures >= most)
    }

    /// Probes the abilities that these checks need.
    fn probe(
        &self,
        checks: &[&'static Check],
        time: &mut Time,
        repeats: &mut Repeats,
        results: &mut Results,
    ) -> Found {
        let needs = checks.iter().flat_map(|check| check.needs.iter().copied());
        let wanted = Ability::closure(needs);
        let answers = [
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::AnswersQuery,
        ];
        // In this process a developer watches, who can see why a deadline is long.
        let mut wants_deadline =
            !self.plan.in_process && wanted.iter().any(|ability| answers.contains(ability));
        let mut found = Found::default();
        for step in probe::steps(&wanted) {
            let mut probes: Vec<&'static Check> = step
                .iter()
                .filter(|ability| found.blocks(ability.needs()).is_none())
                .map(|ability| ability.probe())
                .collect();
            if wants_deadline
                && step.iter().any(|ability| answers.contains(ability))
                && !probes.is_empty()
            {
                probes.push(&DEADLINE);
                wants_deadline = false;
            }
            for report in self.probe_together(&probes, *time, repeats) {
                if report.name == DEADLINE.name {
                    time.deadline = report
                        .shown_deadline
                        .filter(|shown| *shown > LEAST_DEADLINE);
                    continue;
                }
                let of_report = |ability: &&Ability| ability.probe().name == report.name;
                if let Some(ability) = step.iter().find(of_report) {
                    found.note(*ability, &report);
                    if *ability == Ability::OpensPort {
                        time.extra += probe::extra_time(&report);
                    }
                }
                results.abilities.push(report);
            }
        }
        // Clients of a silent SA get their answers later than the limit assumes.
        time.extra += time.deadline.unwrap_or_default() * 2;
        results.abilities.sort_by_key(|report| {
            Ability::ALL
                .iter()
                .position(|ability| ability.probe().name == report.name)
        });
        found
    }

    fn probe_together(
        &self,
        probes: &[&'static Check],
        time: Time,
        repeats: &mut Repeats,
    ) -> Vec<Report> {
        let reports: Mutex<Vec<Report>> = Mutex::default();
        self.each(probes, |probe| {
            let report = self.one(probe, time)?;
            reports
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(report);
            Ok(())
        });
        let mut reports = reports.into_inner().unwrap_or_default();
        for report in &mut reports {
            let probe = probes.iter().find(|probe| probe.name == report.name);
            if let Some(probe) = probe.filter(|_| self.is_repeated(repeats, report)) {
                self.again(probe, report, time, repeats);
            }
            if report.status.is_bad(false) && report.name != DEADLINE.name {
                self.ended(report);
            }
        }
        reports
    }

    fn is_repeated(&self, repeats: &Repeats, report: &Report) -> bool {
        !self.plan.in_process && !self.is_over() && repeats.wants(report)
    }

    /// Runs these checks, up to the planned number at a time. It does not report those that will be repeated.
    fn some(&self, checks: &[&'static Check], time: Time, repeats: &Repeats) -> Vec<Report> {
        let reports: Mutex<Vec<Report>> = Mutex::default();
        self.each(checks, |check| {
            let report = match self.one(check, time) {
                Ok(report) => report,
                Err(error) => return self.try_later(check, error),
            };
            match self.is_repeated(repeats, &report) {
                true => (self.tell)(Event::Postponed(check)),
                false => self.ended(&report),
            }
            reports
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(report);
            Ok(())
        });
        reports.into_inner().unwrap_or_default()
    }

    /// Runs the check in which the harness failed once more, at the end.
    fn try_later(&self, check: &'static Check, error: io::Error) -> io::Result<()> {
        let mut troubled = self.troubled.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.is_set() || self.plan.in_process || troubled.is_some() {
            return Err(error);
        }
        *troubled = Some(check);
        (self.tell)(Event::Postponed(check));
        Ok(())
    }

    /// Repeats the results that time may explain, one at a time.
    fn repeat(&self, reports: &mut Vec<Report>, time: Time, repeats: &mut Repeats) {
        let troubled = self
            .troubled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(check) = troubled.filter(|_| !self.is_over()) {
            (self.tell)(Event::Begun(check));
            match self.one(check, time) {
                Ok(report) => {
                    if !repeats.wants(&report) {
                        self.ended(&report);
                    }
                    reports.push(report);
                }
                Err(error) => self.note_trouble(error),
            }
        }
        let none = Repeats::new(self.plan.repeats);
        for report in reports {
            let was_postponed = !self.plan.in_process && none.wants(report);
            let check = crate::suite::find(&report.name);
            if let Some(check) = check.filter(|_| was_postponed) {
                if self.is_repeated(repeats, report) {
                    self.again(check, report, time, repeats);
                }
                self.ended(report);
            }
        }
    }

    /// Replaces a result by the repetition's; if the harness fails, the first one stays.
    fn again(&self, check: &'static Check, report: &mut Report, time: Time, repeats: &mut Repeats) {
        (self.tell)(Event::Begun(check));
        match self.one(check, time) {
            Ok(again) => *report = repeats.done(report, again),
            Err(error) => self.note_trouble(error),
        }
    }

    fn ended(&self, report: &Report) {
        if report.status.is_bad(self.plan.strict) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        (self.tell)(Event::Ended(report));
    }

    fn note_trouble(&self, error: io::Error) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.get_or_insert(error);
    }

    /// Calls a function for each check, up to the planned number at a time, until the run ends.
    fn each(
        &self,
        checks: &[&'static Check],
        body: impl Fn(&'static Check) -> io::Result<()> + Sync,
    ) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(check) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
                if self.is_over() {
                    return;
                }
                (self.tell)(Event::Begun(check));
                if let Err(error) = body(check) {
                    self.note_trouble(error);
                }
            }
        };
        let jobs = match self.plan.in_process {
            true => 1,
            false => self.plan.jobs.clamp(1, checks.len().max(1)),
        };
        std::thread::scope(|scope| {
            for _ in 1..jobs {
                scope.spawn(work);
            }
            work();
        });
    }

    fn one(&self, check: &'static Check, time: Time) -> io::Result<Report> {
        let folder = self.folder_for_one()?;
        let start = Instant::now();
        let mut report = match &self.copies {
            None => {
                let job = Job {
                    check,
                    library: self.library,
                    folder: folder.path(),
                    plan: self.plan,
                    time,
                };
                job.run(self.stop)?
            }
            Some(copies) => self.here(check, folder.path(), copies)?,
        };
        report.duration_ms = milliseconds_since(start);
        keep::keep(self.plan, folder.path(), &mut report)?;
        Ok(report)
    }

    /// Runs a check in this process.
    fn here(
        &self,
        check: &'static Check,
        folder: &Path,
        copies: &Arc<Copies>,
    ) -> io::Result<Report> {
        let subject = Subject {
            library: self.library.to_owned(),
            options: self.plan.options.clone(),
            strict: self.plan.strict,
            trace: keep::trace_of(self.plan, folder),
            copies: Some(Arc::clone(copies)),
            time: Time::AMPLE,
            log_level: self.plan.log_level,
        };
        let verdict = verdict::judge_here(check, subject, folder)
            .map_err(|trouble| io::Error::other(format!("{}: {trouble}", check.name)))?;
        let mut report = Report::new(check.name, Status::Crashed, String::new());
        verdict.into_report(&mut report);
        if report.status.is_bad(false) || check.is_probe() {
            report.log = recorder::last_lines_up_to(folder, self.plan.log_level);
        }
        Ok(report)
    }

    fn folder_for_one(&self) -> io::Result<TempDir> {
        tempfile::Builder::new()
            .prefix("check-")
            .tempdir_in(self.folder)
    }
}
