//! Checks of addresses that are added, removed, added again and moved.

use super::{leads_elsewhere, leads_here, serves};
use crate::stand_in::fabric::{DeviceSpec, Peer, PortSpec};
use crate::stand_in::message::Addr;
use crate::stand_in::{AddressId, FIRST_PORT, PortId, StandIn};
use crate::suite::fixture::{
    Fixture, HASTY, by_addr, expect_path, expected_path, refused, resolve,
};
use crate::suite::{Finding, Outcome, cannot_run, failed};

const PKEY: u16 = 0xffff;

fn ip(last: u8) -> Addr {
    Addr::Ip([10, 1, 0, last].into())
}

pub(super) fn hundred(fixture: &mut Fixture) -> Outcome {
    let address = |number: u8| match number % 3 {
        0 => Addr::Name(format!("alias{number}")),
        1 => ip(number),
        _ => Addr::Ip6([0xfd00, 0, 0, 0, 0, 0, 1, number.into()].into()),
    };
    let core = fixture.core()?;
    core.port_up(FIRST_PORT).map_err(refused)?;
    let mut added = Vec::new();
    for number in 0..100 {
        let from = core.add_address(FIRST_PORT, PKEY, &address(number));
        added.push(from.map_err(refused)?);
    }
    core.settle();
    let (odd, even): (Vec<u8>, Vec<u8>) = (0..100).partition(|number| number % 2 == 1);
    for number in &odd {
        core.remove_address(added[usize::from(*number)]);
    }
    for number in [0, 48, 98] {
        serves(core, added[number], 1)?;
    }
    for number in even {
        leads_here(core, added[usize::from(number)], &address(number))?;
    }
    Ok(())
}

pub(super) fn removed(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let (first, second) = (ip(201), ip(77));
    let mut added = core
        .add_address(FIRST_PORT, PKEY, &second)
        .map_err(refused)?;
    serves(core, added, 1)?;
    core.remove_address(added);
    serves(core, from, 2)?;
    added = core
        .add_address(FIRST_PORT, PKEY, &second)
        .map_err(refused)?;
    serves(core, added, 3)?;
    leads_here(core, added, &second)?;
    core.remove_address(added);
    leads_elsewhere(core, from, &first, &second)?;
    added = core
        .add_address(FIRST_PORT, PKEY, &second)
        .map_err(refused)?;
    leads_here(core, added, &second)?;
    leads_here(core, from, &first)
}

/// The second partition.
const OTHER: u16 = 0x8001;

pub(super) fn twice(fixture: &mut Fixture) -> Outcome {
    let (moving, own_name) = (ip(201), Addr::Name("self1".into()));
    let host = Peer::number(5);
    let (hosts, there) = (
        fixture.folder().join("moved_hosts"),
        Addr::Name("there".into()),
    );
    let gid = host.gid();
    std::fs::write(&hosts, format!("10.1.0.201 {gid}\nthere {gid}\n"))
        .map_err(cannot_run("a hosts file"))?;
    let mut device = DeviceSpec::single();
    device.ports[0].pkeys = vec![PKEY, OTHER];
    let file = format!("addr_data_file {}", hosts.display());
    let core = fixture.core_with(vec![device], &[HASTY, &[&file]].concat())?;
    core.port_up(FIRST_PORT).map_err(refused)?;
    let add = |core: &mut StandIn, pkey: u16, address: &Addr| {
        core.add_address(FIRST_PORT, pkey, address).map_err(refused)
    };
    let stays = add(core, PKEY, &own_name)?;
    let stays_other = add(core, OTHER, &own_name)?;
    let mut from = add(core, PKEY, &moving)?;
    let other = add(core, OTHER, &moving)?;
    core.settle();
    for peer in 1..=3 {
        core.lose_address(from);
        from = add(core, PKEY, &moving)?;
        serves(core, from, peer)?;
        leads_here(core, from, &moving)?;
    }
    core.remove_address(from);
    leads_elsewhere(core, stays, &own_name, &moving)?;
    still_leads_here(core, other, &moving)?;
    // If the provider reads the hosts file, the address now belongs to another host.
    let path = expected_path(core, &host);
    let known = resolve(core, stays, &by_addr(&own_name, &there))?;
    if known.path().is_some_and(|known| path.is_met_by(&known)) {
        let reply = resolve(core, stays, &by_addr(&own_name, &moving))?;
        expect_path(&reply, &path)?;
    }
    core.remove_address(other);
    leads_elsewhere(core, stays_other, &own_name, &moving)?;
    from = add(core, PKEY, &moving)?;
    serves(core, from, 1)?;
    leads_here(core, from, &moving)
}

/// Does the same for an address type that resolved before.
fn still_leads_here(core: &mut StandIn, from: AddressId, address: &Addr) -> Outcome {
    leads_here(core, from, address).map_err(|finding| match finding {
        Finding::Skipped(why) => failed(format!("{address} still resolves to the port"), why),
        other => other,
    })
}

pub(super) fn lost(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let (first, second) = (ip(201), ip(77));
    let added = core
        .add_address(FIRST_PORT, PKEY, &second)
        .map_err(refused)?;
    core.lose_address(from);
    core.lose_address(added);
    // Each takes the other's place in the core's array.
    let mut places = Vec::new();
    for address in [&second, &first] {
        let from = core
            .add_address(FIRST_PORT, PKEY, address)
            .map_err(refused)?;
        serves(core, from, 1)?;
        leads_here(core, from, address)?;
        places.push(from);
    }
    core.remove_address(places[0]);
    leads_elsewhere(core, places[1], &first, &second)?;
    leads_here(core, places[1], &first)?;
    core.port_down(FIRST_PORT);
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    serves(core, from, 1)
}

pub(super) fn moved(fixture: &mut Fixture) -> Outcome {
    let second = PortId { device: 0, port: 2 };
    let mut device = DeviceSpec::single();
    device.ports.push(PortSpec::new(0x0010_0002, 11));
    let core = fixture.core_with(vec![device], HASTY)?;
    let (stays, moves) = (ip(201), ip(77));
    let first_from = core.up(FIRST_PORT).map_err(refused)?;
    core.up(second).map_err(refused)?;
    core.settle();
    let before = core
        .add_address(FIRST_PORT, PKEY, &moves)
        .map_err(refused)?;
    serves(core, before, 1)?;
    leads_here(core, before, &moves)?;
    core.remove_address(before);
    let after = core.add_address(second, PKEY, &moves).map_err(refused)?;
    serves(core, after, 1)?;
    leads_here(core, after, &moves)?;
    leads_elsewhere(core, first_from, &stays, &moves)
}

pub(super) fn memory(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    // The second address moved the array; this one moves it again.
    let last = core
        .add_address(FIRST_PORT, PKEY, &ip(77))
        .map_err(refused)?;
    serves(core, from, 1)?;
    leads_here(core, from, &ip(201))?;
    core.remove_address(from);
    serves(core, last, 2)?;
    leads_here(core, last, &ip(77))
}

pub(super) fn kept(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    serves(core, from, 1)?;
    core.port_down_keeping_addresses(FIRST_PORT);
    core.port_up(FIRST_PORT).map_err(refused)?;
    let new = core
        .add_address(FIRST_PORT, PKEY, &ip(77))
        .map_err(refused)?;
    core.settle();
    serves(core, new, 1)?;
    leads_here(core, new, &ip(77))?;
    leads_elsewhere(core, new, &ip(77), &ip(201))
}
