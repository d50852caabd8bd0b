//! Everything that a developer or CI does here: set-up, tests, lints, the demonstration.
//!
//! It builds with nothing but a Rust toolchain, since it is what installs the rest.

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
    /// Show the distribution's own ibacm resolve paths through a provider written in Rust.
    Demo,
    /// Install what is missing, build, and run the tests tier by tier.
    Test(test::Options),
    /// Run every check on every faulty provider, which takes some minutes: no check may fail but those that a fault declares.
    Matrix,
    /// Check the format, clippy and the documentation; any warning is an error.
    Lint,
    /// Look for undefined behaviour in the unsafe code, by Miri; installs a nightly toolchain's Miri if it is missing.
    Miri,
    /// Write the C header anew, from the Rust mirror.
    Headers,
    /// Run the tests that need a kernel with RDMA devices, in a virtual machine.
    Vm,
    /// Start a job on 1600 simulated hosts with the real daemon and OpenSM, beside the stock provider: times and SA queries.
    Storm(performance::StormOptions),
    /// Measure everything that docs/performance.md has figures of, and write them there; takes about a quarter of an hour.
    Performance(performance::Options),
    /// Only unpack the packages of other releases that tests compare with.
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

/// `cargo` with `arguments`, the same one that runs xtask.
fn cargo(arguments: &[&str]) -> std::process::Command {
    let mut command =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// A command as one would type it in a shell, for messages.
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

/// A program or library of this workspace: it stands beside xtask, which cargo has built as well.
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

/// Announces a step of the work.
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
