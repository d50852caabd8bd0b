//! Queries a node's NodeInfo by directed route, over an SMI port.
//!
//! `node_info [DEVICE|- [PORT|- [HOP...]]]`: `-` means any; the hops are the ports to leave by, on this node
//! first. Without hops the local node answers.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rdma_access::umad::{MadAddress, Methods, Umad};

const CLASS_DIRECTED_ROUTE: u8 = 0x81;
const METHOD_GET: u8 = 0x01;
const ATTRIBUTE_NODE_INFO: u16 = 0x0011;

/// A SubnGet by directed route: InfiniBand Architecture Specification volume 1, section 14.2.1.2.
fn subnet_get(attribute: u16, hops: &[u8]) -> [u8; 256] {
    let mut mad = [0; 256];
    mad[0] = 1; // base version
    mad[1] = CLASS_DIRECTED_ROUTE;
    mad[2] = 1; // class version
    mad[3] = METHOD_GET;
    mad[7] = hops.len() as u8;
    mad[8..16].copy_from_slice(&0x1234_5678u64.to_be_bytes()); // transaction ID
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[32..36].fill(0xff); // source and destination LID: directed all the way
    mad[129..129 + hops.len()].copy_from_slice(hops); // initial path; entry 0 is not used
    mad
}

fn number<T: std::str::FromStr<Err: Error + 'static>>(
    text: &str,
) -> Result<Option<T>, Box<dyn Error>> {
    Ok(if text == "-" {
        None
    } else {
        Some(text.parse()?)
    })
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let device = arguments
        .first()
        .map(String::as_str)
        .filter(|&name| name != "-");
    let port = arguments.get(1).map_or(Ok(None), |text| number(text))?;
    let hops: Vec<u8> = arguments
        .iter()
        .skip(2)
        .map(|hop| hop.parse())
        .collect::<Result<_, _>>()?;
    if hops.len() > 63 {
        return Err("a directed route has at most 63 hops".into());
    }

    let port = Arc::new(Umad::load()?.open_smi_port(device, port)?);
    println!("port {} {}", port.device(), port.number());
    let agent = port.register(CLASS_DIRECTED_ROUTE, 1, Methods::NONE)?;
    let request = subnet_get(ATTRIBUTE_NODE_INFO, &hops);
    let answer = agent.exchange(
        &MadAddress::DIRECTED_ROUTE,
        &request,
        Duration::from_secs(1),
        2,
    )?;
    let info: &[u8; 40] = answer
        .mad
        .get(64..104)
        .ok_or("the answer is short")?
        .try_into()?;
    if answer.mad[3] != 0x81 || answer.mad[4] & 0x7f != 0 || answer.mad[5] != 0 {
        return Err(format!(
            "status {:#06x}",
            u16::from_be_bytes([answer.mad[4], answer.mad[5]])
        )
        .into());
    }
    let kind = match info[2] {
        1 => "channel adapter",
        2 => "switch",
        3 => "router",
        _ => "unknown",
    };
    let guid = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| info[at + index]));
    println!("type {kind}");
    println!("ports {}", info[3]);
    println!("system GUID 0x{:016x}", guid(4));
    println!("node GUID 0x{:016x}", guid(12));
    println!("port GUID 0x{:016x}", guid(20));
    println!("local port {}", info[36]);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("node_info: {error}");
            ExitCode::FAILURE
        }
    }
}
