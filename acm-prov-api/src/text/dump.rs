//! Reads paths from a dump of OpenSM's `dump_pr` plugin (option `route_data_file`, format `route_preload
//! opensm_full_v1`).
//!
//! The dump has a section for each port: a line `TYPE GUID, base LID n, "description", port p`, where the type is
//! `Switch`, `Channel Adapter` or `Router`; a comment; then for each destination `DLID : SL : MTU : RATE` (codes of the
//! architecture) or `DLID : UNREACHABLE`. The section of the local port has its paths; the other sections say which port
//! has which LID. A description can contain anything, line feeds and quotes included; it is ignored.
//!
//! The dump of a large fabric is large (every pair of ports). It is read once; of other ports' sections only GUID and LID
//! are kept.
//!
//! ```
//! use acm_prov_api::address::Lid;
//! use acm_prov_api::dump::Routes;
//!
//! let text = concat!(
//!     "Channel Adapter 0x0000000000000011, base LID 1, \"node1\", port 1\n# LID  : SL : MTU : RATE\n",
//!     "0x0001 : 0  : 4   : 3\n0x0002 : 1  : 4   : 7\n0x0003 : UNREACHABLE\n\n",
//!     "Channel Adapter 0x0000000000000022, base LID 2, \"node2\", port 1\n# LID  : SL : MTU : RATE\n",
//! );
//! let routes = Routes::parse("dump", text.as_bytes(), 0x11, Lid(1));
//! let route = routes.by_lid(Lid(2)).unwrap();
//! assert_eq!((route.guid, route.sl, route.mtu, route.rate), (0x22, 1, 4, 7));
//! assert_eq!(routes.lid_of(0x22), Some(Lid(2)));
//! assert_eq!(routes.by_lid(Lid(3)), None);
//! ```

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use crate::address::Lid;
use crate::text::lines::{self, Line, Lines};
use crate::text::report::{Problem, Report, of_error, shown};
use crate::text::watched_file::FileContent;

/// The most bytes to read, a bound for endless files: more than 49,151 LIDs squared need.
const FILE_LIMIT: u64 = 1 << 38;
/// How many bad lines are reported one by one.
const REPORT_LIMIT: usize = 100;

/// A path to a destination, from a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// GUID of the destination port.
    pub guid: u64,
    /// Service level.
    pub sl: u8,
    /// MTU code: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// Rate code.
    pub rate: u8,
}

/// The paths of one port.
#[derive(Clone, Default, Debug)]
pub struct Routes {
    by_lid: HashMap<Lid, Route>,
    by_guid: HashMap<u64, Lid>,
    has_section: bool,
    reports: Vec<Report>,
}

impl Routes {
    /// Reads a dump for the port with that GUID and base LID. Reports a missing or unreadable file; the lines read before an
    /// error count.
    pub fn read(file: &Path, guid: u64, base_lid: Lid) -> Self {
        match lines::open(file) {
            Ok(reader) => Self::parse(file, reader, guid, base_lid),
            Err(error) => Self::unread(of_error(file, &error)),
        }
    }

    /// No paths, with the reason as a report.
    pub(crate) fn unread(report: Report) -> Self {
        Self {
            reports: vec![report],
            ..Self::default()
        }
    }

    /// Parses a dump from a reader; `file` is its name in reports. An error of the reader is reported and
    /// ends the text.
    pub fn parse(file: impl AsRef<Path>, reader: impl BufRead, guid: u64, base_lid: Lid) -> Self {
        let mut parser = Parser {
            file: file.as_ref(),
            own: (guid, base_lid),
            place: Place::Outside,
            guids: HashMap::new(),
            paths: HashMap::new(),
            has_section: false,
            reports: Vec::new(),
            more: 0,
        };
        let mut lines = Lines::new(reader, FILE_LIMIT);
        let end = loop {
            if parser.place == (Place::Paths { own: false })
                && let Err(error) = lines.skip_to(FIRST)
            {
                break Some(of_error(parser.file, &error));
            }
            match lines.next() {
                Ok(Some(line)) => parser.line(line),
                Ok(None) => break None,
                Err(error) => break Some(of_error(parser.file, &error)),
            }
        };
        parser.finish(end)
    }

    /// Returns the path to a LID.
    pub fn by_lid(&self, lid: Lid) -> Option<Route> {
        self.by_lid.get(&lid).copied()
    }

    /// Returns the LID of a port.
    pub fn lid_of(&self, guid: u64) -> Option<Lid> {
        self.by_guid.get(&guid).copied()
    }

    /// Returns all paths, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Lid, &Route)> {
        self.by_lid.iter().map(|(lid, route)| (*lid, route))
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.by_lid.len()
    }

    /// Whether there is no path.
    pub fn is_empty(&self) -> bool {
        self.by_lid.is_empty()
    }

    /// Whether the dump has a section for the local port.
    pub fn has_section(&self) -> bool {
        self.has_section
    }

    /// Returns the problems of the file: the first 100 bad lines, then the number of further ones.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }
}

impl FileContent for Routes {
    fn reports(&self) -> &[Report] {
        &self.reports
    }

    fn unusable(&self) -> Option<&'static str> {
        (!self.has_section).then_some("it has no section for the local port")
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// The parser's place in the dump.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first section.
    Outside,
    /// After a line feed in a description, in the section of the local port or of another.
    Description { own: bool },
    /// In a section's paths.
    Paths { own: bool },
}

struct Parser<'a> {
    file: &'a Path,
    own: (u64, Lid),
    place: Place,
    guids: HashMap<Lid, u64>,
    paths: HashMap<Lid, (u8, u8, u8)>,
    has_section: bool,
    reports: Vec<Report>,
    more: u64,
}

impl Parser<'_> {
    fn line(&mut self, line: Line<'_>) {
        let text = line.bytes.trim_ascii();
        if let Place::Description { own } = self.place {
            if ends_description(text) || is_heading(text) {
                self.place = Place::Paths { own };
            }
            return;
        }
        if text.is_empty() || text.starts_with(b"#") {
            return;
        }
        if is_section(text) {
            match section(text) {
                Ok((guid, lid)) => self.section(line.number, text, guid, lid),
                Err(reason) => {
                    self.bad(line.number, text, reason);
                    self.place = Place::Paths { own: false };
                }
            }
            return;
        }
        if self.place == (Place::Paths { own: true }) {
            match path(text) {
                Ok(Some((lid, path))) => {
                    self.paths.insert(lid, path);
                }
                Ok(None) => {}
                Err(reason) => self.bad(line.number, text, reason),
            }
        }
    }

    fn section(&mut self, number: u64, text: &[u8], guid: u64, lid: Lid) {
        let own = (guid, lid) == self.own;
        self.has_section |= own;
        self.place = if ends_description(text) {
            Place::Paths { own }
        } else {
            Place::Description { own }
        };
        if !lid.is_unicast() {
            self.bad(number, text, "no port has that LID");
        } else if *self.guids.entry(lid).or_insert(guid) != guid {
            self.bad(number, text, "an earlier port has the same LID");
        }
    }

    fn bad(&mut self, number: u64, text: &[u8], reason: &str) {
        if self.reports.len() >= REPORT_LIMIT {
            self.more += 1;
            return;
        }
        self.reports.push(Report {
            option: None,
            file: self.file.to_owned(),
            line: Some(number),
            problem: Problem::BadRoute {
                text: shown(text),
                reason: reason.to_owned(),
            },
        });
    }

    fn finish(mut self, end: Option<Report>) -> Routes {
        let mut routes = Routes {
            has_section: self.has_section,
            ..Routes::default()
        };
        let mut without_owner = 0;
        for (lid, (sl, mtu, rate)) in self.paths {
            let Some(&guid) = self.guids.get(&lid) else {
                without_owner += 1;
                continue;
            };
            routes.by_guid.insert(guid, lid);
            routes.by_lid.insert(
                lid,
                Route {
                    guid,
                    sl,
                    mtu,
                    rate,
                },
            );
        }
        let mut whole = |problem| {
            self.reports.push(Report {
                option: None,
                file: self.file.to_owned(),
                line: None,
                problem,
            });
        };
        if self.more > 0 {
            whole(Problem::MoreBadLines { count: self.more });
        }
        if without_owner > 0 {
            whole(Problem::RoutesWithoutOwner {
                count: without_owner,
            });
        }
        if !self.has_section && end.is_none() {
            let (guid, lid) = self.own;
            whole(Problem::NoSection { guid, lid });
        }
        self.reports.extend(end);
        routes.reports = self.reports;
        routes
    }
}

const TYPES: [&[u8]; 3] = [b"Switch ", b"Channel Adapter ", b"Router "];
/// Their first bytes. Lines with paths contain none of these, except "UNREACHABLE".
const FIRST: [u8; 3] = [TYPES[0][0], TYPES[1][0], TYPES[2][0]];

fn is_section(text: &[u8]) -> bool {
    TYPES.iter().any(|kind| text.starts_with(kind))
}

/// The comment above the paths of a section.
fn is_heading(text: &[u8]) -> bool {
    text.starts_with(b"# LID ")
}

/// Whether the line ends like the first line of a section: `", port n`.
fn ends_description(text: &[u8]) -> bool {
    let digits = text
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    digits > 0 && text[..text.len() - digits].ends_with(b"\", port ")
}

/// Parses the GUID and base LID of a section's first line.
fn section(text: &[u8]) -> Result<(u64, Lid), &'static str> {
    let rest = TYPES
        .iter()
        .find_map(|kind| text.strip_prefix(*kind))
        .ok_or("not a section")?;
    let mut fields = rest.splitn(3, |byte| *byte == b',');
    let guid = fields
        .next()
        .and_then(number)
        .filter(|guid| *guid != 0)
        .ok_or("no GUID")?;
    let lid = fields
        .next()
        .and_then(|field| field.trim_ascii().strip_prefix(b"base LID "))
        .and_then(number)
        .and_then(|lid| u16::try_from(lid).ok())
        .ok_or("no base LID")?;
    Ok((guid, Lid(lid)))
}

/// Parses a destination's LID, and its SL, MTU and rate; `None` in place of these if it is unreachable.
#[allow(
    clippy::type_complexity,
    reason = "named by the line above, and used once"
)]
fn path(text: &[u8]) -> Result<Option<(Lid, (u8, u8, u8))>, &'static str> {
    let mut fields = text.split(|byte| *byte == b':').map(<[u8]>::trim_ascii);
    let lid = fields.next().and_then(number).ok_or("no LID")?;
    let lid = u16::try_from(lid)
        .map(Lid)
        .ok()
        .filter(|lid| lid.is_unicast())
        .ok_or("no port has that LID")?;
    let second = fields.next().ok_or("no SL")?;
    if second == b"UNREACHABLE" {
        return Ok(None);
    }
    let within = |field: Option<&[u8]>, range: std::ops::RangeInclusive<u64>| {
        let value = field
            .and_then(number)
            .filter(|value| range.contains(value))?;
        u8::try_from(value).ok()
    };
    let sl = within(Some(second), 0..=15).ok_or("not an SL")?;
    let mtu = within(fields.next(), 1..=5).ok_or("not an MTU code")?;
    let rate = within(fields.next(), 1..=63).ok_or("not a rate code")?;
    Ok(Some((lid, (sl, mtu, rate))))
}

/// Parses a number, decimal or with the prefix 0x.
fn number(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text.trim_ascii()).ok()?;
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests;
