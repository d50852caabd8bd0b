//! Collects the stacks of all threads of a check that timed out.
//!
//! The parent sends a signal to each thread of the child. The handler writes the addresses on its thread's stack, and the
//! parent finds the functions in the mapped files. For threads that block all signals the parent runs gdb, if installed.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::io;
use std::os::fd::IntoRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::symbols::Symbols;
use crate::stand_in::recorder::printable;

/// The file in a check's folder to which its threads write.
const FILE: &str = "stacks";
/// Frames to write per thread.
const DEPTH: usize = 48;
/// Time limit for the threads to write.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time limit for gdb.
const GDB_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of gdb runs in this process: each takes seconds.
const MOST_GDB: usize = 4;
/// Number of frames of the handler and the system's signal return.
const OF_THE_HANDLER: usize = 2;
/// Lines to keep.
const LINES: usize = 200;

/// The handler's output descriptor; negative if there is none.
static OUTPUT: AtomicI32 = AtomicI32::new(-1);

fn signal() -> c_int {
    libc::SIGRTMIN() + 9
}

/// Installs the signal handler in this process and its forks; it writes to `folder`. Call this before the provider is
/// loaded.
///
/// # Errors
/// If the file cannot be created or the handler not be installed.
pub fn answer_in(folder: &Path) -> io::Result<()> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(folder.join(FILE))?;
    // The descriptor lives as long as the process.
    OUTPUT.store(file.into_raw_fd(), Ordering::Relaxed);
    let mut frames = [std::ptr::null_mut(); 1];
    // SAFETY: fills at most one element. The first call loads a library, which a signal handler must not.
    unsafe { libc::backtrace(frames.as_mut_ptr(), 1) };
    // SAFETY: an empty action of zeros is valid; it is filled in below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = write_stack as extern "C" fn(c_int) as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: a handler that calls nothing but what signal handlers may call, once `backtrace` is loaded.
    match unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes the thread's number and the addresses on its stack as one line.
extern "C" fn write_stack(_: c_int) {
    let mut frames: [*mut c_void; DEPTH] = [std::ptr::null_mut(); DEPTH];
    // SAFETY: `errno` of this thread, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: fills at most the given number of elements.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), DEPTH as c_int) };
    let mut line = [0_u8; 24 + 17 * DEPTH];
    let mut length = 0;
    let mut push = |byte: u8| {
        line[length] = byte;
        length += 1;
    };
    // SAFETY: takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() };
    write_hex(&mut push, thread as usize);
    for frame in frames.iter().take(count.max(0) as usize) {
        push(b' ');
        write_hex(&mut push, frame.addr());
    }
    push(b'\n');
    // SAFETY: writes our bytes to a descriptor that stays open. If the write fails, the report lacks the thread.
    unsafe { libc::write(OUTPUT.load(Ordering::Relaxed), line.as_ptr().cast(), length) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn write_hex(push: &mut impl FnMut(u8), number: usize) {
    let digits = ((usize::BITS - number.leading_zeros()).div_ceil(4)).max(1);
    for digit in (0..digits).rev() {
        push(b"0123456789abcdef"[(number >> (4 * digit)) & 0xf]);
    }
}

/// Returns the stacks of all threads of a child and its forks, as lines.
pub(super) fn of_all_threads(child: i32, folder: &Path, program: &Path) -> Vec<String> {
    let processes = with_descendants(child);
    let answering: Vec<i32> = processes
        .iter()
        .copied()
        .filter(|pid| answers(*pid))
        .collect();
    let threads: Vec<(i32, i32)> = answering
        .iter()
        .flat_map(|pid| threads_of(*pid).into_iter().map(|thread| (*pid, thread)))
        .collect();
    for (pid, thread) in &threads {
        // SAFETY: sends a signal to a thread of a child; if the thread has ended, the call fails.
        unsafe { libc::syscall(libc::SYS_tgkill, *pid, *thread, signal()) };
    }
    let stacks = read_stacks(&folder.join(FILE), threads.len());
    let mut lines = Vec::new();
    let mut is_whole = true;
    let mut symbols = Symbols::new(program);
    for pid in &answering {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        for (_, thread) in threads.iter().filter(|(of, _)| of == pid) {
            lines.push(headline(*pid, *thread));
            match stacks.get(thread) {
                Some(frames) => lines.extend(symbols.describe(frames, &maps)),
                None => {
                    is_whole = false;
                    lines.push("    does not answer signals".to_owned());
                }
            }
        }
    }
    if !is_whole {
        for pid in &answering {
            lines.extend(by_gdb(*pid));
        }
    }
    lines.truncate(LINES);
    lines
}

/// Returns a process and its descendants.
fn with_descendants(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        for thread in threads_of(parent) {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{thread}/children"));
            let children = children.unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
        next += 1;
    }
    all
}

fn threads_of(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut threads: Vec<i32> = entries.flatten().filter_map(number).collect();
    threads.sort_unstable();
    threads
}

/// Whether the process handles the signal, which would otherwise end it.
fn answers(pid: i32) -> bool {
    field_of_status(pid, "SigCgt:").is_some_and(|mask| mask & (1 << (signal() - 1)) != 0)
}

fn field_of_status(pid: i32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn headline(pid: i32, thread: i32) -> String {
    let of = |file: &str| {
        fs::read_to_string(format!("/proc/{pid}/task/{thread}/{file}")).unwrap_or_default()
    };
    let name = printable(&of("comm"));
    let stat = of("stat");
    // The name may have brackets in it.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    let state = match state {
        Some('R') => "running",
        Some('S') => "sleeping",
        Some('D') => "in an uninterruptible wait",
        Some('T' | 't') => "stopped",
        _ => "ended",
    };
    format!("thread {thread} \"{name}\", {state}:")
}

/// Waits until all threads have written or the time limit ends; returns the addresses by thread.
fn read_stacks(file: &Path, threads: usize) -> BTreeMap<i32, Vec<u64>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        let stacks: BTreeMap<i32, Vec<u64>> = text.lines().filter_map(stack_of).collect();
        if stacks.len() >= threads || Instant::now() > deadline {
            return stacks;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn stack_of(line: &str) -> Option<(i32, Vec<u64>)> {
    let mut words = line.split(' ');
    let thread = i32::from_str_radix(words.next()?, 16).ok()?;
    let frames = words
        .skip(OF_THE_HANDLER)
        .map(|word| u64::from_str_radix(word, 16));
    Some((thread, frames.collect::<Result<_, _>>().ok()?))
}

/// Returns gdb's stacks of all threads; none if gdb is not installed or may not attach.
fn by_gdb(pid: i32) -> Vec<String> {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    if STARTED.fetch_add(1, Ordering::Relaxed) >= MOST_GDB {
        return Vec::new();
    }
    let Ok(output) = tempfile::tempfile() else {
        return Vec::new();
    };
    let Ok(copy) = output.try_clone() else {
        return Vec::new();
    };
    let started = Command::new("gdb")
        .args([
            "-nx",
            "-batch",
            "-iex",
            "set debuginfod enabled off",
            "-ex",
            "thread apply all backtrace",
            "-p",
        ])
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .stdout(copy)
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut gdb) = started else {
        return Vec::new();
    };
    let deadline = Instant::now() + GDB_PATIENCE;
    while matches!(gdb.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    // It may have ended.
    let _ = gdb.kill();
    let _ = gdb.wait();
    let mut lines = vec!["by gdb:".to_owned()];
    let text = read_again(output).unwrap_or_default();
    let is_stack = |line: &&str| line.starts_with("Thread ") || line.starts_with('#');
    lines.extend(
        text.lines()
            .filter(is_stack)
            .map(|line| format!("    {}", printable(line))),
    );
    match lines.len() {
        1 => Vec::new(),
        _ => lines,
    }
}

fn read_again(mut file: File) -> io::Result<String> {
    use std::io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 1, 0x10, 0xdead_beef, usize::MAX] {
            let mut text = Vec::new();
            write_hex(&mut |byte| text.push(byte), number);
            assert_eq!(String::from_utf8(text).unwrap(), format!("{number:x}"));
        }
        assert_eq!(stack_of("1f 1 2 a0 b0"), Some((31, vec![0xa0, 0xb0])));
        assert_eq!(stack_of("1f 1 2 a0 x"), None);
    }
}
