//! Checks of destinations: GID and LID together, hints beside an address, and GIDs that do not belong to the LID's port.

use super::{WAYS, as_the_kernel, ask, when};
use crate::stand_in::fabric::{DeviceSpec, FAR_PREFIX, Peer, ROUTER_LID, gid_in};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, FLAG_DEST, FLAG_SOURCE, Kind, Message, PATH, Path};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::ability::Ability;
use crate::suite::fixture::{
    ENODATA, Fixture, SUCCESS, able, by_addr, by_gid, by_lid, expect_path, expected_path,
    expected_record, refused, reply, resolve,
};
use crate::suite::{Check, Finding, Outcome, failed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "path-gid-and-lid",
        rule: "a request that names a GID and another port's LID is refused or resolves the GID, never the other port",
        harmed: Harmed::Client,
        how: "names the GID of one peer and the LID of another, by resolve and by query, before and after both are known",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::AnswersQuery,
            Ability::Closes,
        ],
        run: gid_and_lid,
        fault: fault!(Fault {
            replace: &[(
                "\tquestion->dgid = local_gid(ep, wanted->dgid);\n",
                "\tif (!wanted->dlid)\n\t\tquestion->dgid = local_gid(ep, wanted->dgid);\n",
            )],
            status: &[Status::Failed],
            also: &["path-asked-again"],
        }),
    },
    Check {
        name: "path-hints",
        rule: "in a path entry beside an address, DGID and DLID are ignored; all other components count",
        harmed: Harmed::Client,
        how: "resolves an IP address beside a path entry that names another peer and an MTU, and compares the path",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: hints,
        fault: fault!(Fault {
            replace: &[(
                "\tmemset(&wanted->dgid, 0, sizeof wanted->dgid);\n\twanted->dlid = 0;\n",
                "\tmemset(&wanted->dgid, 0, sizeof wanted->dgid);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "path-far-gid",
        rule: "resolving a GID behind a router, or an alias GID, does not bind the path's LID to that GID",
        harmed: Harmed::Client,
        how: "resolves a GID behind a router and an alias GID, and the LID of each, by resolve and by query",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::AnswersQuery,
            Ability::Closes,
        ],
        run: far_gid,
        fault: fault!(Fault {
            replace: &[(
                "\t\tkeep_record(path, &record);\n",
                "\t\tstruct ibv_path_record by_lid = path->question;\n\t\tstruct path *other;\n\n\t\tkeep_record(path, &record);\n\t\tmemset(&by_lid.dgid, 0, sizeof by_lid.dgid);\n\t\tby_lid.dlid = record.dlid;\n\t\tother = get_path(path->ep, &by_lid);\n\t\tif (other && other->state == UNKNOWN) {\n\t\t\tother->state = KNOWN;\n\t\t\tother->until = FOR_EVER;\n\t\t\tkeep_record(other, &record);\n\t\t}\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "path-link-local",
        rule: "in a subnet with its own prefix, a GID with fe80:: resolves as the same GID with the prefix does",
        harmed: Harmed::Client,
        how: "opens a port in a subnet with its own prefix, and resolves GIDs with fe80::, by resolve and by query",
        needs: &[
            Ability::AnswersByGid,
            Ability::AnswersQuery,
            Ability::Closes,
        ],
        run: link_local,
        fault: fault!(Fault {
            replace: &[(
                "\tif (gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80)\n",
                "\tif (is_zero(&ep->gid))\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
];

/// With an empty cache, and with both ports cached; then GID and LID of one port, which agree.
fn gid_and_lid(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let own = core.port(FIRST_PORT).gid();
    for (way, number) in WAYS.into_iter().zip([3, 5]) {
        let (peer, other) = (Peer::number(number), Peer::number(number + 1));
        let both = Path::default().with_sgid(own).with_dgid(peer.gid());
        for known in [false, true] {
            if known {
                resolve(core, from, &by_lid(&other))?;
                resolve(core, from, &by_gid(&peer))?;
            }
            let answer = ask(core, from, way, &both.with_dlid(other.lid))?;
            if answer.status == SUCCESS {
                expect_path(&answer, &expected_path(core, &peer)).map_err(when(way))?;
            }
        }
        let answer = ask(core, from, way, &both.with_dlid(peer.lid))?;
        expect_path(&answer, &expected_path(core, &peer)).map_err(when(way))?;
    }
    Ok(())
}

/// Like rdma_getaddrinfo with a route as a hint, for a cached and for a new peer.
fn hints(fixture: &mut Fixture) -> Outcome {
    /// Exactly 256 bytes.
    const MTU: u8 = 0x81;
    let (core, from) = fixture.up()?;
    let own = core.address(from).clone();
    let (known, other) = (Peer::number(3), Peer::number(4));
    resolve(core, from, &by_gid(&known))?;
    for peer in [known, Peer::number(5)] {
        for mtu in [0, MTU] {
            let destination = Addr::Ip(peer.ip);
            let hints = Path::default()
                .with_dgid(other.gid())
                .with_dlid(other.lid)
                .with_pkey(from.pkey)
                .with_mtu(mtu);
            let message = Message::resolve()
                .with_entry(FLAG_SOURCE, own.code(), &own.field())
                .with_entry(FLAG_DEST, destination.code(), &destination.field())
                .with_entry(0, PATH, &hints.0);
            let id = core.ask(&message).map_err(|status| {
                failed("a message that the core takes", format!("status {status}"))
            })?;
            let answer = reply(core, id)?;
            if mtu == 0 {
                able(core, &answer, "IPv4 addresses")?;
            } else if answer.status == ENODATA {
                // The provider may compare the SA's record with the request.
                continue;
            }
            let asked = Path::default().with_dgid(peer.gid()).with_mtu(mtu);
            expect_path(&answer, &expected_record(core, &asked))?;
        }
    }
    Ok(())
}

fn far_gid(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let to = |core: &StandIn, gid| as_the_kernel(core, from, &Peer::number(1)).with_dgid(gid);
    for (way, number) in WAYS.into_iter().zip([3, 4]) {
        let peer = Peer::number(number);
        let far = gid_in(FAR_PREFIX, u64::from(number));
        let cases = [
            ("behind a router", to(core, far), ROUTER_LID),
            ("an alias GID", to(core, peer.alias_gid()), peer.lid),
        ];
        for (case, asked, lid) in cases {
            let by_lid = Path::default().with_sgid(asked.sgid()).with_dlid(lid);
            for asked in [asked, by_lid, asked, by_lid] {
                let answer = ask(core, from, way, &asked)?;
                expect_path(&answer, &expected_record(core, &asked))
                    .map_err(when(format!("{case}, {way}")))?;
            }
        }
    }
    Ok(())
}

/// A node in a subnet with its own prefix, with link-local GIDs in its hosts file, as in rdma-core's sample.
fn link_local(fixture: &mut Fixture) -> Outcome {
    let mut device = DeviceSpec::single();
    device.ports[0].prefix = 0xfec0_0000_0000_0001;
    let core = fixture.core_with(vec![device], &[])?;
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    for (way, number) in WAYS.into_iter().zip([3, 4]) {
        let asked = as_the_kernel(core, from, &Peer::number(number));
        for _ in 0..2 {
            let answer = ask(core, from, way, &asked)?;
            expect_path(&answer, &expected_record(core, &asked)).map_err(when(way))?;
        }
    }
    match by_name(core, from, &Peer::number(5)) {
        // The provider resolves no names.
        Err(Finding::Skipped(_)) => Ok(()),
        outcome => outcome,
    }
}

fn by_name(core: &mut StandIn, from: AddressId, peer: &Peer) -> Outcome {
    let own = core.address(from).clone();
    let answer = resolve(core, from, &by_addr(&own, &Addr::Name(peer.name.clone())))?;
    let expected = expected_path(core, peer);
    let with_prefix = expected.plain().unwrap_or_default().dgid();
    // First the GID with the subnet's prefix: a provider that fails here reads no hosts file.
    let known = ask(
        core,
        from,
        Kind::Resolve,
        &Path::default().with_dgid(with_prefix),
    )?;
    expect_path(&known, &expected).map_err(when("by the GID with the subnet's prefix"))?;
    able(core, &answer, "names")?;
    expect_path(&answer, &expected).map_err(when("by a name in the hosts file"))
}
