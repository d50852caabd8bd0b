//! Counts instructions with callgrind.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use loader_test::bench::arrays::{self, Array};

/// The counted cases: names of `loader-test bench`.
pub const CASES: [&str; 4] = ["lid", "gid", "ip", "kernel"];
/// Number of destinations in the cache.
pub const DESTINATIONS: u32 = 1000;
/// Number of counted hits.
pub const HITS: u32 = 10_000;
/// The function of loader-test that calls the provider.
const WINDOW: &str = "acm_bench_counted";

/// Error from counting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is missing.
    #[error("{command}: {source}; as root: apt-get install valgrind gcc libc6-dev")]
    Start {
        /// The command.
        command: String,
        /// The cause.
        source: io::Error,
    },
    /// A program failed.
    #[error("{command} failed:\n{output}")]
    Failed {
        /// The command.
        command: String,
        /// Its output.
        output: String,
    },
    /// Callgrind's profile has no count.
    #[error("callgrind recorded no call of {WINDOW} by {}", program.display())]
    NoCount {
        /// The program.
        program: PathBuf,
    },
    /// A file error.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

/// Runs a command; returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let name = format!("{command:?}");
    let output = command.output().map_err(|source| Error::Start {
        command: name.clone(),
        source,
    })?;
    let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    match output.status.success() {
        true => Ok(out.into_owned()),
        false => Err(Error::Failed {
            command: name,
            output: format!("{out}{errors}"),
        }),
    }
}

/// The programs to count, built.
pub struct Built {
    /// The program `loader-test`.
    pub program: PathBuf,
    /// path-cache, in its release build.
    pub library: PathBuf,
}

/// Builds path-cache in its release build, and loader-test without optimizations; its own instructions are
/// subtracted.
///
/// `cargo xtask test` builds both before any test, and sets the variable `ACM_TESTS_BUILT`: another build would
/// replace programs that other tests run.
///
/// # Errors
/// If cargo fails.
pub fn build() -> Result<Built, Error> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&workspace).args(arguments);
        command
    };
    if std::env::var_os("ACM_TESTS_BUILT").is_none() {
        let of_path_cache: &[&str] = &["--release", "--package", "provider-cache"];
        for package in [of_path_cache, &["--package", "loader-test"]] {
            let build = ["build", "--quiet"];
            output(cargo(&build).args(package))?;
        }
    }
    let metadata = output(&mut cargo(&[
        "metadata",
        "--quiet",
        "--no-deps",
        "--format-version",
        "1",
    ]))?;
    let target =
        serde_json::from_str(metadata.trim())
            .ok()
            .and_then(|metadata: serde_json::Value| {
                Some(PathBuf::from(metadata["target_directory"].as_str()?))
            });
    let target = target.ok_or_else(|| Error::File {
        path: workspace.clone(),
        reason: "cargo did not report the path of the built file".into(),
    })?;
    Ok(Built {
        program: target.join("debug/loader-test"),
        library: target.join("release/libibacm_path_cache.so"),
    })
}

/// Counts hits by running loader-test.
pub struct Counter {
    program: PathBuf,
    folder: tempfile::TempDir,
    nothing: PathBuf,
}

impl Counter {
    /// Uses the program `loader-test`.
    ///
    /// # Errors
    /// If the empty provider, whose count is subtracted, cannot be built.
    pub fn new(program: &Path) -> Result<Self, Error> {
        let wrong = |reason: io::Error| Error::File {
            path: std::env::temp_dir(),
            reason: reason.to_string(),
        };
        let folder = tempfile::tempdir().map_err(wrong)?;
        let nothing = arrays::build(Array::Nothing, folder.path()).map_err(wrong)?;
        Ok(Self {
            program: program.to_owned(),
            folder,
            nothing,
        })
    }

    /// Returns the instructions of a hit in the provider and the libraries that it calls, without those of the
    /// core.
    ///
    /// # Errors
    /// If valgrind is missing, or the provider does not answer from its cache.
    pub fn count(&self, library: &Path, case: &str) -> Result<u64, Error> {
        let with = self.by_object(library, case)?;
        let without = self.by_object(&self.nothing, case)?;
        Ok(difference(&with, &without, &self.program, &self.nothing) / u64::from(HITS))
    }

    fn by_object(&self, library: &Path, case: &str) -> Result<ByObject, Error> {
        let wrong = |path: &Path, error: io::Error| Error::File {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let own = tempfile::tempdir_in(self.folder.path())
            .map_err(|error| wrong(self.folder.path(), error))?;
        let profile = own.path().join("callgrind");
        let mut command = Command::new("valgrind");
        command
            .args([
                "--tool=callgrind",
                "--collect-atstart=no",
                "--compress-strings=no",
            ])
            .args(["--compress-pos=no", &format!("--toggle-collect={WINDOW}")])
            .arg(format!("--callgrind-out-file={}", profile.display()))
            .arg(&self.program)
            .args(["bench-child", "--case", case, "--destinations"])
            .arg(DESTINATIONS.to_string())
            .args(["--count", &HITS.to_string(), "--folder"])
            .arg(own.path())
            .arg("--result")
            .arg(own.path().join("result"))
            .arg(library);
        output(&mut command)?;
        let text = std::fs::read_to_string(&profile).map_err(|error| wrong(&profile, error))?;
        let counts = by_object(&text);
        match counts.is_empty() {
            true => Err(Error::NoCount {
                program: self.program.clone(),
            }),
            false => Ok(counts),
        }
    }
}

/// Instructions by the path of their program or library.
type ByObject = BTreeMap<String, u64>;

/// Parses callgrind's uncompressed output: a line `ob=OBJECT` starts the functions of an object, a line `LINE
/// COUNT` is a count, and such a line after `calls=` is the callee's count.
fn by_object(profile: &str) -> ByObject {
    let mut counts = ByObject::new();
    let (mut object, mut is_callees) = ("", false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name;
        } else if line.starts_with("calls=") {
            is_callees = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let count = line
                .split(' ')
                .nth(1)
                .and_then(|count| count.parse::<u64>().ok());
            if !std::mem::replace(&mut is_callees, false) {
                *counts.entry(object.to_owned()).or_default() += count.unwrap_or(0);
            }
        }
    }
    counts
}

/// Returns the additional instructions of one run over another, outside of the program and of the other run's
/// provider.
fn difference(with: &ByObject, without: &ByObject, program: &Path, nothing: &Path) -> u64 {
    let is = |name: &str, path: &Path| Path::new(name) == path;
    let counted = with.iter().filter(|(name, _)| !is(name, program));
    let all: u64 = counted.map(|(_, count)| *count).sum();
    let others = without
        .iter()
        .filter(|(name, _)| !is(name, program) && !is(name, nothing));
    let others: u64 = others.map(|(_, count)| *count).sum();
    all.saturating_sub(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "version: 1\ncmd: x\npositions: line\nevents: Ir\nsummary: 170\n\n\
        ob=/bin/core\nfl=???\nfn=window\n0 50\ncob=/lib/mine.so\ncfn=resolve\ncalls=10 0\n0 120\n\n\
        ob=/lib/mine.so\nfn=resolve\n0 70\n3 10\ncob=/lib/libc.so\ncfn=memcpy\ncalls=1 7\n12 40\n\n\
        fn=other\n0 5\n\nob=/lib/libc.so\nfn=memcpy\n0 40\n\ntotals: 175\n";

    #[test]
    fn callgrinds_counts_are_read_by_object() {
        let counts = by_object(PROFILE);
        let expected = [
            ("/bin/core", 50),
            ("/lib/libc.so", 40),
            ("/lib/mine.so", 85),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counts, ByObject::from(expected));
        assert!(by_object("events: Ir\nsummary: 0\n").is_empty());
    }

    #[test]
    fn the_cores_instructions_are_subtracted() {
        let without = [
            ("/bin/core", 60),
            ("/lib/libc.so", 10),
            ("/tmp/nothing.so", 20),
        ];
        let without = ByObject::from(without.map(|(name, count)| (name.to_owned(), count)));
        let [program, nothing] = ["/bin/core", "/tmp/nothing.so"].map(Path::new);
        // 85 in the library, and 30 in libc beyond the core's own.
        assert_eq!(
            difference(&by_object(PROFILE), &without, program, nothing),
            115
        );
    }
}
