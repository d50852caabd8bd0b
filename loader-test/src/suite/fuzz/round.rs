//! Resets the core between two sequences in one process.

use crate::stand_in::fabric::PortSpec;
use crate::stand_in::ledger::Violation;
use crate::stand_in::sequence::{Action, Player};
use crate::stand_in::{FIRST_PORT, StandIn};

/// Returns all outstanding MADs after a sequence, and restores the port.
pub(super) fn wind_up(core: &mut StandIn, before: &PortSpec) -> Vec<Violation> {
    core.sa().bring_back_lost();
    core.change_port(FIRST_PORT, |port| *port = before.clone());
    // MADs do not come back while their port is down.
    if core.up(FIRST_PORT).is_ok() {
        core.settle();
    }
    core.port_down(FIRST_PORT);
    let violations = core.finish();
    core.forget_history();
    violations
}

/// Plays a sequence and resets the core.
pub(super) fn round(core: &mut StandIn, actions: &[Action]) -> Vec<Violation> {
    let before = core.port(FIRST_PORT).clone();
    let mut player = Player::new(core);
    player.play(actions);
    let mut violations = player.finish();
    violations.append(&mut wind_up(core, &before));
    violations
}
