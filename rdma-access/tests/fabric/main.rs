//! MADs on a simulated fabric of four hosts, with a real subnet manager.

mod simulation;

use std::collections::HashMap;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Output};

use simulation::Fabric;

/// Returns a built example of this crate.
fn example(name: &str) -> PathBuf {
    let executable = env::current_exe().unwrap();
    let path = executable
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples")
        .join(name);
    assert!(
        path.is_file(),
        "{} is not built: cargo build -p rdma-access --examples",
        path.display()
    );
    path
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone())
        .unwrap()
        .trim_end()
        .to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone())
        .unwrap()
        .trim_end()
        .to_owned()
}

impl Fabric {
    fn run(&self, node: &str, program: &str, arguments: &[&str]) -> Output {
        self.on(node, Command::new(example(program)).args(arguments))
            .output()
            .unwrap()
    }
}

/// Returns the output of smpquery, by name; `NodeType:....Switch`.
fn smpquery(fabric: &Fabric, node: &str, route: &str) -> HashMap<String, String> {
    let output = fabric
        .on(
            node,
            Command::new("smpquery").args(["-D", "nodeinfo", route]),
        )
        .output();
    let output = output.expect("smpquery (Debian: infiniband-diags)");
    assert!(output.status.success(), "{output:?}");
    let fields = stdout(&output);
    let pairs = fields.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim_start_matches('.').to_owned()))
        .collect()
}

/// Returns the output of node_info, with smpquery's names.
fn node_info(fabric: &Fabric, node: &str, hops: &[&str]) -> HashMap<String, String> {
    let mut arguments = vec!["-", "-"];
    arguments.extend(hops);
    let output = fabric.run(node, "node_info", &arguments);
    assert!(output.status.success(), "{output:?}");
    let mut found = HashMap::new();
    for (ours, theirs) in [
        ("type ", "NodeType"),
        ("ports ", "NumPorts"),
        ("system GUID ", "SystemGuid"),
        ("node GUID ", "Guid"),
        ("port GUID ", "PortGuid"),
        ("local port ", "LocalPort"),
    ] {
        let text = stdout(&output);
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(ours))
            .unwrap();
        let value = match value {
            "channel adapter" => "Channel Adapter",
            "switch" => "Switch",
            value => value,
        };
        found.insert(theirs.to_owned(), value.to_owned());
    }
    found
}

#[test]
fn an_smi_port_opens_by_every_combination_of_name_and_port() {
    let fabric = Fabric::start();
    for question in [
        ["-", "-"],
        ["ibsim0", "-"],
        ["-", "1"],
        ["ibsim0", "1"],
        ["ibsim0", "0"],
    ] {
        let output = fabric.run("Hca3", "smi_port", &question);
        assert_eq!(
            stdout(&output),
            "ibsim0 1",
            "{question:?}: {}",
            stderr(&output)
        );
    }
    for (question, kind, word) in [
        (["ibsim1", "-"], "NoDevice", "devices here: ibsim0 (port 1"),
        (["ibsim1", "1"], "Invalid", "no device ibsim1"),
        (
            ["ibsim0", "2"],
            "Invalid",
            "port 2 of ibsim0 does not exist",
        ),
        (["-", "2"], "NoDevice", "devices here: ibsim0 (port 1"),
    ] {
        let output = fabric.run("Hca3", "smi_port", &question);
        assert_eq!(stdout(&output), kind, "{question:?}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(word),
            "{question:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn node_info_equals_smpquery_for_the_local_and_the_next_node() {
    let fabric = Fabric::start();
    for node in ["Hca1", "Hca2", "Hca4"] {
        for (route, hops) in [("0", &[][..]), ("0,1", &["1"]), ("0,1,3", &["1", "3"])] {
            let theirs = smpquery(&fabric, node, route);
            let ours = node_info(&fabric, node, hops);
            for (name, value) in &ours {
                assert_eq!(
                    theirs.get(name),
                    Some(value),
                    "{name} of {node}, route {route}: {theirs:?}"
                );
            }
            assert_eq!(ours.len(), 6);
        }
    }
    // Port 8 of the switch has no cable.
    let output = fabric.run("Hca1", "node_info", &["-", "-", "1", "8"]);
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("no answer within 3000 ms"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_sa_tells_its_class_port_info() {
    let fabric = Fabric::start();
    fabric.start_opensm("Hca1");
    for question in [["-", "-"], ["ibsim0", "1"]] {
        let arguments: Vec<&str> = question.into_iter().filter(|&word| word != "-").collect();
        let output = fabric.run("Hca2", "sa_class_port_info", &arguments);
        let text = stdout(&output);
        let lines: Vec<&str> = text.lines().collect();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            lines[..4],
            [
                "port ibsim0 1",
                "from LID 1",
                "base version 1",
                "class version 2"
            ]
        );
    }
}
