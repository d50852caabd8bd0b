//! Files that change, with made-up time.

use std::fs;

use super::*;
use crate::address::Lid;

struct Followee {
    _folder: tempfile::TempDir,
    file: PathBuf,
    followed: Followed<Hosts>,
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
            followed: Followed::hosts(&file),
            _folder: folder,
            file,
            now: 0,
        }
    }

    fn look(&mut self) -> Vec<String> {
        self.now += TICK;
        self.followed.look(at(self.now))
    }

    /// Looks until a change would have been taken in.
    fn looks(&mut self) -> Vec<String> {
        (0..3).flat_map(|_| self.look()).collect()
    }

    /// By renaming: whatever the file system's clock, the file is another one.
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
fn a_changed_file_is_read_again_in_whole() {
    let mut hosts = Followee::new("a fe80::1\nb fe80::2\n");
    assert_eq!(hosts.looks(), [""; 0]);
    let held = hosts.followed.get();
    hosts.replace("a fe80::1\nc fe80::3\n");
    let told = hosts.looks();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with("was read again: 2 entries"), "{told:?}");
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
fn bad_lines_of_the_new_file_are_told() {
    let mut hosts = Followee::new("a fe80::1\n");
    hosts.replace("b fe80::2\nbad\n");
    let told = hosts.looks();
    assert!(told[1].contains(":2: bad: no GID follows"), "{told:?}");
    assert!(hosts.has("b"));
}

#[test]
fn a_vanished_file_keeps_what_was_there_and_says_so_once() {
    let mut hosts = Followee::new("a fe80::1\n");
    fs::remove_file(&hosts.file).unwrap();
    let told = hosts.looks();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].ends_with("the file is gone; going on with what was read before"),
        "{told:?}"
    );
    assert_eq!(hosts.looks(), [""; 0]);
    assert!(hosts.has("a"));
    hosts.replace("b fe80::2\n");
    assert!(hosts.looks()[0].contains("was read again"));
    assert!(hosts.has("b"));
}

#[test]
fn a_file_that_is_moved_away_for_a_moment_only_is_no_news() {
    let mut hosts = Followee::new("a fe80::1\n");
    fs::remove_file(&hosts.file).unwrap();
    assert_eq!(hosts.look(), [""; 0]);
    hosts.replace("b fe80::2\n");
    let told = hosts.looks();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(hosts.has("b"));
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
        let told = hosts.looks();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(reason), "{told:?}");
        assert!(
            told[0].ends_with("going on with what was read before"),
            "{told:?}"
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
    let told = hosts.looks();
    assert!(told[0].contains("directory"), "{told:?}");
    assert!(hosts.has("a"));
}

#[test]
fn a_file_that_comes_later_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    let followed = Followed::hosts(&file);
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
    let followed = Followed::routes(&file, 0x11, Lid(1));
    assert_eq!(followed.get().len(), 1);
    let other = "Switch 0x22, base LID 2, \"other\", port 0\n0x0001 : 0 : 4 : 3\n";
    fs::write(&file, other).unwrap();
    followed.look(at(0));
    let told = followed.look(at(1_000));
    assert!(
        told[0].contains("no section for the local port"),
        "{told:?}"
    );
    assert_eq!(followed.get().len(), 1);
}
