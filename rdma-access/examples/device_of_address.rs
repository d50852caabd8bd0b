//! `device_of_address ADDRESS`: prints the device of a local address, found through librdmacm.

use std::env;
use std::process::ExitCode;

use rdma_access::Result;
use rdma_access::cm::Cm;

fn find(address: &str) -> Result<()> {
    let found = Cm::load()?.local(&address.parse()?)?;
    println!(
        "{} port {} GID {}",
        found.device(),
        found.port(),
        found.gid()
    );
    found.close()
}

fn main() -> ExitCode {
    let Some(address) = env::args().nth(1) else {
        eprintln!("usage: device_of_address ADDRESS");
        return ExitCode::FAILURE;
    };
    match find(&address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("device_of_address: {error}");
            ExitCode::FAILURE
        }
    }
}
