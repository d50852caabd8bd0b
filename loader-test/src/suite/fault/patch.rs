//! The changes of a fault to a correct provider, and their effects.
//!
//! The correct provider is `include/examples/sa_provider.c`, for checks of the multicast protocol `mcast_provider.c`. A
//! [`Fault`] lists replacements in its text. A test builds the result and expects the check to fail on it, and no other check
//! except those that the fault declares.

use crate::suite::{Check, Status};

/// A change that makes a correct provider faulty.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Texts in the correct provider's source, each present exactly once, and their replacements.
    pub replace: &'static [(&'static str, &'static str)],
    /// How the check must end: failed, crashed or timed out; several if memory is corrupted.
    pub status: &'static [Status],
    /// Other checks that may fail for the same reason: names, or patterns such as `sa-*`. Also departures that may occur: names
    /// such as `breach-missing-ack`.
    pub also: &'static [&'static str],
}

/// Faults that affect no one, each with its departure: no check fails on them.
pub const DEPARTURES: &[(&str, Fault)] = &[
    (
        "breach-missing-ack",
        departure(&[(
            "msg.hdr.opcode = request->hdr.opcode | ACM_OP_ACK;",
            "msg.hdr.opcode = request->hdr.opcode;",
        )]),
    ),
    (
        "breach-dirty-header",
        departure(&[(
            "\tmsg.hdr.tid = request->hdr.tid;\n\tmsg.hdr.length = ACM_MSG_HDR_LENGTH;\n",
            "\tmsg.hdr.tid = request->hdr.tid;\n\tmsg.hdr.data[2] = 7;\n\tmsg.hdr.length = ACM_MSG_HDR_LENGTH;\n",
        )]),
    ),
    (
        "breach-core-counter",
        departure(&[(
            "\t\tacm_resolve_response(request->id, &msg);\n",
            "\t\tacm_increment_counter(ACM_CNTR_RESOLVE);\n\t\tacm_resolve_response(request->id, &msg);\n",
        )]),
    ),
    (
        "breach-dropped-request",
        departure(&[(
            "\t\tacm_resolve_response(request->id, &msg);\n",
            "\t\textern void acm_provider_fault(int kind, const char *text);\n\t\tacm_provider_fault(2, \"resolve: the request for LID 3 was dropped unanswered; answering ENODATA\");\n\t\tacm_resolve_response(request->id, &msg);\n",
        )]),
    ),
    (
        "breach-standard-output",
        departure(&[(
            "\t\tacm_resolve_response(request->id, &msg);\n",
            "\t\tprintf(\"an answer\\n\");\n\t\tfflush(stdout);\n\t\tacm_resolve_response(request->id, &msg);\n",
        )]),
    ),
];

const fn departure(replace: &'static [(&'static str, &'static str)]) -> Fault {
    Fault {
        replace,
        status: &[Status::Warned],
        also: &[],
    }
}

/// The empty fault, for checks outside the suite.
pub const NO_FAULT: Fault = Fault {
    replace: &[],
    status: &[],
    also: &[],
};

/// Why a declaration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFault {
    /// There is nothing to replace.
    #[error("the fault replaces nothing")]
    Nothing,
    /// A text is replaced by itself.
    #[error("the fault replaces a text by itself: {0:?}")]
    Same(&'static str),
    /// A text is missing, or present more than once.
    #[error("the good provider's source has this text {count} times instead of once: {text:?}")]
    Found {
        /// The text.
        text: &'static str,
        /// Its number of occurrences.
        count: usize,
    },
    /// One replacement changes another one's text.
    #[error("another replacement of the fault changes this text, or makes it a second time: {0:?}")]
    Entangled(&'static str),
    /// A declared status is not a failure.
    #[error("the fault declares {0}, which is not a failure")]
    NoFailure(Status),
    /// It declares no status.
    #[error("the fault declares no status")]
    NoStatus,
    /// There is no such check.
    #[error("the fault names the other check {0:?}, which does not exist")]
    NoCheck(&'static str),
}

/// For faults at load: every check of the provider without the multicast protocol fails.
pub const EVERYTHING: &[&str] = &[
    "load-*",
    "process-*",
    "lifecycle-*",
    "resolve-*",
    "path-*",
    "query-*",
    "sa-*",
    "event-*",
    "perf-*",
    "hostile-*",
];

impl Fault {
    /// Returns the faulty provider's source, made from the correct one's.
    ///
    /// # Errors
    /// If a text to replace is not in the source exactly once.
    pub fn apply(&self, good: &str) -> Result<String, BadFault> {
        if self.replace.is_empty() || self.replace.iter().any(|(text, _)| text.is_empty()) {
            return Err(BadFault::Nothing);
        }
        let mut faulty = good.to_owned();
        for &(text, replacement) in self.replace {
            let count = good.matches(text).count();
            if count != 1 {
                return Err(BadFault::Found { text, count });
            }
            if text == replacement {
                return Err(BadFault::Same(text));
            }
            if faulty.matches(text).count() != 1 {
                return Err(BadFault::Entangled(text));
            }
            faulty = faulty.replacen(text, replacement, 1);
        }
        Ok(faulty)
    }

    /// Validates the other declarations; `checks` are all checks.
    ///
    /// # Errors
    /// The first mistake.
    pub fn examine(&self, checks: &[&Check]) -> Result<(), BadFault> {
        if self.status.is_empty() {
            return Err(BadFault::NoStatus);
        }
        if let Some(&status) = self.status.iter().find(|status| !status.is_bad(true)) {
            return Err(BadFault::NoFailure(status));
        }
        let unknown = self
            .also
            .iter()
            .filter(|pattern| !DEPARTURES.iter().any(|(name, _)| name == *pattern))
            .find(|pattern| !checks.iter().any(|check| matches(pattern, check)));
        match unknown {
            Some(pattern) => Err(BadFault::NoCheck(pattern)),
            None => Ok(()),
        }
    }

    /// Whether the fault declares the departure of this name.
    pub fn may_show(&self, breach: &str) -> bool {
        self.also.contains(&breach)
    }

    /// Whether the fault declares that `check` may fail too.
    pub fn may_fail(&self, check: &Check) -> bool {
        self.also.iter().any(|pattern| matches(pattern, check))
    }
}

/// Whether a name, or a pattern such as `sa-*`, matches the check.
fn matches(pattern: &str, check: &Check) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => beginning.ends_with('-') && check.name.starts_with(beginning),
        None => pattern == check.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in::ledger::Harmed;

    const GOOD: &str = "open();\nread();\nread();\nclose();\n";

    fn fault(replace: &'static [(&'static str, &'static str)]) -> Fault {
        Fault {
            replace,
            status: &[Status::Failed],
            also: &[],
        }
    }

    fn check(name: &'static str) -> Check {
        Check {
            name,
            rule: "",
            harmed: Harmed::Client,
            how: "",
            needs: &[],
            run: |_| Ok(()),
            fault: fault(&[]),
        }
    }

    #[test]
    fn every_text_is_replaced_once() {
        let twofold = fault(&[("close();\n", ""), ("open", "fopen")]);
        assert_eq!(twofold.apply(GOOD).unwrap(), "fopen();\nread();\nread();\n");
    }

    #[test]
    fn a_fault_that_does_not_fit_the_source_is_refused() {
        let found = |text, count| Err(BadFault::Found { text, count });
        assert_eq!(fault(&[]).apply(GOOD), Err(BadFault::Nothing));
        assert_eq!(fault(&[("write", "")]).apply(GOOD), found("write", 0));
        assert_eq!(fault(&[("read", "")]).apply(GOOD), found("read", 2));
        assert_eq!(fault(&[("", "x")]).apply(GOOD), Err(BadFault::Nothing));
        assert_eq!(
            fault(&[("open", "open")]).apply(GOOD),
            Err(BadFault::Same("open"))
        );
        assert_eq!(
            fault(&[("open", "close"), ("close", "")]).apply(GOOD),
            Err(BadFault::Entangled("close"))
        );
        assert_eq!(
            fault(&[("open();", ""), ("open", "")]).apply(GOOD),
            Err(BadFault::Entangled("open"))
        );
    }

    #[test]
    fn declarations_name_failures_and_checks_that_exist() {
        use Status::{Crashed, Passed, Skipped, Warned};
        let checks = [check("sa-timeout"), check("load-name")];
        let examine = |status, also| {
            let fault = Fault {
                replace: &[],
                status,
                also,
            };
            fault.examine(&checks.each_ref())
        };
        assert_eq!(examine(&[Crashed, Warned], &["sa-*", "load-name"]), Ok(()));
        assert_eq!(examine(&[], &[]), Err(BadFault::NoStatus));
        assert_eq!(
            examine(&[Crashed, Passed], &[]),
            Err(BadFault::NoFailure(Passed))
        );
        assert_eq!(examine(&[Skipped], &[]), Err(BadFault::NoFailure(Skipped)));
        assert_eq!(examine(&[Crashed], &["breach-missing-ack"]), Ok(()));
        assert_eq!(
            examine(&[Crashed], &["breach-no-manners"]),
            Err(BadFault::NoCheck("breach-no-manners"))
        );
        let no_check = |name| Err(BadFault::NoCheck(name));
        assert_eq!(examine(&[Crashed], &["sa-time"]), no_check("sa-time"));
        assert_eq!(examine(&[Crashed], &["sa-time*"]), no_check("sa-time*"));
        assert_eq!(examine(&[Crashed], &["sa-*", "s-*"]), no_check("s-*"));
        assert_eq!(examine(&[Crashed], &["load-name", "*"]), no_check("*"));
    }

    #[test]
    fn other_checks_are_declared_by_name_or_by_how_names_begin() {
        let fault = Fault {
            also: &["sa-*", "load-name"],
            ..fault(&[])
        };
        for (name, expected) in [
            ("sa-timeout", true),
            ("load-name", true),
            ("load-name-length", false),
            ("resolve-sa", false),
        ] {
            assert_eq!(fault.may_fail(&check(name)), expected, "{name}");
        }
    }
}
