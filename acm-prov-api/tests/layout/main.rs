//! The mirror has the layout of the C headers.
//!
//! `table.rs` lists each type, field and constant once. The tests compare it with two independent
//! sources: a layout recorded from the headers of 13 rdma-core releases (x86-64), and the
//! installed headers, by the C compiler.

mod c_program;
mod table;

use std::collections::BTreeSet;

use serde_json::Value;
use table::{Constant, Layout, constants, layouts};

const RECORDED: &str = include_str!("../fixtures/layout.json");

fn recorded() -> Value {
    serde_json::from_str(RECORDED).expect("tests/fixtures/layout.json is JSON")
}

/// Returns all differences between `expected` and the mirror.
fn differences(expected: &Value, layouts: &[Layout], constants: &[Constant]) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: String, expected: &Value, actual: Option<i128>| {
        let expected = expected.as_i64().map(i128::from);
        if expected.is_none() || expected != actual {
            found.push(format!("{what}: C has {expected:?}, the mirror {actual:?}"));
        }
    };
    let number = |value: usize| Some(value as i128);
    for (name, entry) in expected
        .as_object()
        .expect("an object of types and constants")
    {
        let Some(fields) = entry.get("fields") else {
            let actual = constants.iter().find(|constant| constant.name == name);
            check(name.clone(), entry, actual.map(|constant| constant.value));
            continue;
        };
        let layout = layouts.iter().find(|layout| layout.c_name == name);
        check(
            format!("size of {name}"),
            &entry["size"],
            layout.and_then(|l| number(l.size)),
        );
        check(
            format!("alignment of {name}"),
            &entry["align"],
            layout.and_then(|l| number(l.align)),
        );
        for (field_name, place) in fields.as_object().expect("an object of fields") {
            let field = layout.and_then(|layout| {
                layout
                    .fields
                    .iter()
                    .find(|field| field.c_name == field_name)
            });
            check(
                format!("offset of {name}.{field_name}"),
                &place[0],
                field.and_then(|f| number(f.offset)),
            );
            check(
                format!("size of {name}.{field_name}"),
                &place[1],
                field.and_then(|f| number(f.size)),
            );
        }
    }
    found
}

fn count(layout: &Value) -> (usize, usize) {
    let entries = layout.as_object().unwrap().values();
    let fields = entries
        .clone()
        .filter_map(|entry| entry.get("fields")?.as_object());
    (entries.len(), fields.map(serde_json::Map::len).sum())
}

#[test]
fn mirror_has_the_recorded_layout() {
    let recorded = recorded();
    assert_eq!(count(&recorded), (20, 101), "the fixture is whole");
    assert_eq!(differences(&recorded, &layouts(), &constants()), [""; 0]);
}

#[test]
fn mirror_has_the_layout_of_the_installed_headers() {
    let (layouts, constants) = (layouts(), constants());
    let installed = match c_program::layout_of_installed_headers(&layouts, &constants) {
        Ok(installed) => installed,
        Err(message) => panic!("{message}"),
    };
    // The C program printed all of them.
    let fields = layouts.iter().map(|layout| layout.fields.len()).sum();
    assert_eq!(count(&installed), (layouts.len() + constants.len(), fields));
    assert_eq!(differences(&installed, &layouts, &constants), [""; 0]);
}

/// Names in the headers that the provider interface does not use.
const NOT_MIRRORED: [&str; 14] = [
    // Include guards.
    "ACM_H",
    "ACM_PROV_H",
    // libibumad's own functions.
    "UMAD_MAX_DEVICES",
    "UMAD_ANY_PORT",
    "UMAD_CA_NAME_LEN",
    "UMAD_CA_MAX_PORTS",
    "UMAD_CA_MAX_AGENTS",
    "UMAD_MAX_PORTS",
    "UMAD_USER_RMPP",
    // Vendor MADs and ClassPortInfo.
    "UMAD_OPENIB_OUI",
    "UMAD_CLASS_RESP_TIME_MASK",
    "UMAD_CLASS_CAP_MASK2",
    "UMAD_CLASS_RESP_TIME",
    "UMAD_H",
];

#[test]
fn no_constant_of_the_installed_headers_is_missing() {
    let names = match c_program::names_in_installed_headers() {
        Ok(names) => names,
        Err(message) => panic!("{message}"),
    };
    assert!(names.contains("ACM_STATUS_EDESTTYPE") && names.contains("UMAD_SA_ATTR_PATH_REC"));
    let mirrored: BTreeSet<_> = constants().iter().map(|constant| constant.name).collect();
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !mirrored.contains(name.as_str()) && !NOT_MIRRORED.contains(&name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "neither mirrored nor listed as not needed: {missing:?}"
    );
}

/// Reads the mirror's source to check that the table is complete.
const MIRROR: [&str; 7] = [
    include_str!("../../src/abi/acm.rs"),
    include_str!("../../src/abi/acm_prov.rs"),
    include_str!("../../src/abi/sa.rs"),
    include_str!("../../src/abi/umad.rs"),
    include_str!("../../src/abi/umad_types.rs"),
    include_str!("../../src/abi/umad_sa.rs"),
    include_str!("../../src/abi/umad_sa_mcm.rs"),
];

const MIRROR_OF_VERBS: &str = include_str!("../../src/abi/verbs.rs");

fn declared<'a>(keyword: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    MIRROR
        .into_iter()
        .chain([MIRROR_OF_VERBS])
        .flat_map(str::lines)
        .filter_map(move |line| line.strip_prefix(keyword)?.strip_prefix(' '))
        .map(|rest| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap()
        })
}

#[test]
fn every_item_of_the_mirror_is_in_the_table() {
    let constants: BTreeSet<_> = constants().iter().map(|constant| constant.name).collect();
    let forgotten: Vec<_> = declared("pub const")
        .filter(|name| !constants.contains(name))
        .collect();
    assert!(
        forgotten.is_empty(),
        "constants not compared with C: {forgotten:?}"
    );
    assert!(declared("pub const").count() > 100);

    // Opaque, or compared as part of the surrounding type.
    let elsewhere = [
        "ibv_context",
        "ibv_gid_global",
        "umad_gid_global",
        "acm_msg_body",
    ];
    let compared: BTreeSet<_> = layouts()
        .iter()
        .map(|layout| layout.c_name.rsplit(' ').next().unwrap())
        .map(|name| {
            if name == "ibv_port_attr" {
                "_compat_ibv_port_attr"
            } else {
                name
            }
        })
        .collect();
    let forgotten: Vec<_> = declared("pub struct")
        .chain(declared("pub union"))
        .filter(|name| !compared.contains(name) && !elsewhere.contains(name))
        .collect();
    assert!(
        forgotten.is_empty(),
        "types not compared with C: {forgotten:?}"
    );
}

#[test]
fn a_wrong_number_anywhere_is_noticed() {
    // Changes each number of the fixture in turn; exactly that one must be reported.
    fn numbers(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, inner) in map {
                    numbers(inner, &format!("{path}/{key}"), found);
                }
            }
            Value::Array(list) => {
                for (i, inner) in list.iter().enumerate() {
                    numbers(inner, &format!("{path}/{i}"), found);
                }
            }
            _ => found.push(path.to_owned()),
        }
    }
    let (layouts, constants, recorded) = (layouts(), constants(), recorded());
    let mut paths = Vec::new();
    numbers(&recorded, "", &mut paths);
    assert_eq!(paths.len(), 17 * 2 + 101 * 2 + 3);
    for path in paths {
        let mut tampered = recorded.clone();
        let number = tampered.pointer_mut(&path).unwrap();
        *number = Value::from(number.as_i64().unwrap() + 1);
        let found = differences(&tampered, &layouts, &constants);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
    }
}

#[test]
fn a_wrong_mirror_is_noticed() {
    let (mut layouts, mut constants) = (layouts(), constants());
    let provider = layouts
        .iter_mut()
        .find(|l| l.c_name == "struct acm_provider")
        .unwrap();
    provider.fields.retain(|field| field.c_name != "query");
    provider
        .fields
        .iter_mut()
        .find(|f| f.c_name == "resolve")
        .unwrap()
        .offset += 8;
    layouts.retain(|layout| layout.c_name != "union acm_ep_info");
    constants.retain(|constant| constant.name != "ACM_MAX_COUNTER");
    assert_eq!(
        differences(&recorded(), &layouts, &constants),
        [
            "ACM_MAX_COUNTER: C has Some(7), the mirror None",
            "offset of struct acm_provider.query: C has Some(96), the mirror None",
            "size of struct acm_provider.query: C has Some(8), the mirror None",
            "offset of struct acm_provider.resolve: C has Some(88), the mirror Some(96)",
            "size of union acm_ep_info: C has Some(64), the mirror None",
            "alignment of union acm_ep_info: C has Some(8), the mirror None",
        ]
    );
}

#[test]
fn a_missing_program_or_header_is_named_with_its_package() {
    let folder = tempfile::tempdir().unwrap();
    let header = [("infiniband/no_such_header.h", "libnosuch-dev")];
    let message = c_program::require("cc", folder.path(), &header).unwrap_err();
    assert!(
        message.ends_with(
            "<infiniband/no_such_header.h> is missing: install the Debian package libnosuch-dev"
        ),
        "{message}"
    );
    let message = c_program::require("no-such-cc", folder.path(), &header).unwrap_err();
    assert!(
        message.contains("no-such-cc") && message.contains("packages gcc"),
        "{message}"
    );
}

/// The fields that the SDK reads behind the core's `ibv_context`; `src/handles/device_name.rs` has the same offsets.
#[test]
fn a_device_has_its_name_where_the_sdk_reads_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    if let Err(message) = c_program::require(
        "cc",
        folder.path(),
        &[("infiniband/verbs.h", "libibverbs-dev")],
    ) {
        panic!("{message}");
    }
    let source = "#include <infiniband/verbs.h>\n#include <stddef.h>\n\
        _Static_assert(offsetof(struct ibv_context, device) == 0, \"device\");\n\
        _Static_assert(offsetof(struct ibv_device, name) == 2 * sizeof(void *) + 8, \"name\");\n\
        _Static_assert(sizeof(((struct ibv_device *)0)->name) == 64, \"length of name\");\n";
    let compiled = c_program::compile("cc", folder.path(), source, &["-fsyntax-only"]);
    assert_eq!(compiled, Ok(Vec::new()));
}
