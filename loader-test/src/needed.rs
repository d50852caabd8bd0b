//! Finds the libraries that a provider needs (DT_NEEDED), as the dynamic loader does, and copies those found by $ORIGIN: they
//! are beside the provider or in folders relative to it, and must be in the same places relative to its copy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::elf;
use crate::error::{Context, Error, Result};

/// The loader's output about a library.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needed {
    /// Direct and indirect dependencies, by name.
    found: BTreeMap<String, PathBuf>,
    missing: Vec<String>,
}

/// Copies the libraries that `library` finds by $ORIGIN to where its copy finds them, in `root` or below. `daemon` is the
/// program that will load the copy.
///
/// # Errors
/// [`Error::MissingLibraries`] if the loader does not find every library.
pub fn copy_needed(daemon: &Path, library: &Path, copy: &Path, root: &Path) -> Result<()> {
    // Only the GNU C library's loader has a list mode. Without it the daemon reports missing libraries.
    let loader = elf::loader_of(daemon).filter(|loader| {
        let name = loader.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ld-linux") || name.starts_with("ld64")
    });
    let Some(loader) = loader else {
        return Ok(());
    };
    let Some(needed) = ask(&loader, library)? else {
        // Not a library for this machine: the daemon reports it.
        return Ok(());
    };
    if !needed.missing.is_empty() {
        return Err(Error::MissingLibraries {
            library: library.to_owned(),
            missing: needed.missing,
        });
    }
    let (Some(origin), Some(new_origin)) = (library.parent(), copy.parent()) else {
        return Ok(());
    };
    // The dependencies of a copied library are known once the copy exists.
    loop {
        let seen = ask(&loader, copy)?.unwrap_or_default();
        let mut copied = false;
        for (name, path) in &needed.found {
            let Ok(relative) = path.strip_prefix(origin) else {
                continue;
            };
            let place = normal(&new_origin.join(relative));
            if seen.found.get(name) == Some(path) || place.exists() {
                continue;
            }
            if !place.starts_with(root) {
                let path = normal(path);
                let folder = path.parent().unwrap_or(&path);
                return Err(Error::Input(format!(
                    "{} finds {name} by $ORIGIN too far up to be copied with it; set LD_LIBRARY_PATH={}",
                    library.display(),
                    folder.display()
                )));
            }
            let operation = || format!("copy {} to {}", path.display(), place.display());
            if let Some(folder) = place.parent() {
                fs::create_dir_all(folder).context(operation)?;
            }
            fs::copy(path, &place).context(operation)?;
            copied = true;
        }
        if !copied {
            return Ok(());
        }
    }
}

/// Runs the loader in its list mode, which runs no code of the library; see ldd(1). `None` if it cannot load the library.
fn ask(loader: &Path, library: &Path) -> Result<Option<Needed>> {
    let operation = || format!("ask {} what {} needs", loader.display(), library.display());
    let output = Command::new(loader)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .arg(library)
        .stdin(Stdio::null())
        .output()
        .context(operation)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(output.status.success().then(|| parse(&text)))
}

/// `\tNAME => PATH (ADDRESS)`, or `\tNAME => not found`.
fn parse(text: &str) -> Needed {
    let mut needed = Needed::default();
    for line in text.lines() {
        let Some((name, place)) = line.trim().split_once(" => ") else {
            continue;
        };
        match place.rsplit_once(" (0x") {
            Some((path, _)) => {
                needed.found.insert(name.to_owned(), PathBuf::from(path));
            }
            None if !needed.missing.iter().any(|known| known == name) => {
                needed.missing.push(name.to_owned());
            }
            None => {}
        }
    }
    needed
}

/// Removes `.` and `..` from a path, without reading the file system.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibagent.so.1 => not found\n\
                    \tlibagent.so.1 => not found\n\
                    \tlib of mine.so => /opt/a b/../lib/lib of mine.so (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            parse(text),
            Needed {
                found: [(
                    "lib of mine.so".into(),
                    "/opt/a b/../lib/lib of mine.so".into()
                )]
                .into(),
                missing: vec!["libagent.so.1".into()],
            }
        );
        assert_eq!(parse("\tstatically linked\n"), Needed::default());
    }

    #[test]
    fn a_path_goes_up_and_down() {
        assert_eq!(
            normal(Path::new("/r/h/p/../lib/./x")),
            Path::new("/r/h/lib/x")
        );
        assert_eq!(normal(Path::new("/r/../../x")), Path::new("/x"));
    }
}
