//! Compares the chosen port with the real `umad_open_smi_port` and `umad_open_port`.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

use super::tree::{ACTIVE, DISABLED, Device, LINK_UP, POLLING, Port, Tree};
use super::{Machine, debian, example, text, under};

/// Device and port, or the error number from C.
type Choice = Result<(String, u8), Errno>;

fn trees() -> Vec<Tree> {
    let one = |ports: &[Port]| Tree::new([Device::new("mlx5_0", ports)]);
    let two = |first: &[Port], second: &[Port]| {
        Tree::new([Device::new("mlx5_0", first), Device::new("mlx5_1", second)])
    };
    vec![
        Tree::new([]),
        one(&[ACTIVE]),
        one(&[LINK_UP]),
        one(&[POLLING]),
        one(&[DISABLED]),
        one(&[ACTIVE.without_smi()]),
        one(&[ACTIVE.on_ethernet()]),
        one(&[POLLING.on_ethernet()]),
        one(&[DISABLED.on_ethernet()]),
        one(&[ACTIVE.without_umad()]),
        one(&[LINK_UP, ACTIVE]),
        one(&[POLLING, LINK_UP]),
        one(&[DISABLED, POLLING]),
        one(&[ACTIVE.without_smi(), LINK_UP]),
        one(&[ACTIVE.on_ethernet(), ACTIVE]),
        one(&[ACTIVE.on_ethernet(), POLLING]),
        one(&[ACTIVE.on_ethernet(), ACTIVE.without_smi()]),
        one(&[ACTIVE.without_umad(), ACTIVE]),
        two(&[LINK_UP], &[ACTIVE]),
        two(&[POLLING], &[LINK_UP]),
        two(&[ACTIVE.without_smi()], &[ACTIVE]),
        two(
            &[ACTIVE.without_smi(), ACTIVE.without_smi()],
            &[POLLING, LINK_UP],
        ),
        two(&[ACTIVE.on_ethernet()], &[LINK_UP]),
        two(&[ACTIVE.without_smi()], &[DISABLED]),
        two(&[ACTIVE], &[ACTIVE]),
        two(&[POLLING, ACTIVE], &[ACTIVE, POLLING]),
        two(&[DISABLED, LINK_UP], &[POLLING, DISABLED]),
        Tree::new([
            Device::new("mlx5_0", &[ACTIVE.on_ethernet()]),
            Device::new("mlx5_1", &[POLLING.without_smi(), POLLING]),
            Device::new("mlx4_0", &[LINK_UP, ACTIVE.without_smi()]),
        ]),
        Tree::new([Device::switch("sw0", &[ACTIVE, LINK_UP])]),
        Tree::new([
            Device::new("mlx5_0", &[LINK_UP]),
            Device::switch("sw0", &[LINK_UP]),
        ]),
        Tree {
            abi_version: None,
            ..one(&[ACTIVE])
        },
        Tree {
            abi_version: Some(4),
            ..one(&[ACTIVE])
        },
    ]
}

/// Device and port; `-` and 0 mean any.
type Question<'a> = (&'a str, &'static str);

fn questions(tree: &Tree) -> Vec<Question<'_>> {
    let mut names = vec!["-", "no_such"];
    names.extend(tree.devices.iter().map(|device| device.name));
    names
        .into_iter()
        .flat_map(|name| ["0", "1", "2", "3"].map(|port| (name, port)))
        .collect()
}

/// Compiles the program that calls the C functions.
fn probe(folder: &Path) -> String {
    let program = folder.join("smi_probe");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sysfs/smi_probe.c");
    let status = Command::new("cc")
        .args([source, "-o"])
        .arg(&program)
        .status()
        .unwrap();
    assert!(status.success(), "cc {source}: {status}");
    program.display().to_string()
}

/// Returns device and port of a file.
fn behind(machine: &Machine, file: &str) -> (String, u8) {
    let read = |name: &str| {
        let path = machine.path(&format!("sys/class/infiniband_mad/{file}/{name}"));
        fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .trim()
            .to_owned()
    };
    (read("ibdev"), read("port").parse().unwrap())
}

/// Runs a program once for each question; returns the first line of its output and the others.
fn ask(machine: &Machine, program: &[String], questions: &[Question<'_>]) -> Vec<(String, String)> {
    let script =
        r#"while read -r name port; do "$@" "$name" "$port" 2>&1 </dev/null; echo --; done"#;
    let lines: String = questions
        .iter()
        .map(|(name, port)| format!("{name} {port}\n"))
        .collect();
    fs::write(machine.path("questions"), lines).unwrap();
    let mut words = ["sh", "-c", script, "ask"].map(str::to_owned).to_vec();
    words.extend_from_slice(program);
    let output = machine.run(File::open(machine.path("questions")).unwrap(), &words);
    let answers: Vec<_> = text(&output.stdout)
        .split_terminator("--")
        .map(|answer| {
            // libibumad may print lines, too.
            let mut lines = answer
                .trim()
                .lines()
                .filter(|line| !line.starts_with("ibwarn:"));
            let first = lines.next().unwrap_or_default().to_owned();
            (first, lines.collect::<Vec<_>>().join("\n"))
        })
        .collect();
    assert_eq!(answers.len(), questions.len(), "{output:?}");
    answers
}

fn c_choice(machine: &Machine, answer: &str) -> Choice {
    match answer.parse() {
        Ok(errno) => Err(Errno::from_raw_os_error(errno)),
        Err(_) => Ok(behind(machine, answer)),
    }
}

/// Translates the kinds of failure into the error numbers of the manual.
fn our_choice(answer: &str) -> Choice {
    match answer {
        "NotSupported" => Err(Errno::OPNOTSUPP),
        "NoDevice" => Err(Errno::NODEV),
        "Invalid" => Err(Errno::INVAL),
        "Io" => Err(Errno::IO),
        found => {
            let (name, port) = found.split_once(' ').unwrap_or_else(|| panic!("{answer}"));
            Ok((name.to_owned(), port.parse().unwrap()))
        }
    }
}

/// The functions of libibumad.
#[derive(Clone, Copy, PartialEq)]
enum Function {
    OpenSmiPort,
    OpenPort,
}

impl Function {
    fn name(self) -> &'static str {
        match self {
            Self::OpenSmiPort => "umad_open_smi_port",
            Self::OpenPort => "umad_open_port",
        }
    }

    /// Returns the option for our example.
    fn option(self) -> Option<&'static str> {
        (self == Self::OpenPort).then_some("--any")
    }
}

/// Returns whether our answer is the documented one for the C answer.
fn fits(
    function: Function,
    tree: &Tree,
    (name, port): Question<'_>,
    theirs: &Choice,
    ours: &Choice,
) -> bool {
    let number: u8 = port.parse().unwrap();
    let named = tree.device(name);
    let on_ethernet = |(name, port): &(String, u8)| {
        tree.device(name)
            .and_then(|device| device.port(*port))
            .unwrap()
            .link_layer
            == "Ethernet"
    };
    if theirs == &Err(Errno::OPNOTSUPP) {
        return ours == theirs;
    }
    // C does not check a named port.
    if function == Function::OpenSmiPort
        && number != 0
        && let Some(device) = named
        && let Some(port) = device.port(number)
        && (port.smi_disabled || port.link_layer == "Ethernet" || device.node_type == 2)
    {
        return ours == &Err(Errno::INVAL);
    }
    match theirs {
        // C falls back to mthca0.
        Err(Errno::INVAL) if name == "-" => {
            ours == &Err(Errno::NODEV)
                // ... or it chose a port without a file in the kernel.
                || (ours == theirs && tree.devices.iter().flat_map(|device| &device.ports).any(|port| !port.umad))
        }
        Ok(chosen) if function == Function::OpenSmiPort && on_ethernet(chosen) => match ours {
            Ok(chosen) => !on_ethernet(chosen),
            Err(errno) => *errno == Errno::NODEV,
        },
        same => ours == same,
    }
}

/// Runs the C functions with the libraries `theirs`, and our example with the libraries `ours` (words in front
/// of the program).
fn compare(function: Function, theirs: &[String], ours: &[String]) {
    let folder = tempfile::tempdir().unwrap();
    let mut c_command = theirs.to_vec();
    c_command.extend([probe(folder.path()), function.name().to_owned()]);
    let mut our_command = ours.to_vec();
    our_command.push(example("smi_port").display().to_string());
    our_command.extend(function.option().map(str::to_owned));
    let mut failures = Vec::new();
    let mut opened = 0;
    for tree in trees() {
        let machine = Machine::new(&tree);
        let questions = questions(&tree);
        let theirs = ask(&machine, &c_command, &questions);
        let ours = ask(&machine, &our_command, &questions);
        for ((question, (theirs, _)), (ours, said)) in questions.into_iter().zip(theirs).zip(ours) {
            let theirs = c_choice(&machine, &theirs);
            let ours = our_choice(&ours);
            opened += usize::from(ours.is_ok());
            if !fits(function, &tree, question, &theirs, &ours) {
                failures.push(format!(
                    "{question:?} of {tree:?}:\n  C: {theirs:?}, here: {ours:?} {said}"
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(opened > 30, "only {opened} questions opened a port");
}

/// No words in front: Debian 12's libraries of rdma-core 44, whose libibumad has no `umad_open_smi_port`.
const DEBIAN_12: &[String] = &[];

/// rdma-core 56.
fn trixie() -> Vec<String> {
    under(&debian("trixie"))
}

/// 65 or later.
fn sid() -> Vec<String> {
    under(&debian("sid"))
}

#[test]
fn without_the_c_function_the_smi_port_is_that_of_the_latest_rdma_core() {
    compare(Function::OpenSmiPort, &sid(), DEBIAN_12);
}

#[test]
fn without_the_c_function_the_smi_port_is_that_of_rdma_core_56() {
    compare(Function::OpenSmiPort, &trixie(), DEBIAN_12);
}

#[test]
fn with_the_c_function_the_smi_port_is_the_same() {
    compare(Function::OpenSmiPort, &sid(), &sid());
}

#[test]
fn the_port_for_any_mads_is_that_of_each_rdma_core() {
    for libraries in [DEBIAN_12, &trixie(), &sid()] {
        compare(Function::OpenPort, libraries, libraries);
    }
}
