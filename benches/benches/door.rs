//! The SDK's own cost: parsing a message and building an answer, with the smallest provider.

use std::path::{Path, PathBuf};
use std::process::Command;

use acm_stand_in::bare::{Asked, Core, gid_of, lid_of};
use acm_stand_in::message::{HEADER, Message, Path as Record};
use criterion::{Criterion, criterion_group, criterion_main};

const DESTINATIONS: u32 = 1000;
/// Offset of a path's DGID in a message.
const DGID: usize = HEADER + 8 + 8;

/// The SDK's example `static_table`, in its release build.
fn static_table() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--message-format", "json"])
        .args(["--package", "acm-prov-api", "--example", "static_table"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo builds the provider");
    let messages = String::from_utf8(output.stdout).expect("JSON");
    let library = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let files = message["filenames"].as_array()?.iter();
        let mut files = files.filter_map(|file| file.as_str());
        files
            .find(|file| file.ends_with("libstatic_table.so"))
            .map(PathBuf::from)
    });
    library.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn table(folder: &Path) -> PathBuf {
    let lines = (0..DESTINATIONS).map(|number| {
        let gid = gid_of(number);
        format!("{gid} {}\n", lid_of(number))
    });
    let file = folder.join("table");
    std::fs::write(&file, lines.collect::<String>()).expect("a file for the table");
    file
}

fn door(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = [format!(
        "static_table_file {}",
        table(folder.path()).display()
    )];
    let mut core =
        Core::load(&static_table(), &options, folder.path()).expect("the provider loads");
    core.open().expect("the port opens");
    let mut message = Message::path(&Record::default().with_reversible_numpath(0x81));
    let mut number = 0;
    criterion.bench_function("a request through the SDK", |bencher| {
        bencher.iter(|| {
            number = (number + 7) % DESTINATIONS;
            message.0[DGID..DGID + 16].copy_from_slice(&gid_of(number).0);
            assert_eq!(core.ask(&mut message, 7, number), Asked::Answered);
        });
    });
    let tally = core.tally();
    assert_eq!((tally.wrong, tally.refused), (0, 0));
    core.close();
}

criterion_group!(benches, door);
criterion_main!(benches);
