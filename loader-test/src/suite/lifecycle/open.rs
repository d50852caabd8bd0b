//! Checks of several devices, ports and partitions.

use super::serves;
use crate::stand_in::fabric::{DeviceSpec, PortSpec};
use crate::stand_in::message::Addr;
use crate::stand_in::{FIRST_PORT, PortId};
use crate::suite::Outcome;
use crate::suite::fixture::{Fixture, refused};

pub(super) fn open_close(fixture: &mut Fixture) -> Outcome {
    let core = fixture.core()?;
    core.port_up(FIRST_PORT).map_err(refused)?;
    core.port_down(FIRST_PORT);
    for peer in 1..=3 {
        let from = core.up(FIRST_PORT).map_err(refused)?;
        core.settle();
        serves(core, from, peer)?;
        serves(core, from, 4)?;
        core.port_down(FIRST_PORT);
    }
    Ok(())
}

/// A second device with one port.
pub(super) fn two_devices(fixture: &mut Fixture, node_guid: u64) -> Outcome {
    let other = DeviceSpec {
        name: "sim1".into(),
        node_guid,
        ports: vec![PortSpec::new(0x0011_0001, 20)],
    };
    let ports = [FIRST_PORT, PortId { device: 1, port: 1 }];
    side_by_side(fixture, vec![DeviceSpec::single(), other], ports)
}

pub(super) fn two_ports(fixture: &mut Fixture) -> Outcome {
    let mut device = DeviceSpec::single();
    device.ports.push(PortSpec::new(0x0010_0002, 11));
    let ports = [FIRST_PORT, PortId { device: 0, port: 2 }];
    side_by_side(fixture, vec![device], ports)
}

/// Resolves on two ports, on one after the other closed, and on both again.
fn side_by_side(fixture: &mut Fixture, devices: Vec<DeviceSpec>, ports: [PortId; 2]) -> Outcome {
    let core = fixture.core_with(devices, &[])?;
    let mut from = [core.up(ports[0]), core.up(ports[1])];
    for closing in [0, 1] {
        core.settle();
        for from in &from {
            serves(core, from.clone().map_err(refused)?, 1)?;
        }
        core.port_down(ports[closing]);
        serves(core, from[1 - closing].clone().map_err(refused)?, 2)?;
        from[closing] = core.up(ports[closing]);
    }
    core.settle();
    for from in from {
        serves(core, from.map_err(refused)?, 3)?;
    }
    Ok(())
}

/// Resolves the same destinations in each usable partition of a P_Key table in turn.
pub(super) fn pkeys(fixture: &mut Fixture, table: &[u16], usable: &[u16]) -> Outcome {
    let mut device = DeviceSpec::single();
    device.ports[0].pkeys = table.to_vec();
    let core = fixture.core_with(vec![device], &[])?;
    for _ in 0..2 {
        core.port_up(FIRST_PORT).map_err(refused)?;
        let mut endpoints = Vec::new();
        for (number, pkey) in (1..).zip(usable) {
            let address = Addr::Ip([10, 1, 0, number].into());
            endpoints.push(
                core.add_address(FIRST_PORT, *pkey, &address)
                    .map_err(refused)?,
            );
        }
        core.settle();
        for peer in [1, 2, 1] {
            for from in &endpoints {
                serves(core, *from, peer)?;
            }
        }
        core.port_down(FIRST_PORT);
    }
    Ok(())
}
