//! Lists the verbs devices, or opens one: `open_device [NAME]`.

use std::env;
use std::process::ExitCode;

use rdma_access::Result;
use rdma_access::verbs::{Context, devices};

fn list() -> Result<()> {
    for device in devices()? {
        println!("{device}");
    }
    Ok(())
}

fn open(name: &str) -> Result<()> {
    let context = Context::open_by_name(name)?;
    for number in 1..=context.port_count()? {
        let port = context.port(number)?;
        println!(
            "{name} port {number}: state {}, LID {}",
            port.state.0, port.lid
        );
    }
    context.close()
}

fn main() -> ExitCode {
    let outcome = env::args().nth(1).map_or_else(list, |name| open(&name));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("open_device: {error}");
            ExitCode::FAILURE
        }
    }
}
