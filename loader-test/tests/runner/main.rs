//! `loader-test check` with bad providers: each fault becomes the result of its check, and the run continues.

mod bench;
#[path = "../shared/compiled.rs"]
mod compiled;
mod demands;
mod evidence;
mod kept;
mod reports;
mod schema;
mod trouble;

use std::fs;
use std::time::Duration;

use bench::{Run, bad, check, command, good, is_running, pids, run, until};
use loader_test::suite::all;
use regex_lite::Regex;

/// Checks that open a device, and one that does not.
const TWO_OPEN_ONE_DOES_NOT: &str = "^(lifecycle-open-close|lifecycle-two-ports|load-name)$";

/// Waits until the processes that are named in a file are gone: those that were killed may take a moment.
fn ended(file: &std::path::Path) {
    for pid in pids(file) {
        until("the end of a process", || !is_running(pid));
    }
}

/// The ability that the two checks need.
const OPENS: &str = "ability-opens-port";

/// What a provider does when a device is opened becomes the result of the ability, once; the two checks are blocked, and the
/// third one passes.
fn opening(name: &str, does: &str, arguments: &[&str]) -> Run {
    let library = bad(name, &[("OPEN", does)]);
    let run = check(&library, TWO_OPEN_ONE_DOES_NOT, arguments);
    assert_eq!(run.status("load-name"), "passed", "{run:?}");
    assert_eq!(run.bad(), [OPENS], "{run:?}");
    for name in ["lifecycle-open-close", "lifecycle-two-ports"] {
        assert_eq!(run.status(name), "blocked", "{run:?}");
        assert_eq!(run.check(name)["blocked_by"], "opens-port");
    }
    assert_eq!(run.code, 1, "{run:?}");
    schema::assert_valid(&run.json);
    run
}

#[test]
fn a_callback_that_hangs() {
    let run = opening("hangs", "for_ever()", &["--timeout", "2"]);
    assert_eq!(run.status(OPENS), "timed-out");
    assert!(run.message(OPENS).contains("2s"), "{run:?}");
    assert_eq!(run.check(OPENS)["repeated"], true, "{run:?}");
}

#[test]
fn a_callback_that_crashes() {
    for (name, does, signal) in [
        ("segv", "*(volatile int *) NULL = 0", "SIGSEGV"),
        ("abort", "abort()", "SIGABRT"),
        ("usr1", "raise(SIGUSR1)", "signal 10"),
    ] {
        let run = opening(name, does, &[]);
        assert_eq!(run.status(OPENS), "crashed");
        assert_eq!(run.check(OPENS)["signal"], signal);
        assert_eq!(
            run.check(OPENS)["repeated"],
            false,
            "a crash counts at once"
        );
        for part in [
            "expected: ",
            "seen: ",
            signal,
            "rule: ",
            "affects: the daemon",
        ] {
            assert!(run.message(OPENS).contains(part), "{part}: {run:?}");
        }
    }
}

#[test]
fn a_callback_that_ends_the_process() {
    for (name, does) in [("_exit", "_exit(0)"), ("exit", "exit(0)")] {
        let run = opening(name, does, &[]);
        assert_eq!(run.status(OPENS), "crashed");
        assert!(run.message(OPENS).contains("exit code 0"));
        assert!(run.check(OPENS)["signal"].is_null());
    }
}

#[test]
fn a_callback_that_kills_its_process_group() {
    let run = opening("kills-group", "kill(0, SIGKILL)", &["--jobs", "3"]);
    assert_eq!(run.status(OPENS), "crashed");
    assert_eq!(run.check(OPENS)["signal"], "SIGKILL");
}

#[test]
fn a_callback_that_leaves_its_process_group() {
    let left = bench::file("leaves-group.pids");
    let does = format!("say_pid({left:?}); setpgid(0, getpgid(getppid())); for_ever()");
    let run = opening("leaves-group", &does, &["--timeout", "2"]);
    assert_eq!(run.status(OPENS), "timed-out");
    // Once more alone.
    assert_eq!(pids(&left).len(), 2);
    ended(&left);
}

#[test]
fn processes_that_a_provider_leaves_behind() {
    let left = bench::file("forks.pids");
    for (name, does) in [
        (
            "forks",
            format!("if (!fork()) {{ say_pid({left:?}); for_ever(); }}"),
        ),
        (
            "daemonizes",
            format!(
                "if (!fork()) {{ setsid(); if (fork()) _exit(0); say_pid({left:?}); for_ever(); }}"
            ),
        ),
        (
            "daemonizes-without-environment",
            format!(
                "if (!fork()) {{ setsid(); if (fork()) _exit(0); char *none[] = {{NULL}}, *words[] = {{\"sh\", \"-c\", \
                 \"echo $$ >\" {left:?} \"new && mv \" {left:?} \"new \" {left:?} \"; sleep 600\", NULL}}; \
                 execve(\"/bin/sh\", words, none); }}"
            ),
        ),
        (
            "daemonizes-wholly",
            format!("if (!fork()) {{ if (daemon(1, 0)) abort(); say_pid({left:?}); for_ever(); }}"),
        ),
    ] {
        let _ = fs::remove_file(&left);
        // The check itself goes on until the other one is there.
        let waits = format!("{does} while (access({left:?}, F_OK)) usleep(1000)");
        let library = bad(name, &[("OPEN", &waits)]);
        check(&library, TWO_OPEN_ONE_DOES_NOT, &[]);
        assert_ne!(pids(&left), [0_i32; 0], "{name}");
        ended(&left);
    }
}

#[test]
fn a_result_that_a_provider_writes_is_none() {
    for (name, text) in [("garbage", "{ \\\"status\\\": "), ("nothing", "")] {
        let does = format!("write_result(\"{text}\"); _exit(0)");
        let run = opening(name, &does, &[]);
        assert_eq!(run.status(OPENS), "crashed");
    }
    // A check that comes to its end overwrites whatever was there.
    let library = bad("overwritten", &[("OPEN", "write_result(\"garbage\")")]);
    let run = check(&library, TWO_OPEN_ONE_DOES_NOT, &[]);
    assert_eq!(run.status(OPENS), "passed", "{run:?}");
    let by_lid = "ability-answers-by-lid";
    assert_eq!(run.status(by_lid), "failed", "{run:?}");
    assert!(run.message(by_lid).contains("status 3"), "{run:?}");
}

#[test]
fn standard_output_is_reported_and_kept_apart() {
    let library = bad(
        "prints",
        &[(
            "QUERY",
            "puts(\"{ \\\"schema\\\": 7 }\\x1b[31m\"); fflush(stdout)",
        )],
    );
    let run = check(&library, "^load-(name|quiet)$", &[]);
    assert_eq!(run.status("load-name"), "passed");
    assert_eq!(run.status("load-quiet"), "warned");
    let breach = run.check("breach-standard-output");
    assert_eq!(breach["status"], "warned", "{run:?}");
    assert_eq!(
        breach["seen_by"],
        serde_json::json!(["load-name"]),
        "{run:?}"
    );
    let output = run.check("load-name")["output"].as_str().unwrap();
    assert_eq!(output, "{ \"schema\": 7 }\u{1b}[31m\n");
    assert!(!run.stdout.contains('\u{1b}'), "{run:?}");
    assert_eq!(run.code, 0);
    assert_eq!(check(&library, "^load-name$", &["--strict"]).code, 1);
}

#[test]
fn much_output_is_cut() {
    let library = bad(
        "prints-much",
        &[(
            "QUERY",
            "for (int i = 0; i < 99999; i++) fputs(\"much \", stderr)",
        )],
    );
    let run = check(&library, "^load-name$", &[]);
    assert_eq!(run.status("load-name"), "passed");
    assert_eq!(
        run.check("load-name")["output"].as_str().unwrap().len(),
        16 << 10
    );
}

#[test]
fn the_parent_never_loads_the_library() {
    let loaded = bench::file("loads.pids");
    let library = bad("loads", &[("LOAD", &format!("say_pid({loaded:?})"))]);
    let run = check(&library, "^load-(name|size)$", &[]);
    assert_eq!(run.code, 0);
    let pids = pids(&loaded);
    // One of them is the probe whether it loads.
    assert_eq!(pids.len(), 3, "{run:?}");
    assert!(!pids.contains(&run.pid), "{run:?}");
}

#[test]
fn a_parent_that_is_killed_leaves_nothing_running() {
    // The second check runs the provider in a copy of its process.
    for (name, moment, only) in [
        ("killed", "QUERY", "^load-name$"),
        ("killed-copy", "OPEN", "^load-missing-function$"),
    ] {
        let loaded = bench::file(&format!("{name}.pids"));
        let library = bad(
            name,
            &[(moment, &format!("say_pid({loaded:?}); for_ever()"))],
        );
        let mut parent = command(&library, only, &[])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        until("the check to run", || pids(&loaded).len() == 1);
        parent.kill().unwrap();
        parent.wait().unwrap();
        ended(&loaded);
    }
}

#[test]
fn exit_codes() {
    let good = good();
    assert_eq!(check(&good, "^load-name$", &[]).code, 0);
    let wrong_name = bad("wrong-name", &[("QUERY", "provider.name = \"one thing\"")]);
    assert_eq!(check(&wrong_name, "^load-name$", &[]).code, 1);
    let could_not_run = |arguments: &[&str], says: &str| {
        let run = run(command(&good, "^load-name$", arguments));
        assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run:?}");
    };
    could_not_run(&["/no/such/library.so"], "/no/such/library.so");
    could_not_run(&["--skip", "load"], "no check");
    could_not_run(&["--skip", "["], "--skip");
    could_not_run(&["--opts", "/no/such/file"], "/no/such/file");
    could_not_run(
        &["--json", "/no/such/folder/results.json"],
        "/no/such/folder",
    );
    could_not_run(
        &["--junit", "/no/such/folder/results.xml"],
        "/no/such/folder",
    );
}

#[test]
fn a_file_that_the_daemon_passes_over_fails_one_check_and_the_rest_is_judged() {
    let (link, versioned) = (bench::file("link.so"), bench::file("libgood.so.1.0.0"));
    std::os::unix::fs::symlink(good(), &link).unwrap();
    fs::copy(good(), &versioned).unwrap();
    let only = "^(load-|resolve-by-lid$)";
    for (file, fails) in [(&link, "load-regular-file"), (&versioned, "load-file-name")] {
        let run = check(file, only, &[]);
        assert_eq!(run.bad(), [fails], "{run:?}");
        assert_eq!(run.status("resolve-by-lid"), "passed");
        assert_eq!(run.code, 1);
    }
    // In a folder there is nothing to judge.
    let folder = bench::file("folder.so");
    fs::create_dir(&folder).unwrap();
    let run = check(&folder, only, &[]);
    assert_eq!(run.status("load-file-name"), "passed");
    assert_eq!(run.status("load-regular-file"), "failed");
    assert_eq!(run.status("ability-loads"), "failed");
    assert_eq!(run.status("resolve-by-lid"), "blocked");
}

#[test]
fn only_and_skip_choose_checks() {
    let names = |only: &str, arguments: &[&str]| check(&good(), only, arguments).names();
    assert_eq!(names("^load-name$", &[]), ["load-name"]);
    assert_eq!(
        names("^load-(name|size)$", &["--skip", "name"]),
        ["load-size"]
    );
    let load: Vec<_> = all()
        .map(|check| check.name)
        .filter(|name| name.starts_with("load-s"))
        .collect();
    // In the order of the list, whichever ends first.
    assert_eq!(names("^load-s", &["--jobs", "4"]), load);
    assert_eq!(names("^load-s", &["--jobs", "1"]), load);
}

#[test]
fn in_process_a_good_provider_gives_the_same_results() {
    // Every check but those that take long by waiting.
    let arguments = ["--skip", "^(lifecycle-reopen-thousand|sa-late|perf-error)$"];
    let apart = check(&good(), "", &arguments);
    assert_eq!(apart.bad(), [""; 0], "{apart:?}");
    let within = check(&good(), "", &[&arguments[..], &["--in-process"]].concat());
    assert_eq!(apart.statuses(), within.statuses());
    assert_eq!((apart.code, within.code), (0, 0));
}

#[test]
fn in_process_checks_with_options_of_their_own_have_a_library_of_their_own() {
    // Reads its options once, as most providers do.
    let library = bench::changed(
        "reads-once",
        "\tread_pairs(acm_get_opts_file(), take_option, &options);\n",
        "\tstatic struct options once;\n\tstatic bool was_read;\n\n\tif (!was_read)\n\t\tread_pairs(acm_get_opts_file(), take_option, &options);\n\telse\n\t\toptions = once;\n\tonce = options;\n\twas_read = true;\n",
        "\tfree(dev->hosts_file);\n",
        "",
    );
    let only = "^(load-(name|missing-function|refused-unloads|rejected-unloads|without-options-file)\
        |resolve-by-lid|sa-out-of-order|event-reregister-in-flight)$";
    let within = check(&library, only, &["--in-process"]);
    for (name, status) in within.statuses() {
        assert_eq!(status, "passed", "{name}: {within:?}");
    }
    assert_eq!(within.names().len(), 8);
}

#[test]
fn in_process_a_crash_is_the_debuggers() {
    use std::os::unix::process::ExitStatusExt as _;
    let library = bad("segv-within", &[("OPEN", "*(volatile int *) NULL = 0")]);
    let status = command(&library, "^lifecycle-open-close$", &["--in-process"])
        .output()
        .unwrap()
        .status;
    assert_eq!(status.signal(), Some(11));
}

#[test]
fn options_reach_the_provider() {
    let does = "FILE *options = fopen(acm_get_opts_file(), \"r\"); char line[99]; int found = 0; \
                while (fgets(line, sizeof line, options)) found |= !strcmp(line, \"be_good yes\\n\"); \
                if (!found) abort()";
    let library = bad("reads-options", &[("QUERY", does)]);
    let file = bench::file("options");
    fs::write(&file, "# for the tests\nbe_good yes\n").unwrap();
    let with = check(&library, "^load-name$", &["--opts", file.to_str().unwrap()]);
    assert_eq!(with.status("load-name"), "passed", "{with:?}");
    let without = check(&library, "^load-name$", &[]);
    assert_eq!(without.status("ability-loads"), "crashed", "{without:?}");
}

#[test]
fn the_list_names_every_check() {
    let text = bench::loader_test(&["list"]).output().unwrap().stdout;
    let text = String::from_utf8(text).unwrap();
    let name = Regex::new(
        "^(load|process|lifecycle|resolve|path|query|sa|event|perf|hostile|wire)(-[a-z0-9]+)+$",
    )
    .unwrap();
    let names: Vec<_> = text
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(names, all().map(|check| check.name).collect::<Vec<_>>());
    for name_of_check in &names {
        assert!(name.is_match(name_of_check), "{name_of_check}");
    }
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    let json = bench::loader_test(&["list", "--json"])
        .output()
        .unwrap()
        .stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let in_json: Vec<_> = json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert_eq!(in_json, names);
}

#[test]
fn several_libraries_in_one_run() {
    let worse = bad("worse", &[("QUERY", "abort()")]);
    let run = check(&good(), "^load-name$", &[worse.to_str().unwrap()]);
    let libraries = run.json["libraries"].as_array().unwrap();
    let statuses: Vec<_> = libraries
        .iter()
        .map(|library| library["checks"][0]["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["passed", "blocked"]);
    assert_eq!(libraries[1]["abilities"][0]["status"], "crashed");
    assert_eq!(run.code, 1);
    schema::assert_valid(&run.json);
}

#[test]
fn a_slow_provider_gets_the_time() {
    let opens = "static int open_device(const struct acm_device *acm, void **dev_context)\n{\n";
    let slow = bench::changed(
        "slow",
        opens,
        &format!("{opens}\tnanosleep(&(struct timespec) {{ .tv_nsec = 400000000 }}, NULL);\n"),
        "static void take_number(",
        "static void take_number(",
    );
    let run = check(&slow, "^lifecycle-open-close$", &["--timeout", "1"]);
    assert_eq!(run.status("lifecycle-open-close"), "passed", "{run:?}");
    let duration = run.check("lifecycle-open-close")["duration_ms"]
        .as_u64()
        .unwrap();
    assert!(Duration::from_millis(duration) >= Duration::from_millis(1600));
}
