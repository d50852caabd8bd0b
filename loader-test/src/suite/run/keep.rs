//! Keeps the traces and files of bad checks.

use std::io;
use std::path::{Path, PathBuf};

use super::plan::{Plan, Report};
use crate::stand_in::trace;

/// Where the trace of a check lies while it runs.
const TRACE: &str = "trace.json";

/// The file for a check's trace, if one is wanted.
pub(super) fn trace_of(plan: &Plan, folder: &Path) -> Option<PathBuf> {
    match &plan.traces {
        Some(_) => Some(folder.join(TRACE)),
        None => plan.trace.clone(),
    }
}

/// Keeps the requested files of an ended check with a bad result, and adds their paths to the report.
///
/// # Errors
/// If it cannot be kept.
pub(super) fn keep(plan: &Plan, folder: &Path, report: &mut Report) -> io::Result<()> {
    if !report.status.is_bad(plan.strict) {
        return Ok(());
    }
    let trace = folder.join(TRACE);
    // A check that calls nothing has none.
    if let Some(traces) = plan.traces.as_ref().filter(|_| trace.exists()) {
        let kept = traces.join(format!("{}.json", report.name));
        trace::close(&trace)?;
        std::fs::create_dir_all(traces).map_err(named(traces))?;
        std::fs::copy(&trace, &kept).map_err(named(&kept))?;
        report.trace = Some(kept);
    }
    if let Some(folders) = &plan.folders {
        let kept = folders.join(&report.name);
        if kept.exists() {
            std::fs::remove_dir_all(&kept).map_err(named(&kept))?;
        }
        copy_files(folder, &kept)?;
        report.folder = Some(kept);
    }
    Ok(())
}

fn named(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Copies the regular files of a folder and its subfolders, which may be on another file system.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to).map_err(named(to))?;
    for entry in std::fs::read_dir(from).map_err(named(from))? {
        let entry = entry.map_err(named(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(named(&source))?;
        if kind.is_dir() {
            copy_files(&source, &target)?;
        } else if kind.is_file() {
            std::fs::copy(&source, &target).map_err(named(&target))?;
        }
    }
    Ok(())
}
