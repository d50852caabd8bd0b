//! Checks of the family `lifecycle`: opening, closing and reopening.

mod address;
mod close;
mod failure;
mod growth;
mod open;
mod thread;

use super::fixture::{SUCCESS, able, by_addr, by_lid, expect_path, resolve};
use super::resolve::memory;
use super::{Check, Outcome, failed};
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Path};
use crate::stand_in::right::Expected;
use crate::stand_in::{AddressId, StandIn};
use crate::suite::ability::{Ability, OPENS, SERVES};
use crate::suite::fuzz;

/// Returns the environment variable that a check's process needs.
pub(super) fn environment(check: &Check) -> Option<(&'static str, &'static str)> {
    // These checks measure memory growth.
    [REOPEN_THOUSAND, memory::RESOLVE_MEMORY, fuzz::FUZZ.name]
        .contains(&check.name)
        .then_some(growth::ENVIRONMENT)
}

pub(super) use growth::heap;

/// Name of the longest check.
pub(super) const REOPEN_THOUSAND: &str = "lifecycle-reopen-thousand";

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "lifecycle-open-close",
        rule: "a port opens, serves, closes and opens again, also one without an address",
        harmed: Harmed::Client,
        how: "opens and closes a port without an address, then three times one with an address, resolving two peers each time",
        needs: &[Ability::AnswersByLid],
        run: open::open_close,
        fault: fault!(Fault {
            replace: &[
                (
                    "\tep->port = port_context;\n\tep->acm = acm;",
                    "\tep->port = port_context;\n\tep->port->served = true;\n\tep->acm = acm;",
                ),
                ("\tbool stop;\n", "\tbool stop, served;\n"),
                (
                    "static void close_port(void *port_context)\n{\n\tstruct port *port = port_context;\n",
                    "static void close_port(void *port_context)\n{\n\tstruct port *port = port_context;\n\n\tif (!port->served)\n\t\tabort();\n",
                ),
            ],
            status: &[Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "lifecycle-two-devices",
        rule: "two devices work at once, each through its own port, whichever closes first",
        harmed: Harmed::Client,
        how: "opens a port on each of two devices and closes each in turn; resolves through both, then through the one that is still open",
        needs: SERVES,
        run: |fixture| open::two_devices(fixture, 0x0011_0000),
        fault: fault!(Fault {
            replace: &[(
                "\tif (acm_get_gid(acm->port, 0, &ep->gid)) {",
                "\tstatic struct acm_port *first;\n\n\tif (!first)\n\t\tfirst = acm->port;\n\tif (acm_get_gid(first, 0, &ep->gid)) {",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-shared-node-guid",
                "lifecycle-two-ports",
                "lifecycle-address-moved",
                "sa-error-field",
            ],
        }),
    },
    Check {
        name: "lifecycle-shared-node-guid",
        rule: "devices may share a node GUID, as physical and virtual functions do: it does not identify a device",
        harmed: Harmed::Daemon,
        how: "opens a port on each of two devices with one node GUID and closes each in turn; resolves through both, then through the one that is still open",
        needs: SERVES,
        run: |fixture| open::two_devices(fixture, 0x0010_0000),
        fault: fault!(Fault {
            replace: &[
                (
                    "\tconst struct acm_device *acm;\n\tunsigned int open_ports;",
                    "\tconst struct acm_device *acm;\n\t__be64 guid;\n\tunsigned int open_ports;",
                ),
                (
                    "\t\tif (dev->acm == acm && !dev->open_ports)\n\t\t\tfree_device(dev);",
                    "\t\tif (dev->guid == acm->dev_guid) {\n\t\t\tdev->acm = acm;\n\t\t\t*dev_context = dev;\n\t\t\treturn 0;\n\t\t}",
                ),
                (
                    "\tdev->acm = acm;\n\tread_options(dev);",
                    "\tdev->acm = acm;\n\tdev->guid = acm->dev_guid;\n\tread_options(dev);",
                ),
                (
                    "static void close_device(void *dev_context)\n{\n\tfree_device(dev_context);",
                    "static void close_device(void *dev_context)\n{\n\tstruct device *dev = dev_context;\n\n\tacm_log(1, \"device 0x%lx is closed\\n\", be64toh(dev->acm->dev_guid));\n\tdev->acm = NULL;",
                ),
            ],
            status: &[Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "lifecycle-two-ports",
        rule: "both ports of a device work at once, and one keeps working when the other closes",
        harmed: Harmed::Client,
        how: "opens both ports of a device and closes each in turn; resolves through both, then through the one that is still open",
        needs: SERVES,
        run: open::two_ports,
        fault: fault!(Fault {
            replace: &[(
                "\tport->dev->open_ports--;",
                "\tport->dev->open_ports--;\n\tport->dev->patience = 0;",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "lifecycle-pkeys",
        rule: "each endpoint resolves in the partition of its P_Key, and does not share its cached paths",
        harmed: Harmed::Node,
        how: "opens three endpoints, resolves the same peers through each, and compares the partition in each path; then repeats it",
        needs: SERVES,
        run: |fixture| {
            open::pkeys(
                fixture,
                &[0xffff, 0x8001, 0x8002],
                &[0xffff, 0x8001, 0x8002],
            )
        },
        fault: fault!(Fault {
            replace: &[(
                "question->pkey = htobe16(ep->acm->pkey);",
                "question->pkey = htobe16(0xffff);",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-pkey-holes",
                "resolve-byte-order",
                "lifecycle-address-twice",
            ],
        }),
    },
    Check {
        name: "lifecycle-pkey-holes",
        rule: "holes (0x0000) and invalid entries (0x8000) in the P_Key table do not affect the other entries",
        harmed: Harmed::Client,
        how: "opens a port whose P_Key table has holes and invalid entries, and resolves the same peers through each endpoint, twice",
        needs: SERVES,
        run: |fixture| {
            let table = [0x0000, 0x8000, 0x8001, 0x0000, 0xffff, 0x0000];
            open::pkeys(fixture, &table, &[0x8001, 0xffff])
        },
        fault: fault!(Fault {
            replace: &[(
                "static int open_endpoint(const struct acm_endpoint *acm, void *port_context, void **ep_context)\n{\n\tstruct endpoint *ep;\n",
                "static int open_endpoint(const struct acm_endpoint *acm, void *port_context, void **ep_context)\n{\n\tstruct endpoint *ep;\n\t__be16 pkey = 0;\n\tint i = 0;\n\n\tdo\n\t\tif (ibv_query_pkey(acm->port->dev->verbs, acm->port->port_num, i++, &pkey) || !pkey)\n\t\t\treturn ENOENT;\n\twhile (pkey != htobe16(acm->pkey));\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "lifecycle-limited-member",
        rule: "a limited member (0x7fff) beside the full member (0xffff) is an endpoint of the same partition",
        harmed: Harmed::Client,
        how: "opens an endpoint of 0x7fff beside one of 0xffff, and resolves the same peers through both, twice",
        needs: SERVES,
        run: |fixture| open::pkeys(fixture, &[0x7fff, 0xffff], &[0x7fff, 0xffff]),
        fault: fault!(Fault {
            replace: &[(
                "static int open_endpoint(const struct acm_endpoint *acm, void *port_context, void **ep_context)\n{\n\tstruct endpoint *ep;\n",
                "static int open_endpoint(const struct acm_endpoint *acm, void *port_context, void **ep_context)\n{\n\tstruct endpoint *ep;\n\n\tif (!(acm->pkey & 0x8000))\n\t\treturn EINVAL;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "lifecycle-hundred-addresses",
        rule: "an endpoint accepts as many addresses as the core gives it",
        harmed: Harmed::Daemon,
        how: "adds a hundred names and IP addresses, removes every other one, and resolves from and to the rest",
        needs: SERVES,
        run: address::hundred,
        fault: fault!(Fault {
            replace: &[(
                "\taddress->ep = ep_context;\n",
                "\taddress->ep = ep_context;\n\n\tstruct address *other;\n\tint count = 0;\n\n\tLIST_FOREACH(other, &address->ep->addresses, entry)\n\t\tcount++;\n\tif (count == 4) {\n\t\tfree(address);\n\t\treturn ENOSPC;\n\t}\n",
            )],
            status: &[Status::Failed],
            also: &["lifecycle-address-twice"],
        }),
    },
    Check {
        name: "lifecycle-address-removed",
        rule: "a removed address no longer resolves to this port, and does so again once it is added again",
        harmed: Harmed::Client,
        how: "adds and removes an address three times, resolves from it and to it, and resolves it after its removal",
        needs: SERVES,
        run: address::removed,
        fault: fault!(Fault {
            replace: &[
                (
                    "\tpthread_mutex_lock(&lock);\n\tLIST_REMOVE(address, entry);\n\tpthread_mutex_unlock(&lock);\n\tfree(address);\n",
                    "\tacm_log(2, \"type %u\\n\", address->type);\n",
                ),
                (
                    "\twhile (!LIST_EMPTY(&ep->addresses))\n\t\tremove_address(LIST_FIRST(&ep->addresses));\n",
                    "\tstruct address *address;\n\n\twhile ((address = LIST_FIRST(&ep->addresses))) {\n\t\tLIST_REMOVE(address, entry);\n\t\tfree(address);\n\t}\n",
                ),
            ],
            status: &[Status::Failed],
            also: &[
                "lifecycle-address-moved",
                "lifecycle-address-twice",
                "lifecycle-address-lost",
            ],
        }),
    },
    Check {
        name: "lifecycle-address-twice",
        rule: "adding an address twice, as after a lost notification, makes one address: one removal removes it from that endpoint and from no other",
        harmed: Harmed::Client,
        how: "adds an address a second time, like a core that missed its removal, removes it once, and resolves it on both endpoints",
        needs: SERVES,
        run: address::twice,
        fault: fault!(Fault {
            replace: &[("\tif (lost)\n\t\tremove_address(lost);\n", "")],
            status: &[Status::Failed],
            also: &["lifecycle-address-lost"],
        }),
    },
    Check {
        name: "lifecycle-address-lost",
        rule: "if the core loses its address list, it adds all addresses again in any order: each still resolves to this port",
        harmed: Harmed::Daemon,
        how: "adds all addresses again in another order without having removed them, removes one, and resolves each",
        needs: SERVES,
        run: address::lost,
        fault: fault!(Fault {
            replace: &[(
                "static int add_address(const struct acm_address *acm, void *ep_context, void **addr_context)\n{\n\tstruct address *address, *lost;\n",
                "static int add_address(const struct acm_address *acm, void *ep_context, void **addr_context)\n{\n\tstruct address *address, *lost;\n\n\tif (is_own_addr(ep_context, acm->type, acm->info.addr))\n\t\treturn EEXIST;\n",
            )],
            status: &[Status::Failed],
            also: &["lifecycle-address-twice"],
        }),
    },
    Check {
        name: "lifecycle-address-moved",
        rule: "an address that moved to another port resolves to that port alone",
        harmed: Harmed::Client,
        how: "removes an address from one port, adds it to another, and resolves it on both",
        needs: SERVES,
        run: address::moved,
        fault: fault!(Fault {
            replace: &[
                (
                    "struct address {\n\tLIST_ENTRY(address) entry;\n",
                    "struct address {\n\tLIST_ENTRY(address) entry, any_entry;\n\tconst struct acm_port *port;\n",
                ),
                (
                    "static uint32_t last_tid;\n",
                    "static uint32_t last_tid;\nstatic LIST_HEAD(, address) all_addresses;\n",
                ),
                (
                    "\tLIST_INSERT_HEAD(&address->ep->addresses, address, entry);\n",
                    "\taddress->port = address->ep->acm->port;\n\tLIST_INSERT_HEAD(&address->ep->addresses, address, entry);\n\tLIST_INSERT_HEAD(&all_addresses, address, any_entry);\n",
                ),
                (
                    "\tLIST_REMOVE(address, entry);\n",
                    "\tLIST_REMOVE(address, entry);\n\tLIST_REMOVE(address, any_entry);\n",
                ),
                (
                    "\tLIST_FOREACH(own, &ep->addresses, entry)\n",
                    "\tLIST_FOREACH(own, &all_addresses, any_entry)\n",
                ),
            ],
            status: &[Status::Failed],
            also: &["lifecycle-address-twice"],
        }),
    },
    Check {
        name: "lifecycle-address-memory",
        rule: "struct acm_address and its id_string belong to the core, which moves them when it adds an address: the provider keeps no pointer",
        harmed: Harmed::Daemon,
        how: "unmaps the addresses' memory whenever their array moves, and resolves from each and to each",
        needs: SERVES,
        run: address::memory,
        fault: fault!(Fault {
            replace: &[
                (
                    "struct address {\n\tLIST_ENTRY(address) entry;\n",
                    "struct address {\n\tLIST_ENTRY(address) entry;\n\tconst struct acm_address *acm;\n",
                ),
                (
                    "\taddress->type = acm->type;\n",
                    "\taddress->acm = acm;\n\taddress->type = acm->type;\n",
                ),
                (
                    "\t} else if (by_address && is_own_path(ep, &question) && own_path(ep, &own)) {\n",
                    "\t} else if (by_address && is_own_path(ep, &question) && own_path(ep, &own)) {\n\t\tacm_log(2, \"from an address of type %u\\n\", ((struct address *) addr_context)->acm->type);\n",
                ),
            ],
            status: &[Status::Crashed],
            also: &[
                "lifecycle-address-removed",
                "lifecycle-hundred-addresses",
                "resolve-own-length",
            ],
        }),
    },
    Check {
        name: "lifecycle-address-kept",
        rule: "closing an endpoint removes its addresses, also those that the core never removed",
        harmed: Harmed::Client,
        how: "closes a port without removing its addresses, opens it with another address, and resolves both",
        needs: SERVES,
        run: address::kept,
        fault: fault!(Fault {
            replace: &[
                (
                    "struct address {\n\tLIST_ENTRY(address) entry;\n",
                    "struct address {\n\tLIST_ENTRY(address) entry, any_entry;\n\tconst struct acm_port *port;\n",
                ),
                (
                    "static uint32_t last_tid;\n",
                    "static uint32_t last_tid;\nstatic LIST_HEAD(, address) all_addresses;\n",
                ),
                (
                    "\tLIST_INSERT_HEAD(&address->ep->addresses, address, entry);\n",
                    "\taddress->port = address->ep->acm->port;\n\tLIST_INSERT_HEAD(&address->ep->addresses, address, entry);\n\tLIST_INSERT_HEAD(&all_addresses, address, any_entry);\n",
                ),
                (
                    "\tLIST_REMOVE(address, entry);\n",
                    "\tLIST_REMOVE(address, entry);\n\tLIST_REMOVE(address, any_entry);\n",
                ),
                (
                    "\tLIST_FOREACH(own, &ep->addresses, entry)\n\t\tif (same_addr(",
                    "\tLIST_FOREACH(own, &all_addresses, any_entry)\n\t\tif (own->port == ep->acm->port && same_addr(",
                ),
                (
                    "\t\tremove_address(LIST_FIRST(&ep->addresses));\n",
                    "\t\tLIST_REMOVE(LIST_FIRST(&ep->addresses), entry);\n",
                ),
            ],
            status: &[Status::Failed],
            also: &["lifecycle-address-twice"],
        }),
    },
    Check {
        name: "lifecycle-close-in-flight",
        rule: "each request in flight when the port closes gets one answer by its deadline",
        harmed: Harmed::Client,
        how: "closes a port while eight requests and queries wait for a silent SA, and measures when each is answered",
        needs: SERVES,
        run: close::in_flight,
        fault: fault!(Fault {
            replace: &[(
                "\t\t\tanswer_waiters(path, ACM_STATUS_ENOTCONN, NULL, &done);\n",
                "",
            )],
            status: &[Status::Failed],
            also: &["sa-*"],
        }),
    },
    Check {
        name: "lifecycle-closed-memory",
        rule: "the provider does not touch the core's device and port structures after close (with --strict)",
        harmed: Harmed::Daemon,
        how: "unmaps the core's device and port structures when a port closes with requests in flight",
        needs: OPENS,
        run: close::memory,
        fault: fault!(Fault {
            replace: &[
                (
                    "\tbool stop;\n",
                    "\tbool stop;\n\tconst struct acm_port *acm;\n",
                ),
                (
                    "\tport->dev = dev;\n",
                    "\tport->dev = dev;\n\tport->acm = acm;\n",
                ),
                (
                    "\tpthread_mutex_unlock(&lock);\n\treturn NULL;\n}\n",
                    "\tpthread_mutex_unlock(&lock);\n\tnanosleep(&(struct timespec) { .tv_nsec = 10000000 }, NULL);\n\tacm_log(1, \"port %u keeps no deadlines any more\\n\", port->acm->port_num);\n\tfree(port);\n\treturn NULL;\n}\n",
                ),
                (
                    "\tpthread_join(port->thread, NULL);\n\tpthread_cond_destroy(&port->wake);\n",
                    "\tpthread_detach(port->thread);\n",
                ),
                (
                    "\tport->dev->open_ports--;\n\tfree(port);\n",
                    "\tport->dev->open_ports--;\n",
                ),
            ],
            status: &[Status::Warned],
            also: &["lifecycle-reopen-thousand", "sa-error-field"],
        }),
    },
    Check {
        name: REOPEN_THOUSAND,
        rule: "memory, descriptors and threads do not grow however often a port is reopened",
        harmed: Harmed::Daemon,
        how: "opens and closes a port a thousand times and compares heap, memory, address space, descriptors and threads every 200 rounds; if time runs short, at each quarter of the rounds done",
        needs: SERVES,
        run: growth::thousand,
        fault: fault!(Fault {
            replace: &[(
                "\tport->dev->open_ports--;\n\tfree(port);\n",
                "\tport->dev->open_ports--;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "lifecycle-core-thread",
        rule: "no callback blocks the core's only thread: open and close take less than 1 s, all others less than 20 ms",
        harmed: Harmed::Daemon,
        how: "opens, resolves, queries, reads counters, reregisters and closes, and times each callback, less the time it waited for a processor",
        needs: &[Ability::OpensPort],
        run: thread::held,
        fault: fault!(Fault {
            replace: &[(
                "\tpthread_mutex_lock(&lock);\n\tep->counters[ACM_CNTR_RESOLVE]++;\n",
                "\tpthread_mutex_lock(&lock);\n\tnanosleep(&(struct timespec) { .tv_nsec = 50000000 }, NULL);\n\tep->counters[ACM_CNTR_RESOLVE]++;\n",
            )],
            status: &[Status::Failed],
            also: EVERYTHING,
        }),
    },
    Check {
        name: "lifecycle-verb-fails",
        rule: "if a verb fails during open, the open fails and leaves its context unwritten, or the opened part works; the next open works fully",
        harmed: Harmed::Client,
        how: "makes each verb of an open fail once, each in its own process, sends requests, and opens the port again",
        needs: SERVES,
        run: failure::verbs,
        fault: fault!(Fault {
            replace: &[(
                "\tif (ret) {\n\t\tfree(port);\n\t\treturn ret;\n\t}\n\tdev->open_ports++;\n\t*port_context = port;\n",
                "\t*port_context = port;\n\tif (ret) {\n\t\tfree(port);\n\t\treturn ret;\n\t}\n\tdev->open_ports++;\n",
            )],
            status: &[Status::Failed],
            also: &["lifecycle-ethernet-port"],
        }),
    },
    Check {
        name: "lifecycle-mad-fails",
        rule: "if a MAD of an open or of the first request cannot be allocated or sent, clients still get answers, and the next open works fully",
        harmed: Harmed::Client,
        how: "makes each allocation and send of a MAD fail once, each in its own process, sends requests, and opens the port again",
        needs: SERVES,
        run: failure::mads,
        fault: fault!(Fault {
            replace: &[("\tif (!mad) {\n\t\tfree(query);\n\t\treturn;\n\t}\n", "")],
            status: &[Status::Failed],
            also: &["sa-no-memory", "sa-refused-status"],
        }),
    },
    Check {
        name: "lifecycle-ethernet-port",
        rule: "a port whose link layer is Ethernet is refused or serves no requests, and the InfiniBand port beside it works",
        harmed: Harmed::Client,
        how: "opens an Ethernet port before and after an InfiniBand port, and resolves through both",
        needs: SERVES,
        run: failure::ethernet,
        fault: fault!(Fault {
            replace: &[(
                "\tif (!ret && port->attr.link_layer == IBV_LINK_LAYER_ETHERNET) {\n",
                "\tstatic bool is_ethernet;\n\n\tis_ethernet |= port->attr.link_layer == IBV_LINK_LAYER_ETHERNET;\n\tif (!ret && is_ethernet) {\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
];

/// Checks that an address resolves a peer by its LID: the SA's path for its port and its partition.
fn serves(core: &mut StandIn, from: AddressId, peer: u16) -> Outcome {
    let peer = Peer::number(peer);
    let reply = resolve(core, from, &by_lid(&peer))?;
    let port = core.port(from.port);
    let pkey = reply.path().map_or(from.pkey, |path| path.pkey());
    if (pkey ^ from.pkey) & 0x7fff != 0 {
        let expected = format!("a path in the partition of {:#06x}", from.pkey);
        return Err(failed(expected, format!("{reply:?}")));
    }
    let asked = Path::default()
        .with_sgid(port.gid())
        .with_dlid(peer.lid)
        .with_pkey(pkey);
    expect_path(&reply, &Expected::new(asked, core.subnet()))
}

/// Checks that one of the port's addresses resolves to the port.
///
/// # Errors
/// If it resolves to another port; or a skip, if the provider does not resolve such addresses.
fn leads_here(core: &mut StandIn, from: AddressId, address: &Addr) -> Outcome {
    let reply = resolve(core, from, &by_addr(address, address))?;
    able(core, &reply, "its own addresses")?;
    let port = core.port(from.port);
    let (lid, gid) = (port.lid, port.gid());
    let is_own = |path: Path| {
        (path.dlid(), path.slid(), path.dgid(), path.sgid()) == (lid, lid, gid, gid)
            && (path.pkey() ^ from.pkey) & 0x7fff == 0
    };
    if reply.status == SUCCESS && reply.path().is_some_and(is_own) {
        return Ok(());
    }
    Err(failed(
        format!("a path from LID {lid} to itself for {address}"),
        format!("{reply:?}"),
    ))
}

/// Checks that an address no longer resolves to the port.
fn leads_elsewhere(core: &mut StandIn, from: AddressId, source: &Addr, gone: &Addr) -> Outcome {
    let reply = resolve(core, from, &by_addr(source, gone))?;
    let lid = core.port(from.port).lid;
    match reply.path() {
        Some(path) if reply.status == SUCCESS && path.dlid() == lid => Err(failed(
            format!("no path to the port's LID {lid} for the removed address {gone}"),
            format!("{reply:?}"),
        )),
        _ => Ok(()),
    }
}
