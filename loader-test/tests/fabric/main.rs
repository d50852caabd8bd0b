//! fabric-sim, preloaded, on a real fabric: ibsim, opensm and the stock daemon.
//!
//! Needs the Debian packages that this crate names, and gcc, libibverbs-dev and libibumad-dev for the probe.

mod acm;
#[path = "../shared/compiled.rs"]
mod compiled;
mod daemon;
mod datagrams;
mod events;
mod probe;
#[path = "../shared/products.rs"]
mod products;
mod timeouts;

use std::path::PathBuf;
use std::time::Duration;

use loader_test::rig::{Builder, Rig};

/// Time limit for a quick operation.
const PATIENCE: Duration = Duration::from_secs(60);

/// The subnet manager's node, on the rig's default net of four hosts.
const MANAGER: &str = "Hca1";
/// The daemon's node.
const DAEMON: &str = "Hca2";
/// The probes' node.
const PROBED: &str = "Hca3";

/// A fabric with one stock daemon, with the stock provider.
fn fabric() -> Builder {
    Rig::builder(stock_provider())
        .host(DAEMON)
        .fabric_sim(fabric_sim())
}

fn stock_provider() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    folders
        .chain([PathBuf::from("/usr/lib64"), PathBuf::from("/usr/lib")])
        .map(|folder| folder.join("ibacm/libibacmp.so"))
        .find(|path| path.is_file())
        .expect("no stock provider; as root: apt-get install ibacm")
}

fn fabric_sim() -> PathBuf {
    products::folder().join("libfabric_sim.so")
}
