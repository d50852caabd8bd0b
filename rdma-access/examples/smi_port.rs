//! Prints the port that a program would get for subnet management, or why it would get none.
//!
//! `smi_port [--any] [DEVICE|- [PORT|-]]`: `-` means any; `--any` accepts a port for any MADs. Prints `DEVICE
//! PORT`, or the kind of failure in the words of umad_open_smi_port(3), and the whole error on stderr.

use std::env;
use std::process::ExitCode;

use rdma_access::umad::Umad;
use rdma_access::{Cause, Error};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let any = arguments.first().is_some_and(|first| first == "--any");
    if any {
        arguments.remove(0);
    }
    let argument = |index: usize| {
        arguments
            .get(index)
            .map(String::as_str)
            .filter(|&text| text != "-")
    };
    let Ok(port) = argument(1).map(str::parse).transpose() else {
        eprintln!("smi_port: PORT must be a number from 0 to 255");
        return ExitCode::FAILURE;
    };
    let opened = Umad::load().and_then(|umad| match any {
        true => umad.open_port(argument(0), port),
        false => umad.open_smi_port(argument(0), port),
    });
    match opened {
        Ok(port) => {
            println!("{} {}", port.device(), port.number());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}", kind(&error));
            eprintln!("smi_port: {error}");
            ExitCode::FAILURE
        }
    }
}

fn kind(error: &Error) -> &'static str {
    match error.cause() {
        Cause::NotSupported(_) => "NotSupported",
        Cause::NoDevice { .. } => "NoDevice",
        Cause::Invalid(_) => "Invalid",
        Cause::Io { .. } => "Io",
        _ => "other",
    }
}
