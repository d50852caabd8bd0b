//! Reads the children of a process from /proc without allocating.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::{Errno, read};
use rustix::process::{Pid, getpid};

use crate::message::NAME;

/// Calls `each` for every child of this process, which must have one thread. Includes zombies.
pub fn each_child(each: &mut dyn FnMut(Pid)) -> Result<(), Errno> {
    match each_listed(each) {
        // Kernels without CONFIG_PROC_CHILDREN.
        Err(Errno::NOENT) => each_of_all(each),
        other => other,
    }
}

/// Reads the kernel's list of children.
fn each_listed(each: &mut dyn FnMut(Pid)) -> Result<(), Errno> {
    let list = open(c"/proc/thread-self/children")?;
    let mut number = Number::default();
    let mut buffer = [0; 1024];
    loop {
        let length = read(&list, &mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        for byte in buffer.iter().take(length) {
            if let Some(pid) = number.take(*byte) {
                each(pid);
            }
        }
    }
}

/// Searches all processes for this parent.
fn each_of_all(each: &mut dyn FnMut(Pid)) -> Result<(), Errno> {
    let own = getpid();
    let folder = open(c"/proc")?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let Some(pid) = parse(entry?.file_name().to_bytes()) else {
            continue;
        };
        if parent(pid) == Some(own) {
            each(pid);
        }
    }
    Ok(())
}

/// Returns the parent from /proc/PID/stat, see proc_pid_stat(5): `pid (name) state parent …`; the name may hold any bytes.
fn parent(pid: Pid) -> Option<Pid> {
    let mut buffer = [0; 512];
    let length = read_of(pid, b"/stat\0", &mut buffer)?;
    let text = buffer.get(..length)?;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = text.get(end + 1..)?.split(|byte| *byte == b' ').skip(2);
    parse(fields.next()?)
}

/// Returns a process's name; empty if it has ended.
pub fn name(pid: Pid) -> [u8; NAME] {
    let mut name = [0; NAME];
    let _ = read_of(pid, b"/comm\0", &mut name);
    name
}

/// Reads the file /proc/PID/`file`, whose name ends with a zero byte.
fn read_of(pid: Pid, file: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let mut digits = [0; 10];
    let mut count = 0;
    let mut rest = pid.as_raw_pid();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).ok()?;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    let digits = digits.get(10 - count..)?;
    let mut path = [0; 32];
    let pieces = b"/proc/".iter().chain(digits).chain(file);
    for (byte, piece) in path.iter_mut().zip(pieces) {
        *byte = *piece;
    }
    let file = open(CStr::from_bytes_until_nul(&path).ok()?).ok()?;
    read(&file, buffer).ok()
}

fn open(path: &CStr) -> Result<std::os::fd::OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn parse(text: &[u8]) -> Option<Pid> {
    let mut number = Number::default();
    for byte in text {
        if !byte.is_ascii_digit() {
            return None;
        }
        number.take(*byte);
    }
    number.take(b' ')
}

/// Parses a decimal number byte by byte.
#[derive(Default)]
struct Number(Option<i32>);

impl Number {
    /// Returns the number that ends before this byte.
    fn take(&mut self, byte: u8) -> Option<Pid> {
        if byte.is_ascii_digit() {
            let digit = i32::from(byte - b'0');
            let so_far = self.0.unwrap_or_default();
            self.0 = Some(so_far.wrapping_mul(10).wrapping_add(digit));
            return None;
        }
        self.0.take().and_then(Pid::from_raw)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn both_ways_find_a_child() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let mut of_all = Vec::new();
        each_of_all(&mut |pid| of_all.push(pid)).unwrap();
        assert!(of_all.contains(&pid), "{pid:?} in {of_all:?}");
        // This thread's list, if the kernel has it.
        let mut listed = Vec::new();
        match each_listed(&mut |pid| listed.push(pid)) {
            Ok(()) => assert!(listed.contains(&pid), "{pid:?} in {listed:?}"),
            Err(error) => assert_eq!(error, Errno::NOENT),
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent(pid), None);
    }

    #[test]
    fn numbers_are_whole() {
        assert_eq!(parse(b"1234"), Pid::from_raw(1234));
        for text in [&b""[..], b"self", b"12a", b"-1", b"0"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_parent_is_found() {
        let own = getpid();
        assert_eq!(parent(own), rustix::process::getppid());
        assert!(!crate::message::text(&name(own)).is_empty());
    }
}
