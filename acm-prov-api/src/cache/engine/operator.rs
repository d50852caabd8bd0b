//! What the operator is told of the SA: lines of the log.

use crate::cache::answer::Judged;
use crate::cache::sm_health::Message;
use crate::handle::EndpointHandle;
use crate::host::LogLevel;

use super::{Shared, State};

impl Shared {
    /// The line for a message, to be logged when the state is no longer locked.
    pub(super) fn line(
        &self,
        state: &State,
        pkey: impl std::fmt::Display,
        message: Option<Message>,
    ) -> Option<String> {
        let (port, sm_lid) = (self.port.number(), self.sm_lid);
        let guid = self.port.device().guid();
        let waiting = state.lookups.waiting();
        Some(match message? {
            Message::Silent {
                for_ms,
                last,
                untold,
            } => {
                let last = last.map_or("no query has come back".to_owned(), |error| {
                    error.to_string()
                });
                let untold = if untold == 0 {
                    String::new()
                } else {
                    format!("; {untold} shorter silences before")
                };
                format!(
                    "device {guid:#018x} port {port}: the SA does not answer: SM LID {sm_lid}, P_Key {pkey}, silent for \
                     {for_ms} ms, {waiting} requests wait, last status: {last}{untold}"
                )
            }
            Message::Answers { after_ms } => format!(
                "device {guid:#018x} port {port}: the SA answers again: SM LID {sm_lid}, P_Key {pkey}, after {after_ms} \
                 ms, {waiting} requests wait"
            ),
        })
    }

    pub(super) fn tell(&self, line: Option<String>) {
        if let Some(line) = line {
            self.port
                .host()
                .log(LogLevel::ALWAYS, format_args!("{line}"));
        }
    }

    /// Warns when the subnet manager has moved: the core asks at the LID that it had when the port came up.
    pub(super) fn watch_sm_lid(&self) {
        let Ok(attributes) = self.port.attributes() else {
            return;
        };
        let (now, then) = (attributes.sm_lid, self.sm_lid);
        let told = std::mem::replace(&mut self.state.lock().told_sm_lid, now);
        if now != told && now != then {
            self.tell(Some(format!(
                "device {:#018x} port {}: the port's SM LID is {now} now, but ibacm keeps asking the SA at SM LID {then} \
                 until the port goes down and up again",
                self.port.device().guid(),
                self.port.number()
            )));
        }
    }
}

/// Tells those who want to read it what the SA refused.
pub(super) fn report(endpoint: &EndpointHandle, judged: &Judged) {
    let log = |text: &dyn std::fmt::Display| {
        endpoint
            .host()
            .log(LogLevel::VERBOSE, format_args!("{text}"))
    };
    match judged {
        Judged::Mismatch(mismatch) => log(mismatch),
        Judged::Failed(error) => log(error),
        Judged::Invalid => log(&"the SA finds the query invalid"),
        Judged::Path(_) | Judged::NoRecords | Judged::Again(_) => {}
    }
}
