//! Tests of ibacm providers: conformance checks without a daemon, and runs under the real one.
//!
//! [`suite`] holds the checks, which play the core to a library by [`stand_in`]. [`stand_in::in_process`] is the same core for
//! the unit tests of a provider in Rust.
//!
//! [`rig::Rig`] starts a simulated fabric (ibsim), a real subnet manager (opensm) on it and one stock ibacm a host, each
//! in a mount namespace of its own, with a provider library of choice; no InfiniBand hardware and no root is needed.
//! [`client::Client`] talks to a daemon, [`ibacm::Host::acme`] runs stock's ib_acme, [`rig::Rig::ask_sa`] asks the subnet
//! administrator itself, and [`compare::compare`] holds one against the other. [`stock`] is the command that does all of
//! it for every destination of a fabric.
//!
//! Each run has a network namespace of its own ([`namespace`]), and each of its programs a supervisor that ends what the program
//! leaves behind.
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
