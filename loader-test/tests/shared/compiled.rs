//! Compiles C code for tests into cargo's folder for tests, named by its contents, so that several test processes share a file
//! and none reads half of it or removes it under another.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

/// The library or program that `cc` makes with these arguments from `source`; `{source}` stands for its file. The file's name
/// begins with `name` and ends with `end`.
pub fn compiled(name: &str, end: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (source, arguments).hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    let built = folder.join(format!("{name}-{:016x}{end}", hasher.finish()));
    if built.exists() {
        return built;
    }
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let draft = draft(&built);
    let file = draft.with_extension("c");
    fs::write(&file, source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let file_name = file.to_str().expect("a path in UTF-8");
    let output = Command::new("cc")
        .args(arguments.iter().map(|argument| match *argument {
            "{source}" => file_name,
            other => other,
        }))
        .arg("-o")
        .arg(&draft)
        .output()
        .expect("the C compiler cc; as root: apt-get install gcc");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{name} does not compile:\n{errors}"
    );
    let _ = fs::remove_file(&file);
    // Atomically: another test may use the same file.
    fs::rename(&draft, &built).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    built
}

/// Returns an unused name beside `file`.
pub fn draft(file: &Path) -> PathBuf {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    file.with_extension(format!("{}-{serial}.draft", process::id()))
}
