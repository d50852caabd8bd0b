//! The threads of this process, by name and state.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Returns every thread, by id.
pub fn threads() -> BTreeMap<String, String> {
    fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().into_string().ok()?;
            let told = describe(&entry.path())?;
            Some((id, told))
        })
        .collect()
}

/// Describes the threads that are not in `before`.
pub fn newer_than(before: &BTreeMap<String, String>) -> Vec<String> {
    let mut now = threads();
    now.retain(|id, _| !before.contains_key(id));
    now.into_iter()
        .map(|(id, told)| format!("thread {id}, {told}"))
        .collect()
}

/// Describes a thread; `None` if it has ended.
fn describe(folder: &Path) -> Option<String> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let name = read("comm")?;
    let stat = read("stat")?;
    // The name, in parentheses, may contain any byte.
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    let doing = match state {
        'R' => "running",
        'S' | 'D' => "sleeping",
        'Z' | 'X' => "ending",
        _ => "stopped",
    };
    // Only root can read the place in the kernel.
    let place = read("wchan").filter(|place| !place.is_empty() && place != "0");
    let place = place
        .map(|place| format!(" in {place}"))
        .unwrap_or_default();
    Some(format!("named {:?}, {doing}{place}", name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_told_by_its_name_while_it_lives() {
        let before = threads();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("a worker".into())
            .spawn(move || stopped.recv())
            .unwrap();
        let is_there = || {
            newer_than(&before)
                .iter()
                .any(|told| told.contains("\"a worker\""))
        };
        // A thread sets its own name, possibly later.
        while !is_there() {
            std::thread::yield_now();
        }
        drop(stop);
        let _ = thread.join();
        while is_there() {
            std::thread::yield_now();
        }
    }
}
