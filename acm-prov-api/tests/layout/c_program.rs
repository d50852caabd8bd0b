//! Reads layouts and constants of the installed headers with the C compiler.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::table::{Constant, Layout};

/// The headers that the mirror covers and the Debian package of each.
const HEADERS: [(&str, &str); 7] = [
    ("infiniband/verbs.h", "libibverbs-dev"),
    ("infiniband/sa.h", "libibverbs-dev"),
    ("infiniband/umad.h", "libibumad-dev"),
    ("infiniband/umad_sa.h", "libibumad-dev"),
    ("infiniband/umad_sa_mcm.h", "libibumad-dev"),
    ("infiniband/acm.h", "ibacm"),
    ("infiniband/acm_prov.h", "ibacm"),
];

/// Runs the compiler on `source`, stored in `folder`.
pub fn compile(cc: &str, folder: &Path, source: &str, args: &[&str]) -> Result<Vec<u8>, String> {
    let file = folder.join("layout.c");
    std::fs::write(&file, source).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    let output = Command::new(cc)
        .current_dir(folder)
        .args(["-std=gnu11", "-Wno-deprecated-declarations", "layout.c"])
        .args(args)
        .output()
        .map_err(|e| {
            format!("cannot run the C compiler `{cc}`: {e}; install the Debian packages gcc and libc6-dev")
        })?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Fails with the package to install if the compiler or a header is missing.
pub fn require(cc: &str, folder: &Path, headers: &[(&str, &str)]) -> Result<(), String> {
    compile(cc, folder, "#include <stdio.h>\n", &["-E"]).map_err(|e| {
        format!("{e}\nno working C compiler: install the Debian packages gcc and libc6-dev")
    })?;
    for (header, package) in headers {
        compile(cc, folder, &format!("#include <{header}>\n"), &["-E"]).map_err(|e| {
            format!("{e}\n<{header}> is missing: install the Debian package {package}")
        })?;
    }
    Ok(())
}

fn includes() -> String {
    HEADERS.iter().fold(String::new(), |mut text, (header, _)| {
        let _ = writeln!(text, "#include <{header}>");
        text
    })
}

/// A program that prints the layout of every type and the value of every constant as JSON, in the
/// form of the recorded layout.
fn program(layouts: &[Layout], constants: &[Constant]) -> String {
    let mut c = includes();
    c += "#include <stddef.h>\n#include <stdio.h>\nint main(void) {\nputs(\"{\");\n";
    for layout in layouts {
        let name = layout.c_name;
        let size = layout
            .c_size
            .map_or(format!("sizeof({name})"), String::from);
        let _ = writeln!(
            c,
            r#"printf("\"{name}\": {{\"size\": %zu, \"align\": %zu, \"fields\": {{", (size_t)({size}), _Alignof({name}));"#
        );
        for (i, field) in layout.fields.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let field_name = field.c_name;
            let size = if field.flexible {
                "(size_t)0".to_owned()
            } else {
                format!("sizeof((({name} *)0)->{field_name})")
            };
            let _ = writeln!(
                c,
                r#"printf("{comma}\"{field_name}\": [%zu, %zu]", offsetof({name}, {field_name}), {size});"#
            );
        }
        c += "puts(\"}},\");\n";
    }
    for (i, constant) in constants.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        let name = constant.name;
        // Some flags are signed in C (1 << 31). They fill 32 bits and are never negative numbers.
        let _ = writeln!(
            c,
            r#"printf("{comma}\"{name}\": %lld\n", ({name}) < 0 ? (long long)(unsigned)({name}) : (long long)({name}));"#
        );
    }
    c + "puts(\"}\");\nreturn 0;\n}\n"
}

/// Builds and runs that program.
pub fn layout_of_installed_headers(
    layouts: &[Layout],
    constants: &[Constant],
) -> Result<serde_json::Value, String> {
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    require("cc", folder.path(), &HEADERS)?;
    compile(
        "cc",
        folder.path(),
        &program(layouts, constants),
        &["-o", "layout"],
    )?;
    let output = Command::new(folder.path().join("layout"))
        .output()
        .map_err(|e| format!("cannot run the compiled program: {e}"))?;
    if !output.status.success() {
        return Err(format!("the compiled program ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("the program's output: {e}"))
}

/// The `ACM_` and `UMAD_` names of macros and enum constants in the installed headers.
pub fn names_in_installed_headers() -> Result<BTreeSet<String>, String> {
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    require("cc", folder.path(), &HEADERS)?;
    let macros = compile("cc", folder.path(), &includes(), &["-E", "-dM"])?;
    let text = compile("cc", folder.path(), &includes(), &["-E", "-P"])?;
    let macro_names = String::from_utf8_lossy(&macros)
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1).map(String::from))
        .collect::<Vec<_>>();
    Ok(String::from_utf8_lossy(&text)
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .map(String::from)
        .chain(macro_names)
        .filter(|name| name.starts_with("ACM_") || name.starts_with("UMAD_"))
        .collect())
}
