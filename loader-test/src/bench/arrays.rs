//! The built-in providers for comparison: the limit, and one without any lookup.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stand_in::bare::{FIRST_GUID, GUIDS, LIDS};

const SOURCE: &str = include_str!("array.c");
const HEADER: &str = include_str!("../../../include/acm_prov_abi.h");

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Array {
    /// Answers by array index.
    Limit,
    /// Computes the answer from the request's number.
    Nothing,
}

/// Builds the provider in `folder`.
///
/// # Errors
/// If there is no C compiler, or it fails.
pub fn build(array: Array, folder: &Path) -> io::Result<PathBuf> {
    let name = match array {
        Array::Limit => "limit",
        Array::Nothing => "nothing",
    };
    let (source, library) = (folder.join("array.c"), folder.join(format!("lib{name}.so")));
    fs::write(&source, SOURCE)?;
    fs::write(folder.join("acm_prov_abi.h"), HEADER)?;
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Werror"])
        .arg(format!("-DFIRST_GUID={FIRST_GUID:#x}ull"))
        .arg(format!("-DGUIDS={GUIDS}u"))
        .arg(format!("-DLIDS={LIDS}u"))
        .arg(&source)
        .arg("-o")
        .arg(&library);
    if array == Array::Nothing {
        command.arg("-DNOTHING");
    }
    let output = command.output().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot run the C compiler cc for the provider limit: {error}; as root: apt-get install gcc libc6-dev"),
        )
    })?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!(
            "cc {}: {errors}",
            source.display()
        )));
    }
    Ok(library)
}
