//! The probes of abilities: each uses the ability once, with one ordinary peer, and checks nothing else.

use super::Ability;
use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Message, PATH, Path, Reply};
use crate::stand_in::sa::Reaction;
use crate::suite::fault::NO_FAULT;
use crate::suite::fixture::{SUCCESS, by_gid, by_lid, reply, resolve};
use crate::suite::{Check, Outcome, failed};

/// The peer of the probes.
const PEER: u16 = 3;

/// In the order of [`Ability::ALL`].
static PROBES: [Check; 7] = [
    Check {
        name: "ability-loads",
        rule: "ibacm loads the library and accepts its table",
        harmed: Harmed::Operator,
        how: "loads the library as ibacm does and calls provider_query",
        needs: Ability::Loads.needs(),
        run: |fixture| fixture.core().map(drop),
        fault: NO_FAULT,
    },
    Check {
        name: "ability-opens-port",
        rule: "a device, a port, an endpoint and an address open",
        harmed: Harmed::Daemon,
        how: "opens one device, port and endpoint and adds its addresses",
        needs: Ability::OpensPort.needs(),
        run: |fixture| fixture.up().map(drop),
        fault: NO_FAULT,
    },
    Check {
        name: "ability-answers-by-lid",
        rule: "a request for a LID that the SA knows is answered with a path",
        harmed: Harmed::Client,
        how: "resolves one peer by LID and expects a path in the answer, whatever its fields",
        needs: Ability::AnswersByLid.needs(),
        run: |fixture| {
            let (core, from) = fixture.up()?;
            is_path(&resolve(core, from, &by_lid(&Peer::number(PEER)))?)
        },
        fault: NO_FAULT,
    },
    Check {
        name: "ability-answers-by-gid",
        rule: "a request for a GID that the SA knows is answered with a path",
        harmed: Harmed::Client,
        how: "resolves one peer by GID and expects a path in the answer, whatever its fields",
        needs: Ability::AnswersByGid.needs(),
        run: |fixture| {
            let (core, from) = fixture.up()?;
            is_path(&resolve(core, from, &by_gid(&Peer::number(PEER)))?)
        },
        fault: NO_FAULT,
    },
    Check {
        name: "ability-answers-query",
        rule: "a query for a path that the SA knows is answered with a path",
        harmed: Harmed::Client,
        how: "makes one query and expects a path in the answer, whatever its fields",
        needs: Ability::AnswersQuery.needs(),
        run: |fixture| {
            let (core, from) = fixture.up()?;
            let port = core.port(FIRST_PORT);
            let asked = Path::default()
                .with_sgid(port.gid())
                .with_dgid(Peer::number(PEER).gid())
                .with_pkey(port.pkeys[0]);
            let id = core.query_from(from, &Message::query(&asked));
            is_path(&reply(core, id)?)
        },
        fault: NO_FAULT,
    },
    Check {
        name: "ability-reregisters",
        rule: "a port still resolves after a CLIENT_REREGISTER event",
        harmed: Harmed::Client,
        how: "sends the event and resolves one peer by LID",
        needs: Ability::Reregisters.needs(),
        run: |fixture| {
            let (core, from) = fixture.up()?;
            core.reregister(FIRST_PORT);
            core.settle();
            is_path(&resolve(core, from, &by_lid(&Peer::number(PEER)))?)
        },
        fault: NO_FAULT,
    },
    Check {
        name: "ability-closes",
        rule: "what was opened closes",
        harmed: Harmed::Daemon,
        how: "opens one port, removes an address, and closes the port",
        needs: Ability::Closes.needs(),
        run: |fixture| {
            let (core, from) = fixture.up()?;
            core.remove_address(from);
            core.port_down(FIRST_PORT);
            Ok(())
        },
        fault: NO_FAULT,
    },
];

/// Measures how long a client of a silent SA waits: not every provider reads `timeout` and `retries`.
pub(in crate::suite) static DEADLINE: Check = Check {
    name: "deadline",
    rule: "a client of a silent SA is answered by the deadline",
    harmed: Harmed::Client,
    how: "resolves one peer while the SA is silent, and one whose MAD never comes back, and measures the time",
    needs: &[Ability::OpensPort],
    run: |fixture| {
        let (core, from) = fixture.up_with(&["timeout 100", "retries 1", "sa_depth 2"])?;
        let lost = Peer::number(PEER + 1);
        let (lid, gid) = (lost.lid, lost.gid());
        core.sa().script(move |question| {
            let path = question.path();
            match question.is_path_query() {
                true if path.dlid() == lid || path.dgid() == gid => Reaction::Never,
                true => Reaction::Silence,
                false => Reaction::Answer,
            }
        });
        let ids = [Peer::number(PEER), lost].map(|peer| core.resolve_from(from, &by_lid(&peer)));
        let waited = ids.map(|id| core.reply(id).and_then(|_| core.waited(id)));
        // Another check judges requests without any answer.
        fixture.shown_deadline = waited.into_iter().flatten().max();
        Ok(())
    },
    fault: NO_FAULT,
};

pub(super) fn of(ability: Ability) -> &'static Check {
    &PROBES[ability as usize]
}

pub(super) fn all() -> impl Iterator<Item = &'static Check> {
    PROBES.iter()
}

fn is_path(reply: &Reply) -> Outcome {
    let code = reply.entry(0).map(|(_, code, _)| code);
    if reply.status == SUCCESS && code == Some(PATH) {
        return Ok(());
    }
    Err(failed("status 0 and a path", format!("{reply:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ability_has_the_probe_of_its_name() {
        for ability in Ability::ALL {
            assert_eq!(of(ability).name, format!("ability-{ability}"));
            assert_eq!(of(ability).needs, ability.needs());
        }
    }

    #[test]
    fn an_ability_comes_after_those_that_it_needs() {
        let all = Ability::closure([Ability::Reregisters]);
        let names = [
            Ability::Loads,
            Ability::OpensPort,
            Ability::AnswersByLid,
            Ability::Reregisters,
        ];
        assert_eq!(all, names);
    }
}
