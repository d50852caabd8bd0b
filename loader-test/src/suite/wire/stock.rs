//! The provider and the stock provider, each in its own process, resolve each other's addresses.

use crate::suite::ability::OPENS;
use std::io;
use std::path::Path;

use super::line::{line, own_ip, own_name, stranger};
use super::neighbour::{Answered, Neighbour, stock_library};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::Addr;
use crate::stand_in::{FIRST_PORT, StandIn};
use crate::suite::fixture::Fixture;
use crate::suite::{Check, Finding, Outcome, failed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "wire-stock-asks",
        rule: "a node with the stock provider resolves the port's addresses",
        harmed: Harmed::Node,
        how: "lets the stock provider, in its own process, resolve the port's name and IP address",
        needs: OPENS,
        run: stock_asks,
        fault: fault!(Fault {
            replace: &[(
                "\tmad->gid[0] = group->mgid;\n",
                "\tif (method == UMAD_METHOD_GET)\n\t\tmad->gid[0] = group->mgid;\n",
            )],
            status: &[Status::Failed],
            also: &["wire-answer"],
        }),
    },
    Check {
        name: "wire-stock-answers",
        rule: "the port resolves the addresses of a node with the stock provider",
        harmed: Harmed::Client,
        how: "lets clients resolve the name and IP address of a node with the stock provider",
        needs: OPENS,
        run: stock_answers,
        fault: fault!(Fault {
            // The stock provider lacks what the other checks require.
            replace: &[("\tif (mad->dest_type && !same_addr", "\tif (!same_addr")],
            status: &[Status::Failed],
            also: &[
                "wire-asked-while-asking",
                "wire-request",
                "wire-resolve-*",
                "wire-tid",
                "wire-answer-*",
                "wire-resolve",
                "wire-awaited-in-a-crowd",
            ],
        }),
    },
];

/// The stock provider's node.
const NUMBER: u16 = 100;

fn neighbour(folder: &Path, options: &[&str], core: &StandIn) -> Result<Neighbour, Finding> {
    let library = stock_library().ok_or_else(|| {
        Finding::Skipped(
            "rdma-core's libibacmp.so, the other side of this check, is not installed".into(),
        )
    })?;
    Neighbour::start(core, &library, folder, options, 100 + NUMBER).map_err(cannot_run)
}

/// Turns an error of the neighbour into one of the harness: it says nothing about the provider.
fn cannot_run(error: io::Error) -> Finding {
    Finding::CannotRun(format!("a node with the stock provider: {error}"))
}

fn stock_asks(fixture: &mut Fixture) -> Outcome {
    let (folder, options) = (fixture.folder().to_owned(), fixture.unhurried());
    let line = line(fixture, &[])?;
    let neighbour = neighbour(&folder, options, line.core)?;
    let own = line.core.port(FIRST_PORT);
    let expected = Answered {
        status: 0,
        dlid: own.lid,
        dgid: own.gid(),
    };
    for wanted in [own_name(), own_ip()] {
        let seen = neighbour.resolve(&wanted).map_err(cannot_run)?;
        if seen != expected {
            return Err(failed(
                format!("{wanted}: {expected:?}"),
                format!("{seen:?}"),
            ));
        }
    }
    Ok(())
}

fn stock_answers(fixture: &mut Fixture) -> Outcome {
    let (folder, options) = (fixture.folder().to_owned(), fixture.unhurried());
    let mut line = line(fixture, &[])?;
    let neighbour = neighbour(&folder, options, line.core)?;
    let peer = stranger(NUMBER);
    for wanted in [Addr::Name(peer.name.clone()), Addr::Ip(peer.ip)] {
        let id = line.client_asks(&wanted);
        line.expect_path_to(id, &peer)?;
    }
    drop(neighbour);
    Ok(())
}
