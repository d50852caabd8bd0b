//! Checks of the family `process`: a provider must not change the state of the daemon's process.

mod state;
pub mod threads;
mod watch;

use super::fixture::{Fixture, HASTY, by_lid, refused, resolve};
use super::{Check, Outcome, cannot_run};
use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::Harmed;
use crate::suite::ability::Ability;
use state::Group;
use watch::{Moment, Watch};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "process-signals",
        rule: "the provider blocks, ignores and catches no signals: each keeps the daemon's disposition",
        harmed: Harmed::Operator,
        how: "compares signal masks and dispositions before load, after load, after open and after close",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Signals),
        fault: fault!(at_load(&[(
            TABLE,
            "#include <signal.h>\n\n__attribute__((constructor))\nstatic void be_unstoppable(void)\n{\n\tsigset_t all;\n\n\tsigfillset(&all);\n\tpthread_sigmask(SIG_SETMASK, &all, NULL);\n\tsignal(SIGTERM, SIG_IGN);\n}\n\nstatic struct acm_provider provider = {",
        )])),
    },
    Check {
        name: "process-folder",
        rule: "the provider leaves the current folder and the umask alone",
        harmed: Harmed::Daemon,
        how: "compares the current folder and the umask before load, after load, after open and after close",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Folder),
        fault: fault!(at_load(&[(
            TABLE,
            "#include <unistd.h>\n\n__attribute__((constructor))\nstatic void go_home(void)\n{\n\tif (!chdir(\"/\"))\n\t\tumask(0);\n}\n\nstatic struct acm_provider provider = {",
        )])),
    },
    Check {
        name: "process-environment",
        rule: "the provider leaves the environment and the locale alone",
        harmed: Harmed::Daemon,
        how: "compares the environment and the locale before load, after load, after open and after close",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Environment),
        fault: fault!(at_load(&[(
            "\tread_options(dev);\n\tLIST",
            "\tread_options(dev);\n\tsetenv(\"SA_EXAMPLE_DEVICE\", \"yes\", 1);\n\tLIST",
        )])),
    },
    Check {
        name: "process-limits",
        rule: "the provider leaves resource limits and scheduling alone",
        harmed: Harmed::Operator,
        how: "compares resource limits, niceness and scheduling before load, after load, after open and after close",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Limits),
        fault: fault!(at_load(&[(
            TABLE,
            "#include <sys/resource.h>\n\n__attribute__((constructor))\nstatic void want_less(void)\n{\n\tstruct rlimit limit;\n\n\tgetrlimit(RLIMIT_CORE, &limit);\n\tlimit.rlim_cur = limit.rlim_cur == 4096 ? 8192 : 4096;\n\tlimit.rlim_max = limit.rlim_max < 8192 ? limit.rlim_max : 8192;\n\tsetrlimit(RLIMIT_CORE, &limit);\n}\n\nstatic struct acm_provider provider = {",
        )])),
    },
    Check {
        name: "process-privileges",
        rule: "the provider leaves user and group ids, capabilities, prctl settings and the process name alone",
        harmed: Harmed::Operator,
        how: "compares user and group ids, capabilities, prctl settings and the name before load, after load, after open and after close",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Privileges),
        fault: fault!(at_load(&[(
            TABLE,
            "#include <sys/prctl.h>\n\n__attribute__((constructor))\nstatic void harden(void)\n{\n\tprctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);\n}\n\nstatic struct acm_provider provider = {",
        )])),
    },
    Check {
        name: "process-descriptors",
        rule: "the provider leaves other descriptors alone, and closes its own with the last port",
        harmed: Harmed::Daemon,
        how: "compares the file behind each descriptor before load, after load and after open, and counts descriptors after close",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Descriptors),
        fault: fault!(at_load(&[(
            TABLE,
            "#include <fcntl.h>\n#include <unistd.h>\n\n__attribute__((constructor))\nstatic void be_quiet(void)\n{\n\tdup2(open(\"/dev/null\", O_WRONLY), STDOUT_FILENO);\n}\n\nstatic struct acm_provider provider = {",
        )])),
    },
    Check {
        name: "process-children",
        rule: "a process that the provider starts ends with the last port, and the provider reaps it",
        harmed: Harmed::Operator,
        how: "opens, resolves and closes, and looks for child processes",
        needs: &[Ability::OpensPort],
        run: children,
        fault: fault!(at_load(&[(
            TABLE,
            "#include <unistd.h>\n\n__attribute__((constructor))\nstatic void start_helper(void)\n{\n\tif (fork())\n\t\treturn;\n\tsetsid();\n\tif (!fork())\n\t\tfor (;;)\n\t\t\tpause();\n\t_exit(0);\n}\n\nstatic struct acm_provider provider = {",
        )])),
    },
    Check {
        name: "process-threads",
        rule: "a thread of the provider ends with the last port at the latest",
        harmed: Harmed::Daemon,
        how: "opens, resolves and closes, and looks for new threads",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Threads),
        fault: fault!(at_load(&[
            (
                TABLE,
                "#include <unistd.h>\n\nstatic void *idle(void *unused)\n{\n\tfor (;;)\n\t\tpause();\n}\n\nstatic struct acm_provider provider = {",
            ),
            (
                "static void read_options(struct device *dev)\n{\n",
                "static void *idle(void *unused);\n\nstatic void read_options(struct device *dev)\n{\n\tstatic pthread_t thread;\n\n\tif (!thread)\n\t\tpthread_create(&thread, NULL, idle, NULL);\n",
            ),
        ])),
    },
    Check {
        name: "process-panics",
        rule: "no thread of the provider panics: nothing else reports that the thread ended",
        harmed: Harmed::Daemon,
        how: "opens, resolves and closes, and searches standard error for a panic message",
        needs: &[Ability::OpensPort],
        run: panics,
        fault: fault!(Fault {
            also: EVERYTHING,
            // What Rust's runtime prints.
            ..at_load(&[(
                "static void *keep_deadlines(void *context)\n{\n\tstruct requests done = TAILQ_HEAD_INITIALIZER(done);\n",
                "static void *keep_deadlines(void *context)\n{\n\tstruct requests done = TAILQ_HEAD_INITIALIZER(done);\n\n\tfprintf(stderr, \"\\nthread 'deadlines' (1) panicked at src/deadlines.rs:7:9:\\nno deadline\\n\");\n",
            )])
        }),
    },
    Check {
        name: "process-timers",
        rule: "the provider does not set the process's interval timers, and its own timers end with the last port",
        harmed: Harmed::Daemon,
        how: "compares interval timers and timer ids before load, after load, after open and after close",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Timers),
        fault: fault!(at_load(&[(
            TABLE,
            "#include <sys/time.h>\n\n__attribute__((constructor))\nstatic void set_alarm(void)\n{\n\tsetitimer(ITIMER_REAL, &(struct itimerval) { .it_value.tv_sec = 100000 }, NULL);\n}\n\nstatic struct acm_provider provider = {",
        )])),
    },
    Check {
        name: "process-memory",
        rule: "no memory is both writable and executable",
        harmed: Harmed::Operator,
        how: "searches /proc/self/maps for memory that is writable and executable, before load and after open",
        needs: &[Ability::OpensPort],
        run: |fixture| keeps(fixture, Group::Memory),
        fault: fault!(Fault {
            status: &[Status::Warned],
            ..at_load(&[(
                TABLE,
                "#include <sys/mman.h>\n\n__attribute__((constructor))\nstatic void take_code(void)\n{\n\tmmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n}\n\nstatic struct acm_provider provider = {",
            )])
        }),
    },
];

/// The line before which a fault inserts a constructor.
#[cfg(feature = "faults")]
const TABLE: &str = "static struct acm_provider provider = {";

#[cfg(feature = "faults")]
const fn at_load(replace: &'static [(&'static str, &'static str)]) -> super::fault::Fault {
    super::fault::Fault {
        replace,
        status: &[super::Status::Failed],
        also: &[],
    }
}

/// Opens a port, resolves and closes several times, so that threads have work. The runner looks for panics after every
/// check.
fn panics(fixture: &mut Fixture) -> Outcome {
    let core = fixture.core_with(vec![DeviceSpec::single()], HASTY)?;
    for round in 1..=3 {
        let from = core.up(FIRST_PORT).map_err(refused)?;
        core.settle();
        let _ = resolve(core, from, &by_lid(&Peer::number(round)));
        core.port_down(FIRST_PORT);
    }
    Ok(())
}

/// Loads the library, opens a port, resolves and closes, and expects a group's properties unchanged.
fn keeps(fixture: &mut Fixture, group: Group) -> Outcome {
    fixture.take_unloaded_library()?;
    let mut watch = None;
    let core = fixture.core_watched(&mut || watch = Some(Watch::begin(group)))?;
    let Some(mut watch) = watch else {
        return Ok(());
    };
    watch.look(Moment::Loaded);
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    // Another check judges the answer.
    let _ = resolve(core, from, &by_lid(&Peer::number(1)));
    watch.look(Moment::Opened);
    core.port_down(FIRST_PORT);
    core.settle();
    watch.look(Moment::Closed);
    watch.end()
}

/// Makes orphans children of this process, so that the check finds them.
fn children(fixture: &mut Fixture) -> Outcome {
    let adopt = |adopts: libc::c_ulong| {
        // SAFETY: this option of prctl takes a number.
        match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, adopts, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(cannot_run("prctl(PR_SET_CHILD_SUBREAPER)")(
                std::io::Error::last_os_error(),
            )),
        }
    };
    adopt(1)?;
    let outcome = keeps(fixture, Group::Children);
    adopt(0)?;
    outcome
}
