//! Checks of failing opens, and of unusable ports.

use fabric_sim::verbs::fault;

use super::serves;
use crate::stand_in::fabric::{DeviceSpec, Peer, PortSpec};
use crate::stand_in::message::Addr;
use crate::stand_in::sa::Reaction;
use crate::stand_in::{AddressId, FIRST_PORT, MadFaults, PortId, StandIn};
use crate::suite::apart::{End, Exit};
use crate::suite::fixture::{Fixture, HASTY, SUCCESS, by_addr, by_gid, by_lid, refused, resolve};
use crate::suite::{Outcome, cannot_run, failed};

/// The IP address that [`StandIn::up`] gives to the first port.
const OWN: Addr = Addr::Ip(std::net::Ipv4Addr::new(10, 1, 0, 201));

/// Calls to the core or the system that a check makes fail.
trait Services {
    /// Makes one of the calls fail from now on.
    fn fail(&self, core: &StandIn, call: &Call);
    /// Makes no call fail from now on.
    fn heal(&self, core: &StandIn);
    /// Returns the provider's calls since the core started.
    fn calls(&self, core: &StandIn) -> Vec<Call>;
}

/// A call, by name and number.
type Call = (String, usize);

struct Verbs;

impl Services for Verbs {
    fn fail(&self, _core: &StandIn, call: &Call) {
        fault::fail_call(call.1);
    }

    fn heal(&self, _core: &StandIn) {
        fault::stop();
    }

    fn calls(&self, _core: &StandIn) -> Vec<Call> {
        fault::stop()
            .into_iter()
            .map(str::to_owned)
            .zip(0..)
            .collect()
    }
}

struct Mads;

const ALLOC: &str = "acm_alloc_sa_mad";
const SEND: &str = "acm_send_sa_mad";

impl Services for Mads {
    fn fail(&self, core: &StandIn, call: &Call) {
        core.fail_mads(MadFaults {
            no_memory: call.0 == ALLOC,
            refuse: call.0 == SEND,
            only_call: Some(call.1),
        });
    }

    fn heal(&self, core: &StandIn) {
        core.fail_mads(MadFaults::default());
    }

    fn calls(&self, core: &StandIn) -> Vec<Call> {
        let (allocations, sends) = core.mad_calls();
        let named = |name: &'static str, count| (0..count).map(|number| (name.to_owned(), number));
        named(ALLOC, allocations)
            .chain(named(SEND, sends))
            .collect()
    }
}

pub(super) fn verbs(fixture: &mut Fixture) -> Outcome {
    each_fails_once(fixture, &Verbs)
}

pub(super) fn mads(fixture: &mut Fixture) -> Outcome {
    each_fails_once(fixture, &Mads)
}

/// Makes each call of an open and a first request fail in turn, each in its own process; afterwards no call fails.
fn each_fails_once(fixture: &mut Fixture, services: &dyn Services) -> Outcome {
    let list = fixture.folder().join("calls.json");
    let cannot = cannot_run("a process for a piece of the check");
    let counted = fixture.apart(Exit::AtOnce, |fixture| {
        let core = fixture.core_with(vec![DeviceSpec::single()], HASTY)?;
        services.fail(core, &(String::new(), usize::MAX));
        opens_or_refuses(core)?;
        let text = serde_json::to_vec(&services.calls(core)).unwrap_or_default();
        std::fs::write(&list, text).map_err(cannot)
    });
    judge(counted.map_err(cannot)?, "while nothing fails")?;
    let text = std::fs::read(&list).map_err(cannot)?;
    let calls: Vec<Call> = serde_json::from_slice(&text).unwrap_or_default();
    for call in &calls {
        let end = fixture.apart(Exit::AtOnce, |fixture| {
            let core = fixture.core_with(vec![DeviceSpec::single()], HASTY)?;
            services.fail(core, call);
            let outcome = opens_or_refuses(core);
            services.heal(core);
            outcome?;
            core.port_down(FIRST_PORT);
            let from = core.up(FIRST_PORT).map_err(refused)?;
            core.settle();
            serves(core, from, 1)
        });
        let when = format!("when {} fails once (call {})", call.0, call.1);
        judge(end.map_err(cannot)?, &when)?;
    }
    Ok(())
}

fn judge(end: End, when: &str) -> Outcome {
    match end {
        End::Came(outcome) => outcome.map_err(|finding| {
            finding.map_texts(|expected, seen| (expected, format!("{seen} {when}")))
        }),
        End::Lost(how) => Err(failed(
            "a provider that keeps running",
            format!("{how} {when}"),
        )),
    }
}

/// Opens a port. An open endpoint answers requests, and its successful answers are right.
fn opens_or_refuses(core: &mut StandIn) -> Outcome {
    let Ok(from) = core.up(FIRST_PORT) else {
        return Ok(());
    };
    core.settle();
    let peer = Peer::number(1);
    let lid = core.port(FIRST_PORT).lid;
    for (message, dlid) in [(by_lid(&peer), peer.lid), (by_addr(&OWN, &OWN), lid)] {
        let reply = resolve(core, from, &message)?;
        let path = reply.path().unwrap_or_default();
        if reply.status == SUCCESS && (path.slid(), path.dlid()) != (lid, dlid) {
            let expected = format!("an error, or the path from LID {lid} to LID {dlid}");
            return Err(failed(expected, format!("{reply:?}")));
        }
    }
    Ok(())
}

pub(super) fn ethernet(fixture: &mut Fixture) -> Outcome {
    let port = PortId { device: 0, port: 2 };
    let mut device = DeviceSpec::single();
    device.ports.push(PortSpec {
        ethernet: true,
        sm_lid: 0,
        ..PortSpec::new(0x0010_0002, 0)
    });
    let core = fixture.core_with(vec![device], &[])?;
    // That port has no subnet manager.
    core.sa().script(move |question| {
        if question.port == port.number() {
            Reaction::Silence
        } else {
            Reaction::Answer
        }
    });
    for is_first in [true, false] {
        let mut served = None;
        if !is_first {
            served = Some(core.up(FIRST_PORT).map_err(refused)?);
            core.settle();
        }
        if let Ok(from) = core.up(port) {
            expect_errors(core, from)?;
        }
        let served = match served {
            Some(served) => served,
            None => core.up(FIRST_PORT).map_err(refused)?,
        };
        core.settle();
        serves(core, served, 1)?;
        core.port_down(port);
        serves(core, served, 2)?;
        core.port_down(FIRST_PORT);
    }
    Ok(())
}

/// Expects an error for every request to this port.
fn expect_errors(core: &mut StandIn, from: AddressId) -> Outcome {
    let peer = Peer::number(1);
    for message in [by_lid(&peer), by_gid(&peer)] {
        let reply = resolve(core, from, &message)?;
        if reply.status == SUCCESS {
            let seen = format!("{reply:?}");
            return Err(failed("no path from an Ethernet port", seen));
        }
    }
    Ok(())
}
