//! ibacm's real clients, the kernel and librdmacm, with the real daemon and stock's provider or path-cache.

mod faults;
mod kernel;
mod librdmacm;

#[path = "../shared/products.rs"]
mod products;
#[path = "../on_fabric/mod.rs"]
mod shared;

/// What the shared tests are about here: the stock provider.
mod subject {
    use loader_test::rig::{Builder, Rig};

    pub fn builder() -> Builder {
        Rig::builder(crate::stock()).fabric_sim(crate::products::folder().join("libfabric_sim.so"))
    }

    pub const IS_STOCK: bool = true;

    /// The option that says whether service IDs and QoS classes count: it has none.
    pub const QOS_OPTION: &str = "no_such_option";
}

use std::path::PathBuf;

use loader_test::ibacm::Host;
use loader_test::rig::{Builder, Rig};

fn path_cache() -> PathBuf {
    products::folder().join("libibacm_path_cache.so")
}

fn mcast_sa() -> PathBuf {
    products::folder().join("libibacm_mcast_sa.so")
}

fn stock() -> PathBuf {
    products::folder();
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
    let fabric_sim = products::folder().join("libfabric_sim.so");
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
