//! Files that change, with simulated time.

use std::cell::Cell;
use std::fs;

use super::*;
use crate::address::Lid;

struct Followee {
    _folder: tempfile::TempDir,
    file: PathBuf,
    followed: WatchedFile<Hosts>,
    now: u64,
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

impl Followee {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        fs::write(&file, text).unwrap();
        Self {
            followed: WatchedFile::hosts(&file),
            _folder: folder,
            file,
            now: 0,
        }
    }

    fn look(&mut self) -> Vec<String> {
        self.now += TICK;
        self.followed.look(at(self.now))
    }

    /// Looks until a change would have been read.
    fn looks(&mut self) -> Vec<String> {
        (0..3).flat_map(|_| self.look()).collect()
    }

    /// Replaces the file by a rename, so that it is another file whatever the file system's clock.
    fn replace(&self, text: &str) {
        let other = self.file.with_extension("new");
        fs::write(&other, text).unwrap();
        fs::rename(other, &self.file).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.followed.with(|hosts| hosts.by_name(name).is_some())
    }
}

#[test]
fn a_changed_file_replaces_the_whole_content() {
    let mut hosts = Followee::new("a fe80::1\nb fe80::2\n");
    assert_eq!(hosts.looks(), [""; 0]);
    let held = hosts.followed.get();
    hosts.replace("a fe80::1\nc fe80::3\n");
    let reported = hosts.looks();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].ends_with("was read again: 2 entries"),
        "{reported:?}"
    );
    assert!(hosts.has("a") && !hosts.has("b") && hosts.has("c"));
    assert!(
        held.by_name("b").is_some(),
        "who holds the old content keeps it"
    );
    assert_eq!(hosts.looks(), [""; 0]);
}

#[test]
fn a_file_that_keeps_changing_is_read_once_it_is_quiet() {
    let mut hosts = Followee::new("a fe80::1\n");
    for n in 0..5 {
        hosts.replace(&format!("b{n} fe80::2\n"));
        assert_eq!(hosts.look(), [""; 0]);
        assert!(hosts.has("a"));
    }
    hosts.look();
    assert!(hosts.has("b4"));
}

#[test]
fn bad_lines_of_the_new_file_are_reported() {
    let mut hosts = Followee::new("a fe80::1\n");
    hosts.replace("b fe80::2\nbad\n");
    let reported = hosts.looks();
    assert!(
        reported[1].contains(":2: bad: no GID follows"),
        "{reported:?}"
    );
    assert!(hosts.has("b"));
}

#[test]
fn a_vanished_file_keeps_what_was_there_and_says_so_once() {
    let mut hosts = Followee::new("a fe80::1\n");
    fs::remove_file(&hosts.file).unwrap();
    let reported = hosts.looks();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].ends_with("the file is gone; going on with what was read before"),
        "{reported:?}"
    );
    assert_eq!(hosts.looks(), [""; 0]);
    assert!(hosts.has("a"));
    hosts.replace("b fe80::2\n");
    assert!(hosts.looks()[0].contains("was read again"));
    assert!(hosts.has("b"));
}

#[test]
fn a_file_that_is_moved_away_for_a_moment_is_not_reported() {
    let mut hosts = Followee::new("a fe80::1\n");
    fs::remove_file(&hosts.file).unwrap();
    assert_eq!(hosts.look(), [""; 0]);
    hosts.replace("b fe80::2\n");
    let reported = hosts.looks();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(hosts.has("b"));
}

#[test]
fn a_file_that_is_too_long_to_be_read_keeps_what_was_there() {
    let mut hosts = Followee::new("a fe80::1\n");
    hosts.replace(&format!("b fe80::2\n{}\n", "x".repeat(17 << 20)));
    let reported = hosts.looks();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("is too long"), "{reported:?}");
    assert!(hosts.has("a"));
    assert!(!hosts.has("b"));
}

#[test]
fn a_torn_file_keeps_what_was_there_and_says_so_once() {
    for (torn, reason) in [
        ("", "it is empty"),
        ("b fe80::2\nc fe8", "ends within a line"),
        ("b", "ends within a line"),
    ] {
        let mut hosts = Followee::new("a fe80::1\n");
        hosts.replace(torn);
        let reported = hosts.looks();
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(reported[0].contains(reason), "{reported:?}");
        assert!(
            reported[0].ends_with("going on with what was read before"),
            "{reported:?}"
        );
        assert!(hosts.has("a") && !hosts.has("b"));
        assert_eq!(hosts.looks(), [""; 0]);
        hosts.replace("b fe80::2\nc fe80::3\n");
        hosts.looks();
        assert!(hosts.has("b") && hosts.has("c"));
    }
}

#[test]
fn a_last_line_need_not_end() {
    let mut hosts = Followee::new("a fe80::1\n");
    hosts.replace("b fe80::2\nc fe80::3");
    hosts.looks();
    assert!(hosts.has("b") && hosts.has("c"));
}

#[test]
fn a_file_that_cannot_be_read_keeps_what_was_there() {
    let mut hosts = Followee::new("a fe80::1\n");
    fs::remove_file(&hosts.file).unwrap();
    fs::create_dir(&hosts.file).unwrap();
    let reported = hosts.looks();
    assert!(reported[0].contains("directory"), "{reported:?}");
    assert!(hosts.has("a"));
    assert_eq!(hosts.looks(), [""; 0]);
}

thread_local! {
    /// The error of opening a file, in tests that make it fail.
    static OPENS: Cell<Opens> = const { Cell::new(Opens::As(0)) };
    static TRIES: Cell<u32> = const { Cell::new(0) };
}

#[derive(Clone, Copy, Debug)]
enum Opens {
    /// Fails with that errno; 0 means success.
    As(i32),
    /// Opens a file of which no byte can be read: EIO.
    Broken,
}

fn open(path: &Path) -> io::Result<BufReader<File>> {
    TRIES.set(TRIES.get() + 1);
    match OPENS.get() {
        Opens::As(0) => lines::open(path),
        Opens::As(errno) => Err(io::Error::from_raw_os_error(errno)),
        // The first page of a process is never mapped.
        Opens::Broken => lines::open(Path::new("/proc/self/mem")),
    }
}

#[test]
fn a_file_that_could_not_be_read_is_read_once_it_can_be() {
    for (fault, reason) in [
        (Opens::As(libc::EMFILE), "Too many open files (os error 24)"),
        (
            Opens::As(libc::ENFILE),
            "Too many open files in system (os error 23)",
        ),
        (Opens::As(libc::EIO), "Input/output error (os error 5)"),
        (Opens::As(libc::ESTALE), "Stale file handle (os error 116)"),
        (Opens::As(libc::EACCES), "Permission denied (os error 13)"),
        (Opens::Broken, "Input/output error (os error 5)"),
    ] {
        let mut hosts = Followee::new("a fe80::1\n");
        hosts.followed.open = open;
        let name = hosts.file.display().to_string();
        hosts.replace("b fe80::2\nc fe80::3\nbad\n");
        OPENS.set(fault);
        TRIES.set(0);
        let reported: Vec<String> = (0..60).flat_map(|_| hosts.look()).collect();
        assert_eq!(
            reported,
            [format!(
                "{name}: the file cannot be read: {reason}; going on with what was read before, and trying again"
            )],
            "{fault:?}"
        );
        assert!(hosts.has("a") && !hosts.has("b"));
        // Once when the file has settled, then every five looks.
        assert!((11..=13).contains(&TRIES.get()), "{}", TRIES.get());

        OPENS.set(Opens::As(0));
        let reported: Vec<String> = (0..60).flat_map(|_| hosts.look()).collect();
        assert_eq!(reported.len(), 2, "{reported:?}");
        assert_eq!(
            reported[0],
            format!("{name}: the file can be read again: 2 entries")
        );
        assert!(
            reported[1].contains(":3: bad: no GID follows"),
            "{reported:?}"
        );
        assert!(!hosts.has("a") && hosts.has("b") && hosts.has("c"));
    }
}

#[test]
fn a_file_that_changes_while_it_cannot_be_read_is_reported_once() {
    let mut hosts = Followee::new("a fe80::1\n");
    hosts.followed.open = open;
    let mut reported = Vec::new();
    for (n, errno) in [libc::EMFILE, libc::EIO, libc::EACCES].iter().enumerate() {
        hosts.replace(&format!("b{n} fe80::2\n"));
        OPENS.set(Opens::As(*errno));
        reported.extend((0..20).flat_map(|_| hosts.look()));
    }
    OPENS.set(Opens::As(0));
    reported.extend((0..20).flat_map(|_| hosts.look()));
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[1].ends_with(": the file can be read again: 1 entries"));
    assert!(hosts.has("b2"));
}

/// The file exists but fails to open as missing: it is being replaced in two steps.
#[test]
fn a_file_that_vanishes_between_two_looks_is_not_reported() {
    let mut hosts = Followee::new("a fe80::1\n");
    hosts.followed.open = open;
    hosts.replace("b fe80::2\n");
    OPENS.set(Opens::As(libc::ENOENT));
    assert_eq!(hosts.looks(), [""; 0]);
    OPENS.set(Opens::As(0));
    let reported = hosts.looks();
    assert!(
        reported[0].contains("has changed and was read again"),
        "{reported:?}"
    );
    assert_eq!(reported.len(), 1);
    assert!(hosts.has("b"));
}

/// For a while the file's folder cannot be searched.
#[test]
fn a_file_out_of_reach_is_reported_once_each_way() {
    for changes in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("etc");
        fs::create_dir(&inside).unwrap();
        let file = inside.join("hosts");
        fs::write(&file, "a fe80::1\n").unwrap();
        let followed = WatchedFile::hosts(&file);
        let mut now = 0;
        let mut looks = || -> Vec<String> {
            (0..20)
                .flat_map(|_| {
                    now += TICK;
                    followed.look(at(now))
                })
                .collect()
        };
        assert_eq!(looks(), [""; 0]);
        let aside = folder.path().join("aside");
        fs::rename(&inside, &aside).unwrap();
        std::os::unix::fs::symlink(&inside, &inside).unwrap();
        let reported = looks();
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(
            reported[0].contains("the file cannot be read: Too many levels"),
            "{reported:?}"
        );
        if changes {
            fs::write(aside.join("new"), "b fe80::2\n").unwrap();
            fs::rename(aside.join("new"), aside.join("hosts")).unwrap();
        }
        fs::remove_file(&inside).unwrap();
        fs::rename(&aside, &inside).unwrap();
        let reported = looks();
        assert_eq!(reported.len(), 1, "{reported:?}");
        let (line, host) = if changes {
            ("the file can be read again: 1 entries", "b")
        } else {
            ("the file can be read again and has not changed", "a")
        };
        assert!(reported[0].ends_with(line), "{reported:?}");
        assert!(followed.with(|hosts| hosts.by_name(host).is_some()));
    }
}

#[test]
fn a_failed_first_read_is_retried() {
    for fault in [Opens::As(libc::EMFILE), Opens::Broken] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        fs::write(&file, "a fe80::1\n").unwrap();
        OPENS.set(fault);
        let parse = |file: &Path, reader: &mut dyn BufRead| Hosts::parse(file, reader);
        let mut followed = WatchedFile::later(&file, Hosts::unread, parse);
        followed.open = open;
        followed.read_first(&mut followed.watch.lock());
        let reported = followed.get().reports()[0].to_string();
        assert!(reported.contains("hosts: cannot be read: "), "{reported}");
        let looks = |range: std::ops::Range<u64>| -> Vec<String> {
            range.flat_map(|n| followed.look(at(n * TICK))).collect()
        };
        assert_eq!(looks(1..20), [""; 0], "the first reading reported it");
        OPENS.set(Opens::As(0));
        let reported = looks(20..40);
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(
            reported[0].ends_with("the file can be read again: 1 entries"),
            "{reported:?}"
        );
        assert!(followed.get().by_name("a").is_some());
    }
}

/// Runs as a separate process: the limit on descriptors applies to the whole process.
#[test]
fn a_change_while_no_descriptor_is_free_is_not_lost() {
    const CHILD: &str = "FOLLOWED_WITHOUT_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let name = "text::watched_file::tests::a_change_while_no_descriptor_is_free_is_not_lost";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let mut hosts = Followee::new("a fe80::1\n");
    hosts.replace("b fe80::2\n");
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is writable.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(got, 0);
    let allow = |descriptors| {
        let limit = libc::rlimit {
            rlim_cur: descriptors,
            ..limit
        };
        // SAFETY: a complete limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    };
    allow(3);
    let reported: Vec<String> = (0..30).flat_map(|_| hosts.look()).collect();
    let had = hosts.has("a");
    allow(limit.rlim_cur);
    assert!(had);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains("cannot be read: Too many open files"),
        "{reported:?}"
    );
    let reported: Vec<String> = (0..30).flat_map(|_| hosts.look()).collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].ends_with("the file can be read again: 1 entries"),
        "{reported:?}"
    );
    assert!(hosts.has("b"));
}

#[test]
fn a_file_that_comes_later_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    let followed = WatchedFile::hosts(&file);
    assert!(
        followed.get().reports()[0]
            .to_string()
            .contains("no such file")
    );
    assert_eq!(followed.look(at(0)), [""; 0]);
    fs::write(&file, "a fe80::1\n").unwrap();
    followed.look(at(1_000));
    followed.look(at(2_000));
    assert!(followed.get().by_name("a").is_some());
}

#[test]
fn a_dump_without_the_own_section_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump");
    let good = "Switch 0x11, base LID 1, \"own\", port 0\n0x0001 : 0 : 4 : 3\n";
    fs::write(&file, good).unwrap();
    let followed = WatchedFile::routes(&file, 0x11, Lid(1));
    assert_eq!(followed.get().len(), 0, "the first look reads it");
    assert_eq!(followed.look(at(0)), [""; 0]);
    assert_eq!(followed.get().len(), 1);
    let other = "Switch 0x22, base LID 2, \"other\", port 0\n0x0001 : 0 : 4 : 3\n";
    fs::write(&file, other).unwrap();
    followed.look(at(0));
    let reported = followed.look(at(1_000));
    assert!(
        reported[0].contains("no section for the local port"),
        "{reported:?}"
    );
    assert_eq!(followed.get().len(), 1);
}
