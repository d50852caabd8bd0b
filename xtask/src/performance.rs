//! Measures the release builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::{cargo, heading, setup, trees};

/// Time limits, several times the usual times on two idle cores.
const BUILD: Duration = Duration::from_secs(3600);
const RUN: Duration = Duration::from_secs(7200);

const STOCK: &str = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so";
const PROVIDERS: [&str; 2] = ["libibacm_path_cache.so", "libibacm_mcast_sa.so"];

#[derive(clap::Args)]
pub struct StormOptions {
    /// Number of rounds, in which the providers take turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u16,
    /// More arguments for `loader-test storm`
    #[arg(last = true)]
    arguments: Vec<String>,
}

#[derive(clap::Args)]
pub struct Options {
    /// Number of rounds, in which the providers take turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u16,
}

/// Builds and runs `loader-test storm`.
pub fn storm(options: &StormOptions) -> Result<(), Error> {
    let folder = build()?;
    run_storm(&folder, options.rounds, &options.arguments)
}

/// Measures, and writes the figures into docs/performance.md and its picture.
pub fn run(options: &Options) -> Result<(), Error> {
    let folder = build()?;
    let rounds = options.rounds.to_string();
    let (page, picture) = (documents("performance.md"), documents("performance.svg"));
    let [bench, storm] = ["bench.md", "storm.md"].map(|name| folder.join(name));

    heading("bench");
    let mut command = Command::new(folder.join("loader-test"));
    command
        .arg("bench")
        .arg(folder.join(PROVIDERS[0]))
        .args(["--vs", STOCK, "--vs"])
        .arg(folder.join(PROVIDERS[1]))
        .args(["--rounds", &rounds, "--svg"])
        .arg(picture)
        .arg("--markdown")
        .arg(&bench);
    supervise::run(&mut command, Budget::start(RUN))?;
    put_into(&page, "bench", &bench)?;

    let arguments = ["--markdown".to_owned(), storm.display().to_string()];
    // A failed comparison is reported at the end; the figures are still valid.
    let verdict = run_storm(&folder, options.rounds, &arguments);
    put_into(&page, "storm", &storm)?;

    heading("instructions");
    let mut counts = cargo(&["run", "--quiet", "--package", "benches", "--", "--record"]);
    supervise::run(&mut counts, Budget::start(BUILD))?;
    verdict
}

/// Builds what is measured; returns the folder with the programs.
fn build() -> Result<PathBuf, Error> {
    setup::ensure_for_daemon()?;
    setup::ensure_for_build(true)?;
    heading("build");
    let mut command = cargo(&["build", "--release"]);
    for package in [
        "loader-test",
        "provider-cache",
        "provider-default",
        "fabric-sim",
    ] {
        command.args(["--package", package]);
    }
    supervise::run(&mut command, Budget::start(BUILD))?;
    Ok(trees::target()?.join("release"))
}

fn run_storm(folder: &Path, rounds: u16, arguments: &[String]) -> Result<(), Error> {
    heading("storm");
    let mut command = Command::new(folder.join("loader-test"));
    command
        .arg("storm")
        .args(PROVIDERS.map(|name| folder.join(name)))
        .args(["--vs", STOCK, "--rounds", &rounds.to_string()])
        .args(arguments);
    supervise::run_clean(&mut command, Budget::start(RUN))
}

fn documents(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name)
}

/// Replaces the part of a page between `<!-- NAME -->` and `<!-- end -->` with the content of a file.
fn put_into(page: &Path, name: &str, file: &Path) -> Result<(), Error> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|source| Error::File {
            operation: "read",
            path: path.to_owned(),
            source,
        })
    };
    let text = replaced(&read(page)?, name, &read(file)?).ok_or_else(|| Error::Unexpected {
        command: page.display().to_string(),
        output: format!("found no part between <!-- {name} --> and <!-- end -->"),
    })?;
    fs::write(page, text).map_err(|source| Error::File {
        operation: "write",
        path: page.to_owned(),
        source,
    })
}

fn replaced(page: &str, name: &str, part: &str) -> Option<String> {
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once("<!-- end -->")?;
    Some(format!(
        "{before}{begin}\n{}\n\n<!-- end -->{after}",
        part.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_page_is_replaced() {
        let page = "a\n<!-- x -->\nold\n<!-- end -->\nb\n<!-- y -->\n<!-- end -->\n";
        let new = "a\n<!-- x -->\n\nnew\n\n<!-- end -->\nb\n<!-- y -->\n<!-- end -->\n";
        assert_eq!(replaced(page, "x", "new\n").as_deref(), Some(new));
        assert_eq!(replaced(new, "x", "new").as_deref(), Some(new));
        assert_eq!(replaced(page, "z", "new"), None);
    }

    #[test]
    fn the_page_has_the_parts() {
        let page = fs::read_to_string(documents("performance.md")).unwrap();
        for part in ["bench", "storm"] {
            assert!(replaced(&page, part, "").is_some(), "{part}");
        }
    }
}
