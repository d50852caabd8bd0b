//! Checks of destinations: LIDs, GIDs, names and IP addresses, in every spelling.

use crate::stand_in::fabric::{Peer, gid};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Message, Path};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::ability::{Ability, OPENS, SERVES};
use crate::suite::fixture::{
    EDESTTYPE, ERRORS, ETIMEDOUT, Fixture, HASTY, able, by_addr, by_gid, by_lid, expect_path,
    expect_status, expected_path, refused, resolve,
};
use crate::suite::{Check, Finding, Outcome, failed};

pub(in crate::suite) const CHECKS: &[Check] = &[
    Check {
        name: "resolve-by-lid",
        rule: "a path request with a DLID gets the SA's path to that LID",
        harmed: Harmed::Client,
        how: "resolves two peers by LID and compares each field of the path with the SA's record",
        needs: SERVES,
        run: |fixture| known_to_the_sa(fixture, by_lid),
        fault: fault!(Fault {
            replace: &[(
                "#define MULTICAST_LIDS\t\t0xc000",
                "#define MULTICAST_LIDS\t\t0x0200",
            )],
            status: &[Status::Failed],
            also: &[
                "resolve-by-gid",
                "perf-no-data",
                "path-far-gid",
                "query-asks-the-sa",
                "sa-refresh-unconstrained",
            ],
        }),
    },
    Check {
        name: "resolve-by-gid",
        rule: "a path request with a DGID gets the SA's path to that GID",
        harmed: Harmed::Client,
        how: "resolves two peers by GID and compares each field of the path with the SA's record",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: |fixture| known_to_the_sa(fixture, by_gid),
        fault: fault!(Fault {
            replace: &[(
                "\tquestion->dgid = local_gid(ep, wanted->dgid);\n",
                "\tquestion->dgid = local_gid(ep, wanted->dgid), question->dgid.raw[14] = 0;\n",
            )],
            status: &[Status::Failed],
            also: &["query-no-records"],
        }),
    },
    Check {
        name: "resolve-by-name",
        rule: "a name resolves to the SA's path to its host",
        harmed: Harmed::Client,
        how: "resolves a name of the hosts file and compares each field of the path with the SA's record",
        needs: OPENS,
        run: |fixture| address(fixture, "names", name_of),
        fault: fault!(Fault {
            replace: &[(
                "memcpy(host->addr, name, strnlen(name, ACM_MAX_ADDRESS));",
                "memcpy(host->addr, name, strnlen(name, 5));",
            )],
            status: &[Status::Failed],
            also: &["resolve-name-case", "resolve-name-end", "path-link-local"],
        }),
    },
    Check {
        name: "resolve-by-ip",
        rule: "an IPv4 address resolves to the SA's path to its host",
        harmed: Harmed::Client,
        how: "resolves an IPv4 address of the hosts file and compares each field of the path with the SA's record",
        needs: OPENS,
        run: |fixture| address(fixture, "IPv4 addresses", ip_of),
        fault: fault!(Fault {
            replace: &[("\t\treturn 4;\n", "\t\treturn 3;\n")],
            status: &[Status::Failed],
            also: &[
                "lifecycle-address-removed",
                "lifecycle-address-moved",
                "lifecycle-address-kept",
                "resolve-ip-length",
                "resolve-source-chosen",
                "resolve-source-given",
                "resolve-nodelay-address",
                "resolve-librdmacm",
                "resolve-message-gone",
                "path-hints",
                "lifecycle-hundred-addresses",
                "lifecycle-address-lost",
                "lifecycle-address-memory",
                "resolve-own-length",
            ],
        }),
    },
    Check {
        name: "resolve-by-ip6",
        rule: "an IPv6 address resolves to the SA's path to its host",
        harmed: Harmed::Client,
        how: "resolves an IPv6 address of the hosts file and compares each field of the path with the SA's record",
        needs: OPENS,
        run: |fixture| address(fixture, "IPv6 addresses", ip6_of),
        fault: fault!(Fault {
            replace: &[("\t\treturn 16;\n", "\t\treturn 15;\n")],
            status: &[Status::Failed],
            also: &["resolve-ip6-length", "lifecycle-hundred-addresses"],
        }),
    },
    Check {
        name: "resolve-gid-address",
        rule: "a destination of address type GID resolves to the SA's path to that GID",
        harmed: Harmed::Client,
        how: "resolves a peer by an address of type GID and compares the path with the SA's record",
        needs: OPENS,
        run: |fixture| {
            address(fixture, "addresses of type GID", |peer| {
                Addr::Gid(peer.gid())
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tmemcpy(&wanted->dgid, dest.info.addr, sizeof wanted->dgid);\n",
                "\t\twanted->dgid = ep->gid;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-lid-address",
        rule: "a destination of address type LID resolves to the SA's path to that LID",
        harmed: Harmed::Client,
        how: "resolves a peer by an address of type LID and compares the path with the SA's record",
        needs: OPENS,
        run: |fixture| address(fixture, "addresses of type LID", |peer| Addr::Lid(peer.lid)),
        fault: fault!(Fault {
            replace: &[(
                "\t\tmemcpy(&wanted->dlid, dest.info.addr, sizeof wanted->dlid);\n",
                "\t\twanted->dlid = htobe16(ep->port->attr.lid);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-own-name",
        rule: "the endpoint's own name resolves to the path from the port to itself",
        harmed: Harmed::Client,
        how: "resolves the endpoint's own name and compares both ends of the path",
        needs: OPENS,
        run: |fixture| own_address(fixture, |core, ip| core.address(name_beside(ip)).clone()),
        fault: fault!(Fault {
            replace: &[(
                "\t\tfinish(ep, request, ACM_STATUS_SUCCESS, &own, &done);\n",
                "\t\tif (msg->resolve_data[1].type == ACM_EP_INFO_NAME)\n\t\t\town.dlid = 0;\n\t\tfinish(ep, request, ACM_STATUS_SUCCESS, &own, &done);\n",
            )],
            status: &[Status::Failed],
            also: &["lifecycle-hundred-addresses", "resolve-own-name-case"],
        }),
    },
    Check {
        name: "resolve-own-ip",
        rule: "the endpoint's own IP address resolves to the path from the port to itself",
        harmed: Harmed::Client,
        how: "resolves the endpoint's own IP address and compares both ends of the path",
        needs: OPENS,
        run: |fixture| own_address(fixture, |core, ip| core.address(ip).clone()),
        fault: fault!(Fault {
            replace: &[(
                "\tpath->slid = path->dlid = htobe16(attr->lid);\n",
                "\tpath->slid = path->dlid = attr->lid;\n",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-hundred-addresses",
                "lifecycle-address-removed",
                "lifecycle-address-moved",
                "lifecycle-address-memory",
                "lifecycle-address-kept",
                "lifecycle-verb-fails",
                "lifecycle-mad-fails",
                "resolve-own-name",
                "resolve-own-name-case",
                "resolve-own-length",
                "lifecycle-address-twice",
                "lifecycle-address-lost",
            ],
        }),
    },
    Check {
        name: "resolve-name-case",
        rule: "names are compared without regard to case",
        harmed: Harmed::Client,
        how: "resolves a name as the hosts file spells it, in upper case, and as before",
        needs: OPENS,
        run: |fixture| spelled(fixture, "names", name_of, upper_case),
        fault: fault!(Fault {
            replace: &[(
                "sum = (sum ^ (*bytes++ & ~0x20)) * 16777619u;",
                "sum = (sum ^ *bytes++) * 16777619u;",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-own-name-case",
        rule: "the endpoint's own name resolves in upper and in lower case",
        harmed: Harmed::Client,
        how: "resolves the endpoint's own name as given and in upper case",
        needs: OPENS,
        run: own_name_in_upper_case,
        fault: fault!(Fault {
            replace: &[("return !strncasecmp(", "return !strncmp(")],
            status: &[Status::Failed],
            also: &["resolve-name-case"],
        }),
    },
    Check {
        name: "resolve-name-end",
        rule: "a name ends at its first NUL: the rest of the 64 bytes is ignored",
        harmed: Harmed::Client,
        how: "resolves a name with zeros behind it, with other bytes behind its NUL, and as before",
        needs: OPENS,
        run: |fixture| spelled(fixture, "names", name_of, Addr::with_garbage),
        fault: fault!(Fault {
            replace: &[(
                "\treturn strnlen((const char *) addr, ACM_MAX_ADDRESS);\n",
                "\treturn ACM_MAX_ADDRESS;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-ip-length",
        rule: "an IPv4 address is four bytes: the rest of the 64 bytes is ignored",
        harmed: Harmed::Client,
        how: "resolves an IPv4 address with zeros behind it, with other bytes, and as before",
        needs: OPENS,
        run: |fixture| spelled(fixture, "IPv4 addresses", ip_of, Addr::with_garbage),
        fault: fault!(Fault {
            replace: &[("\t\treturn 4;\n", "\t\treturn 16;\n")],
            status: &[Status::Failed],
            also: &["resolve-own-length"],
        }),
    },
    Check {
        name: "resolve-ip6-length",
        rule: "an IPv6 address is sixteen bytes: the rest of the 64 bytes is ignored",
        harmed: Harmed::Client,
        how: "resolves an IPv6 address with zeros behind it, with other bytes, and as before",
        needs: OPENS,
        run: |fixture| spelled(fixture, "IPv6 addresses", ip6_of, Addr::with_garbage),
        fault: fault!(Fault {
            replace: &[("\t\treturn 16;\n", "\t\treturn ACM_MAX_ADDRESS;\n")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-own-length",
        rule: "the bytes behind one of the endpoint's own addresses are ignored, both in the request and when the core adds the address",
        harmed: Harmed::Client,
        how: "adds an address with other bytes behind it, and resolves own addresses with and without such bytes",
        needs: OPENS,
        run: own_address_with_garbage,
        fault: fault!(Fault {
            replace: &[(
                "\t\tif (same_addr(own->type, own->addr, type, addr))\n",
                "\t\tif (own->type == type && !memcmp(own->addr, addr, ACM_MAX_ADDRESS))\n",
            )],
            status: &[Status::Failed],
            also: &["resolve-own-name-case"],
        }),
    },
    Check {
        name: "resolve-unknown-lid",
        rule: "a LID that the SA does not know gets an error, by the deadline",
        harmed: Harmed::Client,
        how: "resolves a LID that the SA does not know and compares the status",
        needs: OPENS,
        run: |fixture| {
            unknown(fixture, |_| {
                Message::path(&Path::default().with_dlid(0x0bad))
            })
        },
        fault: fault!(Fault {
            replace: &[
                (
                    "ACM_STATUS_EINVAL : ACM_STATUS_ENODATA;",
                    "ACM_STATUS_EINVAL : ACM_STATUS_SUCCESS;",
                ),
                (
                    "if (status == ACM_STATUS_SUCCESS && !fits(",
                    "if (status == ACM_STATUS_SUCCESS && (!path->question.dlid || !mad->sa_mad.mad_hdr.status) && !fits(",
                ),
            ],
            status: &[Status::Failed],
            also: &["sa-error-high-byte", "sa-error-field", "perf-no-data"],
        }),
    },
    Check {
        name: "resolve-unknown-gid",
        rule: "a GID that the SA does not know gets an error, by the deadline",
        harmed: Harmed::Client,
        how: "resolves a GID that the SA does not know and compares the status",
        needs: OPENS,
        run: |fixture| {
            unknown(fixture, |_| {
                Message::path(&Path::default().with_dgid(gid(0x0bad)))
            })
        },
        fault: fault!(Fault {
            replace: &[
                (
                    "ACM_STATUS_EINVAL : ACM_STATUS_ENODATA;",
                    "ACM_STATUS_EINVAL : ACM_STATUS_SUCCESS;",
                ),
                (
                    "if (status == ACM_STATUS_SUCCESS && !fits(",
                    "if (status == ACM_STATUS_SUCCESS && (path->question.dlid || !mad->sa_mad.mad_hdr.status) && !fits(",
                ),
            ],
            status: &[Status::Failed],
            also: &[
                "query-no-records",
                "query-error-high-byte",
                "path-components",
                "path-sl-refused",
            ],
        }),
    },
    Check {
        name: "resolve-unknown-name",
        rule: "an unknown name gets an error, by the deadline",
        harmed: Harmed::Client,
        how: "resolves a name that is in no file and compares the status",
        needs: OPENS,
        run: |fixture| unknown(fixture, |own| by_addr(own, &Addr::Name("nobody".into()))),
        fault: fault!(Fault {
            replace: &[(
                "\t\telse\n\t\t\treturn ACM_STATUS_ENODATA;\n\t\treturn ACM_STATUS_SUCCESS;\n",
                "\t\telse if (dest.type != ACM_EP_INFO_NAME)\n\t\t\treturn ACM_STATUS_ENODATA;\n\t\telse\n\t\t\twanted->dgid = ep->gid;\n\t\treturn ACM_STATUS_SUCCESS;\n",
            )],
            status: &[Status::Failed],
            also: &[
                "hostile-name-unterminated",
                "hostile-name-format",
                "hostile-name-control",
            ],
        }),
    },
    Check {
        name: "resolve-unknown-ip",
        rule: "an unknown IP address gets an error, by the deadline",
        harmed: Harmed::Client,
        how: "resolves an IP address that is in no file and compares the status",
        needs: OPENS,
        run: |fixture| unknown(fixture, |own| by_addr(own, &Addr::Ip([10, 9, 9, 9].into()))),
        fault: fault!(Fault {
            replace: &[(
                "\t\telse\n\t\t\treturn ACM_STATUS_ENODATA;\n\t\treturn ACM_STATUS_SUCCESS;\n",
                "\t\telse if (dest.type == ACM_EP_INFO_NAME)\n\t\t\treturn ACM_STATUS_ENODATA;\n\t\telse\n\t\t\twanted->dgid = ep->gid;\n\t\treturn ACM_STATUS_SUCCESS;\n",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-address-removed",
                "lifecycle-address-moved",
                "lifecycle-address-kept",
                "lifecycle-address-lost",
                "sa-deadline",
            ],
        }),
    },
];

fn name_of(peer: &Peer) -> Addr {
    Addr::Name(peer.name.clone())
}

fn ip_of(peer: &Peer) -> Addr {
    Addr::Ip(peer.ip)
}

fn ip6_of(peer: &Peer) -> Addr {
    Addr::Ip6(peer.ip6)
}

/// The default core gives an endpoint a name and then the source IP address of requests.
fn name_beside(ip: AddressId) -> AddressId {
    AddressId { index: 0, ..ip }
}

/// Resolves two peers by path record. The second one's LID and GID do not fit in a byte.
fn known_to_the_sa(fixture: &mut Fixture, message: fn(&Peer) -> Message) -> Outcome {
    let (core, from) = fixture.up()?;
    for peer in [Peer::number(3), Peer::number(500)] {
        let answer = resolve(core, from, &message(&peer))?;
        if answer.status == EDESTTYPE {
            return able(core, &answer, "such destinations");
        }
        expect_path(&answer, &expected_path(core, &peer))?;
    }
    Ok(())
}

/// Resolves a peer by an address.
fn address(fixture: &mut Fixture, what: &str, address: fn(&Peer) -> Addr) -> Outcome {
    let (core, from) = fixture.up()?;
    let (own, peer) = (core.address(from).clone(), Peer::number(3));
    let answer = resolve(core, from, &by_addr(&own, &address(&peer)))?;
    able(core, &answer, what)?;
    expect_path(&answer, &expected_path(core, &peer))
}

/// Resolves a peer by an address in another spelling, then in the usual one and in the other again: all are one address.
fn spelled(
    fixture: &mut Fixture,
    what: &str,
    address: fn(&Peer) -> Addr,
    spell: fn(&Addr) -> Addr,
) -> Outcome {
    let (core, from) = fixture.up()?;
    let (own, peer) = (core.address(from).clone(), Peer::number(3));
    let usual = address(&peer);
    let unusual = spell(&usual);
    let known = resolve(core, from, &by_addr(&own, &usual))?;
    able(core, &known, what)?;
    let expected = expected_path(core, &peer);
    expect_path(&known, &expected)?;
    for (spelling, name) in [(&unusual, "the other spelling"), (&usual, "the usual one")] {
        let answer = resolve(core, from, &by_addr(&own, spelling))?;
        if answer.status != 0 {
            return Err(failed(
                format!("the path to {usual} for {spelling} ({name}) too"),
                format!("status {}", answer.status),
            ));
        }
        expect_path(&answer, &expected)?;
    }
    Ok(())
}

/// Expects the path from the port to itself, which the provider may build without the SA.
fn expect_own_path(core: &mut StandIn, from: AddressId, asked: &Addr) -> Outcome {
    let source = core.address(from).clone();
    let answer = resolve(core, from, &by_addr(&source, asked))?;
    able(core, &answer, "its own addresses")?;
    let (lid, gid) = {
        let port = core.port(FIRST_PORT);
        (port.lid, port.gid())
    };
    match answer.path().filter(|_| answer.status == 0) {
        Some(path)
            if (path.slid(), path.dlid()) == (lid, lid)
                && (path.sgid(), path.dgid()) == (gid, gid) =>
        {
            Ok(())
        }
        _ => Err(failed(
            format!("for {asked} a path from LID {lid} to itself"),
            format!("{answer:?}"),
        )),
    }
}

fn own_address(fixture: &mut Fixture, own: fn(&StandIn, AddressId) -> Addr) -> Outcome {
    let (core, from) = fixture.up()?;
    let asked = own(core, from);
    expect_own_path(core, from, &asked)
}

fn own_name_in_upper_case(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let name = core.address(name_beside(from)).clone();
    expect_own_path(core, from, &name)?;
    let asked = upper_case(&name);
    let answer = resolve(core, from, &by_addr(&name, &asked))?;
    if answer.status == ETIMEDOUT {
        // A real adapter would loop the multicast request back to the port; the simulated one does not.
        able(core, &answer, "its own name in another case")?;
    }
    still_known(core, from, &asked)
}

fn own_address_with_garbage(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let clean = core.address(from).clone();
    expect_own_path(core, from, &clean)?;
    let added = Addr::Ip([10, 1, 0, 99].into());
    core.add_address(FIRST_PORT, from.pkey, &added.with_garbage())
        .map_err(refused)?;
    still_known(core, from, &added)?;
    still_known(core, from, &clean.with_garbage())
}

/// Turns a skip into a failure: the provider resolves its own addresses, so another spelling is no missing ability.
fn still_known(core: &mut StandIn, from: AddressId, asked: &Addr) -> Outcome {
    match expect_own_path(core, from, asked) {
        Err(Finding::Skipped(seen)) => Err(failed(
            format!("the path from the port to itself for {asked}"),
            seen,
        )),
        outcome => outcome,
    }
}

fn upper_case(name: &Addr) -> Addr {
    match name {
        Addr::Name(name) => Addr::Name(name.to_uppercase()),
        other => other.clone(),
    }
}

fn unknown(fixture: &mut Fixture, message: fn(&Addr) -> Message) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let own = core.address(from).clone();
    let answer = resolve(core, from, &message(&own))?;
    expect_status(&answer, &ERRORS)
}
