use std::ffi::{CString, c_char};
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use super::*;

fn options(text: impl AsRef<[u8]>) -> Options {
    Options::parse("opts", text.as_ref())
}

fn reports(options: &Options) -> Vec<String> {
    options.reports().iter().map(ToString::to_string).collect()
}

#[test]
fn tolerates_what_editors_do() {
    for text in [
        "timeout 7\nretries 3\n",
        "timeout 7\r\nretries 3\r\n",
        "timeout\t7\nretries\t\t3",
        "\u{feff}timeout 7\n  retries 3   \n",
        "# a comment\n\n \t \ntimeout 7 # ms\n  # timeout 8\nRETRIES 3 more words",
    ] {
        let options = options(text);
        assert_eq!(options.named("timeout").number(1, 0..=9), 7, "{text:?}");
        assert_eq!(options.named("retries").number(1, 0..=9), 3, "{text:?}");
        assert_eq!(reports(&options), [""; 0]);
    }
}

#[test]
fn the_last_value_counts_and_a_name_alone_does_not() {
    let options = options("a 1\nA 2\na\nb\nb 5\nb #\nc\n");
    assert_eq!(options.named("a").number(0, 0..=9), 2);
    assert_eq!(options.named("b").number(0, 0..=9), 0);
    assert_eq!(options.named("c").number(4, 0..=9), 4);
    assert_eq!(
        reports(&options),
        [
            "opts:6: b #: not a number; using 0",
            "opts:7: c: the value is missing; using 4"
        ]
    );
}

#[test]
fn numbers() {
    let bad = [
        ("many", "not a number"),
        ("2s", "not a number"),
        ("0x10", "not a number"),
        ("1.5", "not a number"),
        ("-", "not a number"),
        ("-1", "not within 1 to 255"),
        ("0", "not within 1 to 255"),
        ("256", "not within 1 to 255"),
        (
            "99999999999999999999999999999999999999999999999999",
            "not within 1 to 255",
        ),
        (
            "-99999999999999999999999999999999999999999999999999",
            "not within 1 to 255",
        ),
    ];
    for (value, reason) in bad {
        let options = options(format!("retries {value}\n"));
        assert_eq!(options.named("retries").number(2_u8, 1..=255), 2);
        assert_eq!(
            options.named("retries").number(2_u8, 1..=255),
            2,
            "read twice, reported once"
        );
        assert_eq!(
            reports(&options),
            [format!("opts:1: retries {value}: {reason}; using 2")]
        );
    }
    let options = options("max 18446744073709551615\nmin -2147483648\nplus +5\nzeros 0007\n");
    assert_eq!(options.named("max").number(0, 0..=u64::MAX), u64::MAX);
    assert_eq!(options.named("min").number(0, i32::MIN..=0), i32::MIN);
    assert_eq!(options.named("plus").number(0_usize, 0..=9), 5);
    assert_eq!(options.named("zeros").number(0_i64, 0..=9), 7);
    assert_eq!(options.named("absent").number(3_u16, 0..=9), 3);
    assert_eq!(reports(&options), [""; 0]);
}

#[test]
fn choices() {
    #[derive(Clone, PartialEq, Debug)]
    enum Loopback {
        None,
        Local,
    }
    let words = [
        ("none", Loopback::None),
        ("no", Loopback::None),
        ("local", Loopback::Local),
    ];
    for (value, expected) in [
        ("none", Loopback::None),
        ("No", Loopback::None),
        ("LOCAL", Loopback::Local),
    ] {
        let options = options(format!("loopback_prot {value}"));
        assert_eq!(
            options
                .named("loopback_prot")
                .choice(Loopback::Local, &words),
            expected
        );
        assert_eq!(reports(&options), [""; 0]);
    }
    let options = options("loopback_prot loc\naddr_prot sa\n");
    assert_eq!(
        options
            .named("loopback_prot")
            .choice(Loopback::Local, &words),
        Loopback::Local
    );
    assert_eq!(options.named("addr_prot").choice(1, &[("acm", 2)]), 1);
    assert_eq!(
        options.named("absent").choice(Loopback::None, &words),
        Loopback::None
    );
    assert_eq!(
        reports(&options),
        [
            "opts:1: loopback_prot loc: not one of none, no, local; using local",
            "opts:2: addr_prot sa: not one of acm; using the default",
        ]
    );
}

#[test]
fn minutes() {
    let day = Some(Duration::from_secs(24 * 60 * 60));
    let options = options("a 1440\nb -1\nc 0\nd -2\ne 4294967295\nf 4294967296\ng never\n");
    assert_eq!(options.named("a").minutes(None), day);
    assert_eq!(options.named("b").minutes(day), None);
    assert_eq!(options.named("c").minutes(day), Some(Duration::ZERO));
    assert_eq!(options.named("d").minutes(day), day);
    assert_eq!(
        options.named("e").minutes(day),
        Some(Duration::from_secs(60 * u64::from(u32::MAX)))
    );
    assert_eq!(options.named("f").minutes(None), None);
    assert_eq!(options.named("g").minutes(None), None);
    assert_eq!(options.named("absent").minutes(day), day);
    assert_eq!(
        reports(&options),
        [
            "opts:4: d -2: not within 0 to 4294967295, nor -1 (never); using 1440",
            "opts:6: f 4294967296: not within 0 to 4294967295, nor -1 (never); using -1",
            "opts:7: g never: not a number; using -1",
        ]
    );
}

#[test]
fn paths_and_text() {
    let options = options(b"file /etc/\xff\xfe.data\nnul /a\0b\ntext \xff\ngood knoten-\xc3\xbc\n");
    assert_eq!(
        options.named("file").path("/default"),
        Path::new(OsStr::from_bytes(b"/etc/\xff\xfe.data"))
    );
    assert_eq!(options.named("nul").path("/default"), Path::new("/default"));
    assert_eq!(
        options.named("absent").path("/default"),
        Path::new("/default")
    );
    assert_eq!(options.named("absent").optional_path(), None);
    assert_eq!(options.named("nul").optional_path(), None);
    assert!(options.named("file").optional_path().is_some());
    let words = self::options(b"a none\nb None\nc ./none\n");
    assert_eq!(words.named("a").optional_path(), None);
    assert_eq!(words.named("b").optional_path(), None);
    assert_eq!(words.named("c").optional_path(), Some("./none".into()));
    assert_eq!(reports(&words), [""; 0]);
    assert_eq!(options.named("text").text("fallback"), "fallback");
    assert_eq!(options.named("good").text(""), "knoten-\u{fc}");
    assert_eq!(
        reports(&options),
        [
            "opts:2: nul /a\\0b: a path cannot contain a NUL; using /default",
            "opts:2: nul /a\\0b: a path cannot contain a NUL; using none",
            "opts:3: text \\xff: not UTF-8; using fallback",
        ]
    );
}

#[test]
fn long_lines() {
    let comment = "x".repeat(1 << 20);
    let long_path = format!("/{}", "p".repeat(3000));
    let text = format!(
        "timeout 7 {comment}\n#{comment}\n{comment}\nfile {long_path}\nwhole {comment}\nretries {}3\nlast 1",
        " ".repeat(5000)
    );
    let options = options(text);
    assert_eq!(options.named("timeout").number(0, 0..=9), 7);
    assert_eq!(options.named("file").path("/"), Path::new(&long_path));
    assert_eq!(
        options.named("whole").path("/default"),
        Path::new("/default")
    );
    assert_eq!(options.named("retries").number(2, 0..=9), 2);
    assert_eq!(options.named("last").number(0, 0..=9), 1);
    let reports = reports(&options);
    assert_eq!(reports.len(), 2);
    assert!(
        reports[0].starts_with("opts:5: whole xxx"),
        "{}",
        reports[0]
    );
    assert!(
        reports[0]
            .ends_with("...: it does not end within the line's first 4096 bytes; using /default")
    );
    assert_eq!(
        reports[1],
        "opts:6: retries : it does not end within the line's first 4096 bytes; using 2"
    );
}

#[test]
fn misspelt_names() {
    let options = options(b"path_cache_capcity 5\nother 1\nPATH_CACHE_negative_ttl 3\npath_cache_capacity 6\npath_cache_\xff 1\n");
    assert_eq!(options.named("path_cache_capacity").number(1, 1..=10), 6);
    options.named("path_cache_stale_ttl").number(1, 1..=10);
    options.named("path_cache_negative_ttl").number(1, 1..=10);
    options.report_unknown("path_cache_");
    options.report_unknown("Path_Cache_");
    options.report_unknown("nothing_");
    let known = "path_cache_capacity, path_cache_negative_ttl, path_cache_stale_ttl";
    assert_eq!(
        reports(&options),
        [
            format!("opts:1: path_cache_capcity: no such option, ignored; known are {known}"),
            format!("opts:5: path_cache_\\xff: no such option, ignored; known are {known}"),
        ]
    );
}

#[test]
fn log_level_is_read_as_the_daemon_reads_it() {
    for (value, level) in [
        ("2", 2),
        ("abc", 0),
        ("1x", 1),
        ("-1", -1),
        ("+2", 2),
        ("99999999999", i32::MAX),
        ("", 0),
    ] {
        let options = options(format!("log_level {value}\n"));
        assert_eq!(options.log_level(), level, "{value}");
        assert_eq!(reports(&options), [""; 0]);
    }
    assert_eq!(options("").log_level(), 0);
}

#[test]
fn memory_is_bounded() {
    let mut text = String::new();
    for i in 0..100_000 {
        text += &format!("key{i} {i}\n");
    }
    let options = options(text);
    assert_eq!(options.entries.len(), KEY_LIMIT);
    assert_eq!(options.named("key1023").number(0, 0..=9999), 1023);
    assert_eq!(options.named("key1024").number(0, 0..=9999), 0);
    assert_eq!(
        reports(&options),
        ["opts:1025: more than 1024 different options: this one and further new ones are ignored"]
    );
}

#[test]
fn files_that_are_not_there_or_not_readable() {
    let folder = tempfile::tempdir().unwrap();
    let reports_of = |path: &Path| {
        let options = Options::read(path);
        assert_eq!(options.named("timeout").number(2000, 0..=9), 2000);
        options
            .reports()
            .into_iter()
            .map(|report| (report.file, report.line, report.problem))
            .collect::<Vec<_>>()
    };

    let missing = folder.path().join("missing");
    assert_eq!(
        reports_of(&missing),
        [(missing.clone(), None, Problem::Missing)]
    );

    let directory = folder.path().to_owned();
    let problem = Problem::Unreadable {
        errno: libc::EISDIR,
    };
    assert_eq!(reports_of(&directory), [(directory.clone(), None, problem)]);

    let endless = PathBuf::from("/dev/zero");
    let problem = Problem::Unreadable {
        errno: libc::ENOTSUP,
    };
    assert_eq!(reports_of(&endless), [(endless.clone(), None, problem)]);

    let sparse = folder.path().join("sparse");
    let file = std::fs::File::create(&sparse).unwrap();
    file.set_len(10 << 30).unwrap();
    let problem = Problem::Unreadable { errno: libc::EFBIG };
    assert_eq!(reports_of(&sparse), [(sparse.clone(), None, problem)]);

    let fifo = folder.path().join("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert_eq!(reports_of(&fifo), [], "empty, and it does not block");

    assert_eq!(reports_of(Path::new("/dev/null")), []);
}

#[test]
fn a_file_without_permission() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("opts");
    std::fs::write(&file, "timeout 5\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o0)).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();

    // Root may read everything: drop that, in this thread only.
    // SAFETY: getuid and the raw system call have no preconditions. The raw call changes only the identity of the calling
    // thread, which ends here.
    let report = std::thread::spawn(move || unsafe {
        if libc::getuid() == 0 {
            assert_eq!(libc::syscall(libc::SYS_setresuid, -1, 65534, -1), 0);
        }
        Options::read(&file).reports()
    })
    .join()
    .unwrap();
    assert_eq!(report.len(), 1);
    assert_eq!(
        report[0].problem,
        Problem::Unreadable {
            errno: libc::EACCES
        }
    );
    assert!(report[0].to_string().ends_with(
        "/opts: cannot be read: Permission denied (os error 13); going on with what was read before"
    ));
}

/// Returns the last value of `key` as `sscanf` finds it, like the core and the stock provider.
fn stock(text: &[u8], key: &str) -> Option<Vec<u8>> {
    let mut found = None;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"#") {
            continue;
        }
        let line = CString::new(line).unwrap();
        let (mut name, mut value) = ([0 as c_char; 32], [0 as c_char; 256]);
        // SAFETY: each array has room for the format's width and a NUL.
        let fields = unsafe {
            libc::sscanf(
                line.as_ptr(),
                c"%31s%255s".as_ptr(),
                name.as_mut_ptr(),
                value.as_mut_ptr(),
            )
        };
        let bytes = |text: &[c_char]| -> Vec<u8> {
            text.iter()
                .map(|c| *c as u8)
                .take_while(|byte| *byte != 0)
                .collect()
        };
        if fields == 2 && bytes(&name).eq_ignore_ascii_case(key.as_bytes()) {
            found = Some(bytes(&value));
        }
    }
    found
}

proptest! {
    #[test]
    fn finds_what_stock_finds(text in "([aAb#]|[ \t\r\x0b\x0c\n]|[1-9]){0,60}") {
        let options = options(&text);
        for key in ["a", "ab", "b"] {
            let expected = stock(text.as_bytes(), key).map(|value| String::from_utf8(value).unwrap());
            prop_assert_eq!(options.named(key).text(""), expected.unwrap_or_default());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(text: Vec<u8>) {
        let options = options(&text);
        let keys: Vec<_> = options.entries.keys().cloned().collect();
        for key in keys.iter().filter_map(|key| str::from_utf8(key).ok()).filter(|key| !key.contains(char::is_control)).chain(["timeout"]) {
            let number = options.named(key).number(2, 0..=255_u8);
            options.named(key).choice(number, &[("none", 1), ("local", 2)]);
            options.named(key).minutes(None);
            options.named(key).path("/");
            options.named(key).text("");
        }
        options.report_unknown("");
        for report in reports(&options) {
            prop_assert!(!report.contains(char::is_control), "{:?}", report);
        }
    }

    #[test]
    fn good_lines_among_bad_ones(before: Vec<u8>, after: Vec<u8>, timeout in 1_u32..5000) {
        let mut text = before;
        text.extend_from_slice(format!("\ntimeout {timeout}\n").as_bytes());
        text.extend_from_slice(&after);
        prop_assume!(!after.to_ascii_lowercase().windows(7).any(|word| word == b"timeout"));
        prop_assert_eq!(options(&text).named("timeout").number(0, 0..=5000_u32), timeout);
    }
}
