//! The symbols that `libfabric_sim.so` exports and imports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions of libibverbs that take no handle of a device or of an object made from one; libibverbs' own work.
const TAKE_NO_HANDLE: [&str; 14] = [
    "ibv_copy_ah_attr_from_kern",
    "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern",
    "ibv_dofork_range",
    "ibv_dontfork_range",
    "ibv_get_sysfs_path",
    "ibv_node_type_str",
    "ibv_port_state_str",
    "ibv_rate_to_mbps",
    "ibv_rate_to_mult",
    "ibv_read_sysfs_file",
    "ibv_register_driver",
    "ibv_wc_status_str",
];

fn nm(library: &Path, kind: &str) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--format=posix", kind])
        .arg(library)
        .output();
    let output = output.expect("no nm; as root: apt-get install binutils");
    assert!(
        output.status.success(),
        "nm {}: {}",
        library.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// Returns the library, which cargo builds next to this test, because it is in the same package.
fn fabric_sim() -> PathBuf {
    let path = std::env::current_exe()
        .unwrap()
        .with_file_name("libfabric_sim.so");
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

fn installed(name: &str) -> PathBuf {
    let mut folders = vec![PathBuf::from("/usr/lib64"), PathBuf::from("/usr/lib")];
    folders.extend(
        std::fs::read_dir("/usr/lib")
            .unwrap()
            .flatten()
            .map(|entry| entry.path()),
    );
    let found = folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is not installed; as root: apt-get install libibverbs1 ibacm")
    })
}

fn exported() -> BTreeSet<String> {
    nm(&fabric_sim(), "--defined-only").into_iter().collect()
}

#[test]
fn no_verb_of_libibverbs_gets_to_see_our_handles() {
    let exported = exported();
    let verbs: BTreeSet<_> = nm(&installed("libibverbs.so.1"), "--defined-only")
        .into_iter()
        // Symbols that libibverbs shares with its own drivers are not for programs.
        .filter(|symbol| !symbol.contains("PRIVATE"))
        .map(|symbol| symbol.split('@').next().unwrap().to_owned())
        .filter(|symbol| symbol.starts_with("ibv_") || symbol.starts_with("_ibv_"))
        .collect();
    assert!(verbs.len() > 60, "{verbs:?}");
    let missing: Vec<_> = verbs
        .iter()
        .filter(|verb| !exported.contains(*verb) && !TAKE_NO_HANDLE.contains(&verb.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "libibverbs has them, fabric-sim neither simulates nor refuses them: {missing:?}"
    );
}

#[test]
fn all_functions_that_ibacm_its_provider_and_ib_acme_call_are_exported() {
    let exported = exported();
    let programs = [
        installed("ibacm/libibacmp.so"),
        "/usr/sbin/ibacm".into(),
        "/usr/bin/ib_acme".into(),
    ];
    for program in programs {
        let called: Vec<_> = nm(&program, "--undefined-only")
            .into_iter()
            .map(|symbol| symbol.split('@').next().unwrap().to_owned())
            .filter(|symbol| symbol.starts_with("ibv_"))
            .collect();
        assert!(!called.is_empty());
        let missing: Vec<_> = called
            .iter()
            .filter(|verb| !exported.contains(*verb))
            .collect();
        assert!(missing.is_empty(), "{}: {missing:?}", program.display());
    }
}

#[test]
fn exports_have_no_version_and_nothing_of_rdma_is_imported() {
    let versioned: Vec<_> = exported()
        .into_iter()
        .filter(|symbol| symbol.contains('@'))
        .collect();
    assert!(versioned.is_empty(), "{versioned:?}");
    let imported: Vec<_> = nm(&fabric_sim(), "--undefined-only")
        .into_iter()
        .filter(|symbol| {
            ["ibv_", "_ibv_", "umad_", "mad_"]
                .iter()
                .any(|prefix| symbol.starts_with(prefix))
        })
        .collect();
    assert!(imported.is_empty(), "{imported:?}");
}
