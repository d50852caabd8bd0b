//! A small `loader-test storm`: checks each provider's SA queries, and that all answers are right, but never a time.

#[path = "../shared/products.rs"]
mod products;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const NET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fabrics/four-hosts.net");
const CLIENTS: usize = 8;
const JOB_HOSTS: usize = 3;
const SERVICES: usize = 6;

/// The results of a storm of one round with path-cache and mcast-sa.
fn storm(file: &Path) -> Value {
    let folder = products::folder();
    let output = Command::new(env!("CARGO_BIN_EXE_loader-test"))
        .arg("storm")
        .args(["libibacm_path_cache.so", "libibacm_mcast_sa.so"].map(|name| folder.join(name)))
        .args([
            "--net", NET, "--host", "Hca1", "--rounds", "1", "--cold", "3", "--warm", "5",
        ])
        .args([
            "--clients",
            &CLIENTS.to_string(),
            "--job-hosts",
            &JOB_HOSTS.to_string(),
        ])
        .args(["--services", &SERVICES.to_string(), "--json"])
        .arg(file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{errors}");
    assert!(
        said.contains("holds  path-cache: all answers right"),
        "{said}"
    );
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn a_small_storm_counts_what_the_sa_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let results = storm(&folder.path().join("results"));
    let claims = results["claims"].as_array().unwrap();
    // Right answers and SA queries of two providers; one round says nothing of times.
    assert_eq!(claims.len(), 4, "{results}");
    assert!(
        claims.iter().all(|claim| claim["holds"] == true),
        "{results}"
    );

    let part = |mode: &str, provider: &str, part: &str, figure: &str| {
        let all = results[mode].as_array().unwrap();
        let runs = all.iter().find(|runs| runs["name"] == provider).unwrap();
        let value = &runs["runs"][0][part];
        let value = if figure.is_empty() {
            value
        } else {
            &value[figure]
        };
        usize::try_from(value.as_u64().unwrap()).unwrap()
    };
    for mode in ["plain", "qos"] {
        for provider in ["ibacmp", "path-cache", "mcast-sa"] {
            let of = |name: &str, figure: &str| part(mode, provider, name, figure);
            assert_eq!(of("cold", "requests"), CLIENTS * 3);
            assert_eq!(of("warm", "requests"), CLIENTS * 5);
            assert_eq!(of("job", "requests"), JOB_HOSTS * SERVICES);
            for name in ["cold", "warm", "job"] {
                assert_eq!(of(name, "wrong"), 0, "{name} of {provider}");
            }
            // Three other hosts, by LID.
            assert_eq!(of("cold", "queries"), 3, "{provider}");
            assert_eq!(of("warm", "queries"), 0, "{provider}");
        }
    }
    for provider in ["path-cache", "mcast-sa"] {
        assert_eq!(
            part("plain", provider, "job", "queries"),
            JOB_HOSTS,
            "{provider}"
        );
        assert_eq!(
            part("plain", provider, "class_port_info", ""),
            1,
            "{provider}"
        );
        // Each service id can have a path of its own.
        assert_eq!(
            part("qos", provider, "job", "queries"),
            JOB_HOSTS * SERVICES,
            "{provider}"
        );
    }
    // Stock ignores service ids.
    assert_eq!(part("qos", "ibacmp", "job", "queries"), JOB_HOSTS);
    assert_eq!(part("qos", "ibacmp", "class_port_info", ""), 0);
}

#[test]
fn what_cannot_be_run_is_said() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_loader-test"))
            .arg("storm")
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = run(&["/nowhere.so"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("/nowhere.so: no such library"), "{said}");
}
