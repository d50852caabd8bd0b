//! Runs `loader-test check`, and builds the providers for it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::compiled::{compiled, draft};

/// The output of a run.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub pid: i32,
    pub stdout: String,
    pub stderr: String,
    pub json: Value,
}

impl Run {
    /// A result on the first library: of a check, an ability or a departure.
    pub fn check(&self, name: &str) -> &Value {
        let library = &self.json["libraries"][0];
        ["checks", "abilities", "breaches"]
            .iter()
            .filter_map(|list| library[list].as_array())
            .flatten()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no check {name}: {self:?}"))
    }

    pub fn status(&self, name: &str) -> &str {
        self.check(name)["status"].as_str().expect("a status")
    }

    pub fn message(&self, name: &str) -> &str {
        self.check(name)["message"].as_str().expect("a message")
    }

    pub fn names(&self) -> Vec<String> {
        self.statuses().into_iter().map(|(name, _)| name).collect()
    }

    pub fn statuses(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        self.checks()
            .iter()
            .map(|check| (text(&check["name"]), text(&check["status"])))
            .collect()
    }

    /// Every result on the first library that is not passed, skipped or blocked.
    pub fn bad(&self) -> Vec<String> {
        let library = &self.json["libraries"][0];
        ["abilities", "checks", "breaches"]
            .iter()
            .filter_map(|list| library[list].as_array())
            .flatten()
            .filter(|result| {
                !["passed", "skipped", "blocked"]
                    .contains(&result["status"].as_str().unwrap_or_default())
            })
            .map(|result| result["name"].as_str().expect("a name").to_owned())
            .collect()
    }

    fn checks(&self) -> &[Value] {
        self.json["libraries"][0]["checks"]
            .as_array()
            .unwrap_or_else(|| panic!("no results: {self:?}"))
    }
}

/// Returns this process's own file, which does not exist when the tests start. `cargo xtask test` removes earlier ones.
pub fn file(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runner");
        fs::create_dir_all(&all).expect("a folder for the tests");
        let own = tempfile::tempdir_in(all).expect("a folder for this process");
        own.keep()
    });
    folder.join(name)
}

const GOOD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../include/examples/sa_provider.c"
);

/// The good provider.
pub fn good() -> PathBuf {
    build("good", &read(GOOD), &[])
}

/// A provider that does something at one moment: LOAD, QUERY or OPEN.
pub fn bad(name: &str, does: &[(&str, &str)]) -> PathBuf {
    let definitions: Vec<_> = does
        .iter()
        .map(|(moment, what)| format!("-D{moment}={what}"))
        .collect();
    build(name, include_str!("provider.c"), &definitions)
}

/// The good provider with two texts replaced.
pub fn changed(name: &str, from: &str, to: &str, and_from: &str, and_to: &str) -> PathBuf {
    let source = read(GOOD);
    for text in [from, and_from] {
        assert_eq!(source.matches(text).count(), 1, "{text}");
    }
    let source = source.replace(from, to).replace(and_from, and_to);
    build(name, &source, &[])
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The library under a name of its own in this process's folder, which the test may remove or change.
fn build(name: &str, source: &str, definitions: &[String]) -> PathBuf {
    let mut arguments = vec!["-std=gnu11", "-w", "-fPIC", "-shared", "-Wl,-z,now"];
    arguments.extend(definitions.iter().map(String::as_str));
    arguments.extend(["{source}", "-libverbs", "-lpthread"]);
    let library = file(&format!("lib{name}.so"));
    let built = compiled(name, ".so", source, &arguments);
    // Atomically: another test of this process may use the same file.
    let draft = draft(&library);
    fs::copy(built, &draft).expect("a copy of the library");
    fs::rename(&draft, &library).expect("a library under its name");
    library
}

/// `loader-test` with arguments, in this process's folder: what it writes by itself is not left in the source tree.
pub fn loader_test(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loader-test"));
    command
        .args(arguments)
        .current_dir(file(""))
        .stdin(Stdio::null());
    command
}

/// `loader-test check` of some checks.
pub fn command(library: &Path, only: &str, arguments: &[&str]) -> Command {
    let mut command = loader_test(&["check"]);
    command.arg(library).args(["--only", only]).args(arguments);
    command
}

/// Runs some checks and reads the results.
pub fn check(library: &Path, only: &str, arguments: &[&str]) -> Run {
    let json = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = command(library, only, arguments);
    command.arg("--json").arg(json.path());
    let mut run = run(command);
    let text = fs::read(json.path()).expect("the results");
    run.json = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    run
}

/// Runs a command to its end.
pub fn run(mut command: Command) -> Run {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("loader-test");
    let pid = child.id().cast_signed();
    let output = child.wait_with_output().expect("loader-test");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run {
        code: output.status.code().expect("an exit code"),
        pid,
        stdout: text(output.stdout),
        stderr: text(output.stderr),
        json: Value::Null,
    }
}

/// What a command that succeeds writes to a terminal.
pub fn terminal(command: Command) -> String {
    on_terminal(command, 0)
}

fn on_terminal(mut command: Command, code: i32) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("a terminal");
    unlockpt(&master).expect("a terminal");
    let name = ptsname(&master, Vec::new()).expect("a terminal");
    // As wide as a line of results with room to spare.
    let size = rustix::termios::Winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&master, size).expect("a terminal");
    let slave = fs::File::options()
        .write(true)
        .open(name.to_str().expect("UTF-8"))
        .expect("a terminal");
    let mut child = command.stdout(slave).spawn().expect("loader-test");
    // The command holds the other side, too.
    drop(command);
    let mut text = Vec::new();
    // Ends with an error once nobody has the other side.
    let _ = fs::File::from(master).read_to_end(&mut text);
    assert_eq!(child.wait().expect("loader-test").code(), Some(code));
    String::from_utf8(text).expect("UTF-8")
}

/// Returns a terminal's final contents, after carriage returns, cursor movements and erasing.
pub fn screen(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                lines.resize(lines.len().max(row + 1), String::new());
            }
            '\u{1b}' => {
                assert_eq!(rest.next(), Some('['), "{text:?}");
                let mut number = String::new();
                let command = loop {
                    match rest.next().expect("the end of a sequence") {
                        digit if digit.is_ascii_digit() || digit == ';' => number.push(digit),
                        command => break command,
                    }
                };
                let count = number.parse().unwrap_or(1);
                match command {
                    'A' => row = row.saturating_sub(count),
                    'K' => lines[row].clear(),
                    'J' => lines.truncate(row + 1),
                    'm' => {}
                    other => panic!("teach this test the sequence {other}: {text:?}"),
                }
            }
            character => {
                let mut line: Vec<char> = lines[row].chars().collect();
                line.resize(line.len().max(column + 1), ' ');
                line[column] = character;
                lines[row] = line.into_iter().collect();
                column += 1;
            }
        }
    }
    lines
}

/// The process ids in a file, one a line.
pub fn pids(file: &Path) -> Vec<i32> {
    fs::read_to_string(file)
        .unwrap_or_default()
        .lines()
        .map(|line| line.parse().expect("a process id"))
        .collect()
}

/// Whether a process runs; one that has ended and was not waited for does not.
pub fn is_running(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

/// Longest wait for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for an expected event.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
