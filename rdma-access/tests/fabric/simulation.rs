//! ibsim and opensm, started for a test and stopped with it.
//!
//! loader-test's rig does more, but depends on acm-prov-api, which depends on this crate. It also needs ibacm,
//! which the tests of this crate must not need.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Timeout for everything.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Fabric {
    // Dropped in this order.
    opensm: Mutex<Option<Program>>,
    _ibsim: Program,
    folder: TempDir,
    socket_name: String,
}

/// A program that ends with its test, however the test ends.
struct Program(Child);

impl Program {
    fn start(name: &str, log: &Path, adjust: impl FnOnce(&mut Command)) -> Self {
        let log = File::create(log).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", name]);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        adjust(&mut command);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Fabric {
    /// Starts the four hosts Hca1 to Hca4 on two switches, without a subnet manager.
    pub fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket_name = format!("rdma-access-{}-{number}", process::id());
        let folder = tempfile::tempdir().unwrap();
        let net = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../loader-test/fabrics/four-hosts.net"
        );
        let log = folder.path().join("ibsim.log");
        let ibsim = Program::start("ibsim", &log, |command| {
            // ibsim's console; ibsim ends when it is closed.
            command
                .args(["-s", net])
                .stdin(Stdio::piped())
                .env("IBSIM_SOCKNAME", &socket_name);
        });
        wait_for(&log, "sim>");
        Self {
            opensm: Mutex::new(None),
            _ibsim: ibsim,
            folder,
            socket_name,
        }
    }

    /// Sets a command's environment so that it runs on a node.
    pub fn on<'a>(&self, node: &str, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", umad2sim())
            .env("SIM_HOST", node)
            .env("IBSIM_SOCKNAME", &self.socket_name)
            .current_dir(self.folder.path())
    }

    /// Starts a subnet manager on a node, and waits until the subnet is up.
    pub fn start_opensm(&self, node: &str) {
        let log = self.folder.path().join("opensm.log");
        let options = self.folder.path().join("opensm.conf");
        fs::write(&options, "force_log_flush TRUE\n").unwrap();
        let opensm = Program::start(
            "opensm",
            &self.folder.path().join("opensm.out"),
            |command| {
                self.on(node, command)
                    .arg("-F")
                    .arg(&options)
                    .args(["-D", "0x3", "-f"])
                    .arg(&log)
                    .env("OSM_CACHE_DIR", self.folder.path())
                    .env("OSM_TMP_DIR", self.folder.path());
            },
        );
        wait_for(&log, "SUBNET UP");
        *self.opensm.lock().unwrap() = Some(opensm);
    }
}

fn umad2sim() -> PathBuf {
    let folders = fs::read_dir("/usr/lib")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let mut files = folders.map(|folder| folder.join("umad2sim/libumad2sim.so"));
    files
        .find(|file| file.is_file())
        .expect("libumad2sim.so (Debian: libumad2sim0)")
}

fn wait_for(log: &Path, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if text.as_ref().is_ok_and(|text| text.contains(words)) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "no {words:?} in {}: {text:?}",
            log.display()
        );
        thread::sleep(Duration::from_millis(20));
    }
}
