//! Installs the programs and headers that the workspace needs to build and test.

mod debian;
mod elsewhere;

use crate::error::Error;

/// A requirement of the workspace.
#[derive(Clone, Copy)]
struct Need {
    /// The Debian package that contains it.
    package: &'static str,
    why: &'static str,
    /// The files that are used: programs, headers or libraries.
    files: &'static [File],
}

#[derive(Clone, Copy)]
enum File {
    Program(&'static str),
    Header(&'static str),
    Library(&'static str),
}

use File::{Header, Library, Program};

/// The compiler and linker for Rust and the C shims.
const COMPILER: &[Need] = &[
    Need {
        package: "gcc",
        why: "links, and compiles the C shims",
        files: &[Program("cc")],
    },
    Need {
        package: "libc6-dev",
        why: "C library headers and start files",
        files: &[Header("stdio.h")],
    },
];

/// What building ibverbs-sys needs.
const VERBS: &[Need] = &[
    Need {
        package: "libibverbs-dev",
        why: "verbs.h, and the library to link with",
        files: &[Header("infiniband/verbs.h"), Header("infiniband/sa.h")],
    },
    Need {
        package: "cmake",
        why: "ibverbs-sys configures the verbs headers that it reads",
        files: &[Program("cmake")],
    },
    Need {
        package: "make",
        why: "cmake needs it",
        files: &[Program("make")],
    },
    Need {
        package: "pkgconf",
        why: "ibverbs-sys looks for libnl with it",
        files: &[Program("pkg-config")],
    },
    Need {
        package: "python3-minimal",
        why: "the build of ibverbs-sys checks for it",
        files: &[Program("python3")],
    },
    Need {
        package: "libclang-dev",
        why: "ibverbs-sys reads the verbs headers with it",
        files: &[Library("libclang.so")],
    },
];

/// The simulated fabric and the daemon on it.
const FABRIC: &[Need] = &[
    Need {
        package: "ibacm",
        why: "the daemon, ib_acme, and the header of the provider interface",
        files: &[
            Program("ibacm"),
            Program("ib_acme"),
            Header("infiniband/acm_prov.h"),
        ],
    },
    Need {
        package: "ibsim-utils",
        why: "ibsim, the simulated fabric",
        files: &[Program("ibsim")],
    },
    Need {
        package: "libumad2sim0",
        why: "gives a process a port of the simulated fabric",
        files: &[Library("umad2sim/libumad2sim.so")],
    },
    Need {
        package: "opensm",
        why: "the subnet manager and administrator that answers path queries",
        files: &[Program("opensm")],
    },
];

/// What tests compare with or examine with.
const COMPARED: &[Need] = &[
    Need {
        package: "g++",
        why: "compiles the C++ side of the header's tests",
        files: &[Program("g++")],
    },
    Need {
        package: "valgrind",
        why: "checks the memory use of the example providers",
        files: &[Program("valgrind")],
    },
    Need {
        package: "libibumad-dev",
        why: "umad.h and umad_sa.h, which the interface's header includes",
        files: &[Header("infiniband/umad.h"), Header("infiniband/umad_sa.h")],
    },
    Need {
        package: "librdmacm-dev",
        why: "rdma_cma.h, whose structures a test compares",
        files: &[Header("rdma/rdma_cma.h")],
    },
    Need {
        package: "infiniband-diags",
        why: "smpquery, whose answers a test compares",
        files: &[Program("smpquery")],
    },
];

/// What the virtual machine needs.
const MACHINE: &[Need] = &[Need {
    package: "qemu-system-x86",
    why: "runs the virtual machine of the tests that need a kernel with RDMA devices",
    files: &[Program("qemu-system-x86_64")],
}];

/// Installs what is missing. If only the user can install it, fails with the command line to run.
pub fn ensure() -> Result<(), Error> {
    bring(&[COMPILER, VERBS, FABRIC, COMPARED, MACHINE])
}

/// Like [`ensure`], for the demonstration.
pub fn ensure_for_demo() -> Result<(), Error> {
    bring(&[COMPILER, FABRIC])
}

/// Like [`ensure`], for the build; without `with_verbs`, leaves out what ibverbs-sys needs.
pub fn ensure_for_build(with_verbs: bool) -> Result<(), Error> {
    match with_verbs {
        true => bring(&[COMPILER, VERBS]),
        false => bring(&[COMPILER]),
    }
}

/// Like [`ensure`], for the tests with the distribution's programs.
pub fn ensure_for_daemon() -> Result<(), Error> {
    bring(&[COMPILER, FABRIC, COMPARED])
}

fn bring(groups: &[&'static [Need]]) -> Result<(), Error> {
    let needs: Vec<&'static Need> = groups.iter().copied().flatten().collect();
    match debian::missing(&needs)? {
        Some(missing) if missing.is_empty() => Ok(()),
        Some(missing) => debian::install(&missing),
        None => elsewhere::check(&needs),
    }
}

/// Returns name and version of each installed Debian package of `names`; empty without dpkg.
pub fn versions(names: &[&str]) -> Result<Vec<(String, String)>, Error> {
    debian::versions(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_needed_once_and_for_a_file() {
        let needs = [COMPILER, VERBS, FABRIC, COMPARED, MACHINE].concat();
        let packages: std::collections::BTreeSet<&str> =
            needs.iter().map(|need| need.package).collect();
        assert_eq!(packages.len(), needs.len());
        assert!(
            needs
                .iter()
                .all(|need| !need.files.is_empty() && !need.why.is_empty())
        );
    }
}
