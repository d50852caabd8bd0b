//! The files that the virtual machine boots: a kernel, and an initramfs with the tests and everything that they
//! need.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::trees::{self, create, output, write};

/// The kernel modules; their dependencies are added.
const MODULES: [&str; 9] = [
    "crc32_generic",
    "rdma_rxe",
    "ib_umad",
    "rdma_ucm",
    "dummy",
    "veth",
    "8021q",
    "bonding",
    "configfs",
];
/// Libraries that are loaded at run time, in addition to the linked ones.
const LIBRARIES: [&str; 5] = [
    "libgcc_s.so.1",
    "libibumad.so.3",
    "libibverbs/librxe-rdmav34.so",
    "libmana.so.1",
    "librdmacm.so.1",
];
const HOST_LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

pub struct Image {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
}

/// Makes the image in the target folder, with the tests in the executable `test`.
pub fn make(test: &Path, budget: Budget) -> Result<Image, Error> {
    let folder = trees::target()?.join("vm");
    let root = folder.join("root");
    let _ = fs::remove_dir_all(&root);
    let builder = Builder {
        tree: trees::folder()?.join("bookworm"),
        root,
        budget,
    };
    for name in [
        "bin",
        "tests",
        "tools",
        "modules",
        "etc/libibverbs.d",
        "lib64",
    ] {
        create(&builder.root.join(name))?;
    }
    builder.copy(&builder.tree.join("bin/busybox"), "bin/busybox")?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdma-access/tests/kernel");
    builder.copy(&sources.join("init"), "init")?;
    builder.probe(&sources.join("rpma_probe.c"))?;
    builder.program(test, "tests/kernel")?;
    // Symbols are half of its size, and not needed there.
    supervise::run(
        Command::new("strip").arg(builder.root.join("tests/kernel")),
        budget,
    )?;
    builder.program(&builder.tree.join("bin/ip"), "tools/ip")?;
    builder.program(&builder.tree.join("usr/bin/rdma"), "tools/rdma")?;
    for library in LIBRARIES {
        let from = Path::new(HOST_LIBRARIES).join(library);
        builder.program(&from, &format!("lib/x86_64-linux-gnu/{library}"))?;
    }
    // libibverbs looks for drivers there.
    create(&builder.root.join("usr/lib"))?;
    link(
        "/lib/x86_64-linux-gnu",
        &builder.root.join("usr/lib/x86_64-linux-gnu"),
    )?;
    write(
        &builder.root.join("etc/libibverbs.d/rxe.driver"),
        "driver rxe\n",
    )?;
    builder.modules()?;

    let initramfs = folder.join("initramfs.cpio");
    let mut pack = Command::new("sh");
    let script = "find . | \"$0\" cpio -o -H newc > \"$1\" 2> /dev/null";
    pack.args(["-c", script])
        .arg(builder.tree.join("bin/busybox"))
        .arg(&initramfs)
        .current_dir(&builder.root);
    supervise::run(&mut pack, budget)?;
    let kernel = only(&builder.tree.join("boot"), "vmlinuz-")?;
    Ok(Image { kernel, initramfs })
}

struct Builder {
    /// Debian's unpacked packages.
    tree: PathBuf,
    /// The root of the machine's files.
    root: PathBuf,
    budget: Budget,
}

impl Builder {
    fn copy(&self, from: &Path, to: &str) -> Result<(), Error> {
        let target = self.root.join(to);
        if let Some(folder) = target.parent() {
            create(folder)?;
        }
        fs::copy(from, &target)
            .and_then(|_| fs::set_permissions(&target, fs::Permissions::from_mode(0o755)))
            .map_err(|source| Error::File {
                operation: "copy",
                path: from.to_owned(),
                source,
            })
    }

    /// Copies a program or library, and the libraries that it is linked with.
    fn program(&self, from: &Path, to: &str) -> Result<(), Error> {
        self.copy(from, to)?;
        let mut ldd = Command::new("ldd");
        ldd.arg(from).env("LD_LIBRARY_PATH", self.libraries());
        for line in output(&mut ldd)?.lines() {
            // `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f...)`, or the loader without an arrow.
            let path = line.split_once("=> ").map_or(line, |(_, path)| path).trim();
            let path = path.split(" (").next().unwrap_or_default();
            if path == "not found" {
                return Err(Error::Unexpected {
                    command: crate::shown(&ldd),
                    output: line.to_owned(),
                });
            }
            let path = Path::new(path);
            let Some(name) = path.file_name().filter(|_| path.is_absolute()) else {
                continue;
            };
            let name = name.to_string_lossy();
            let folder = if name.starts_with("ld-linux") {
                "lib64"
            } else {
                "lib/x86_64-linux-gnu"
            };
            self.copy(path, &format!("{folder}/{name}"))?;
        }
        Ok(())
    }

    /// Returns the library path of the tree.
    fn libraries(&self) -> String {
        let folders = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        let paths = folders.map(|folder| self.tree.join(folder).display().to_string());
        paths.join(":")
    }

    /// Compiles the program that calls librpma.
    fn probe(&self, source: &Path) -> Result<(), Error> {
        let program = self.root.join("tools/rpma_probe.full");
        let mut compile = Command::new("cc");
        compile
            .arg(source)
            .arg("-I")
            .arg(self.tree.join("usr/include"))
            .arg(self.tree.join("usr/lib/x86_64-linux-gnu/librpma.so.0"))
            .arg("-libverbs")
            // The libraries that librpma itself needs are found at run time.
            .arg("-Wl,--allow-shlib-undefined")
            .arg("-o")
            .arg(&program);
        supervise::run(&mut compile, self.budget)?;
        self.program(&program, "tools/rpma_probe")?;
        let _ = fs::remove_file(&program);
        Ok(())
    }

    /// Copies the kernel's modules, and writes the order to load them in.
    fn modules(&self) -> Result<(), Error> {
        let versions = self.tree.join("lib/modules");
        let version = only(&versions, "")?;
        let mut order = Vec::new();
        for module in MODULES {
            load_after_dependencies(&version, module, &mut order)?;
        }
        for module in &order {
            let from = find_module(&version, module)?;
            self.copy(&from, &format!("modules/{module}.ko"))?;
        }
        write(&self.root.join("modules/order"), &(order.join("\n") + "\n"))
    }
}

fn load_after_dependencies(
    version: &Path,
    module: &str,
    order: &mut Vec<String>,
) -> Result<(), Error> {
    if order.iter().any(|loaded| loaded == module) {
        return Ok(());
    }
    let path = find_module(version, module)?;
    let bytes = fs::read(&path).map_err(|source| Error::File {
        operation: "read",
        path,
        source,
    })?;
    for dependency in dependencies(&bytes) {
        load_after_dependencies(version, &dependency, order)?;
    }
    order.push(module.to_owned());
    Ok(())
}

/// Returns the dependencies of a module: the text `depends=a,b` in its information section.
fn dependencies(module: &[u8]) -> BTreeSet<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else {
        return BTreeSet::new();
    };
    let value = module[at + key.len()..].split(|&byte| byte == 0).next();
    let value = String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    let names = value.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Returns the file of a module. In some file names `-` replaces the kernel's `_`.
fn find_module(version: &Path, module: &str) -> Result<PathBuf, Error> {
    let mut folders = vec![version.join("kernel")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().replace('-', "_");
            if path.is_dir() {
                folders.push(path);
            } else if name.strip_suffix(".ko") == Some(module) {
                return Ok(path);
            }
        }
    }
    Err(Error::Unexpected {
        command: "find a module of the kernel".to_owned(),
        output: format!("no {module}.ko in {}", version.display()),
    })
}

/// Returns the only entry of a folder with that prefix.
fn only(folder: &Path, beginning: &str) -> Result<PathBuf, Error> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut fitting = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(beginning))
        .map(|entry| entry.path());
    match (fitting.next(), fitting.next()) {
        (Some(path), None) => Ok(path),
        _ => Err(Error::Unexpected {
            command: "search the unpacked packages".to_owned(),
            output: format!("not exactly one {beginning}* in {}", folder.display()),
        }),
    }
}

fn link(to: &str, at: &Path) -> Result<(), Error> {
    symlink(to, at).map_err(|source| Error::File {
        operation: "link",
        path: at.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_a_modules_information() {
        let names = |bytes: &[u8]| dependencies(bytes).into_iter().collect::<Vec<_>>();
        assert_eq!(
            names(b"\x7fELF...\0license=GPL\0depends=ib_uverbs,ib_core\0name=x\0"),
            ["ib_core", "ib_uverbs"]
        );
        assert_eq!(names(b"\0license=GPL\0depends=\0name=x\0"), [""; 0]);
        assert_eq!(names(b"no information"), [""; 0]);
        assert_eq!(names(b"\0depends=cut"), ["cut"]);
    }
}
