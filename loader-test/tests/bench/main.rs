//! A short `loader-test bench`: checks the format of its results, and that all answers are right, but never a time.

#[path = "../shared/products.rs"]
mod products;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const STOCK: &str = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so";
const DESTINATIONS: u64 = 100;

fn bench(library: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loader-test"))
        .arg("bench")
        .arg(library)
        .args(["--dests", "100", "--rounds", "1", "--time", "2"])
        .args(arguments)
        .output()
        .unwrap()
}

fn path_cache() -> PathBuf {
    products::folder().join("libibacm_path_cache.so")
}

fn text(output: &Output) -> String {
    let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}\n{errors}")
}

#[test]
fn all_contestants_answer_right_and_the_results_have_their_form() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["json", "svg", "markdown"].map(|kind| folder.path().join(kind));
    let mcast_sa = products::folder().join("libibacm_mcast_sa.so");
    let mut arguments = vec!["--vs", STOCK, "--vs", mcast_sa.to_str().unwrap()];
    for (option, file) in ["--json", "--svg", "--markdown"].iter().zip(&files) {
        arguments.extend([option, file.to_str().unwrap()]);
    }
    let output = bench(&path_cache(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));

    let [json, svg, markdown] = files.map(|file| std::fs::read_to_string(file).unwrap());
    let results: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(results["schema"], 1);
    assert_eq!(
        (&results["rounds"], &results["reference"]),
        (&1.into(), &"stock".into())
    );
    let contestants = results["contestants"].as_array().unwrap();
    let names: Vec<&str> = contestants
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["path-cache", "stock", "mcast-sa", "limit", "core"]);

    let cells = results["cells"].as_array().unwrap();
    for cell in cells {
        assert_eq!(cell["wrong"], 0, "{cell}");
        // Or it says what it cannot do.
        let requests = cell["requests"].as_u64().unwrap();
        assert!(
            requests > DESTINATIONS || cell["remarks"].is_array(),
            "{cell}"
        );
    }
    let figures = |case: &str, contestant: &str| -> Vec<String> {
        let found = cells
            .iter()
            .find(|cell| cell["case"] == case && cell["contestant"] == contestant);
        let found = found.unwrap_or_else(|| panic!("no cell {case} of {contestant}"));
        found["figures"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let hits = ["cold", "hit", "hit-p50", "hit-p99", "rss", "used"];
    for provider in ["path-cache", "stock", "mcast-sa"] {
        for case in ["lid", "name", "ip", "kernel"] {
            assert_eq!(figures(case, provider), hits, "{case} of {provider}");
        }
        for figure in ["hit", "miss-p50", "miss-p99", "open", "close"] {
            let all = figures("gid", provider);
            assert!(all.iter().any(|name| name == figure), "{figure} in {all:?}");
        }
        assert_eq!(
            figures("preload", provider),
            ["held", "hit", "ready"],
            "{provider}"
        );
        assert_eq!(
            figures("churn", provider),
            ["churn", "churn-queries"],
            "{provider}"
        );
    }
    assert_eq!(figures("lid", "limit"), hits);
    assert!(figures("flush", "path-cache").contains(&"pause".to_owned()));
    // Stock has no such file, which is said.
    assert_eq!(figures("flush", "stock"), [""; 0]);
    assert!(json.contains("it has no flush file"), "{json}");

    for part in [
        "<svg",
        "limit: an array index",
        "path-cache",
        "stock",
        "lid 100",
        "nanoseconds, logarithmic",
    ] {
        assert!(svg.contains(part), "{part:?} in {svg}");
    }
    assert!(markdown.contains("| lid | 100 | hit | ns |"), "{markdown}");
}

/// A library that answers correctly at no cost, except for one change.
fn changed(folder: &Path, right: &str, wrong: &str) -> PathBuf {
    let source = include_str!("../../src/bench/array.c");
    assert!(source.contains(right));
    let (file, library) = (folder.join("array.c"), folder.join("libwrong.so"));
    std::fs::write(&file, source.replace(right, wrong)).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let built = Command::new("cc")
        .args([
            "-std=gnu11",
            "-fPIC",
            "-shared",
            "-DNOTHING",
            "-DLIDS=49000u",
            "-DGUIDS=4194304u",
        ])
        .arg("-DFIRST_GUID=0x0002c90300000000ull")
        .arg("-I")
        .arg(include)
        .arg(&file)
        .arg("-o")
        .arg(&library)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built));
    library
}

const ANSWER: &str = "answer(msg->hdr.tid, id, &path);\n\treturn 0;";

#[test]
fn a_provider_that_answers_wrong_or_twice_fails_the_run() {
    let twice = format!("answer(msg->hdr.tid, id, &path);\n\t{ANSWER}");
    for (right, wrong) in [
        ("htobe16(1 + number % LIDS)", "htobe16(2 + number % LIDS)"),
        (ANSWER, &twice),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let library = changed(folder.path(), right, wrong);
        let output = bench(&library, &["--only", "lid"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(
            text(&output).contains("answers were wrong"),
            "{}",
            text(&output)
        );
    }
}

#[test]
fn a_provider_that_never_answers_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let library = changed(folder.path(), ANSWER, "(void)id;\n\treturn 0;");
    let output = bench(&library, &["--only", "lid"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("a request was not answered within"), "{said}");
}

#[test]
fn a_run_that_measures_nothing_is_none() {
    let output = Command::new(env!("CARGO_BIN_EXE_loader-test"))
        .args(["bench", path_cache().to_str().unwrap()])
        .args(["--only", "lid", "--dests", "1m"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("lid: at most 49k"), "{said}");
}

#[test]
fn what_is_no_library_is_said() {
    let output = bench(Path::new("/etc/passwd"), &["--only", "lid"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("passwd in the case lid"),
        "{}",
        text(&output)
    );
    let output = bench(Path::new("/nowhere.so"), &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        text(&output).contains("/nowhere.so: no such library"),
        "{}",
        text(&output)
    );
}
