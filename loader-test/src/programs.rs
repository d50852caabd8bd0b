//! The programs and libraries that a run needs: the distribution's, and the parts of this workspace.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The paths of all programs and libraries of a run.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The fabric simulator, ibsim(1).
    pub ibsim: PathBuf,
    /// The subnet manager, opensm(8).
    pub opensm: PathBuf,
    /// The daemon, ibacm(1).
    pub ibacm: PathBuf,
    /// The daemon's stock client, ib_acme(1).
    pub ib_acme: PathBuf,
    /// ibsim's preload, which simulates libibumad's device files.
    pub umad2sim: PathBuf,
    /// This workspace's preload, which simulates libibverbs.
    pub fabric_sim: PathBuf,
    /// The executable of this crate, which starts the others and queries the SA.
    pub loader_test: PathBuf,
}

/// Debian's packages, and the required file of each.
const PROGRAMS: [(&str, &str); 4] = [
    ("ibsim", "ibsim-utils"),
    ("opensm", "opensm"),
    ("ibacm", "ibacm"),
    ("ib_acme", "ibacm"),
];
const UMAD2SIM: (&str, &str) = ("libumad2sim.so", "libumad2sim0");

impl Programs {
    /// Finds all files. Uses `fabric_sim` if given; otherwise expects the library beside the running executable.
    ///
    /// # Errors
    /// [`Error::MissingPackages`] names all missing packages; [`Error::NotBuilt`] names a missing part of this workspace.
    pub fn find(fabric_sim: Option<&Path>) -> Result<Self> {
        let mut missing = Vec::new();
        let mut packages = Vec::new();
        let mut found = Vec::new();
        let mut want = |path: Option<PathBuf>, (name, package): (&str, &'static str)| {
            if path.is_none() {
                missing.push(name.to_owned());
                if !packages.contains(&package) {
                    packages.push(package);
                }
            }
            found.push(path.unwrap_or_default());
        };
        for program in PROGRAMS {
            want(on_path(program.0), program);
        }
        want(umad2sim(), UMAD2SIM);
        if !missing.is_empty() {
            return Err(Error::MissingPackages { missing, packages });
        }
        let [ibsim, opensm, ibacm, ib_acme, umad2sim] =
            <[PathBuf; 5]>::try_from(found).expect("one path a wanted file");

        let fabric_sim = match fabric_sim {
            Some(path) if path.is_file() => path.to_owned(),
            Some(path) => return Err(Error::Input(format!("{} is not a file", path.display()))),
            None => beside_executable("libfabric_sim.so", "cargo build -p fabric-sim")?,
        };
        Ok(Self {
            ibsim,
            opensm,
            ibacm,
            ib_acme,
            umad2sim,
            fabric_sim: absolute(&fabric_sim)?,
            loader_test: beside_executable("loader-test", "cargo build -p loader-test")?,
        })
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    // Daemons live in sbin, which the PATH of an ordinary user lacks.
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(sbin)
        .map(|folder| folder.join(name))
        .find(|file| file.is_absolute() && file.is_file())
}

fn umad2sim() -> Option<PathBuf> {
    // One folder for each architecture of Debian, none elsewhere.
    let multiarch = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    ["/usr/lib64", "/usr/lib", "/usr/local/lib"]
        .map(PathBuf::from)
        .into_iter()
        .chain(multiarch.map(|entry| entry.path()))
        .map(|folder| folder.join("umad2sim/libumad2sim.so"))
        .find(|file| file.is_file())
}

/// Returns a file of cargo's target folder. Executables of tests and examples are one folder deeper than programs.
fn beside_executable(name: &str, command: &'static str) -> Result<PathBuf> {
    let executable = env::current_exe().map_err(|source| Error::Io {
        operation: "find the running executable".to_owned(),
        source,
    })?;
    let mut folder = executable.parent().unwrap_or(Path::new("/"));
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder = folder.parent().unwrap_or(folder);
    }
    let path = folder.join(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(Error::NotBuilt { path, command })
    }
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::Io {
        operation: format!("make {} absolute", path.display()),
        source,
    })
}
