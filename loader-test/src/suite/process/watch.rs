//! Compares the state of a process before load with its later states.

use std::fmt;
use std::time::{Duration, Instant};

use super::state::{Group, Kept, PROPERTIES, Property, Values};
use crate::suite::{Finding, Outcome, failed};

/// A moment of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the library is loaded.
    Before,
    /// After that.
    Loaded,
    /// After a port was opened, and a request answered.
    Opened,
    /// After everything was closed.
    Closed,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before the library was loaded",
            Self::Loaded => "when the library was loaded",
            Self::Opened => "when a port was open",
            Self::Closed => "when everything was closed",
        })
    }
}

/// Time limit for things that end with a close, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// The watched properties of a group.
pub struct Watch {
    rows: Vec<Row>,
}

struct Row {
    property: &'static Property,
    before: Values,
    /// The values that were new when the library was loaded.
    of_loading: Values,
    finding: Option<Finding>,
}

impl Watch {
    /// Reads the properties of a group before the library is loaded.
    pub fn begin(group: Group) -> Self {
        let rows = PROPERTIES
            .iter()
            .filter(|property| property.group == group)
            .map(|property| Row {
                property,
                before: (property.read)(),
                of_loading: Values::new(),
                finding: None,
            });
        Self {
            rows: rows.collect(),
        }
    }

    /// Compares them again.
    pub fn look(&mut self, moment: Moment) {
        for row in self.rows.iter_mut().filter(|row| row.finding.is_none()) {
            row.finding = row.look(moment);
        }
    }

    /// Reports the first change, one with an effect on others before all others.
    pub fn end(self) -> Outcome {
        let mut findings: Vec<Finding> = self
            .rows
            .into_iter()
            .filter_map(|row| row.finding)
            .collect();
        findings.sort_by_key(|finding| matches!(finding, Finding::Warned(_)));
        findings.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Row {
    fn look(&mut self, moment: Moment) -> Option<Finding> {
        let read = self.property.read;
        let is_wrong = |now: &Values| !self.changes(now, moment).is_empty();
        let mut now = read();
        let deadline = Instant::now() + PATIENCE;
        while moment == Moment::Closed && is_wrong(&now) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            now = read();
        }
        let changes = self.changes(&now, moment);
        if moment == Moment::Loaded {
            self.of_loading = now;
            self.of_loading
                .retain(|name, _| !self.before.contains_key(name));
        }
        let first = changes.first()?;
        let more = match changes.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        let text = format!("{}{more}", first.text);
        let name = self.property.name;
        Some(match self.property.harm {
            Some(harm) => failed(
                format!("{name} as {}", Moment::Before),
                format!("{text}: {harm}"),
            ),
            // A value that disappeared belonged to the daemon.
            None if !first.is_added => failed(format!("{name} as {}", Moment::Before), text),
            None => Finding::Warned(format!("not as {}: {name}: {text}", Moment::Before)),
        })
    }

    fn changes(&self, now: &Values, moment: Moment) -> Vec<Change> {
        // Values of the environment may be secret.
        let is_secret = self.property.group == Group::Environment;
        let gone = self.before.iter().filter_map(|(name, before)| {
            let text = match now.get(name) {
                None if is_secret => format!("{name} is gone {moment}"),
                Some(value) if is_secret && self.differs(before, value) => {
                    format!("{name} has another value {moment}")
                }
                None => format!("{name} ({before}) is gone {moment}"),
                Some(value) if self.differs(before, value) => {
                    format!("{name} is {value} {moment}, and was {before}")
                }
                Some(_) => return None,
            };
            let is_added = false;
            Some(Change { text, is_added })
        });
        let may_have_more = self.property.kept == Kept::AfterClose && moment != Moment::Closed;
        let added = now
            .iter()
            .filter(|(name, _)| !may_have_more && !self.before.contains_key(*name))
            .map(|(name, value)| Change {
                text: self.added(name, value, moment),
                is_added: true,
            });
        gone.chain(added).collect()
    }

    /// Ignores the state of a thread or a child.
    fn differs(&self, before: &str, now: &str) -> bool {
        !matches!(self.property.group, Group::Threads | Group::Children) && before != now
    }

    fn added(&self, name: &str, value: &str, moment: Moment) -> String {
        let kind = match self.property.group {
            Group::Threads => "thread ",
            _ => "",
        };
        if self.property.group == Group::Environment {
            return format!("{name} is new {moment}");
        }
        if self.property.kept == Kept::Always {
            return format!("{kind}{name} ({value}) is new {moment}");
        }
        let since = match self.of_loading.contains_key(name) {
            true => "it exists since the library was loaded",
            false => "it came while a port was open",
        };
        format!(
            "{kind}{name} ({value}) still exists {moment}: {since}, and should have ended with the last close"
        )
    }
}

struct Change {
    text: String,
    is_added: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDERS: Property = Property {
        name: "the folders",
        group: Group::Descriptors,
        kept: Kept::AfterClose,
        harm: None,
        read: Values::new,
    };

    fn values(pairs: &[(&str, &str)]) -> Values {
        let owned = |text: &str| text.to_owned();
        pairs
            .iter()
            .map(|(name, value)| (owned(name), owned(value)))
            .collect()
    }

    fn changes(property: &'static Property, now: &[(&str, &str)], moment: Moment) -> Vec<String> {
        let row = Row {
            property,
            before: values(&[("a", "1"), ("b", "2")]),
            of_loading: values(&[("c", "3")]),
            finding: None,
        };
        let changes = row.changes(&values(now), moment);
        changes.into_iter().map(|change| change.text).collect()
    }

    #[test]
    fn what_was_there_stays_and_what_came_goes() {
        let all = [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")];
        for moment in [Moment::Loaded, Moment::Opened] {
            assert!(changes(&FOLDERS, &all, moment).is_empty());
            let [changed, gone] = &changes(&FOLDERS, &[("a", "9")], moment)[..] else {
                panic!("two changes")
            };
            assert!(changed.starts_with("a is 9 ") && gone.starts_with("b (2) is gone "));
        }
        assert!(changes(&FOLDERS, &all[..2], Moment::Closed).is_empty());
        let [c, d] = &changes(&FOLDERS, &all, Moment::Closed)[..] else {
            panic!("two are left")
        };
        assert!(c.contains("since the library was loaded") && d.contains("while a port was open"));
    }

    #[test]
    fn what_never_changes_has_nothing_new_either() {
        const ALWAYS: Property = Property {
            kept: Kept::Always,
            ..FOLDERS
        };
        let more = [("a", "1"), ("b", "2"), ("c", "3")];
        assert_eq!(changes(&ALWAYS, &more, Moment::Loaded).len(), 1);
    }
}
