//! Checks of the family `load`: what the core needs to find in a library, and what a library may leave behind.

mod file;
mod options;
mod table;
mod unload;

use super::fault::Fault;
use super::{Check, Status};
use crate::stand_in::ledger::Harmed;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "load-file-name",
        rule: "the library's file name ends in .so: ibacm passes over every other one",
        harmed: Harmed::Operator,
        run: file::name,
        fault: OUTSIDE_THE_SOURCE,
    },
    Check {
        name: "load-regular-file",
        rule: "the library is a regular file: ibacm follows no symbolic links and opens no directories",
        harmed: Harmed::Operator,
        run: file::is_regular,
        fault: OUTSIDE_THE_SOURCE,
    },
    Check {
        name: "load-exports",
        rule: "the library is a shared object for this machine and exports provider_query, and none of the core's names",
        harmed: Harmed::Operator,
        run: file::exports,
        fault: NOT_YET,
    },
    Check {
        name: "load-imports",
        rule: "everything that the library needs from others is there in ibacm: a function that is missing ends the daemon when it is called first",
        harmed: Harmed::Daemon,
        run: file::imports,
        fault: NOT_YET,
    },
    Check {
        name: "load-query",
        rule: "provider_query returns 0 and stores a table",
        harmed: Harmed::Daemon,
        run: table::query,
        fault: NOT_YET,
    },
    Check {
        name: "load-query-twice",
        rule: "provider_query may be called again, as happens to a file with two names, and gives a usable table each time",
        harmed: Harmed::Daemon,
        run: table::query_twice,
        fault: NOT_YET,
    },
    Check {
        name: "load-version",
        rule: "provider_query and the table name version 1 of the interface",
        harmed: Harmed::Operator,
        run: table::version,
        fault: NOT_YET,
    },
    Check {
        name: "load-size",
        rule: "the table's size is that of struct acm_provider, 120 bytes",
        harmed: Harmed::Operator,
        run: table::size,
        fault: NOT_YET,
    },
    Check {
        name: "load-name",
        rule: "the provider has a name of 1 to 63 bytes without white space, so that the options file can name it",
        harmed: Harmed::Operator,
        run: table::name,
        fault: NOT_YET,
    },
    Check {
        name: "load-slots",
        rule: "no callback in the table is NULL: the core calls all of them unchecked",
        harmed: Harmed::Daemon,
        run: table::slots,
        fault: NOT_YET,
    },
    Check {
        name: "load-missing-function",
        rule: "in a core that lacks a function the provider is refused or does without; it never runs into the gap",
        harmed: Harmed::Daemon,
        run: unload::missing_function,
        fault: NOT_YET,
    },
    Check {
        name: "load-refused-unloads",
        rule: "a provider that refuses to be loaded leaves no thread, mapping or exit handler behind",
        harmed: Harmed::Daemon,
        run: unload::refused_by_itself,
        fault: NOT_YET,
    },
    Check {
        name: "load-rejected-unloads",
        rule: "a provider that the core rejects and unloads leaves nothing behind that runs in its unmapped code",
        harmed: Harmed::Daemon,
        run: unload::rejected_by_the_core,
        fault: NOT_YET,
    },
    Check {
        name: "load-without-options-file",
        rule: "without ibacm_opts.cfg the provider runs by its defaults, as the core does",
        harmed: Harmed::Client,
        run: options::no_file,
        fault: NOT_YET,
    },
    Check {
        name: "load-odd-options",
        rule: "lines of ibacm_opts.cfg that are foreign, incomplete, overlong or odd in their white space do no harm",
        harmed: Harmed::Daemon,
        run: options::odd_lines,
        fault: NOT_YET,
    },
    Check {
        name: "load-quiet",
        rule: "the provider writes to the core's log and not to standard output",
        harmed: Harmed::Operator,
        run: options::quiet,
        fault: NOT_YET,
    },
];

/// The fault is in the file's name or kind: the runner's tests show it.
const OUTSIDE_THE_SOURCE: Fault = Fault {
    replace: &[],
    status: &[Status::Failed],
    also: &["*"],
};

const NOT_YET: Fault = OUTSIDE_THE_SOURCE;
