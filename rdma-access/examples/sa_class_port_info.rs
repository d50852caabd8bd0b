//! Queries the subnet administrator's ClassPortInfo.
//!
//! `sa_class_port_info [DEVICE|- [PORT]]`: `-` means any device.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rdma_access::umad::{MadAddress, Methods, Umad};

const CLASS_SUBNET_ADMINISTRATION: u8 = 0x03;
const CLASS_VERSION: u8 = 2;

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let device = arguments
        .first()
        .map(String::as_str)
        .filter(|&name| name != "-");
    let number = arguments.get(1).map(|text| text.parse()).transpose()?;

    let umad = Umad::load()?;
    let port = Arc::new(umad.open_port(device, number)?);
    println!("port {} {}", port.device(), port.number());
    let agent = port.register(CLASS_SUBNET_ADMINISTRATION, CLASS_VERSION, Methods::NONE)?;
    let devices = umad.devices();
    let facts = devices
        .iter()
        .filter(|device| device.name == port.device())
        .flat_map(|device| &device.ports)
        .find(|facts| facts.number == port.number())
        .ok_or("the port was removed")?;

    // SubnAdmGet(ClassPortInfo): InfiniBand Architecture Specification volume 1, sections 13.4.8.1 and 15.2.
    let mut request = [0; 256];
    request[..4].copy_from_slice(&[1, CLASS_SUBNET_ADMINISTRATION, CLASS_VERSION, 0x01]);
    request[8..16].copy_from_slice(&0x0abc_def0u64.to_be_bytes()); // transaction ID
    request[16..18].copy_from_slice(&0x0001u16.to_be_bytes()); // ClassPortInfo
    let to = MadAddress::gsi(facts.sm_lid, facts.sm_sl);
    let answer = agent.exchange(&to, &request, Duration::from_secs(1), 2)?;
    let info: &[u8; 72] = answer
        .mad
        .get(56..128)
        .ok_or("the answer is short")?
        .try_into()?;
    if answer.mad[3] != 0x81 || answer.mad[4..6] != [0, 0] {
        return Err(format!(
            "status {:#06x}",
            u16::from_be_bytes([answer.mad[4], answer.mad[5]])
        )
        .into());
    }
    println!("from LID {}", answer.from.lid.0);
    println!("base version {}", info[0]);
    println!("class version {}", info[1]);
    println!(
        "capabilities 0x{:04x}",
        u16::from_be_bytes([info[2], info[3]])
    );
    println!("response time {}", info[7] & 0x1f);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sa_class_port_info: {error}");
            ExitCode::FAILURE
        }
    }
}
