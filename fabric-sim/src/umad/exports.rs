//! The `umad_*` functions that replace libibumad's (rdma-core 44, `man 3 umad_open_port` and related pages).
//!
//! Only the functions that open ports, register agents and transfer MADs; libibumad's own functions still read
//! CAs. A port's number is a descriptor that polls readable when a MAD has arrived, as in the kernel, so
//! `umad_get_fd` returns it unchanged.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::lower::{LowerError, Registration};
use super::packet::{HEADER_SIZE, Packet};
use super::port::SendError;
use super::registry::OpenPort;
use crate::report::{report, set_errno};

/// Maximum length of a sent MAD: libibumad segments longer ones by RMPP, which ibsim does not support.
const MAX_MAD: usize = crate::smp::MAD_SIZE;

fn failed(error: &LowerError) -> c_int {
    report(&error);
    set_errno(error.errno());
    -error.errno()
}

/// # Safety
/// `name` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umad_open_port(name: *const c_char, number: c_int) -> c_int {
    let name = if name.is_null() {
        None
    } else {
        // SAFETY: the caller's promise.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy())
    };
    OpenPort::open(name.as_deref(), number).unwrap_or_else(|error| failed(&error))
}

/// Opens the port for subnet management (since rdma-core 53); here the same port serves both.
///
/// # Safety
/// As for [`umad_open_port`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umad_open_smi_port(name: *const c_char, number: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { umad_open_port(name, number) }
}

/// Closes a port.
#[unsafe(no_mangle)]
pub extern "C" fn umad_close_port(port: c_int) -> c_int {
    OpenPort::close(port);
    0
}

/// Returns the descriptor to poll.
#[unsafe(no_mangle)]
pub extern "C" fn umad_get_fd(port: c_int) -> c_int {
    port
}

fn register(port: c_int, registration: Registration) -> Result<c_int, c_int> {
    let open = OpenPort::of(port).ok_or(libc::EBADF)?;
    let id = open.register(registration).map_err(|error| {
        report(&error);
        error.errno()
    })?;
    c_int::try_from(id).map_err(|_| libc::EINVAL)
}

fn register_or_eperm(port: c_int, registration: Registration) -> c_int {
    register(port, registration).unwrap_or_else(|errno| {
        set_errno(errno);
        -libc::EPERM
    })
}

/// # Safety
/// `mask` is NULL or points to 16 bytes.
unsafe fn methods(mask: *const c_long) -> [u64; 2] {
    if mask.is_null() {
        return [0; 2];
    }
    // SAFETY: the caller's promise; two longs are 16 bytes here.
    unsafe { mask.cast::<[c_long; 2]>().read_unaligned() }.map(i64::cast_unsigned)
}

/// # Safety
/// `method_mask` is NULL or points to 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umad_register(
    port: c_int,
    mgmt_class: c_int,
    mgmt_version: c_int,
    rmpp_version: u8,
    method_mask: *mut c_long,
) -> c_int {
    let (Ok(class), Ok(class_version)) = (u8::try_from(mgmt_class), u8::try_from(mgmt_version))
    else {
        return -libc::EINVAL;
    };
    // SAFETY: the caller's promise.
    let methods = unsafe { methods(method_mask) };
    register_or_eperm(
        port,
        Registration {
            class,
            class_version,
            rmpp_version,
            oui: None,
            methods,
        },
    )
}

/// # Safety
/// `oui` points to three bytes; `method_mask` is NULL or points to 16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umad_register_oui(
    port: c_int,
    mgmt_class: c_int,
    rmpp_version: u8,
    oui: *mut u8,
    method_mask: *mut c_long,
) -> c_int {
    let Some(class) = u8::try_from(mgmt_class)
        .ok()
        .filter(|class| (0x30..=0x4f).contains(class))
    else {
        return -libc::EINVAL;
    };
    // SAFETY: the caller's promises.
    let (oui, methods) = unsafe { (oui.cast::<[u8; 3]>().read(), methods(method_mask)) };
    register_or_eperm(
        port,
        Registration {
            class,
            class_version: 1,
            rmpp_version,
            oui: Some(oui),
            methods,
        },
    )
}

/// `struct umad_reg_attr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct UmadRegAttr {
    pub mgmt_class: u8,
    pub mgmt_class_version: u8,
    pub flags: u32,
    pub method_mask: [u64; 2],
    pub oui: u32,
    pub rmpp_version: u8,
}

/// # Safety
/// `attr` is NULL or points to the struct, `agent_id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umad_register2(
    port: c_int,
    attr: *mut UmadRegAttr,
    agent_id: *mut u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(attr), Some(agent_id)) = (unsafe { attr.as_mut() }, unsafe { agent_id.as_mut() })
    else {
        return libc::EINVAL;
    };
    // The only flag asks for RMPP in user space, which changes nothing here.
    attr.flags = 0;
    let vendor = (0x30..=0x4f).contains(&attr.mgmt_class);
    let [_, oui @ ..] = attr.oui.to_be_bytes();
    let registration = Registration {
        class: attr.mgmt_class,
        class_version: attr.mgmt_class_version,
        rmpp_version: attr.rmpp_version,
        oui: vendor.then_some(oui),
        methods: attr.method_mask,
    };
    match register(port, registration) {
        Ok(id) => {
            *agent_id = id.cast_unsigned();
            0
        }
        Err(errno) => errno,
    }
}

/// Unregisters an agent; forgets its requests in flight.
#[unsafe(no_mangle)]
pub extern "C" fn umad_unregister(port: c_int, agent: c_int) -> c_int {
    let known = OpenPort::of(port).is_some_and(|open| open.unregister(agent.cast_unsigned()));
    if known {
        0
    } else {
        set_errno(libc::EINVAL);
        -1
    }
}

fn refused(errno: c_int) -> c_int {
    set_errno(errno);
    -libc::EIO
}

/// # Safety
/// `umad` points to header and MAD; `length` is the MAD's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umad_send(
    port: c_int,
    agent: c_int,
    umad: *mut c_void,
    length: c_int,
    timeout_ms: c_int,
    retries: c_int,
) -> c_int {
    let Some(open) = OpenPort::of(port) else {
        return refused(libc::EBADF);
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if umad.is_null() || length > MAX_MAD || !open.has_agent(agent.cast_unsigned()) {
        return refused(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(umad.cast::<u8>(), HEADER_SIZE + length) };
    let Some(packet) = Packet::from_bytes(bytes.to_vec()) else {
        return refused(libc::EINVAL);
    };
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    let retries = u32::try_from(retries).unwrap_or(0);
    match open
        .port()
        .send(agent.cast_unsigned(), packet, timeout, retries)
    {
        Ok(()) => 0,
        Err(SendError::NoSuchAgent(_) | SendError::Duplicate(_)) => refused(libc::EINVAL),
        Err(SendError::Lower(error)) => refused(error.errno()),
        Err(SendError::Ending) => refused(libc::ENODEV),
    }
}

/// Waits for a MAD: returns 0, `-ETIMEDOUT` or `-EIO`.
#[unsafe(no_mangle)]
pub extern "C" fn umad_poll(port: c_int, timeout_ms: c_int) -> c_int {
    if OpenPort::of(port).is_none() {
        return refused(libc::EBADF);
    }
    // SAFETY: the descriptor is in the table of open ports, so it is open. If another thread of the program
    // closes it meanwhile, `poll` reports that.
    let fd = unsafe { BorrowedFd::borrow_raw(port) };
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match rustix::event::poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        timeout.as_ref(),
    ) {
        Ok(0) => -libc::ETIMEDOUT,
        Ok(_) => 0,
        Err(errno) => refused(errno.raw_os_error()),
    }
}

/// Receives a MAD and returns its agent, or a negative `errno` value. If the buffer is too small, keeps the MAD
/// and stores its length in `*length`.
///
/// # Safety
/// `umad` is NULL or has room for the header and `*length` bytes; `length` is NULL or points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umad_recv(
    port: c_int,
    umad: *mut c_void,
    length: *mut c_int,
    timeout_ms: c_int,
) -> c_int {
    let fail = |errno: c_int| {
        set_errno(errno);
        -errno
    };
    let Some(open) = OpenPort::of(port) else {
        return fail(libc::EBADF);
    };
    // SAFETY: the caller's promise.
    let Some(length) = (unsafe { length.as_mut() }) else {
        return fail(libc::EINVAL);
    };
    if umad.is_null() {
        return fail(libc::EINVAL);
    }
    if timeout_ms != 0 {
        let waited = umad_poll(port, timeout_ms);
        if waited < 0 {
            return if waited == -libc::ETIMEDOUT {
                fail(libc::ETIMEDOUT)
            } else {
                waited
            };
        }
    }
    let room = usize::try_from(*length).unwrap_or(0);
    let mut needed = 0;
    let packet = open.inbox().pop_if(|packet| {
        needed = packet.mad().len();
        needed <= room
    });
    // At most MAX_MAD, so it fits.
    *length = needed as c_int;
    match packet {
        Ok(Some(packet)) => {
            let bytes = packet.bytes();
            // SAFETY: the caller's promise; the packet is not longer than header and room.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), umad.cast(), bytes.len()) };
            packet.agent().cast_signed()
        }
        Ok(None) => fail(libc::EINVAL),
        Err(error) => fail(error.raw_os_error().unwrap_or(libc::EAGAIN)),
    }
}
