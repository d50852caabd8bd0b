//! Checks of the library's file, without running its code.

use std::os::unix::ffi::OsStrExt as _;

use crate::elf::SharedObject;
use crate::stand_in::FUNCTIONS;
use crate::stand_in::library::Library;
use crate::suite::fixture::{Fixture, not_loaded};
use crate::suite::{Finding, Outcome, failed};

pub(super) fn name(fixture: &mut Fixture) -> Outcome {
    let name = fixture.library().file_name().unwrap_or_default();
    if name.as_bytes().ends_with(b".so") {
        return Ok(());
    }
    Err(failed("a name that ends in .so", format!("{name:?}")))
}

pub(super) fn is_regular(fixture: &mut Fixture) -> Outcome {
    let metadata = fixture.library().symlink_metadata();
    match metadata.map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_file() => Ok(()),
        Ok(kind) if kind.is_symlink() => Err(failed("a regular file", "a symbolic link")),
        Ok(kind) if kind.is_dir() => Err(failed("a regular file", "a directory")),
        Ok(_) => Err(failed("a regular file", "a special file")),
        Err(error) => Err(failed("a regular file", error.to_string())),
    }
}

fn read(fixture: &Fixture) -> Result<SharedObject, Finding> {
    SharedObject::read(fixture.library())
        .map_err(|error| failed("a shared object for this machine", error.to_string()))
}

pub(super) fn exports(fixture: &mut Fixture) -> Outcome {
    let object = read(fixture)?;
    let query = object
        .exports
        .iter()
        .find(|symbol| symbol.name == "provider_query");
    match query {
        None => return Err(failed("an exported provider_query", "none")),
        Some(symbol) if !symbol.function => {
            return Err(failed("a function provider_query", "a variable"));
        }
        Some(_) => {}
    }
    // Harmless if the core's symbols come first, as in the daemon.
    let foreign: Vec<&str> = object
        .exports
        .iter()
        .map(|symbol| symbol.name.as_str())
        .filter(|name| {
            ["acm_", "ib_", "ibv_", "umad_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .collect();
    match foreign.first() {
        None => Ok(()),
        Some(first) => Err(Finding::Warned(format!(
            "the library exports {} names of the core or its libraries, such as {first}",
            foreign.len()
        ))),
    }
}

pub(super) fn imports(fixture: &mut Fixture) -> Outcome {
    let missing: Vec<String> = read(fixture)?
        .imports
        .into_iter()
        .filter(|symbol| !symbol.weak && symbol.name.starts_with("acm_"))
        .map(|symbol| symbol.name)
        .filter(|name| {
            !FUNCTIONS
                .iter()
                .any(|known| known.to_bytes() == name.as_bytes())
        })
        .collect();
    if !missing.is_empty() {
        return Err(failed(
            "only functions that the core has",
            missing.join(", "),
        ));
    }
    fixture.install_core()?;
    Library::open_now(fixture.library())
        .map(drop)
        .map_err(not_loaded)
}
