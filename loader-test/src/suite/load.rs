//! Checks of the family `load`: what the core needs in a library, and what a library may leave behind.

mod file;
mod options;
mod table;
mod unload;

use super::Check;
use super::fault::NO_FAULT;
use crate::stand_in::ledger::Harmed;
use crate::suite::ability::{Ability, OPENS};

/// Whether the library loads at all. Not part of the suite, whose checks say what is wrong.
pub(super) const PROBE: Check = Check {
    name: "load",
    rule: "ibacm loads the library",
    harmed: Harmed::Operator,
    how: "loads the library as ibacm does",
    needs: &[],
    run: |fixture| fixture.core().map(drop),
    fault: NO_FAULT,
};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "load-file-name",
        rule: "the library's file name ends in .so: ibacm skips all other files",
        harmed: Harmed::Operator,
        how: "reads the name of the given file",
        needs: &[],
        run: file::name,
        fault: fault!(OF_THE_FILE),
    },
    Check {
        name: "load-regular-file",
        rule: "the library is a regular file: ibacm follows no symbolic links and opens no directories",
        harmed: Harmed::Operator,
        how: "reads the type of the given file, without following a link",
        needs: &[],
        run: file::is_regular,
        fault: fault!(OF_THE_FILE),
    },
    Check {
        name: "load-exports",
        rule: "the library is a shared object for this machine and exports provider_query, and none of the core's names",
        harmed: Harmed::Operator,
        how: "reads the file's dynamic symbols without loading it",
        needs: &[],
        run: file::exports,
        fault: fault!(Fault {
            replace: &[("__attribute__((visibility(\"default\")))\n", "")],
            status: &[Status::Failed],
            also: EVERYTHING,
        }),
    },
    Check {
        name: "load-imports",
        rule: "ibacm's process provides every symbol that the library imports: a missing function ends the daemon at its first call",
        harmed: Harmed::Daemon,
        how: "reads the file's dynamic symbols, and loads it with RTLD_NOW",
        needs: &[],
        run: file::imports,
        fault: fault!(Fault {
            replace: &[(
                "static struct acm_provider provider = {",
                "void acm_of_the_future(void);\nvoid (*future)(void) = acm_of_the_future;\n\nstatic struct acm_provider provider = {",
            )],
            status: &[Status::Failed],
            also: EVERYTHING,
        }),
    },
    Check {
        name: "load-query",
        rule: "provider_query returns 0 and stores a table",
        harmed: Harmed::Daemon,
        how: "loads the library, calls provider_query, and checks what it returns and stores",
        needs: &[],
        run: table::query,
        fault: fault!(Fault {
            replace: &[("*info = &provider;", "*info = NULL;")],
            status: &[Status::Failed],
            also: EVERYTHING,
        }),
    },
    Check {
        name: "load-query-twice",
        rule: "provider_query can be called again and gives a usable table each time: ibacm does so for a file with two names",
        harmed: Harmed::Daemon,
        how: "calls provider_query a second time on the loaded library, checks the table, and sends a request",
        needs: OPENS,
        run: table::query_twice,
        fault: fault!(Fault {
            replace: &[(
                "*info = &provider;",
                "static struct acm_provider *once = &provider;\n\n\t*info = once;\n\tonce = NULL;",
            )],
            status: &[Status::Failed],
            also: &["load-missing-function", "sa-error-field"],
        }),
    },
    Check {
        name: "load-version",
        rule: "the version that provider_query stores and the version in the table are both 1",
        harmed: Harmed::Operator,
        how: "loads the library, calls provider_query, and compares the version that it stores with the table's",
        needs: &[],
        run: table::version,
        fault: fault!(Fault {
            replace: &[(".version = 1,", ".version = 2,")],
            status: &[Status::Failed],
            also: EVERYTHING,
        }),
    },
    Check {
        name: "load-size",
        rule: "the table's size is that of struct acm_provider, 120 bytes",
        harmed: Harmed::Operator,
        how: "loads the library, calls provider_query, and reads the size in the table",
        needs: &[],
        run: table::size,
        fault: fault!(Fault {
            replace: &[(
                ".size = sizeof(struct acm_provider),",
                ".size = sizeof(struct acm_provider) + sizeof(void *),",
            )],
            status: &[Status::Failed],
            also: EVERYTHING,
        }),
    },
    Check {
        name: "load-name",
        rule: "the provider's name has 1 to 63 bytes and no white space, so that the options file can name it",
        harmed: Harmed::Operator,
        how: "loads the library, calls provider_query, and reads the name in the table",
        needs: &[Ability::Loads],
        run: table::name,
        fault: fault!(Fault {
            replace: &[(".name = \"sa-example\"", ".name = \"sa example\"")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "load-slots",
        rule: "no callback in the table is NULL: the core calls them all without a check",
        harmed: Harmed::Daemon,
        how: "loads the library, calls provider_query, and reads the twelve callbacks in the table",
        needs: &[Ability::Loads],
        run: table::slots,
        fault: fault!(Fault {
            replace: &[("\t.query_perf = query_perf,\n", "")],
            status: &[Status::Failed],
            also: &["perf-*", "lifecycle-core-thread"],
        }),
    },
    Check {
        name: "load-missing-function",
        rule: "in a core that lacks a function the provider refuses to load or works without it; it never calls the missing function",
        harmed: Harmed::Daemon,
        how: "hides each of the core's functions in turn, each in its own process; loads the library and, if it loads, sends a request",
        needs: OPENS,
        run: unload::missing_function,
        fault: fault!(Fault {
            replace: &[(
                "#define FOR_EVER\t\tUINT64_MAX\n",
                "#define FOR_EVER\t\tUINT64_MAX\n#pragma weak acm_increment_counter\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "load-refused-unloads",
        rule: "a provider that refuses to be loaded leaves no thread, mapping or exit handler behind",
        harmed: Harmed::Daemon,
        how: "hides each of the core's functions in turn; if the library refuses, looks for threads and mappings, and ends by exit()",
        needs: &[Ability::Loads],
        run: unload::refused_by_itself,
        fault: fault!(Fault {
            replace: &[
                (
                    "#define FOR_EVER\t\tUINT64_MAX\n",
                    "#define FOR_EVER\t\tUINT64_MAX\n#pragma weak acm_increment_counter\n",
                ),
                (
                    "#include <time.h>\n",
                    "#include <time.h>\n#include <unistd.h>\n",
                ),
                (
                    "static struct acm_provider provider = {",
                    "static void *idle(void *unused)\n{\n\tfor (;;)\n\t\tpause();\n}\n\n__attribute__((constructor))\nstatic void start(void)\n{\n\tpthread_t thread;\n\n\tpthread_create(&thread, NULL, idle, NULL);\n}\n\nstatic struct acm_provider provider = {",
                ),
                (
                    "*info = &provider;",
                    "if (!acm_increment_counter)\n\t\treturn ENOSYS;\n\t*info = &provider;",
                ),
            ],
            status: &[Status::Failed],
            also: &[
                "load-rejected-unloads",
                "load-rejected-exit",
                "load-rejected-fork",
                "process-threads",
            ],
        }),
    },
    Check {
        name: "load-rejected-unloads",
        rule: "when the core rejects and unloads a provider, nothing keeps running in the unmapped code",
        harmed: Harmed::Daemon,
        how: "loads and closes the library as a core of another version does, looks for threads, and ends by exit()",
        needs: &[Ability::Loads],
        run: unload::rejected,
        fault: fault!(Fault {
            replace: &[
                (
                    "#include <time.h>\n",
                    "#include <time.h>\n#include <unistd.h>\n",
                ),
                (
                    "static struct acm_provider provider = {",
                    "static void *idle(void *unused)\n{\n\tfor (;;)\n\t\tpause();\n}\n\n__attribute__((constructor))\nstatic void start(void)\n{\n\tpthread_t thread;\n\n\tpthread_create(&thread, NULL, idle, NULL);\n}\n\nstatic struct acm_provider provider = {",
                ),
            ],
            status: &[Status::Failed],
            also: &[
                "load-rejected-exit",
                "load-rejected-fork",
                "process-threads",
            ],
        }),
    },
    Check {
        name: "load-rejected-exit",
        rule: "when the core rejects and unloads a provider, the provider's exit handlers are gone too",
        harmed: Harmed::Daemon,
        how: "loads and closes the library as a core of another version does, and ends by exit()",
        needs: &[],
        run: unload::rejected_then_exit,
        fault: fault!(Fault {
            replace: &[(
                "static struct acm_provider provider = {",
                "static void tidy_up(int status, void *unused)\n{\n\tacm_log(0, \"exit status %d\\n\", status);\n}\n\n__attribute__((constructor))\nstatic void start(void)\n{\n\ton_exit(tidy_up, NULL);\n}\n\nstatic struct acm_provider provider = {",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "load-rejected-fork",
        rule: "when the core rejects and unloads a provider, the provider's fork handlers are gone too",
        harmed: Harmed::Daemon,
        how: "loads and closes the library as a core of another version does, and forks",
        needs: &[],
        run: unload::rejected_then_fork,
        fault: fault!(Fault {
            replace: &[(
                "static struct acm_provider provider = {",
                "static void hold(void)\n{\n\tpthread_mutex_lock(&lock);\n}\n\nstatic void let_go(void)\n{\n\tpthread_mutex_unlock(&lock);\n}\n\nint __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);\n\n__attribute__((constructor))\nstatic void start(void)\n{\n\t__register_atfork(hold, let_go, let_go, NULL);\n}\n\nstatic struct acm_provider provider = {",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "load-without-options-file",
        rule: "without ibacm_opts.cfg the provider uses its defaults, as the core does",
        harmed: Harmed::Client,
        how: "names an options file that does not exist, and resolves one peer by LID",
        needs: &[Ability::AnswersByLid, Ability::Closes],
        run: options::no_file,
        fault: fault!(Fault {
            replace: &[("\tif (!stream)\n\t\treturn errno;\n", "")],
            status: &[Status::Crashed],
            also: &["event-hosts-unreadable"],
        }),
    },
    Check {
        name: "load-odd-options",
        rule: "unknown, incomplete, overlong or oddly spaced lines in ibacm_opts.cfg do no harm",
        harmed: Harmed::Daemon,
        how: "writes 17 odd lines to the options file, and resolves one peer by LID",
        needs: &[Ability::AnswersByLid, Ability::Closes],
        run: options::odd_lines,
        fault: fault!(Fault {
            replace: &[(
                "if (second && first[0] != '#')",
                "if (first && first[0] != '#')",
            )],
            status: &[Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "load-quiet",
        rule: "the provider writes to the core's log, never to standard output",
        harmed: Harmed::Operator,
        how: "redirects standard output to a file, opens a port, sends a request, and reads the file",
        needs: OPENS,
        run: options::quiet,
        fault: fault!(Fault {
            replace: &[(
                "*info = &provider;",
                "puts(\"sa-example is loaded\");\n\tfflush(stdout);\n\t*info = &provider;",
            )],
            status: &[Status::Warned],
            also: EVERYTHING,
        }),
    },
];

/// The fault is in the file's name or kind, not in the source.
#[cfg(feature = "faults")]
const OF_THE_FILE: super::fault::Fault = super::fault::Fault {
    replace: &[],
    status: &[super::Status::Failed],
    also: super::fault::EVERYTHING,
};
