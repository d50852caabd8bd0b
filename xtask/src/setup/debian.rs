//! Debian and its derivatives: dpkg-query finds what is missing, apt-get installs it.

use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::process::{Command, Stdio};

use super::Need;
use crate::error::Error;
use crate::shown;

/// Returns the needs whose packages are not usable; `None` on a system without dpkg.
pub fn missing(needs: &[&'static Need]) -> Result<Option<Vec<&'static Need>>, Error> {
    let names: Vec<&str> = needs.iter().map(|need| need.package).collect();
    let Some(installed) = query(&names)? else {
        return Ok(None);
    };
    let absent = |need: &&&Need| !installed.iter().any(|package| package.name == need.package);
    Ok(Some(needs.iter().filter(absent).copied().collect()))
}

pub fn versions(names: &[&str]) -> Result<Vec<(String, String)>, Error> {
    let installed = query(names)?.unwrap_or_default();
    Ok(installed
        .into_iter()
        .map(|package| (package.name, package.version))
        .collect())
}

pub fn install(missing: &[&'static Need]) -> Result<(), Error> {
    println!("missing Debian packages:");
    for need in missing {
        println!("  {}: {}", need.package, need.why);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let prefix = match plan(&Machine::look(), &packages) {
        Plan::Install { prefix } => prefix,
        Plan::Ask(message) => return Err(Error::SetupNeeded(message)),
    };
    // A stale or unreachable extra source must not prevent installing from the others.
    if let Err(error) = run(prefix, &["apt-get", "update"]) {
        eprintln!("xtask: {error}; trying to install with the present package lists");
    }
    run(prefix, &install_words(&packages))?;

    let names: Vec<&'static str> = missing.iter().map(|need| need.package).collect();
    let installed = query(&names)?.unwrap_or_default();
    let still: Vec<&'static str> = names
        .into_iter()
        .filter(|name| !installed.iter().any(|package| package.name == *name))
        .collect();
    if still.is_empty() {
        Ok(())
    } else {
        Err(Error::StillMissing { packages: still })
    }
}

/// Runs a command of apt, which must never prompt.
fn run(prefix: &[&str], words: &[&str]) -> Result<(), Error> {
    let mut words = prefix
        .iter()
        .chain(["env", "DEBIAN_FRONTEND=noninteractive"].iter())
        .chain(words);
    let mut command = Command::new(words.next().copied().unwrap_or_default());
    command.args(words).stdin(Stdio::null());
    let name = shown(&command);
    println!("$ {name}");
    let status = command.status().map_err(|source| Error::Spawn {
        command: name.clone(),
        source,
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed {
            command: name,
            status,
        })
    }
}

fn install_words<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["apt-get", "install", "--yes", "--no-install-recommends"];
    words.extend(packages);
    // The machine may be updating itself at the moment.
    words.extend(["-o", "DPkg::Lock::Timeout=300"]);
    words
}

/// Facts that decide whether and how to install packages.
struct Machine {
    root: bool,
    sudo: Sudo,
    /// There is a terminal, so a user can type a password.
    terminal: bool,
    /// The kernel has InfiniBand devices that a subnet manager could manage.
    infiniband: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Sudo {
    Absent,
    AsksPassword,
    Free,
}

impl Machine {
    fn look() -> Self {
        let root = rustix::process::geteuid().is_root();
        Self {
            root,
            sudo: if root { Sudo::Absent } else { Sudo::look() },
            terminal: std::io::stdin().is_terminal(),
            // Debian's opensm.service checks for the same file.
            infiniband: Path::new("/sys/class/infiniband_mad/abi_version").exists(),
        }
    }
}

impl Sudo {
    fn look() -> Self {
        let mut question = Command::new("sudo");
        question
            .args(["-n", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        match question.stderr(Stdio::null()).status() {
            Ok(status) if status.success() => Self::Free,
            Ok(_) => Self::AsksPassword,
            Err(_) => Self::Absent,
        }
    }
}

#[derive(Debug, PartialEq)]
enum Plan {
    /// Run apt-get after `prefix`.
    Install { prefix: &'static [&'static str] },
    /// Leave it to the user, with this message.
    Ask(String),
}

fn plan(machine: &Machine, packages: &[&str]) -> Plan {
    if machine.infiniband && packages.contains(&"opensm") {
        return Plan::Ask(format!(
            "this machine has InfiniBand ports, and Debian's opensm package starts a subnet manager on them when \
             it is installed. If the fabric must not have another one, run this:\n  {}",
            by_hand(machine, packages, Some("systemctl mask opensm.service"))
        ));
    }
    let prefix: &[&str] = match (machine.root, machine.sudo) {
        (true, _) => &[],
        (false, Sudo::Free) => &["sudo", "-n"],
        (false, Sudo::AsksPassword) if machine.terminal => &["sudo"],
        (false, _) => {
            return Plan::Ask(format!(
                "only root can install packages; run this, then try again:\n  {}",
                by_hand(machine, packages, None)
            ));
        }
    };
    Plan::Install { prefix }
}

/// Returns the command line for the user.
fn by_hand(machine: &Machine, packages: &[&str], before: Option<&str>) -> String {
    let install = format!(
        "apt-get install --yes --no-install-recommends {}",
        packages.join(" ")
    );
    let steps: Vec<&str> = before
        .into_iter()
        .chain(["apt-get update", &install])
        .collect();
    let line = steps.join(" && ");
    match (machine.root, machine.sudo) {
        (true, _) => line,
        (false, Sudo::Absent) => format!("su -c '{line}'"),
        (false, _) => format!("sudo sh -c '{line}'"),
    }
}

#[derive(Debug, PartialEq)]
struct Package {
    name: String,
    version: String,
}

/// Returns the usable packages among `names`; `None` on a system without dpkg.
fn query(names: &[&str]) -> Result<Option<Vec<Package>>, Error> {
    let format = "${Package}\t${Architecture}\t${Version}\t${Status}\n";
    let mut list = Command::new("dpkg-query");
    list.args(["--show", "--showformat", format, "--"])
        .args(names);
    let Some(list) = output(&mut list)? else {
        return Ok(None);
    };
    let mut native = Command::new("dpkg");
    let Some(native) = output(native.arg("--print-architecture"))? else {
        return Ok(None);
    };
    Ok(Some(usable(&list, native.trim())))
}

/// Runs `command`; returns its output, or `None` if there is no such program.
fn output(command: &mut Command) -> Result<Option<String>, Error> {
    let name = shown(command);
    let output = match command.env("LC_ALL", "C").stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(Error::Spawn {
                command: name,
                source,
            });
        }
    };
    // dpkg-query exits with 1 if a package is unknown, and still lists the others.
    if !matches!(output.status.code(), Some(0 | 1)) {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::FailedSaying {
            command: name,
            status: output.status,
            output: stderr,
        });
    }
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Parses lines of `name architecture version status`, separated by tabs, and returns the usable packages of
/// this architecture. The status is three words, see dpkg-query(1): wish, error flag, state.
fn usable(list: &str, native: &str) -> Vec<Package> {
    let package = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[name, architecture, version, status] = fields.as_slice() else {
            return None;
        };
        let works = match status.split(' ').collect::<Vec<_>>().as_slice() {
            [_, "ok", state] => matches!(
                *state,
                "installed" | "triggers-awaited" | "triggers-pending"
            ),
            _ => false,
        };
        (works && [native, "all"].contains(&architecture)).then(|| Package {
            name: name.to_owned(),
            version: version.to_owned(),
        })
    };
    list.lines().filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        usable(list, "amd64")
            .into_iter()
            .map(|package| package.name)
            .collect()
    }

    #[test]
    fn installed_packages_are_found_with_their_version() {
        let list = "ibacm\tamd64\t44.0-2\tinstall ok installed\ngcc\tamd64\t4:12.2.0-3\thold ok installed\n";
        let expected = [("ibacm", "44.0-2"), ("gcc", "4:12.2.0-3")];
        let expected = expected.map(|(name, version)| Package {
            name: name.into(),
            version: version.into(),
        });
        assert_eq!(usable(list, "amd64"), expected);
    }

    #[test]
    fn half_installed_removed_and_broken_packages_are_missing() {
        for status in [
            "install ok half-installed",
            "install ok half-configured",
            "install ok unpacked",
            "install ok config-files",
            "deinstall ok config-files",
            "unknown ok not-installed",
            "install reinstreq installed",
            "install reinstreq half-installed",
            "installed",
            "",
        ] {
            let list =
                format!("ibacm\tamd64\t44.0-2\t{status}\nopensm\tamd64\t3\tinstall ok installed\n");
            assert_eq!(names(&list), ["opensm"], "{status:?}");
        }
    }

    #[test]
    fn a_package_whose_triggers_are_due_works() {
        assert_eq!(
            names(
                "a\tamd64\t1\tinstall ok triggers-pending\nb\tall\t1\tinstall ok triggers-awaited"
            ),
            ["a", "b"]
        );
    }

    #[test]
    fn a_foreign_architecture_is_no_help() {
        let list = "libibverbs-dev\ti386\t44\tinstall ok installed\n";
        assert_eq!(names(list), [""; 0]);
        let both = format!("{list}libibverbs-dev\tamd64\t44\tinstall ok installed\n");
        assert_eq!(names(&both), ["libibverbs-dev"]);
    }

    #[test]
    fn unreadable_lines_are_no_packages() {
        for list in [
            "",
            "\n",
            "ibacm",
            "ibacm\tamd64\t44.0-2",
            "a\tb\tc\td\te",
            "\t\t\t\t",
        ] {
            assert_eq!(names(list), [""; 0], "{list:?}");
        }
    }

    const USER: Machine = Machine {
        root: false,
        sudo: Sudo::Absent,
        terminal: true,
        infiniband: false,
    };

    fn message(plan: Plan) -> String {
        match plan {
            Plan::Ask(message) => message,
            Plan::Install { prefix } => panic!("would install behind {prefix:?}"),
        }
    }

    #[test]
    fn root_installs_without_sudo() {
        let machine = Machine { root: true, ..USER };
        assert_eq!(plan(&machine, &["ibacm"]), Plan::Install { prefix: &[] });
    }

    #[test]
    fn sudo_is_used_as_far_as_it_can_answer() {
        let free = Machine {
            sudo: Sudo::Free,
            terminal: false,
            ..USER
        };
        assert_eq!(
            plan(&free, &["ibacm"]),
            Plan::Install {
                prefix: &["sudo", "-n"]
            }
        );
        let asks = Machine {
            sudo: Sudo::AsksPassword,
            ..USER
        };
        assert_eq!(plan(&asks, &["ibacm"]), Plan::Install { prefix: &["sudo"] });
        let nobody = Machine {
            terminal: false,
            ..asks
        };
        let text = message(plan(&nobody, &["ibacm", "opensm"]));
        assert!(
            text.contains("sudo sh -c 'apt-get update && apt-get "),
            "{text}"
        );
        assert!(
            text.contains("--no-install-recommends ibacm opensm'"),
            "{text}"
        );
    }

    #[test]
    fn without_sudo_the_line_is_for_su() {
        let text = message(plan(&USER, &["ibacm"]));
        assert!(text.contains("su -c 'apt-get update && apt-get "), "{text}");
    }

    #[test]
    fn no_subnet_manager_is_started_on_a_real_fabric() {
        let machine = Machine {
            root: true,
            infiniband: true,
            ..USER
        };
        let text = message(plan(&machine, &["ibacm", "opensm"]));
        assert!(
            text.contains("\n  systemctl mask opensm.service && apt-get update && "),
            "{text}"
        );
        assert_eq!(plan(&machine, &["ibacm"]), Plan::Install { prefix: &[] });
    }

    #[test]
    fn dpkg_itself_is_understood() {
        let Some(installed) = query(&["dpkg", "no-such-package-at-all"]).unwrap() else {
            // Without dpkg, none of them is found.
            assert!(missing(&[&super::super::COMPILER[0]]).unwrap().is_none());
            return;
        };
        assert_eq!(installed.len(), 1);
        assert_eq!(installed[0].name, "dpkg");
        assert!(!installed[0].version.is_empty());
    }
}
