//! Hides functions of the core, to simulate a core without them.

use std::ffi::{CStr, c_int, c_void};

/// Why a function could not be hidden.
#[derive(Debug, thiserror::Error)]
pub enum HideError {
    /// This executable does not export the function.
    #[error("this executable exports no {0}")]
    NotExported(String),
    /// The symbol table could not be changed.
    #[error("the symbol table could not be changed: {0}")]
    Memory(std::io::Error),
}

/// Hides an exported function of this executable from all libraries loaded later, until the process ends: it changes the first
/// letter of the function's name in memory, where the dynamic loader looks it up.
///
/// # Errors
/// If the function does not exist, or its name cannot be changed.
pub fn hide(name: &CStr) -> Result<(), HideError> {
    let not_exported = || HideError::NotExported(name.to_string_lossy().into_owned());
    let strings = string_table().ok_or_else(not_exported)?;
    // Match the NULs before and after it, so that no longer name changes.
    let mut wanted = vec![0];
    wanted.extend_from_slice(name.to_bytes_with_nul());
    let at = strings
        .windows(wanted.len())
        .position(|window| window == wanted)
        .ok_or_else(not_exported)?;
    overwrite(&strings[at + 1]).map_err(HideError::Memory)
}

/// Returns the strings of this executable's dynamic symbols, in memory.
fn string_table() -> Option<&'static [u8]> {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` gives the object, and the pointer that it was given, to the variable below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<&'static [u8]>>()) };
        // SAFETY: the loader's own description of the executable.
        *found = unsafe { strings_of(info) };
        // The first object is the executable; ignore the others.
        1
    }
    let mut found: Option<&'static [u8]> = None;
    // SAFETY: the callback has the signature of the man page.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    found
}

/// # Safety
/// `info` describes a loaded object that is never unloaded.
unsafe fn strings_of(info: &libc::dl_phdr_info) -> Option<&'static [u8]> {
    const DT_NULL: i64 = 0;
    const DT_STRTAB: i64 = 5;
    const DT_STRSZ: i64 = 10;
    let base = info.dlpi_addr as usize;
    // SAFETY: the object has that many program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let dynamic = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let mut entry =
        std::ptr::with_exposed_provenance::<(i64, usize)>(base + dynamic.p_vaddr as usize);
    let (mut start, mut size) = (0, 0);
    loop {
        // SAFETY: the dynamic section is an array of pairs that ends with DT_NULL.
        let (tag, value) = unsafe { entry.read() };
        match tag {
            DT_NULL => break,
            DT_STRTAB => start = value,
            DT_STRSZ => size = value,
            _ => {}
        }
        // SAFETY: not the last one yet.
        entry = unsafe { entry.add(1) };
    }
    if start == 0 {
        return None;
    }
    // glibc has made the address absolute.
    let start = std::ptr::with_exposed_provenance(if start < base { base + start } else { start });
    // SAFETY: the table lies in the executable's read-only part for as long as the process lives.
    Some(unsafe { std::slice::from_raw_parts(start, size) })
}

/// Replaces a byte of read-only memory in this process only.
fn overwrite(byte: &'static u8) -> std::io::Result<()> {
    const PAGE: usize = 4096;
    let target: *mut u8 = std::ptr::from_ref(byte).cast_mut();
    let page = target.wrapping_sub(target.addr() % PAGE);
    let protect = |access| {
        // SAFETY: a page of the executable's, which is mapped privately: no other process sees the change.
        match unsafe { libc::mprotect(page.cast(), PAGE, access) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    protect(libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: writable by now; only the dynamic loader reads it, and not at this moment.
    unsafe { target.write_volatile(b'-') };
    protect(libc::PROT_READ)
}
