//! The clients that ibacm has in the world, the kernel and librdmacm, against the real daemon with stock's provider and with
//! path-cache.

mod faults;
mod kernel;
mod librdmacm;

#[path = "../on_fabric/mod.rs"]
mod shared;

/// What the shared tests are about here: the stock provider.
mod subject {
    use loader_test::rig::{Builder, Rig};

    pub fn builder() -> Builder {
        Rig::builder(crate::stock()).fabric_sim(crate::built().join("libfabric_sim.so"))
    }

    pub const IS_STOCK: bool = true;

    /// The option that says whether service IDs and QoS classes count: it has none.
    pub const QOS_OPTION: &str = "no_such_option";
}

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use loader_test::ibacm::Host;
use loader_test::rig::{Builder, Rig};

/// The folder in which cargo puts libraries and programs, with this workspace's providers and fabric-sim's library of the present source
/// in it: cargo builds neither for a test.
fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args([
                "build",
                "--quiet",
                "-p",
                "provider-cache",
                "-p",
                "provider-default",
                "-p",
                "fabric-sim",
                "--target-dir",
            ])
            .arg(target)
            .output()
            .expect("cargo, to build the libraries");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo build: {errors}");
        target.join("debug")
    })
}

fn path_cache() -> PathBuf {
    built().join("libibacm_path_cache.so")
}

fn mcast_sa() -> PathBuf {
    built().join("libibacm_mcast_sa.so")
}

fn stock() -> PathBuf {
    built();
    let multiarch = std::fs::read_dir("/usr/lib").unwrap().flatten();
    multiarch
        .map(|folder| folder.path().join("ibacm/libibacmp.so"))
        .find(|library| library.is_file())
        .expect("the stock provider libibacmp.so of the package ibacm")
}

const ASKING: &str = "Hca1";
const ASKED: &str = "Hca2";
const ASKING_IP: &str = "10.0.0.1";
const ASKED_IP: &str = "10.0.0.2";

/// A fabric with two daemons, started as systemd does, that know the IP addresses of both hosts.
fn plan(library: PathBuf) -> Builder {
    let fabric_sim = built().join("libfabric_sim.so");
    Rig::builder(library)
        .fabric_sim(fabric_sim)
        .host(ASKING)
        .host(ASKED)
        .address(ASKING, ASKING_IP)
        .address(ASKED, ASKED_IP)
        .netlink()
}

fn rig(library: PathBuf) -> Rig {
    shared::start(plan(library), ASKING)
}

fn asking(rig: &Rig) -> &Host {
    rig.host(ASKING).unwrap()
}
