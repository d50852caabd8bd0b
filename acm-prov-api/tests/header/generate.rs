//! Generates the header, and the C file that compares it with the installed one.

use std::fmt::Write as _;
use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

use crate::source::{self, Source, own_name};
use crate::table::{Layout, constants, layouts};

const HEAD: &str = "\
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The interface between ibacm and its providers, for C and C++, on its own: what <infiniband/acm_prov.h> of rdma-core
 * declares, and what that takes from acm.h, sa.h, umad.h, umad_types.h, umad_sa.h, umad_sa_mcm.h and verbs.h.
 *
 * Generated from the Rust mirror of the same headers (acm-prov-api/src/abi) by `cargo xtask headers`; do not edit.
 *
 * All names begin with acmabi_ or ACMABI_ (instead of acm_ and ACM_, where the original has that), so that a file can include
 * both. Functions are those of the core and of libibverbs under their own names, and acmabi_provider_query is the
 * provider_query that a provider exports: the compiler is told which symbol each stands for (gcc and clang).
 *
 * Numbers are in host byte order but for those of the types acmabi_be16, acmabi_be32 and acmabi_be64, and for what is said to
 * be in network byte order. The layout is that of LP64 (x86-64, aarch64): anything else fails to compile.
 */";

const AFTER_INCLUDES: &str = "\
#define ACMABI_ALIGNED(n) __attribute__((aligned(n)))
#define ACMABI_PACKED __attribute__((packed))
/* The symbol that a declaration stands for. */
#define ACMABI_SYMBOL(name) __asm__(name)
";

/// The header's text.
pub fn header() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/abi");
    let source = source::read(&folder);
    let file = tempfile::Builder::new()
        .suffix(".rs")
        .tempfile()
        .expect("a temporary file");
    std::fs::write(file.path(), &source.text).expect("a temporary file");
    let config = Config {
        language: Language::C,
        style: Style::Tag,
        cpp_compat: true,
        documentation_style: DocumentationStyle::Doxy,
        include_guard: Some("ACM_PROV_ABI_H".into()),
        header: Some(HEAD.into()),
        after_includes: Some(AFTER_INCLUDES.into()),
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        usize_is_size_t: true,
        line_length: 120,
        tab_width: 4,
        export: cbindgen::ExportConfig {
            // Unused ones, too.
            include: source.types.clone(),
            ..cbindgen::ExportConfig::default()
        },
        layout: cbindgen::LayoutConfig {
            packed: Some("ACMABI_PACKED".into()),
            aligned_n: Some("ACMABI_ALIGNED".into()),
        },
        ..Config::default()
    };
    let mut text = Vec::new();
    Builder::new()
        .with_src(file.path())
        .with_config(config)
        .generate()
        .expect("cbindgen understands the mirror")
        .write(&mut text);
    let text = String::from_utf8(text).expect("cbindgen writes UTF-8");
    let text = with_hexadecimals(with_symbols(text, &source), &source);
    with_assertions(with_short_comments(&text))
}

/// Adds the symbol to each declaration of a function.
fn with_symbols(mut text: String, source: &Source) -> String {
    for function in &source.functions {
        let start = format!("{}(", function.name);
        let places: Vec<_> = text.match_indices(&start).map(|(at, _)| at).collect();
        let [at] = places[..] else {
            panic!("{} is declared {} times", function.name, places.len());
        };
        let end = at + text[at..].find(");").expect("the end of a declaration") + 1;
        let mut tail = format!("\n    ACMABI_SYMBOL(\"{}\")", function.symbol);
        if function.symbol == "acm_write" {
            tail += " __attribute__((format(printf, 2, 3)))";
        }
        text.insert_str(end, &tail);
    }
    text
}

/// Puts the assertions inside the include guard.
fn with_assertions(mut text: String) -> String {
    let end = text.rfind("#endif").expect("the end of the include guard");
    text.insert_str(end, &format!("{}\n", assertions()));
    text
}

/// Writes bits and masks in hexadecimal.
fn with_hexadecimals(mut text: String, source: &Source) -> String {
    for (name, value) in &source.hexadecimal {
        let decimal = format!("#define {name} {value}\n");
        assert_eq!(text.matches(&decimal).count(), 1, "{decimal}");
        text = text.replace(&decimal, &format!("#define {name} {value:#x}\n"));
    }
    text
}

/// Writes a comment on one line if it fits.
fn with_short_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut short = String::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let words = lines
            .get(at + 1)
            .and_then(|line| line.trim_start().strip_prefix("* "));
        let is_short =
            line.trim_start() == "/**" && lines.get(at + 2).is_some_and(|line| line.trim() == "*/");
        match words {
            Some(words) if is_short => {
                short += &format!("{line} {words} */\n");
                at += 3;
            }
            _ => {
                short += line;
                short.push('\n');
                at += 1;
            }
        }
    }
    short
}

/// The header's name of a type that has `name` in C; `None` if the header has no such type.
fn own_type(name: &str) -> Option<String> {
    if let Some(integer) = name.strip_prefix("__be") {
        return Some(format!("acmabi_be{integer}"));
    }
    let (keyword, name) = name.split_once(' ')?;
    match keyword {
        _ if source::LEFT_OUT.contains(&name) => None,
        // Codes are plain integers in the header, because they may have values that C's enumerations do not name.
        "enum" => Some(own_name(name)),
        // The header has the structure as libibverbs fixed it.
        _ if name == "ibv_port_attr" => Some("struct acmabi_compat_ibv_port_attr".into()),
        _ => Some(format!("{keyword} {}", own_name(name))),
    }
}

/// The types of the header beside the mirror's layouts.
fn types() -> Vec<(String, Layout)> {
    layouts()
        .into_iter()
        .filter_map(|layout| Some((own_type(layout.c_name)?, layout)))
        .collect()
}

/// The header's fields: the mirror's name, the header's, offset and size.
fn fields(layout: &Layout) -> impl Iterator<Item = (&'static str, String, usize, usize)> + '_ {
    let is_message = layout.c_name == "struct acm_msg";
    layout
        .fields
        .iter()
        .filter(|field| !field.flexible && field.size > 0 && field.c_name != "ib_gid")
        .map(move |field| {
            let own = if is_message && field.c_name != "hdr" {
                format!("body.{}", field.c_name)
            } else {
                field.c_name.to_owned()
            };
            (field.c_name, own, field.offset, field.size)
        })
}

fn assertions() -> String {
    let mut text = "\
/* What the Rust mirror has, seen by the compiler. */
#if defined(__cplusplus)
#define ACMABI_ASSERT(holds) static_assert(holds, #holds)
#define ACMABI_ALIGNOF(type) alignof(type)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define ACMABI_ASSERT(holds) _Static_assert(holds, #holds)
#define ACMABI_ALIGNOF(type) _Alignof(type)
#else
#define ACMABI_ASSERT(holds) extern char acmabi_assert[(holds) ? 1 : -1]
#define ACMABI_ALIGNOF(type) __alignof__(type)
#endif
"
    .to_owned();
    for (name, layout) in types() {
        let _ = writeln!(text, "\nACMABI_ASSERT(sizeof({name}) == {});", layout.size);
        let _ = writeln!(
            text,
            "ACMABI_ASSERT(ACMABI_ALIGNOF({name}) == {});",
            layout.align
        );
        for (_, field, offset, size) in fields(&layout) {
            let _ = writeln!(
                text,
                "ACMABI_ASSERT(offsetof({name}, {field}) == {offset});"
            );
            let _ = writeln!(
                text,
                "ACMABI_ASSERT(sizeof((({name} *)0)->{field}) == {size});"
            );
        }
    }
    text += "\n#undef ACMABI_ASSERT\n#undef ACMABI_ALIGNOF\n";
    text
}

/// A file that compiles if the header and the installed ones agree; C and C++.
pub fn agreement() -> String {
    let mut text = "\
#include <infiniband/acm_prov.h>
#include <infiniband/umad_sa_mcm.h>
#include \"acm_prov_abi.h\"

#ifndef __cplusplus
#define static_assert _Static_assert
#define alignof _Alignof
#endif
"
    .to_owned();
    for (own, layout) in types() {
        let theirs = layout.c_name;
        let size = layout
            .c_size
            .map_or(format!("sizeof({theirs})"), str::to_owned);
        let _ = writeln!(
            text,
            "static_assert({size} == sizeof({own}), \"size of {theirs}\");"
        );
        if layout.c_size.is_none() {
            let _ = writeln!(
                text,
                "static_assert(alignof({theirs}) == alignof({own}), \"alignment of {theirs}\");"
            );
        }
        for (their_field, own_field, ..) in fields(&layout) {
            let _ = writeln!(
                text,
                "static_assert(offsetof({theirs}, {their_field}) == offsetof({own}, {own_field}), \
                 \"offset of {theirs}.{their_field}\");"
            );
            let _ = writeln!(
                text,
                "static_assert(sizeof((({theirs} *)0)->{their_field}) == sizeof((({own} *)0)->{own_field}), \
                 \"size of {theirs}.{their_field}\");"
            );
        }
    }
    // Some flags are signed in C, and 1 << 31 overflows; the conversions keep the bits.
    text += "#pragma GCC diagnostic ignored \"-Wpedantic\"\n";
    for constant in constants() {
        let (theirs, own) = (constant.name, own_name(constant.name));
        let _ = writeln!(
            text,
            "static_assert((unsigned long long)({theirs}) == (unsigned long long)({own}) || \
             (unsigned)({theirs}) == (unsigned)({own}), \"{theirs}\");"
        );
    }
    text
}
