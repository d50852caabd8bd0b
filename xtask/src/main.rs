//! The commands for developers and CI: set-up, tests, lints, the demonstration.
//!
//! It builds with nothing but a Rust toolchain, because it installs everything else.

mod demo;
mod error;
mod headers;
mod lint;
mod matrix;
mod miri;
mod performance;
mod setup;
mod supervise;
mod test;
mod trees;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Set-up, tests, lints and the demonstration of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Demonstrate the distribution's own ibacm with a provider written in Rust.
    Demo,
    /// Install what is missing, build, and run the tests, tier by tier.
    Test(test::Options),
    /// Run every check on every faulty provider (some minutes): only the checks that a fault declares may fail.
    Matrix,
    /// Check the format, clippy and the documentation; any warning is an error.
    Lint,
    /// Look for undefined behaviour in the unsafe code with Miri; installs Miri for the nightly toolchain if it
    /// is missing.
    Miri,
    /// Generate the C header from the Rust mirror.
    Headers,
    /// Run the tests that need a kernel with RDMA devices, in a virtual machine.
    Vm,
    /// Start a job on 1600 simulated hosts with the real daemon and OpenSM; compare times and SA queries with
    /// the stock provider's.
    Storm(performance::StormOptions),
    /// Measure all figures of docs/performance.md and write them there; takes about a quarter of an hour.
    Performance(performance::Options),
    /// Only unpack packages of other releases, for tests that compare with them.
    Trees,
    /// Only install what is missing.
    Setup,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Demo => demo::run(),
        Command::Test(options) => test::run(&options),
        Command::Matrix => matrix::run(),
        Command::Lint => lint::run(),
        Command::Miri => miri::run(),
        Command::Headers => headers::run(),
        Command::Vm => vm::alone(),
        Command::Storm(options) => performance::storm(&options),
        Command::Performance(options) => performance::run(&options),
        Command::Trees => trees::ensure(),
        Command::Setup => setup::ensure(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            error.exit_code()
        }
    }
}

/// Returns `cargo` with `arguments`, the same cargo that runs xtask.
fn cargo(arguments: &[&str]) -> std::process::Command {
    let mut command =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Returns a command in shell syntax, for messages.
fn shown(command: &std::process::Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let quoted = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    std::iter::once(name)
        .chain(command.get_args())
        .map(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the path of a program or library of this workspace; cargo builds it into xtask's own folder.
fn built(name: &str) -> Result<std::path::PathBuf, error::Error> {
    let own = std::env::current_exe().map_err(|source| error::Error::System {
        operation: "find the folder of built programs",
        source,
    })?;
    let path = own.with_file_name(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(error::Error::NotBuilt { path })
    }
}

/// Prints a heading for a step.
fn heading(text: &str) {
    println!("\n=== {text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }

    #[test]
    fn a_command_is_shown_as_it_is_typed_without_the_folder_of_its_program() {
        let mut command = std::process::Command::new("/a/b/cargo");
        command.args(["test", "--test", "*", "it's", ""]);
        assert_eq!(
            super::shown(&command),
            r"cargo test --test '*' 'it'\''s' ''"
        );
    }
}
