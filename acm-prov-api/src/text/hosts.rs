//! Reads host addresses and their GIDs from a file (option `addr_data_file`, format `addr_preload acm_hosts`).
//!
//! A line is `address GID`. Further words are ignored, and so are empty lines and lines that begin with `#`. The address is
//! a host name of at most 64 bytes, an IPv4 or an IPv6 address; the GID has the form of an IPv6 address. Names compare
//! without case. If several lines have the same address, the last one counts, as with the stock provider. Unlike the stock
//! provider, this reader accepts lines of any length and names longer than 45 bytes, and always ignores case.
//!
//! Text with a ':', or without any letter, '-' or '_', is an IP address and never a name (see [`Address::from_host_text`]):
//! `10.0.0.256`, `10.0.0.9/24` and `10.0.0.9,` are reported and skipped. The scope of `fe80::1%ib0` is dropped, and
//! `::ffff:10.0.0.1` is `10.0.0.1`, here and in requests.
//!
//! A line that is not of this form is skipped and reported:
//!
//! ```
//! use acm_prov_api::hosts::Hosts;
//!
//! let text = "node1 fe80::2:c903:1\n10.0.0.1 fe80::2:c903:1\nnode2 fe80:2\n";
//! let hosts = Hosts::parse("hosts.data", text.as_bytes());
//!
//! let gid = "fe80::2:c903:1".parse().ok();
//! assert_eq!(hosts.by_name("NODE1"), gid);
//! assert_eq!(hosts.by_ip([10, 0, 0, 1].into()), gid);
//! assert_eq!(hosts.by_name("node2"), None);
//! assert_eq!(hosts.reports()[0].to_string(), "hosts.data:3: fe80:2: not a GID; line skipped");
//! ```

use std::collections::HashMap;
use std::io::BufRead;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use foldhash::fast::RandomState;

use crate::address::{Address, Gid, Name};
use crate::text::lines::{self, Line, Lines};
use crate::text::report::{Problem, Report, of_error, shown};

/// The most bytes to read, a bound for endless files: some ten million lines.
const FILE_LIMIT: u64 = 1 << 30;
/// How many bad lines are reported one by one.
const REPORT_LIMIT: usize = 100;

/// GIDs by name, IPv4 and IPv6 address.
#[derive(Clone, Default, Debug)]
pub struct Hosts {
    /// A fast hash without defence against chosen keys suffices: all keys are the operator's.
    gids: HashMap<Address, Gid, RandomState>,
    reports: Vec<Report>,
}

impl Hosts {
    /// Reads a file. Reports a missing or unreadable file; the lines read before an error count.
    pub fn read(file: &Path) -> Self {
        match lines::open(file) {
            Ok(reader) => Self::parse(file, reader),
            Err(error) => Self::unread(of_error(file, &error)),
        }
    }

    /// No hosts, with the reason as a report.
    pub(crate) fn unread(report: Report) -> Self {
        Self {
            gids: HashMap::default(),
            reports: vec![report],
        }
    }

    /// Parses text from a reader; `file` is its name in reports. An error of the reader is reported and ends the text.
    pub fn parse(file: impl AsRef<Path>, reader: impl BufRead) -> Self {
        let file = file.as_ref();
        let mut gids = HashMap::default();
        let mut reports = Vec::new();
        let mut more_bad_lines = 0;
        let mut lines = Lines::new(reader, FILE_LIMIT);
        let end = loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break None,
                Err(error) => break Some(of_error(file, &error)),
            };
            match host(line) {
                Ok(None) => {}
                Ok(Some((address, gid))) => {
                    gids.insert(address, gid);
                }
                Err(_) if reports.len() >= REPORT_LIMIT => more_bad_lines += 1,
                Err(problem) => reports.push(Report {
                    option: None,
                    file: file.to_owned(),
                    line: Some(line.number),
                    problem,
                }),
            }
        };
        if more_bad_lines > 0 {
            reports.push(Report {
                option: None,
                file: file.to_owned(),
                line: None,
                problem: Problem::MoreBadLines {
                    count: more_bad_lines,
                },
            });
        }
        reports.extend(end);
        Self { gids, reports }
    }

    /// Returns the GID of an address; `None` for a GID or a LID.
    #[inline]
    pub fn get(&self, address: &Address) -> Option<Gid> {
        self.gids.get(address).copied()
    }

    /// Returns the GID of a host name, without regard to case.
    pub fn by_name(&self, name: impl AsRef<[u8]>) -> Option<Gid> {
        self.get(&Address::Name(Name::new(name).ok()?))
    }

    /// Returns the GID of an IPv4 address.
    pub fn by_ip(&self, address: Ipv4Addr) -> Option<Gid> {
        self.get(&Address::Ip(address))
    }

    /// Returns the GID of an IPv6 address. An IPv4-mapped address counts as the IPv4 address.
    pub fn by_ip6(&self, address: Ipv6Addr) -> Option<Gid> {
        self.get(&Address::from(address))
    }

    /// Returns all addresses and their GIDs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Address, Gid)> {
        self.gids.iter().map(|(address, gid)| (address, *gid))
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        self.gids.len()
    }

    /// Whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.gids.is_empty()
    }

    /// Returns the problems of the file: the first 100 bad lines, then the number of further ones.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }
}

/// Parses a line; `None` for empty lines and comments.
fn host(line: Line<'_>) -> Result<Option<(Address, Gid)>, Problem> {
    let bad = |text: &[u8], reason: &str| Problem::BadHost {
        text: shown(text),
        reason: reason.to_owned(),
    };
    let too_long = "the line is too long";
    let mut words = line.words();
    let Some((address, address_is_cut)) = words.next() else {
        return if line.is_cut {
            Err(bad(b"", too_long))
        } else {
            Ok(None)
        };
    };
    if address.starts_with(b"#") {
        return Ok(None);
    }
    let (gid, gid_is_cut) = match words.next() {
        Some(word) => word,
        None if line.is_cut => return Err(bad(address, too_long)),
        None => return Err(bad(address, "no GID follows")),
    };
    if address_is_cut || gid_is_cut {
        return Err(bad(address, too_long));
    }
    let parsed = str::from_utf8(gid)
        .ok()
        .and_then(|gid| gid.parse::<Gid>().ok());
    let Some(parsed) = parsed else {
        return Err(bad(gid, "not a GID"));
    };
    if parsed.is_zero() || parsed.is_multicast() {
        return Err(bad(gid, "not the GID of a port"));
    }
    match Address::from_host_text(address) {
        Ok(address) => Ok(Some((address, parsed))),
        Err(error) => Err(bad(address, &error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Write as _;

    fn gid(n: u64) -> Gid {
        Gid::new(0xfe80_0000_0000_0000, n)
    }

    fn hosts(text: impl AsRef<[u8]>) -> Hosts {
        Hosts::parse("hosts", text.as_ref())
    }

    fn reports(hosts: &Hosts) -> Vec<String> {
        hosts.reports().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_and_addresses() {
        for text in [
            "node1 fe80::1\n10.0.0.2 fe80::2\nfd00::3 fe80::3\n",
            "node1 fe80::1\r\n10.0.0.2 fe80::2\r\nfd00::3 fe80::3\r\n",
            "\u{feff}node1\tfe80::1\n\n# node1 fe80::9\n  10.0.0.2 \t fe80::2  # second\nfd00::3 fe80::3 ib0",
        ] {
            let hosts = hosts(text);
            assert_eq!(hosts.by_name("node1"), Some(gid(1)), "{text:?}");
            assert_eq!(hosts.by_name(b"Node1"), Some(gid(1)));
            assert_eq!(hosts.by_name("node"), None);
            assert_eq!(hosts.by_ip(Ipv4Addr::new(10, 0, 0, 2)), Some(gid(2)));
            assert_eq!(hosts.by_ip(Ipv4Addr::new(10, 0, 0, 20)), None);
            assert_eq!(hosts.by_ip6("fd00::3".parse().unwrap()), Some(gid(3)));
            assert_eq!(hosts.by_name("10.0.0.2"), None, "it is an address");
            assert_eq!(hosts.get(&Address::Gid(gid(1))), None);
            assert_eq!(
                (hosts.len(), hosts.iter().count(), hosts.is_empty()),
                (3, 3, false)
            );
            assert_eq!(reports(&hosts), [""; 0]);
        }
    }

    #[test]
    fn the_last_line_of_an_address_counts() {
        let hosts = hosts("a fe80::1\nA fe80::2\n10.0.0.1 fe80::3\na bad\n10.0.0.1 fe80::4\n");
        assert_eq!(hosts.by_name("a"), Some(gid(2)));
        assert_eq!(hosts.by_ip(Ipv4Addr::new(10, 0, 0, 1)), Some(gid(4)));
        assert_eq!(hosts.len(), 2);
    }

    #[test]
    fn bad_lines_are_named_and_skipped() {
        let name_64 = "n".repeat(64);
        let text = [
            b"good1 fe80::1\nalone\nname notagid\nname fe80::1::\nname \xff\xfe\nname ::\n"
                .as_slice(),
            b"name ff15:4001:ffff:3:400::\nna\0me fe80::1\n",
            name_64.as_bytes(),
            b"n fe80::1\n",
            name_64.as_bytes(),
            b" fe80::2\n",
            b"\xff\xfe fe80::3\ngood2 fe80::4",
        ]
        .concat();
        let hosts = hosts(text);
        assert_eq!(
            reports(&hosts),
            [
                "hosts:2: alone: no GID follows; line skipped".to_owned(),
                "hosts:3: notagid: not a GID; line skipped".to_owned(),
                "hosts:4: fe80::1::: not a GID; line skipped".to_owned(),
                "hosts:5: \\xff\\xfe: not a GID; line skipped".to_owned(),
                "hosts:6: ::: not the GID of a port; line skipped".to_owned(),
                "hosts:7: ff15:4001:ffff:3:400::: not the GID of a port; line skipped".to_owned(),
                "hosts:8: na\\0me: a name with a NUL at byte 2; line skipped".to_owned(),
                format!(
                    "hosts:9: {name_64}n: a name of 65 bytes: at most 64 fit an address field; line skipped"
                ),
            ]
        );
        assert_eq!(hosts.by_name("good1"), Some(gid(1)));
        assert_eq!(hosts.by_name(&name_64), Some(gid(2)));
        assert_eq!(
            hosts.by_name(b"\xff\xfe"),
            Some(gid(3)),
            "a name need not be UTF-8"
        );
        assert_eq!(hosts.by_name("good2"), Some(gid(4)));
        assert_eq!(hosts.len(), 4);
    }

    #[test]
    fn a_mistyped_ip_address_is_no_name() {
        let text = "fe80::202:c903:10:7%ib0 fe80::1\n10.0.0.256 fe80::2\n10.0.0.9/24 fe80::3\n\
                    ::ffff:10.0.0.4 fe80::4\n10.0.0.5:ib0 fe80::5\n10.0.0.6 fe80::6\n\
                    ::ffff:10.0.0.6 fe80::7\n";
        let hosts = hosts(text);
        let reason = "not a valid IPv4 or IPv6 address; write it in full, without prefix length or port \
                      (a host name has a letter, '-' or '_', and no ':'); line skipped";
        assert_eq!(
            reports(&hosts),
            [(2, "10.0.0.256"), (3, "10.0.0.9/24"), (5, "10.0.0.5:ib0")]
                .map(|(line, text)| format!("hosts:{line}: {text}: {reason}"))
        );
        assert_eq!(
            hosts.by_ip6("fe80::202:c903:10:7".parse().unwrap()),
            Some(gid(1))
        );
        let ip = |last| Ipv4Addr::new(10, 0, 0, last);
        for (address, expected) in [(ip(4), 4), (ip(6), 7)] {
            assert_eq!(hosts.by_ip(address), Some(gid(expected)));
            assert_eq!(hosts.by_ip6(address.to_ipv6_mapped()), Some(gid(expected)));
        }
        for name in ["10.0.0.256", "10.0.0.9/24", "fe80::202:c903:10:7%ib0"] {
            assert_eq!(hosts.by_name(name), None);
        }
        assert_eq!(hosts.len(), 3);
    }

    /// Formats of other programs' files and output.
    #[test]
    fn lines_as_people_write_them() {
        let is_bad = |text: &str, reason: &str| {
            let hosts = hosts(text);
            assert_eq!(hosts.len(), 0, "{text:?}");
            assert_eq!(hosts.reports().len(), 1, "{text:?}");
            let report = reports(&hosts).remove(0);
            assert!(report.contains(reason), "{text:?}: {report}");
        };
        // /etc/hosts, ibacm_addr.cfg, a list by GID, an alias more.
        is_bad("10.0.0.5 node5", "node5: not a GID");
        is_bad("node5 mlx5_0 1 default", "mlx5_0: not a GID");
        is_bad("fe80::5 node5", "node5: not a GID");
        is_bad("node5 node5.example fe80::5", "node5.example: not a GID");
        // A port's GUID, and an address as `ip addr` shows it, for the GID.
        is_bad("node5 0x0002c90300100007", "0x0002c90300100007: not a GID");
        is_bad("node5 fe80::5/64", "fe80::5/64: not a GID");
        is_bad("node5 fe80::5%ib0", "fe80::5%ib0: not a GID");
        // Other separators and comments.
        is_bad("node5,fe80::5", "node5,fe80::5: no GID follows");
        is_bad("node5\u{a0}fe80::5", "no GID follows");
        is_bad("10.0.0.5, fe80::5", "10.0.0.5,: not a valid IPv4");
        is_bad("\"node5\" \"fe80::5\"", "\"fe80::5\": not a GID");
        is_bad("node5 fe80::5#rack 3", "fe80::5#rack: not a GID");
        is_bad("; node5 fe80::5", "node5: not a GID");
        is_bad("[fd00::5] fe80::5", "[fd00::5]: not a valid IPv4");

        // As `ibv_devinfo -v` and sysfs write a GID.
        let long = hosts("node5 FE80:0000:0000:0000:0002:C903:0010:0007\n");
        let expected = Some("fe80::2:c903:10:7".parse().unwrap());
        assert_eq!(long.by_name("node5"), expected);
    }

    #[test]
    fn long_lines() {
        let long = "x".repeat(1 << 20);
        let blanks = " ".repeat(5000);
        let text = format!(
            "a fe80::1 {long}\n{long} fe80::2\nb {long}\nc {blanks} fe80::3\n{blanks} d fe80::4\n#{long}\ne fe80::5\n"
        );
        let hosts = hosts(text);
        assert_eq!(hosts.by_name("a"), Some(gid(1)));
        assert_eq!(hosts.by_name("e"), Some(gid(5)));
        assert_eq!(hosts.len(), 2);
        let reports = reports(&hosts);
        assert_eq!(reports.len(), 4);
        for (report, line) in reports.iter().zip(2..) {
            assert!(report.starts_with(&format!("hosts:{line}: ")), "{report}");
            assert!(
                report.ends_with(": the line is too long; line skipped"),
                "{report}"
            );
            assert!(report.len() < 300);
        }
    }

    #[test]
    fn reports_are_bounded() {
        let mut text = String::new();
        for i in 0..150 {
            writeln!(text, "bad{i}\ngood{i} fe80::{i:x}1").unwrap();
        }
        let hosts = hosts(text);
        assert_eq!(hosts.len(), 150);
        let reports = reports(&hosts);
        assert_eq!(reports.len(), 101);
        assert_eq!(
            reports[99],
            "hosts:199: bad99: no GID follows; line skipped"
        );
        assert_eq!(reports[100], "hosts: 50 more bad lines skipped");
    }

    #[test]
    fn files_that_are_not_there_or_not_readable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        let problem = |file: &Path| {
            let hosts = Hosts::read(file);
            assert!(hosts.is_empty());
            assert_eq!(hosts.reports().len(), 1);
            assert_eq!(
                (&*hosts.reports()[0].file, hosts.reports()[0].line),
                (file, None)
            );
            hosts.reports()[0].problem.clone()
        };
        assert_eq!(problem(&file), Problem::Missing);
        assert_eq!(
            problem(folder.path()),
            Problem::Unreadable {
                errno: libc::EISDIR
            }
        );

        std::fs::write(&file, "a fe80::1").unwrap();
        let hosts = Hosts::read(&file);
        assert_eq!(
            (hosts.by_name("a"), hosts.reports()),
            (Some(gid(1)), &[][..])
        );
    }

    #[test]
    fn an_error_midway_loses_nothing() {
        struct Failing;
        impl std::io::Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::from_raw_os_error(libc::EIO))
            }
        }
        use std::io::{BufReader, Read};
        let reader = BufReader::new(b"a fe80::1\nb fe80::2\nc fe".chain(Failing));
        let hosts = Hosts::parse("hosts", reader);
        assert_eq!(hosts.len(), 2);
        assert_eq!(
            reports(&hosts),
            [
                "hosts: cannot be read: Input/output error (os error 5); going on with what was read before"
            ]
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text: Vec<u8>) {
            let hosts = hosts(&text);
            prop_assert!(hosts.reports().len() <= REPORT_LIMIT + 1);
            for report in reports(&hosts) {
                prop_assert!(!report.contains(char::is_control), "{:?}", report);
            }
        }

        #[test]
        fn nearly_good_text_does_not_either(text in "([a-f0-9:. \n#\t\r\u{0}]|fe80::|10\\.0){0,200}") {
            hosts(text);
        }

        #[test]
        fn good_lines_among_bad_ones_are_found(
            bad in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..300),
        ) {
            // A random line that happens to be valid has its own address, not one of these names.
            let mut text = Vec::new();
            for (i, line) in bad.iter().enumerate() {
                text.extend(line.iter().filter(|byte| **byte != b'\n'));
                text.extend_from_slice(format!("\nproptest-host-{i} fe80::1:{i:x}\n").as_bytes());
            }
            let hosts = hosts(&text);
            for i in 0..bad.len() as u64 {
                prop_assert_eq!(hosts.by_name(format!("PROPTEST-host-{i}")), Some(gid(0x1_0000 + i)));
            }
        }
    }
}
