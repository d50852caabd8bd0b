//! Tests of ibacm providers: conformance checks without a daemon, and runs under the real one.
//!
//! [`suite`] holds the checks, which call a library through a stand-in for ibacm's core ([`stand_in`]).
//! [`stand_in::in_process`] runs the same core in the unit tests of a provider in Rust.
//!
//! [`rig::Rig`] starts a simulated fabric (ibsim), a real subnet manager (opensm) and one stock ibacm per host, each in its
//! own mount namespace with a given provider library. It needs neither InfiniBand hardware nor root.
//! [`client::Client`] talks to a daemon, [`ibacm::Host::acme`] runs stock's ib_acme, [`rig::Rig::ask_sa`] queries the subnet
//! administrator, and [`compare::compare`] compares the answers. The command [`stock`] does all of this for every
//! destination of a fabric.
//!
//! Each run has its own network namespace ([`namespace`]). Each of its programs has a supervisor that ends the program's
//! remaining processes.
//!
//! The runs need the Debian packages ibacm, opensm, ibsim-utils and libumad2sim0, and two parts of this workspace beside the
//! running executable: the program `loader-test`, and `libfabric_sim.so` of fabric-sim.

pub mod acme;
pub mod bench;
pub mod client;
pub mod compare;
pub mod demo;
pub mod elf;
pub mod error;
pub mod fabric;
pub mod ibacm;
pub mod ibsim;
pub mod judge;
pub mod kernel;
pub mod launch;
pub mod log;
pub mod machine;
pub mod namespace;
mod needed;
pub mod opensm;
pub mod process;
pub mod programs;
pub mod record;
pub mod rig;
pub mod sa;
mod scratch;
pub mod signals;
pub mod stock;
pub mod storm;
pub mod suite;
pub mod wait;
mod words;

pub use acm_stand_in as stand_in;
