//! The environment that counts depend on, besides the source.

use std::ffi::CStr;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::count::{Error, output};

/// A toolchain, libc and valgrind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// `rustc --version` and the host.
    pub toolchain: String,
    /// Version of glibc.
    pub libc: String,
    /// Version of valgrind.
    pub valgrind: String,
    /// Whether the processor, and so valgrind, has AVX2, by which glibc chooses its memcpy.
    pub avx2: bool,
}

impl Environment {
    /// Returns the present environment.
    ///
    /// # Errors
    /// If running rustc or valgrind fails.
    pub fn here() -> Result<Self, Error> {
        let rustc = output(Command::new("rustc").arg("-vV"))?;
        let valgrind = output(Command::new("valgrind").arg("--version"))?;
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        // SAFETY: the version is a NUL-terminated string that lives as long as the process.
        let libc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        Ok(Self {
            toolchain: toolchain(&rustc),
            libc: libc.to_string_lossy().into_owned(),
            valgrind: valgrind.trim().trim_start_matches("valgrind-").to_owned(),
            avx2: cpus.split_whitespace().any(|flag| flag == "avx2"),
        })
    }

    /// Returns the differences to another environment, as texts.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = [
            ("toolchain", &self.toolchain, &other.toolchain),
            ("libc", &self.libc, &other.libc),
            ("valgrind", &self.valgrind, &other.valgrind),
        ];
        let mut differences: Vec<String> = pairs
            .iter()
            .filter(|(_, own, other)| own != other)
            .map(|(what, own, other)| format!("{what} {own}, not {other}"))
            .collect();
        if self.avx2 != other.avx2 {
            differences.push(format!("AVX2 {}, not {}", self.avx2, other.avx2));
        }
        differences
    }
}

/// Returns version and host from the output of `rustc -vV`.
fn toolchain(text: &str) -> String {
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    let version = text.lines().next().unwrap_or("unknown");
    format!("{version}, {}", host.unwrap_or("unknown host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_compared() {
        let text =
            "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";
        let own = Environment {
            toolchain: toolchain(text),
            libc: "2.36".into(),
            valgrind: "3.19.0".into(),
            avx2: true,
        };
        assert_eq!(
            own.toolchain,
            "rustc 1.95.0 (59807616e 2026-04-14), x86_64-unknown-linux-gnu"
        );
        assert_eq!(own.differences(&own), [""; 0]);
        let other = Environment {
            libc: "2.41".into(),
            avx2: false,
            ..own.clone()
        };
        assert_eq!(
            own.differences(&other),
            ["libc 2.36, not 2.41", "AVX2 true, not false"]
        );
    }
}
