//! The reader, with the two real dumps and with bad ones.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

const HEADING: &str = "# LID  : SL : MTU : RATE\n";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn dump_of_324_hosts() -> Vec<u8> {
    let packed = fs::read(fixture("opensm-full-v1-324hosts.dump.xz")).unwrap();
    let mut text = Vec::new();
    lzma_rs::xz_decompress(&mut packed.as_slice(), &mut text).unwrap();
    text
}

fn parse(text: impl AsRef<[u8]>) -> Routes {
    Routes::parse("dump", text.as_ref(), 0x11, Lid(1))
}

fn reports(routes: &Routes) -> Vec<String> {
    routes.reports().iter().map(ToString::to_string).collect()
}

fn route(guid: u64, sl: u8, mtu: u8, rate: u8) -> Option<Route> {
    Some(Route {
        guid,
        sl,
        mtu,
        rate,
    })
}

#[test]
fn the_dump_of_four_hosts_gives_every_path() {
    let routes = Routes::read(&fixture("opensm-full-v1-4hosts.dump"), 0x0010_0004, Lid(4));
    assert_eq!(reports(&routes), [""; 0]);
    let expected = [
        (1, 0x0010_0001, 4),
        (2, 0x0020_0000, 3),
        (3, 0x0020_0001, 3),
        (4, 0x0010_0004, 4),
        (5, 0x0010_0007, 4),
        (6, 0x0010_000a, 4),
    ];
    assert_eq!(routes.len(), expected.len());
    for (lid, guid, mtu) in expected {
        assert_eq!(routes.by_lid(Lid(lid)), route(guid, 0, mtu, 3), "LID {lid}");
        assert_eq!(routes.lid_of(guid), Some(Lid(lid)));
    }
}

#[test]
fn the_dump_of_324_hosts_gives_every_path() {
    let text = dump_of_324_hosts();
    // Parse the facts in another way: split a section's fields at blanks, since these descriptions have none.
    let text_lines = str::from_utf8(&text).unwrap().lines();
    let sections: Vec<(u64, u16)> = text_lines
        .filter(|line| line.contains("base LID"))
        .map(|line| {
            let guid = line.split("0x").nth(1).unwrap().split(',').next().unwrap();
            let lid = line
                .split("base LID ")
                .nth(1)
                .unwrap()
                .split(',')
                .next()
                .unwrap();
            (u64::from_str_radix(guid, 16).unwrap(), lid.parse().unwrap())
        })
        .collect();
    assert_eq!(sections.len(), 324 + 27);
    for (guid, lid) in [(0x0010_01ff, 351), (0x0010_0031, 100)] {
        let routes = Routes::parse("dump", text.as_slice(), guid, Lid(lid));
        assert_eq!(reports(&routes), [""; 0]);
        assert_eq!(routes.len(), sections.len());
        for (guid, lid) in &sections {
            assert_eq!(routes.by_lid(Lid(*lid)).unwrap().guid, *guid);
            assert_eq!(routes.lid_of(*guid), Some(Lid(*lid)));
        }
        let kinds: HashSet<(u8, u8, u8)> =
            routes.iter().map(|(_, r)| (r.sl, r.mtu, r.rate)).collect();
        assert!(
            kinds
                .iter()
                .all(|(sl, mtu, rate)| (*sl, *rate) == (0, 3) && matches!(mtu, 3 | 4)),
            "{kinds:?}"
        );
    }
}

#[test]
fn guid_and_lid_must_both_be_the_local_ports() {
    for (guid, lid) in [(0x0010_0004, 5), (0x0010_0005, 4)] {
        let routes = Routes::read(&fixture("opensm-full-v1-4hosts.dump"), guid, Lid(lid));
        assert!(routes.is_empty() && !routes.has_section());
        assert!(
            reports(&routes)[0].contains("no section for the port with GUID 0x0000000000"),
            "{:?}",
            reports(&routes)
        );
    }
}

#[test]
fn numbers_may_be_decimal_and_lines_untidy() {
    let routes = parse(
        "Router 0x22, base LID 0x2, \"r\", port 3\r\nSwitch 0x33, base LID 3, \"\", port 0\n\
         Channel Adapter 0x11, base LID 1, \"own\", port 1\n 2:1:4:16 \n0X3 : 0 : 5 : 7\t\n",
    );
    assert_eq!(reports(&routes), [""; 0]);
    assert_eq!(routes.by_lid(Lid(2)), route(0x22, 1, 4, 16));
    assert_eq!(routes.by_lid(Lid(3)), route(0x33, 0, 5, 7));
}

#[test]
fn unreachable_is_no_path() {
    let routes = parse(format!(
        "Switch 0x22, base LID 2, \"s\", port 0\n{HEADING}Switch 0x11, base LID 1, \"own\", port 0\n{HEADING}\
         0x0002 : UNREACHABLE\n0x0001 : 0 : 4 : 3\n"
    ));
    assert_eq!((routes.len(), reports(&routes)), (1, vec![]));
}

/// Faults 36 and 37: descriptions with any content, LIDs out of range.
#[test]
fn descriptions_holding_anything() {
    for description in [
        "",
        "\"",
        ", base LID 9, ",
        "a\", port 1",
        "Switch 0x99, base LID 9, \"x\", port 1",
        "line\nfeed",
        "\n\n0x0009 : 0 : 4 : 3\n",
        "\nSwitch 0x99, base LID 9, \"x",
        "0x0009 : UNREACHABLE",
        "caf\u{e9} \u{0} \u{1b}[31m",
        &"x".repeat(9_000),
    ] {
        let routes = parse(format!(
            "Channel Adapter 0x22, base LID 2, \"{description}\", port 1\n{HEADING}0x0001 : 0 : 1 : 2\n\n\
             Channel Adapter 0x11, base LID 1, \"{description}\", port 1\n{HEADING}0x0001 : 0 : 4 : 3\n0x0002 : 1 : 4 : 7\n"
        ));
        let all: HashSet<(Lid, Route)> = routes.iter().map(|(lid, route)| (lid, *route)).collect();
        let expected = HashSet::from([
            (Lid(1), route(0x11, 0, 4, 3).unwrap()),
            (Lid(2), route(0x22, 1, 4, 7).unwrap()),
        ]);
        assert_eq!(all, expected, "{description:?}: {:?}", reports(&routes));
    }
}

#[test]
fn bad_lines_are_named_and_skipped() {
    let routes = parse(format!(
        "Switch base LID 7, \"s\", port 0\nSwitch 0x22, base LID 2, \"s\", port 0\n{HEADING}garbage of another section\n\
         Switch 0x33, base LID 65000, \"s\", port 0\nSwitch 0x44, base LID 2, \"s\", port 0\n\
         Channel Adapter 0x11, base LID 1, \"own\", port 1\n{HEADING}\
         0xC000 : 0 : 4 : 3\n0x10002 : 0 : 4 : 3\n0 : 0 : 4 : 3\n2 : 16 : 4 : 3\n2 : 0 : 9 : 3\n2 : 0 : 4 : 64\n2 : 0\nx\n\
         2 : 0 : 4 : 3\n0x30 : 0 : 4 : 3\n"
    ));
    let bad = [
        (1, "no GUID"),
        (5, "no port has that LID"),
        (6, "an earlier port has the same LID"),
        (9, "no port has that LID"),
        (10, "no port has that LID"),
        (11, "no port has that LID"),
        (12, "not an SL"),
        (13, "not an MTU code"),
        (14, "not a rate code"),
        (15, "not an MTU code"),
        (16, "no LID"),
    ];
    let reports = reports(&routes);
    for (report, (line, reason)) in reports.iter().zip(bad) {
        assert!(report.starts_with(&format!("dump:{line}: ")), "{report}");
        assert!(
            report.ends_with(&format!(": {reason}; line skipped")),
            "{report}"
        );
    }
    assert_eq!(reports.len(), bad.len() + 1, "{reports:?}");
    assert!(
        reports[bad.len()].contains("1 paths lead to LIDs that no section"),
        "{reports:?}"
    );
    assert_eq!(routes.by_lid(Lid(2)), route(0x22, 0, 4, 3));
    assert_eq!(routes.len(), 1);
}

#[test]
fn reports_are_bounded() {
    let mut text = "Switch 0x11, base LID 1, \"own\", port 0\n".to_owned();
    for n in 0..150 {
        writeln!(text, "bad {n}").unwrap();
    }
    let reports = reports(&parse(text));
    assert_eq!(reports.len(), 101);
    assert_eq!(reports[100], "dump: 50 more bad lines skipped");
}

#[test]
fn a_file_that_is_not_there() {
    let routes = Routes::read(Path::new("/nonexistent/dump"), 0x11, Lid(1));
    assert_eq!(
        reports(&routes),
        ["/nonexistent/dump: no such file; going on without it"]
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(text: Vec<u8>) {
        let routes = parse(&text);
        for report in reports(&routes) {
            prop_assert!(!report.contains(char::is_control), "{:?}", report);
        }
    }

    #[test]
    fn nearly_good_text_does_not_either(
        text in "((Switch|Channel Adapter|Router|, base LID |\", port |0x|UNREACHABLE|# LID)|[0-9a-fC :,\"\n\r]){0,60}",
    ) {
        for (lid, route) in parse(text).iter() {
            prop_assert!(lid.is_unicast() && route.sl < 16 && (1..=5).contains(&route.mtu));
        }
    }
}
