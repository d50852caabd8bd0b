//! Compiles providers from C and C++ source into the target folder, each source once.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The good provider, in C.
pub const SA_PROVIDER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../include/examples/sa_provider.c"
);

/// As the example's own build line, without the time that optimization takes.
const FLAGS: [&str; 6] = [
    "-std=gnu11",
    "-g",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-Wl,-z,now",
];
const LIBRARIES: [&str; 2] = ["-libverbs", "-lpthread"];
/// What the compiled code depends on besides its source.
const HEADER: &str = "/usr/include/infiniband/acm_prov.h";

/// The good provider that also speaks the multicast protocol. It includes the other one.
pub const MCAST_PROVIDER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../include/examples/mcast_provider.c"
);

/// The text of [`SA_PROVIDER`].
pub fn sa_provider() -> String {
    read(SA_PROVIDER)
}

/// The text of [`MCAST_PROVIDER`].
pub fn mcast_provider() -> String {
    read(MCAST_PROVIDER)
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Builds a library from C source; `name` is part of its file name.
pub fn compile(name: &str, source: &str) -> PathBuf {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-providers");
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let header = fs::read(HEADER)
        .unwrap_or_else(|error| panic!("{HEADER}: {error}; it is in the package ibacm"));
    let mut hasher = DefaultHasher::new();
    (source, sa_provider(), header, FLAGS, LIBRARIES).hash(&mut hasher);
    let library = folder.join(format!("{name}-{:016x}.so", hasher.finish()));
    if library.exists() {
        return library;
    }
    let draft = folder.join(format!(
        "{name}-{}-{}",
        std::process::id(),
        SERIAL.fetch_add(1, Ordering::Relaxed)
    ));
    let (file, built) = (draft.with_extension("c"), draft.with_extension("draft"));
    fs::write(&file, source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    // Without warnings: faults also look suspicious to a compiler.
    let output = Command::new("cc")
        .args(FLAGS)
        .arg("-w")
        .arg("-I")
        .arg(Path::new(SA_PROVIDER).with_file_name(""))
        .arg("-o")
        .arg(&built)
        .arg(&file)
        .args(LIBRARIES)
        .output()
        .expect("the C compiler cc");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: cc: {errors}");
    let _ = fs::remove_file(&file);
    // Atomically: another test may use the same library.
    fs::rename(&built, &library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    library
}

/// The library of the good provider.
pub fn good() -> PathBuf {
    compile("sa-provider", &sa_provider())
}

/// Returns the library of the correct provider with texts replaced, each present once.
pub fn with(name: &str, replace: &[(&str, &str)]) -> PathBuf {
    let mut source = sa_provider();
    for (from, to) in replace {
        assert_eq!(source.matches(from).count(), 1, "{from:?}");
        source = source.replace(from, to);
    }
    compile(name, &source)
}

/// The library of the good provider that speaks the multicast protocol.
pub fn good_mcast() -> PathBuf {
    compile("mcast-provider", &mcast_provider())
}

/// Returns the library of the correct provider in a file that the daemon skips.
pub fn badly_filed(check: &str) -> io::Result<PathBuf> {
    let good = good();
    let folder = good.with_file_name(check);
    fs::create_dir_all(&folder)?;
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let draft = folder.join(format!("{}-{serial}", std::process::id()));
    let library = if check == "load-file-name" {
        fs::copy(&good, &draft)?;
        folder.join("libsa_example.so.1")
    } else {
        std::os::unix::fs::symlink(&good, &draft)?;
        folder.join("libsa_example.so")
    };
    // Another test may use the one that is there.
    fs::rename(&draft, &library)?;
    Ok(library)
}
