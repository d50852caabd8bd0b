//! A C provider with a policy: another SL, a lower MTU and a lower rate than the SA's plain path.

use std::path::PathBuf;

use super::{NO_PAIR, compiler, passes_all_that_applies};

/// The replacements in the correct provider.
const POLICY: [(&str, &str); 3] = [
    ("\tbool busy;\n", "\tbool busy, plain;\n"),
    (
        "\tsend_mad(path->ep, &path->query, path, UMAD_METHOD_GET, UMAD_SA_ATTR_PATH_REC,\n\t\t acm_path_comp_mask(&path->question), &path->question, sizeof path->question);\n",
        "\tstruct ibv_path_record asked = path->question;\n\n\tif (!path->plain) {\n\t\tif (!service_level(&asked))\n\t\t\tasked.qosclass_sl |= htobe16(2);\n\t\tif (!asked.mtu)\n\t\t\tasked.mtu = 0x83;\n\t\tif (!asked.rate)\n\t\t\tasked.rate = 0x43;\n\t}\n\tsend_mad(path->ep, &path->query, path, UMAD_METHOD_GET, UMAD_SA_ATTR_PATH_REC, acm_path_comp_mask(&asked),\n\t\t &asked, sizeof asked);\n",
    ),
    (
        "\tif (status == ACM_STATUS_SUCCESS && !fits(",
        "\tif (mad->sa_mad.mad_hdr.status == htobe16(UMAD_SA_STATUS_NO_RECORDS << 8) && !path->plain) {\n\t\t/* The SA does not grant it: any path, then. */\n\t\tpath->plain = true;\n\t\tpath->owed = TAILQ_EMPTY(&path->waiters);\n\t\tpath->ask_at = now;\n\t\treturn;\n\t}\n\tif (status == ACM_STATUS_SUCCESS && !fits(",
    ),
];

/// Returns the provider; with `claims` it answers without a query to the SA.
fn policy(claims: bool) -> PathBuf {
    let mut source = compiler::sa_provider();
    for (text, replacement) in POLICY {
        assert_eq!(source.matches(text).count(), 1, "{text}");
        source = source.replacen(text, replacement, 1);
    }
    if claims {
        let answers = "\t\tkeep_record(path, &record);\n";
        assert_eq!(source.matches(answers).count(), 1);
        let lies = "\t\trecord.rate = 0x87;\n\t\tkeep_record(path, &record);\n";
        return compiler::compile("policy-claims", &source.replacen(answers, lies, 1));
    }
    compiler::compile("policy", &source)
}

#[test]
fn a_provider_with_a_policy_passes_what_the_good_one_passes() {
    for (name, message) in passes_all_that_applies(&policy(false), &["sa_example_join yes"]) {
        assert!(name.starts_with("wire-"), "{name}: {message}");
        assert_eq!(message, NO_PAIR, "{name}");
    }
}

#[test]
fn a_provider_that_says_more_than_the_sa_gives_fails() {
    let output = super::check(&["--only", "^resolve-by-(lid|gid|name)$"], &[&policy(true)]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("3 failed"), "{told}");
}
