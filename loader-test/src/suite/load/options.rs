//! Checks of the options file, and of output outside the log.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::Peer;
use crate::suite::fixture::{
    Fixture, by_lid, expect_path, expected_path, refused, resolve, serves,
};
use crate::suite::{Finding, Outcome, cannot_run};

pub(super) fn no_file(fixture: &mut Fixture) -> Outcome {
    let outcome = fixture.core_without_options().and_then(|core| {
        let from = core.up(FIRST_PORT).map_err(refused)?;
        core.settle();
        let peer = Peer::number(1);
        let reply = resolve(core, from, &by_lid(&peer))?;
        expect_path(&reply, &expected_path(core, &peer))
    });
    match outcome {
        Err(Finding::Failed { .. }) if fixture.has_options() => Err(Finding::Skipped(
            "the provider needs the options given by --opts and --opt".into(),
        )),
        outcome => outcome,
    }
}

pub(super) fn odd_lines(fixture: &mut Fixture) -> Outcome {
    let long = "x".repeat(5000);
    let lines = [
        "",
        " \t ",
        "# timeout 1",
        "#",
        "lonely",
        "foreign_key of another provider",
        "addr_timeout soon",
        "\troute_timeout \t 10",
        "  loopback_prot   local  ",
        "resolve_depth 1\r",
        "min_rate -1",
        "min_mtu 99999999999999999999",
        &long,
        &format!("route_prot {long}"),
        &format!("{long} {long}"),
        "not\u{0}text \u{7f}\u{ff}",
        "timeout",
    ];
    let (core, from) = fixture.up_with(&lines)?;
    serves(core, from, &Peer::number(1))
}

pub(super) fn quiet(fixture: &mut Fixture) -> Outcome {
    let file = fixture.folder().join("printed");
    let cannot = cannot_run("standard output into a file");
    let kept = io::stdout().as_fd().try_clone_to_owned().map_err(cannot)?;
    let redirect = |to: &dyn AsFd| {
        // SAFETY: flushes all C streams and changes nothing else.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        rustix::stdio::dup2_stdout(to).map_err(|error| cannot(io::Error::from(error)))
    };
    redirect(&File::create(&file).map_err(cannot)?)?;
    let session = fixture
        .up()
        .and_then(|(core, from)| resolve(core, from, &by_lid(&Peer::number(1))));
    redirect(&kept)?;
    session?;
    let printed = std::fs::read(&file).map_err(cannot)?;
    if printed.is_empty() {
        return Ok(());
    }
    Err(Finding::Warned(format!(
        "the provider writes to standard output: {:?}",
        String::from_utf8_lossy(&printed[..printed.len().min(200)])
    )))
}
