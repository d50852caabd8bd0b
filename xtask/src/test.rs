//! Runs the tests, tier by tier.

mod engine;
mod selection;
mod tally;
mod tier;

use std::time::{Duration, Instant};

use clap::ValueEnum as _;

use crate::error::Error;
use crate::heading;
use crate::supervise::{self, Budget};

pub use engine::Engine;
pub use selection::Selection;
pub use tally::Tally;
use tier::Tier;

#[derive(clap::Args)]
pub struct Options {
    /// Run only this tier (and the build, which the others need)
    #[arg(long, value_enum)]
    tier: Option<Tier>,
    /// Leave out rdma-access and mcast-sa, which need the packages that ibverbs-sys needs, and the tiers that
    /// test them
    #[arg(long)]
    without_verbs: bool,
}

/// Runs the tiers in order, also after a failure, and reports at the end which failed. Only a failed build or a
/// signal ends the run early.
pub fn run(options: &Options) -> Result<(), Error> {
    if let Some(tier) = options.tier
        && options.without_verbs
        && !tier.works_without_verbs()
    {
        return Err(Error::NothingToTest { tier: tier.name() });
    }
    let selection = Selection::of(options.without_verbs)?;
    let engine = Engine::find();
    println!("tests run by {}", engine.name());
    let mut lines = vec![];
    let mut failed = vec![];
    let mut stopped = None;
    for &tier in Tier::value_variants() {
        if !tier.is_wanted(options.tier) {
            continue;
        }
        if options.without_verbs && !tier.works_without_verbs() {
            lines.push(format!("{:<7} left out by --without-verbs", tier.name()));
            continue;
        }
        let budget = tier.budget();
        heading(&format!(
            "tier {}, budget {} s",
            tier.name(),
            budget.as_secs()
        ));
        let mut tally = Tally::default();
        let started = Instant::now();
        let outcome = tier
            .set_up(&selection)
            .and_then(|()| run_tier(tier, &selection, engine, &mut tally));
        lines.push(summary(tier, started.elapsed(), tally, outcome.is_ok()));
        match outcome {
            Ok(()) => {}
            Err(error) if tier == Tier::Build || error.ends_everything() => {
                stopped = Some(error);
                break;
            }
            Err(error) => {
                eprintln!("xtask: {error}");
                failed.push(tier.name());
            }
        }
    }
    heading("tiers");
    println!("{}", lines.join("\n"));
    for left_out in selection.left_out() {
        println!("left out by --without-verbs: {left_out}");
    }
    match (stopped, failed.is_empty()) {
        (Some(error), _) => Err(error),
        (None, true) => Ok(()),
        (None, false) => Err(Error::TiersFailed { tiers: failed }),
    }
}

fn run_tier(
    tier: Tier,
    selection: &Selection,
    engine: Engine,
    tally: &mut Tally,
) -> Result<(), Error> {
    let budget = Budget::start(tier.budget());
    for mut command in tier.commands(selection, engine)? {
        println!("$ {}", crate::shown(&command));
        if tier.runs_tests() {
            let mut own = Tally::default();
            let outcome =
                supervise::run_clean_reading(&mut command, engine.stream(), budget, |line| {
                    own.read(line);
                });
            if engine.runs_only_ignored(&command) {
                // The filtered tests run elsewhere.
                own.ignored = 0;
            }
            tally.add(own);
            outcome?;
        } else {
            supervise::run(&mut command, budget)?;
        }
    }
    if tier == Tier::Vm {
        crate::vm::run(budget, |line| tally.read(line))?;
    }
    if tier.runs_tests() && tally.passed == 0 {
        return Err(Error::NoTest { tier: tier.name() });
    }
    Ok(())
}

fn summary(tier: Tier, took: Duration, tally: Tally, passed: bool) -> String {
    let tests = if tier.runs_tests() {
        format!(
            "{} passed, {} failed, {} ignored",
            tally.passed, tally.failed, tally.ignored
        )
    } else {
        "-".to_owned()
    };
    format!(
        "{:<7} {:<4} {:>6.1} s of {:>4} s   {tests}",
        tier.name(),
        if passed { "ok" } else { "FAIL" },
        took.as_secs_f64(),
        tier.budget().as_secs(),
    )
}
