//! Programs that see a simulated `/sys` and `/dev`, in their own mount namespace.

mod addresses;
mod errors;
mod selection;
mod tree;
mod verbs;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::str;

use tempfile::TempDir;
use tree::Tree;

/// Returns a built example of this crate.
fn example(name: &str) -> PathBuf {
    let path = target_profile().join("examples").join(name);
    assert!(
        path.is_file(),
        "{} is not built: cargo build -p rdma-access --examples",
        path.display()
    );
    path
}

/// Returns the folder of the build profile, one level above this executable's.
fn target_profile() -> PathBuf {
    let executable = env::current_exe().unwrap();
    executable.ancestors().nth(2).unwrap().to_owned()
}

/// A simulated machine.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new(tree: &Tree) -> Self {
        let folder = tempfile::tempdir().unwrap();
        tree.write(folder.path());
        fs::write(folder.path().join("devices"), "").unwrap();
        Self { folder }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Makes a file look like /dev/null to programs: a device file that opens.
    fn opens_as_null(&self, file: &str) {
        fs::write(self.path("devices"), file).unwrap();
    }

    /// Runs a program that sees this machine's `/sys` and `/dev`.
    fn run(&self, stdin: impl Into<Stdio>, words: &[impl AsRef<OsStr>]) -> Output {
        // Mounting over the machine's own folders needs a mount namespace; without root, also a user namespace.
        let kind = if is_root() { "-m" } else { "-Urm" };
        let script = "for file in $(cat \"$0/devices\"); do mount --bind /dev/null \"$0/$file\" || exit 1; done && \
                      mount --bind \"$0/sys\" /sys && mount --rbind \"$0/dev\" /dev && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args([kind, "sh", "-c", script])
            .arg(self.folder.path())
            .args(words)
            .stdin(stdin);
        let output = command.output().unwrap();
        // If unshare or mount fail, they write to stderr and the program has not run.
        let errors = str::from_utf8(&output.stderr).unwrap();
        assert!(
            !errors.starts_with("unshare:") && !errors.starts_with("mount:"),
            "{errors}"
        );
        output
    }
}

/// Builds a library from a C file of these tests, in a folder.
fn built(source: &str, library: &str, options: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(source);
    let status = Command::new("cc")
        .args(["-shared", "-fPIC"])
        .args(options)
        .arg(&source)
        .arg("-o")
        .arg(folder.path().join(library))
        .status()
        .unwrap();
    assert!(status.success(), "cc {}: {status}", source.display());
    folder
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap().trim_end()
}

/// Returns the tree of packages that `cargo xtask trees` unpacked from another Debian suite.
fn debian(suite: &str) -> PathBuf {
    let target = target_profile();
    let tree = target
        .parent()
        .unwrap_or(Path::new("/"))
        .join("debian")
        .join(suite);
    let loader = tree.join("usr/lib64/ld-linux-x86-64.so.2");
    assert!(
        loader.is_file(),
        "{} is not there; run: cargo xtask trees",
        loader.display()
    );
    tree
}

/// Returns the words that run a program with the libraries of such a tree.
fn under(tree: &Path) -> Vec<String> {
    let loader = tree.join("usr/lib64/ld-linux-x86-64.so.2");
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    [&loader, Path::new("--library-path"), &libraries]
        .map(|word| word.display().to_string())
        .into()
}
