//! Provider libraries made from provider.c, with or without a fault.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Path of the stock provider in Debian's ibacm.
pub fn stock() -> PathBuf {
    let multiarch = std::fs::read_dir("/usr/lib").unwrap().flatten();
    multiarch
        .map(|folder| folder.path().join("ibacm/libibacmp.so"))
        .find(|library| library.is_file())
        .expect("the stock provider libibacmp.so of the package ibacm")
}

/// A library built for one test.
pub struct Built {
    folder: TempDir,
    name: String,
}

impl Built {
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

/// The provider with these macros defined: `NAME` or `NAME=VALUE`.
pub fn build(macros: &[&str]) -> Built {
    compile(
        Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/daemon/provider.c"
        )),
        macros,
    )
}

/// A provider without a fault.
pub fn good() -> Built {
    build(&[])
}

/// A shared library from a C file.
pub fn compile(source: &Path, macros: &[&str]) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{}.so", source.file_stem().unwrap().display());
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wno-unused", "-o"])
        .arg(folder.path().join(&name))
        .args(macros.iter().map(|name| format!("-D{name}")))
        .arg(source)
        .output()
        .expect("the C compiler cc");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cc {}: {errors}", source.display());
    Built { folder, name }
}
