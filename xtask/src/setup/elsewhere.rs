//! Systems without dpkg: xtask lists what is missing, and the user installs it.

use std::env;
use std::path::{Path, PathBuf};

use super::{File, Need};
use crate::error::Error;

pub fn check(needs: &[&Need]) -> Result<(), Error> {
    let mut programs: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default();
    // Daemons are there, and it may not be in PATH.
    programs.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let places = Places {
        programs,
        headers: vec!["/usr/include".into()],
        libraries: vec!["/usr/lib64".into(), "/usr/lib".into()],
    };
    let absent = places.absent(needs, &|path| path.is_file());
    if absent.is_empty() {
        return Ok(());
    }
    Err(Error::SetupNeeded(format!(
        "this system has no dpkg, so install these yourself (in brackets the Debian package that has it):\n{}",
        absent.join("\n")
    )))
}

struct Places {
    programs: Vec<PathBuf>,
    headers: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
}

impl Places {
    /// Returns a line for each file that `is_file` does not find.
    fn absent(&self, needs: &[&Need], is_file: &dyn Fn(&Path) -> bool) -> Vec<String> {
        let mut lines = vec![];
        for need in needs {
            for file in need.files {
                let (name, folders) = match file {
                    File::Program(name) => (name, &self.programs),
                    File::Header(name) => (name, &self.headers),
                    File::Library(name) => (name, &self.libraries),
                };
                if !folders.iter().any(|folder| is_file(&folder.join(name))) {
                    lines.push(format!("  {name} [{}]: {}", need.package, need.why));
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_files_are_listed_with_their_reasons() {
        let needs = [
            &Need {
                package: "ibacm",
                why: "the daemon",
                files: &[File::Program("ibacm"), File::Program("ib_acme")],
            },
            &Need {
                package: "dev",
                why: "a header",
                files: &[File::Header("a/b.h")],
            },
            &Need {
                package: "lib",
                why: "a library",
                files: &[File::Library("c.so")],
            },
        ];
        let places = Places {
            programs: vec!["/bin".into(), "/sbin".into()],
            headers: vec!["/include".into()],
            libraries: vec!["/lib64".into(), "/lib".into()],
        };
        let there = ["/sbin/ibacm", "/lib/c.so", "/bin/a/b.h"];
        let absent = places.absent(&needs, &|path| {
            there.iter().any(|file| path == Path::new(file))
        });
        assert_eq!(
            absent,
            ["  ib_acme [ibacm]: the daemon", "  a/b.h [dev]: a header"]
        );
    }
}
