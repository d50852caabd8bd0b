//! Detects panics on the provider's threads, which Rust's runtime reports only on standard error.

use std::fs;

use crate::stand_in::ledger::{Harmed, Violation, ViolationKind};

/// Returns the panics reported on this process's standard error, if that is a file.
pub fn on_own_threads() -> Vec<Violation> {
    // Only a check in its own process has its own file.
    let is_file = fs::metadata("/proc/self/fd/2").is_ok_and(|metadata| metadata.is_file());
    let printed = match is_file {
        true => fs::read("/proc/self/fd/2").unwrap_or_default(),
        false => Vec::new(),
    };
    panics_in(&String::from_utf8_lossy(&printed))
        .map(|place| Violation {
            kind: ViolationKind::ThreadPanicked,
            harmed: Harmed::Daemon,
            text: format!("{place}: the thread has ended, and its work with it"),
        })
        .collect()
}

/// The harness's threads: a panic of the provider there ends the process or is caught.
const NOT_ITS_OWN: [&str; 2] = ["main", "core's SA"];

/// Returns the lines `thread 'NAME' (ID) panicked at PLACE` of Rust since 1.89, or without the id of earlier versions.
fn panics_in(printed: &str) -> impl Iterator<Item = &str> {
    printed.lines().filter(|line| {
        let Some((name, rest)) = line
            .strip_prefix("thread '")
            .and_then(|rest| rest.split_once('\''))
        else {
            return false;
        };
        rest.contains(" panicked at ") && !NOT_ITS_OWN.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_told_with_their_threads() {
        let printed = "\nthread 'worker' (123) panicked at src/lib.rs:1:2:\nboom\n\
             thread 'main' (1) panicked at src/main.rs:3:4:\nx\n\
             thread '<unnamed>' panicked at src/lib.rs:5:6:\nthread 'worker' is fine\n";
        let told: Vec<_> = panics_in(printed).collect();
        assert_eq!(
            told,
            [
                "thread 'worker' (123) panicked at src/lib.rs:1:2:",
                "thread '<unnamed>' panicked at src/lib.rs:5:6:"
            ]
        );
    }

    /// Panics with this runtime's message. The test below runs it as a child.
    #[test]
    #[ignore = "panics on a thread of its own"]
    fn a_thread_that_panics() {
        let thread = std::thread::Builder::new().name("a worker".into());
        let _ = thread.spawn(|| panic!("on purpose")).unwrap().join();
    }

    #[test]
    fn this_compilers_words_are_understood() {
        let name = "suite::panics::tests::a_thread_that_panics";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        let told: Vec<_> = panics_in(&printed).collect();
        assert!(
            matches!(told[..], [one] if one.starts_with("thread 'a worker'")),
            "{printed}"
        );
    }
}
