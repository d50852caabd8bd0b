//! Programs that see a made-up `/sys` and `/dev`, in a mount namespace of their own.

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

/// An example of this crate, as built.
fn example(name: &str) -> PathBuf {
    let path = target_profile().join("examples").join(name);
    assert!(
        path.is_file(),
        "{} is not built: cargo build -p rdma-access --examples",
        path.display()
    );
    path
}

/// The folder of the build profile: this executable's lies one deeper.
fn target_profile() -> PathBuf {
    let executable = env::current_exe().unwrap();
    executable.ancestors().nth(2).unwrap().to_owned()
}

/// A made-up machine.
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

    /// Makes /dev/null of a file when a program runs: a device file that opens.
    fn opens_as_null(&self, file: &str) {
        fs::write(self.path("devices"), file).unwrap();
    }

    /// Runs a program that sees this machine's `/sys` and `/dev`.
    fn run(&self, stdin: impl Into<Stdio>, words: &[impl AsRef<OsStr>]) -> Output {
        // The machine's own folders can be bound over from a namespace alone; without root from a user namespace.
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
        // unshare and mount say what they cannot do on stderr, and the program has not run then.
        let errors = str::from_utf8(&output.stderr).unwrap();
        assert!(
            !errors.starts_with("unshare:") && !errors.starts_with("mount:"),
            "{errors}"
        );
        output
    }
}

/// A folder with a library built from a C file of these tests.
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

/// A tree of packages that `cargo xtask trees` has unpacked from another of Debian's suites.
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

/// Words that run a program with the libraries of such a tree.
fn under(tree: &Path) -> Vec<String> {
    let loader = tree.join("usr/lib64/ld-linux-x86-64.so.2");
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    [&loader, Path::new("--library-path"), &libraries]
        .map(|word| word.display().to_string())
        .into()
}
