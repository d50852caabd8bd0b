//! Packages of Debian's suites, unpacked into the target folder but not installed: a kernel, and other releases
//! of rdma-core to compare with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::Error;
use crate::heading;
use crate::shown;
use crate::supervise::{self, Budget};

/// Time limit for downloading some 90 MB.
const BUDGET: Duration = Duration::from_secs(600);

/// The packages to unpack from a suite.
struct Suite {
    name: &'static str,
    packages: &'static [&'static str],
    /// A package that depends on the packages of the newest kernel.
    kernel: Option<&'static str>,
}

const RDMA_CORE: &[&str] = &[
    "ibverbs-providers",
    "libc6",
    "libgcc-s1",
    "libibumad3",
    "libibverbs1",
    "libnl-3-200",
    "libnl-route-3-200",
    "librdmacm1t64",
];

const SUITES: &[Suite] = &[
    // For the virtual machine: its kernel, its tools with their libraries, and librpma to compare with.
    Suite {
        name: "bookworm",
        packages: &[
            "busybox-static",
            "iproute2",
            "libbpf1",
            "libbsd0",
            "libcap2",
            "libelf1",
            "libmd0",
            "libmnl0",
            "libprotobuf-c1",
            "librpma-dev",
            "librpma0",
            "libselinux1",
            "libtirpc3",
            "zlib1g",
        ],
        kernel: Some("linux-image-amd64"),
    },
    // rdma-core 56 and a later one, both with umad_open_smi_port.
    Suite {
        name: "trixie",
        packages: RDMA_CORE,
        kernel: None,
    },
    Suite {
        name: "sid",
        packages: RDMA_CORE,
        kernel: None,
    },
];

/// Returns the folder of the trees: `debian` in cargo's target folder.
pub fn folder() -> Result<PathBuf, Error> {
    Ok(target()?.join("debian"))
}

/// Returns cargo's target folder, two levels above this executable.
pub fn target() -> Result<PathBuf, Error> {
    let executable = std::env::current_exe().map_err(|source| Error::System {
        operation: "find the running executable",
        source,
    })?;
    Ok(executable
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("/"))
        .to_owned())
}

/// Unpacks missing trees.
pub fn ensure() -> Result<(), Error> {
    let folder = folder()?;
    let budget = Budget::start(BUDGET);
    for suite in SUITES {
        suite.ensure(&folder, budget)?;
    }
    Ok(())
}

impl Suite {
    /// Returns what a complete tree was made from.
    fn recipe(&self) -> String {
        let kernel = self.kernel.into_iter();
        let words: Vec<&str> = self.packages.iter().copied().chain(kernel).collect();
        words.join(" ")
    }

    fn ensure(&self, folder: &Path, budget: Budget) -> Result<(), Error> {
        let tree = folder.join(self.name);
        let stamp = folder.join(format!("{}.stamp", self.name));
        if tree.is_dir() && fs::read_to_string(&stamp).is_ok_and(|text| text == self.recipe()) {
            return Ok(());
        }
        heading(&format!("packages of Debian's suite {}", self.name));
        let apt = Apt::prepare(folder, self.name)?;
        supervise::run(&mut apt.command("apt-get", &["update"]), budget)?;
        let mut packages: Vec<String> = self.packages.iter().map(ToString::to_string).collect();
        if let Some(kernel) = self.kernel {
            packages.push(apt.dependency(kernel)?);
        }
        let words: Vec<&str> = packages.iter().map(String::as_str).collect();
        let mut download = apt.command("apt-get", &["download"]);
        supervise::run(download.args(words).current_dir(&apt.archives), budget)?;
        // A tree gets its final name only when it is complete.
        let new = folder.join(format!("{}.new", self.name));
        let _ = fs::remove_dir_all(&new);
        create(&new)?;
        for archive in entries(&apt.archives)? {
            supervise::run(
                Command::new("dpkg").arg("-x").arg(archive).arg(&new),
                budget,
            )?;
        }
        let _ = fs::remove_dir_all(&tree);
        fs::rename(&new, &tree).map_err(|source| Error::System {
            operation: "name an unpacked tree",
            source,
        })?;
        write(&stamp, &self.recipe())?;
        // The archives are no longer needed.
        let _ = fs::remove_dir_all(&apt.folder);
        Ok(())
    }
}

/// An apt with its own sources and lists, independent of what is installed.
struct Apt {
    folder: PathBuf,
    archives: PathBuf,
}

impl Apt {
    fn prepare(folder: &Path, suite: &str) -> Result<Self, Error> {
        let folder = folder.join(format!("{suite}.apt"));
        let archives = folder.join("archives");
        let _ = fs::remove_dir_all(&folder);
        create(&archives.join("partial"))?;
        create(&folder.join("lists/partial"))?;
        write(&folder.join("status"), "")?;
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let signed = if Path::new(keyring).is_file() {
            format!("[signed-by={keyring}] ")
        } else {
            String::new()
        };
        let line = format!("deb {signed}{} {suite} main\n", mirror()?);
        write(&folder.join("sources.list"), &line)?;
        Ok(Self { folder, archives })
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (option, file) in [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::Etc::sourceparts", "none"),
            ("Dir::State::lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "."),
            ("Dir::Cache::archives", "archives"),
        ] {
            let path = self.folder.join(file);
            command
                .arg("-o")
                .arg(format!("{option}={}", path.display()));
        }
        command
            .args(["-q", "-o", "APT::Sandbox::User=root"])
            .args(["-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3"])
            .args(words)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// Returns the first dependency of a package.
    fn dependency(&self, package: &str) -> Result<String, Error> {
        let mut command = self.command("apt-cache", &["depends", package]);
        let text = output(&mut command)?;
        let dependency = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: "));
        dependency
            .map(str::to_owned)
            .ok_or_else(|| Error::Unexpected {
                command: shown(&command),
                output: text.clone(),
            })
    }
}

/// Returns the Debian mirror that the machine's own apt uses.
fn mirror() -> Result<String, Error> {
    let mut command = Command::new("apt-get");
    let format = "$(REPO_URI)\t$(LABEL)";
    command.args(["indextargets", "--format", format, "Created-By: Packages"]);
    let text = output(&mut command)?;
    let targets = || text.lines().filter_map(|line| line.split_once('\t'));
    targets()
        .find(|(_, label)| *label == "Debian")
        // The label is known once apt has the lists.
        .or_else(|| targets().find(|(uri, _)| uri.trim_end_matches('/').ends_with("/debian")))
        .map(|(uri, _)| uri.to_owned())
        .ok_or_else(|| Error::Unexpected {
            command: shown(&command),
            output: text.clone(),
        })
}

/// Runs a command; returns its standard output.
pub fn output(command: &mut Command) -> Result<String, Error> {
    let output = command.output().map_err(|source| Error::Spawn {
        command: shown(command),
        source,
    })?;
    if !output.status.success() {
        return Err(Error::FailedSaying {
            command: shown(command),
            status: output.status,
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the files of a folder, without subfolders.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(|source| Error::System {
        operation: "read a folder of packages",
        source,
    })?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_file()).collect())
}

pub fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|source| Error::File {
        operation: "make",
        path: folder.to_owned(),
        source,
    })
}

pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::File {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}
