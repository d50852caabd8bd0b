//! How checks detect that a provider lacks an ability.

use std::fs;
use std::path::{Path, PathBuf};

use super::{check, compiler};

/// The correct provider with one text replaced.
fn changed(name: &str, text: &str, replacement: &str) -> PathBuf {
    let good = compiler::sa_provider();
    assert_eq!(good.matches(text).count(), 1, "{text}");
    compiler::compile(name, &good.replacen(text, replacement, 1))
}

/// Returns the output of one check on a library: its line, and the details.
fn outcome(library: &Path, name: &str, arguments: &[&str]) -> String {
    let only = format!("^{name}$");
    let arguments = [&["--only", &only], arguments].concat();
    let output = check(&arguments, &[library]);
    let told = String::from_utf8_lossy(&output.stdout);
    let line = told
        .find(&format!(" {name} "))
        .unwrap_or_else(|| panic!("{told}"));
    let start = told[..line].rfind('\n').map_or(0, |end| end + 1);
    told[start..].to_owned()
}

const FINDS_HOSTS: &str = "\t\thost = find_host(ep->port->dev, dest.type, dest.info.addr);\n";

#[test]
fn a_provider_that_refuses_names_is_not_judged_by_them() {
    let library = changed("knows-no-hosts", FINDS_HOSTS, "\t\thost = NULL;\n");
    for name in [
        "resolve-by-name",
        "resolve-by-ip",
        "resolve-nodelay-address",
    ] {
        let told = outcome(&library, name, &[]);
        assert!(told.starts_with("skipped"), "{told}");
        assert!(told.contains("refused with status 3"), "{told}");
    }
}

#[test]
fn a_request_that_was_dropped_is_no_absent_ability() {
    let library = changed(
        "drops-names",
        FINDS_HOSTS,
        "\t\thost = NULL;\n\t\textern void acm_provider_fault(int kind, const char *text);\n\t\tacm_provider_fault(2, \"resolve: the request for a name was dropped unanswered; answering ENODATA\");\n",
    );
    for name in [
        "resolve-by-name",
        "resolve-by-ip",
        "resolve-nodelay-address",
    ] {
        let told = outcome(&library, name, &[]);
        assert!(told.starts_with("failed"), "{told}");
        assert!(told.contains("dropped unanswered"), "{told}");
    }
}

#[test]
fn a_provider_that_complains_about_its_options_lacks_no_ability() {
    let folder = tempfile::tempdir().unwrap();
    let opts = folder.path().join("opts");
    fs::write(&opts, "addr_data_file /nowhere/hosts\n").unwrap();
    let told = outcome(
        &compiler::good(),
        "resolve-by-name",
        &["--opts", opts.to_str().unwrap()],
    );
    assert!(told.starts_with("failed"), "{told}");
    assert!(told.contains("/nowhere/hosts: No such file"), "{told}");
}

#[test]
fn a_provider_that_asks_one_thing_at_a_time_is_not_judged_by_overtaking_answers() {
    let library = changed(
        "asks-one-at-a-time",
        "\tdev->depth = options.sa_depth + 1;\n",
        "\tdev->depth = 1;\n",
    );
    let told = outcome(&library, "sa-out-of-order", &[]);
    assert!(told.starts_with("skipped"), "{told}");
    assert!(told.contains("1 of 4 queries at a time"), "{told}");
}

#[test]
fn a_provider_may_answer_with_several_paths() {
    let library = changed(
        "two-paths",
        "\t\tif (request->status == ACM_STATUS_SUCCESS && request->has_second)\n",
        "\t\tif (request->status == ACM_STATUS_SUCCESS && request->id) {\n\
         \t\t\tpath.flags = IBV_PATH_FLAG_ALTERNATE | IBV_PATH_FLAG_BIDIRECTIONAL;\n\
         \t\t\tadd_entry(&msg, &path);\n\
         \t\t}\n\
         \t\tif (request->status == ACM_STATUS_SUCCESS && request->has_second)\n",
    );
    let only = "^(resolve|hostile)-";
    let output = check(&["--strict", "--only", only], &[&library]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
}
