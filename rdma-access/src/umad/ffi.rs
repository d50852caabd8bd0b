//! The part of `<infiniband/umad.h>` that this crate uses. `crate::layout` compares it with the installed
//! header.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use super::UmadPort;
use crate::address::{Guid, Lid};
use crate::error::Result;
use crate::library::NativeLibrary;

pub const CA_NAME_LENGTH: usize = 20;
pub const CA_MAX_PORTS: usize = 10;
pub const NODE_TYPE_SWITCH: c_uint = 2;
/// The minimum interface version of the kernel for libibumad.
pub const ABI_VERSION: u32 = 5;

/// `umad_port_t`. `capmask`, `gid_prefix` and `port_guid` are in network byte order.
#[repr(C)]
pub struct umad_port {
    pub ca_name: [c_char; CA_NAME_LENGTH],
    pub portnum: c_int,
    pub base_lid: c_uint,
    pub lmc: c_uint,
    pub sm_lid: c_uint,
    pub sm_sl: c_uint,
    pub state: c_uint,
    pub phys_state: c_uint,
    pub rate: c_uint,
    pub capmask: u32,
    pub gid_prefix: u64,
    pub port_guid: u64,
    pub pkeys_size: c_uint,
    pub pkeys: *mut u16,
    pub link_layer: [c_char; CA_NAME_LENGTH],
}

/// `umad_ca_t`. The GUIDs are in network byte order.
#[repr(C)]
pub struct umad_ca {
    pub ca_name: [c_char; CA_NAME_LENGTH],
    pub node_type: c_uint,
    pub numports: c_int,
    pub fw_ver: [c_char; 20],
    pub ca_type: [c_char; 40],
    pub hw_ver: [c_char; 20],
    pub node_guid: u64,
    pub system_guid: u64,
    pub ports: [*mut umad_port; CA_MAX_PORTS],
}

#[repr(C)]
pub struct umad_device_node {
    pub next: *mut umad_device_node,
    pub ca_name: *const c_char,
}

impl From<&umad_port> for UmadPort {
    fn from(c: &umad_port) -> Self {
        // LIDs come from text files, so any value is possible.
        let lid = |value: c_uint| Lid(u16::try_from(value).unwrap_or(0));
        Self {
            number: u8::try_from(c.portnum).unwrap_or(0),
            state: c.state,
            physical_state: c.phys_state,
            link_layer: crate::text::of_array(&c.link_layer).to_owned(),
            capabilities: u32::from_be(c.capmask),
            lid: lid(c.base_lid),
            sm_lid: lid(c.sm_lid),
            sm_sl: u8::try_from(c.sm_sl).unwrap_or(0),
            guid: Guid(u64::from_be(c.port_guid)),
        }
    }
}

/// The functions, valid as long as their library is loaded.
#[derive(Debug)]
pub struct Functions {
    pub get_ca_device_list: unsafe extern "C" fn() -> *mut umad_device_node,
    pub free_ca_device_list: unsafe extern "C" fn(*mut umad_device_node),
    pub get_ca: unsafe extern "C" fn(*const c_char, *mut umad_ca) -> c_int,
    pub release_ca: unsafe extern "C" fn(*mut umad_ca) -> c_int,
    pub open_port: unsafe extern "C" fn(*const c_char, c_int) -> c_int,
    pub open_smi_port: Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>,
    pub close_port: unsafe extern "C" fn(c_int) -> c_int,
    pub get_fd: unsafe extern "C" fn(c_int) -> c_int,
    pub register: unsafe extern "C" fn(c_int, c_int, c_int, u8, *mut c_long) -> c_int,
    pub unregister: unsafe extern "C" fn(c_int, c_int) -> c_int,
    pub get_mad: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    pub set_pkey: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    pub get_pkey: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub send: unsafe extern "C" fn(c_int, c_int, *mut c_void, c_int, c_int, c_int) -> c_int,
    pub receive: unsafe extern "C" fn(c_int, *mut c_void, *mut c_int, c_int) -> c_int,
    _library: NativeLibrary,
}

impl Functions {
    pub fn find(library: NativeLibrary) -> Result<Self> {
        // SAFETY: the field types are those of the header's functions, and the library is kept with them.
        unsafe {
            Ok(Self {
                get_ca_device_list: library.get("umad_get_ca_device_list")?,
                free_ca_device_list: library.get("umad_free_ca_device_list")?,
                get_ca: library.get("umad_get_ca")?,
                release_ca: library.get("umad_release_ca")?,
                open_port: library.get("umad_open_port")?,
                open_smi_port: library.find("umad_open_smi_port"),
                close_port: library.get("umad_close_port")?,
                get_fd: library.get("umad_get_fd")?,
                register: library.get("umad_register")?,
                unregister: library.get("umad_unregister")?,
                get_mad: library.get("umad_get_mad")?,
                set_pkey: library.get("umad_set_pkey")?,
                get_pkey: library.get("umad_get_pkey")?,
                send: library.get("umad_send")?,
                receive: library.get("umad_recv")?,
                _library: library,
            })
        }
    }
}
