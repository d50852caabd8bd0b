//! The suite under valgrind, in one process.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Checks that need the process to be fast, or look at it as a whole.
const LEFT_OUT: &str = "^(load|process)-|^hostile-random$|^resolve-(many|memory)$|-thousand$|-core-thread$|^wire-(flood|many|long|retries|stock)";

/// What valgrind finds about memory that a provider allocated or touched in the checks whose names match; `source` is a part
/// of the name of its source file.
pub fn errors(library: &Path, source: &str, checks: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (log, opts) = (folder.path().join("valgrind"), folder.path().join("opts"));
    fs::write(&opts, "sa_example_join yes\n").expect("an options file");
    let output = Command::new("valgrind")
        .args(["--leak-check=full", "--show-leak-kinds=definite,indirect"])
        .arg(format!("--log-file={}", log.display()))
        .arg(env!("CARGO_BIN_EXE_loader-test"))
        .args(["check", "--in-process", "--strict", "--skip", LEFT_OUT])
        .args(["--only", checks, "--opts"])
        .arg(&opts)
        .arg(library)
        .output()
        .unwrap_or_else(|error| panic!("valgrind: {error}; install the Debian package valgrind"));
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = fs::read_to_string(&log).expect("valgrind's log");
    assert!(text.contains("ERROR SUMMARY"), "{text}");
    paragraphs(&text)
        .filter(|error| concerns(error, source))
        .collect()
}

/// The errors of a log: lines of one process up to an empty one.
fn paragraphs(log: &str) -> impl Iterator<Item = String> {
    let mut all = vec![String::new()];
    for line in log.lines() {
        // ==PID== text
        let text = line.splitn(3, "==").nth(2).unwrap_or_default().trim_end();
        match (text.is_empty(), all.last_mut()) {
            (false, Some(last)) => {
                last.push_str(text);
                last.push('\n');
            }
            _ => all.push(String::new()),
        }
    }
    all.into_iter()
        .filter(|paragraph| paragraph.contains(" 0x"))
}

/// What is in the name of a function of the harness.
const CORE: [&str; 2] = ["loader_test", "acm_stand_in"];

/// Whether an error is the provider's: a bad access with the provider anywhere in the stack, or a block that was allocated by
/// the provider itself and not by the core on its behalf (which keeps MADs on purpose).
fn concerns(error: &str, source: &str) -> bool {
    let mut frames = error.lines().filter(|line| line.contains(" 0x"));
    if error.contains(" lost in loss record ") {
        let owner = frames
            .find(|frame| frame.contains(source) || CORE.iter().any(|core| frame.contains(core)));
        owner.is_some_and(|frame| frame.contains(source))
    } else {
        frames.any(|frame| frame.contains(source))
    }
}
