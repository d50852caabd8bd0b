//! `include/acm_prov_abi.h` equals the output of cbindgen for the mirror, and C and C++ compilers find it consistent with the
//! installed headers.
//!
//! `cargo xtask headers` updates the file (it runs this test with `REGENERATE=1` in the environment).

#[path = "../layout/c_program.rs"]
#[allow(dead_code)]
mod c_program;
mod generate;
mod source;
#[path = "../layout/table.rs"]
#[allow(dead_code)]
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use generate::{agreement, header};

fn checked_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/acm_prov_abi.h")
}

/// Compiles a file in a folder with the header. Returns the compiler's errors.
fn compiles(compiler: &str, flags: &[&str], file: &str, text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("acm_prov_abi.h"), header()).expect("a header");
    std::fs::write(folder.path().join(file), text).expect("a source file");
    let output = Command::new(compiler)
        .current_dir(folder.path())
        .args(flags)
        .args(["-I.", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", file])
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; install the Debian package g++"));
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn checked_in_header_is_up_to_date() {
    let (path, header) = (checked_in(), header());
    if std::env::var_os("REGENERATE").is_some() {
        std::fs::write(&path, header).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = present
        .lines()
        .zip(header.lines())
        .position(|(present, wanted)| present != wanted);
    assert!(
        present == header,
        "include/acm_prov_abi.h is not what the mirror makes (from line {}): run `cargo xtask headers`",
        difference.unwrap_or_else(|| present.lines().count().min(header.lines().count())) + 1
    );
}

#[test]
fn header_is_strict_c_and_cpp() {
    let text = "#include \"acm_prov_abi.h\"\nint nothing;\n";
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        assert_eq!(
            compiles("gcc", &[standard, "-pedantic"], "alone.c", text),
            Ok(())
        );
    }
    for standard in ["-std=c++11", "-std=c++20"] {
        assert_eq!(
            compiles("g++", &[standard, "-pedantic"], "alone.cpp", text),
            Ok(())
        );
    }
}

#[test]
fn header_agrees_with_the_installed_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let headers = [
        ("infiniband/acm_prov.h", "ibacm"),
        ("infiniband/umad_sa_mcm.h", "libibumad-dev"),
    ];
    c_program::require("cc", folder.path(), &headers).unwrap_or_else(|message| panic!("{message}"));
    let text = agreement();
    let c = ["-std=gnu11", "-pedantic", "-Wno-deprecated-declarations"];
    let cpp = ["-std=gnu++17", "-pedantic", "-Wno-deprecated-declarations"];
    assert_eq!(compiles("gcc", &c, "agree.c", &text), Ok(()));
    assert_eq!(compiles("g++", &cpp, "agree.cpp", &text), Ok(()));

    // Make sure that the compiler finds a wrong one.
    for (right, wrong) in [
        (
            "offsetof(struct acm_address, type) ==",
            "4 + offsetof(struct acm_address, type) ==",
        ),
        (
            "sizeof(struct acm_provider) ==",
            "8 + sizeof(struct acm_provider) ==",
        ),
        ("(ACM_STATUS_ENODATA) ==", "(ACM_STATUS_EINVAL) =="),
    ] {
        assert!(text.contains(right), "{right}");
        let text = text.replace(right, wrong);
        assert!(
            compiles("gcc", &c, "agree.c", &text)
                .unwrap_err()
                .contains("assert")
        );
        assert!(
            compiles("g++", &cpp, "agree.cpp", &text)
                .unwrap_err()
                .contains("assert")
        );
    }
}

#[test]
fn header_asserts_every_size_and_offset() {
    let header = header();
    for (right, wrong) in [
        (
            "sizeof(struct acmabi_provider) == 120",
            "sizeof(struct acmabi_provider) == 128",
        ),
        (
            "offsetof(struct acmabi_sa_mad, sa_mad) == 72",
            "offsetof(struct acmabi_sa_mad, sa_mad) == 64",
        ),
    ] {
        assert_eq!(header.matches(right).count(), 1, "{right}");
        let text = header.replace(right, wrong);
        assert!(
            compiles("gcc", &[], "changed.c", &text)
                .unwrap_err()
                .contains("assert")
        );
        assert!(
            compiles("g++", &[], "changed.cpp", &text)
                .unwrap_err()
                .contains("assert")
        );
    }
}
