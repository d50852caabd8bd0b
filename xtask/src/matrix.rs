//! Runs every check on every faulty provider: only the checks that a fault declares may fail.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::test::{Engine, Selection, Tally};
use crate::{heading, setup};

/// Time limit, several times the usual time on two idle cores.
const BUDGET: Duration = Duration::from_secs(900);

/// Sets up, builds and runs the matrix.
pub fn run() -> Result<(), Error> {
    setup::ensure_for_build(true)?;
    let engine = Engine::find();
    let mut command = engine.command();
    Selection::of(false)?.add_to(&mut command);
    command
        .args(["--test", "faults"])
        .args(engine.only_ignored());
    heading(&format!("matrix, budget {} s", BUDGET.as_secs()));
    println!("$ {}", crate::shown(&command));
    let started = Instant::now();
    let mut tally = Tally::default();
    supervise::run_clean_reading(
        &mut command,
        engine.stream(),
        Budget::start(BUDGET),
        |line| tally.read(line),
    )?;
    if tally.passed == 0 {
        return Err(Error::NoTest { tier: "matrix" });
    }
    println!("the matrix took {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}
