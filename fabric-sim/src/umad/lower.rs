//! The libibumad below.
//!
//! Loaded by name, so that its own functions are called even where this crate's `umad_*` functions replace them
//! for the rest of the process.

use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::io;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use super::packet::{HEADER_SIZE, Packet};
use crate::smp::MAD_SIZE;

const LIBRARY: &str = "libibumad.so.3";

/// Length of a CA's name including its NUL (`UMAD_CA_NAME_LEN`).
pub const CA_NAME_LEN: usize = 20;
/// Room for ports in `umad_ca_t`, port 0 included (`UMAD_CA_MAX_PORTS`).
pub const CA_MAX_PORTS: usize = 10;

/// `umad_port_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct UmadPort {
    pub ca_name: [c_char; CA_NAME_LEN],
    pub portnum: c_int,
    pub base_lid: u32,
    pub lmc: u32,
    pub sm_lid: u32,
    pub sm_sl: u32,
    pub state: u32,
    pub phys_state: u32,
    pub rate: u32,
    pub capmask: u32,
    pub gid_prefix: u64,
    pub port_guid: u64,
    pub pkeys_size: u32,
    pub pkeys: *mut u16,
    pub link_layer: [c_char; CA_NAME_LEN],
}

/// `umad_ca_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct UmadCa {
    pub ca_name: [c_char; CA_NAME_LEN],
    pub node_type: u32,
    pub numports: c_int,
    pub fw_ver: [c_char; 20],
    pub ca_type: [c_char; 40],
    pub hw_ver: [c_char; 20],
    pub node_guid: u64,
    pub system_guid: u64,
    pub ports: [*mut UmadPort; CA_MAX_PORTS],
}

/// Error from the library below.
#[derive(Debug, thiserror::Error)]
pub enum LowerError {
    /// It is missing, or too old.
    #[error("cannot load {LIBRARY}: {0}; install libibumad3")]
    Load(#[from] libloading::Error),
    /// One of its functions failed.
    #[error("{function}({arguments}) failed: {error}")]
    Call {
        /// The function.
        function: &'static str,
        /// Its arguments.
        arguments: String,
        /// `errno`.
        error: io::Error,
    },
    /// The name contains a NUL.
    #[error("{0:?} is not a CA's name")]
    Name(String),
}

impl LowerError {
    fn call(function: &'static str, arguments: String, result: c_int) -> Self {
        // Some functions return a negative errno value, some -1 and set errno.
        let error = if result < -1 {
            io::Error::from_raw_os_error(-result)
        } else {
            io::Error::last_os_error()
        };
        Self::Call {
            function,
            arguments,
            error,
        }
    }

    /// Returns the `errno` value for a C program.
    pub fn errno(&self) -> c_int {
        match self {
            Self::Load(_) => libc::ENOSYS,
            Self::Call { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
            Self::Name(_) => libc::EINVAL,
        }
    }
}

/// A channel adapter as libibumad lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelAdapter {
    /// Its name.
    pub name: String,
    /// Its firmware's version.
    pub firmware: String,
    /// Its highest port number.
    pub port_count: u8,
    /// The listed ports.
    pub ports: Vec<u8>,
}

/// Parameters of an agent (`umad_register` and related functions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Management class.
    pub class: u8,
    /// Its version.
    pub class_version: u8,
    /// RMPP version, 0 for none.
    pub rmpp_version: u8,
    /// OUI of a vendor class from 0x30 to 0x4f.
    pub oui: Option<[u8; 3]>,
    /// Request methods to receive, one bit each.
    pub methods: [u64; 2],
}

/// The functions below, as in `<infiniband/umad.h>`.
pub struct Libibumad {
    umad_get_cas_names: Symbol<unsafe extern "C" fn(*mut [c_char; CA_NAME_LEN], c_int) -> c_int>,
    umad_get_ca: Symbol<unsafe extern "C" fn(*const c_char, *mut UmadCa) -> c_int>,
    umad_release_ca: Symbol<unsafe extern "C" fn(*mut UmadCa) -> c_int>,
    umad_get_port: Symbol<unsafe extern "C" fn(*const c_char, c_int, *mut UmadPort) -> c_int>,
    umad_release_port: Symbol<unsafe extern "C" fn(*mut UmadPort) -> c_int>,
    umad_open_port: Symbol<unsafe extern "C" fn(*const c_char, c_int) -> c_int>,
    umad_send:
        Symbol<unsafe extern "C" fn(c_int, c_int, *mut c_void, c_int, c_int, c_int) -> c_int>,
    umad_recv: Symbol<unsafe extern "C" fn(c_int, *mut c_void, *mut c_int, c_int) -> c_int>,
    umad_register: Symbol<unsafe extern "C" fn(c_int, c_int, c_int, u8, *mut c_long) -> c_int>,
    umad_register_oui:
        Symbol<unsafe extern "C" fn(c_int, c_int, u8, *mut u8, *mut c_long) -> c_int>,
    /// The symbols stay valid as long as this.
    _library: Library,
}

impl Libibumad {
    /// Returns the library, which is loaded at the first call and never unloaded.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub fn get() -> Result<&'static Self, LowerError> {
        static LOADED: OnceLock<Libibumad> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let loaded = Self::load()?;
        Ok(LOADED.get_or_init(|| loaded))
    }

    fn load() -> Result<Self, LowerError> {
        // SAFETY: libibumad's constructors have no conditions, and each symbol's type is that of its prototype in
        // <infiniband/umad.h>.
        unsafe {
            let library = Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL)?;
            Ok(Self {
                umad_get_cas_names: library.get(b"umad_get_cas_names\0")?,
                umad_get_ca: library.get(b"umad_get_ca\0")?,
                umad_release_ca: library.get(b"umad_release_ca\0")?,
                umad_get_port: library.get(b"umad_get_port\0")?,
                umad_release_port: library.get(b"umad_release_port\0")?,
                umad_open_port: library.get(b"umad_open_port\0")?,
                umad_send: library.get(b"umad_send\0")?,
                umad_recv: library.get(b"umad_recv\0")?,
                umad_register: library.get(b"umad_register\0")?,
                umad_register_oui: library.get(b"umad_register_oui\0")?,
                _library: library,
            })
        }
    }

    /// Lists the channel adapters.
    ///
    /// # Errors
    /// If a listed adapter cannot be read.
    pub fn channel_adapters(&self) -> Result<Vec<ChannelAdapter>, LowerError> {
        let mut names = [[0; CA_NAME_LEN]; 32];
        // SAFETY: there is room for that many names.
        let count = unsafe { (self.umad_get_cas_names)(names.as_mut_ptr(), 32) };
        let count = usize::try_from(count).unwrap_or(0).min(names.len());
        names[..count]
            .iter()
            .map(|name| self.channel_adapter(&text(name)))
            .collect()
    }

    fn channel_adapter(&self, name: &str) -> Result<ChannelAdapter, LowerError> {
        let c_name = CString::new(name).map_err(|_| LowerError::Name(name.to_owned()))?;
        // SAFETY: all zeros is a valid value of this struct of numbers and pointers.
        let mut ca: UmadCa = unsafe { std::mem::zeroed() };
        // SAFETY: a NUL-terminated name and a struct to fill.
        let result = unsafe { (self.umad_get_ca)(c_name.as_ptr(), &mut ca) };
        if result < 0 {
            return Err(LowerError::call("umad_get_ca", format!("{name:?}"), result));
        }
        let found = ChannelAdapter {
            name: name.to_owned(),
            firmware: text(&ca.fw_ver),
            port_count: u8::try_from(ca.numports.clamp(0, CA_MAX_PORTS as c_int - 1)).unwrap_or(0),
            ports: (1u8..)
                .zip(&ca.ports[1..])
                .filter(|(_, port)| !port.is_null())
                .map(|(number, _)| number)
                .collect(),
        };
        // SAFETY: filled by umad_get_ca and released once.
        unsafe { (self.umad_release_ca)(&mut ca) };
        Ok(found)
    }

    /// Returns the CA and port for a name (`None`: any) and number (0: any).
    ///
    /// # Errors
    /// If there is none.
    pub fn resolve_port(
        &self,
        name: Option<&str>,
        number: c_int,
    ) -> Result<(String, c_int), LowerError> {
        let arguments = || format!("{name:?}, {number}");
        let c_name = name
            .map(CString::new)
            .transpose()
            .map_err(|_| LowerError::Name(arguments()))?;
        let pointer = c_name
            .as_ref()
            .map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: all zeros is a valid value of this struct of numbers and pointers.
        let mut port: UmadPort = unsafe { std::mem::zeroed() };
        // SAFETY: NULL or a NUL-terminated name, and a struct to fill.
        let result = unsafe { (self.umad_get_port)(pointer, number, &mut port) };
        if result < 0 {
            return Err(LowerError::call("umad_get_port", arguments(), result));
        }
        let found = (text(&port.ca_name), port.portnum);
        // SAFETY: filled by umad_get_port and released once.
        unsafe { (self.umad_release_port)(&mut port) };
        Ok(found)
    }

    /// Opens a port; returns its number for the other functions.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_port(&self, name: &str, number: c_int) -> Result<c_int, LowerError> {
        let c_name = CString::new(name).map_err(|_| LowerError::Name(name.to_owned()))?;
        // SAFETY: a NUL-terminated name.
        let port = unsafe { (self.umad_open_port)(c_name.as_ptr(), number) };
        if port < 0 {
            return Err(LowerError::call(
                "umad_open_port",
                format!("{name:?}, {number}"),
                port,
            ));
        }
        Ok(port)
    }

    /// Registers an agent of an open port and returns its id.
    ///
    /// # Errors
    /// If the registration is refused.
    pub fn register(&self, port: c_int, registration: &Registration) -> Result<u32, LowerError> {
        let class = c_int::from(registration.class);
        let mut methods = registration.methods.map(u64::cast_signed);
        // SAFETY: an OUI of three bytes and a mask of 16, as in the prototypes.
        let id = unsafe {
            match registration.oui {
                Some(mut oui) => (self.umad_register_oui)(
                    port,
                    class,
                    registration.rmpp_version,
                    oui.as_mut_ptr(),
                    methods.as_mut_ptr(),
                ),
                None => (self.umad_register)(
                    port,
                    class,
                    registration.class_version.into(),
                    registration.rmpp_version,
                    methods.as_mut_ptr(),
                ),
            }
        };
        u32::try_from(id)
            .map_err(|_| LowerError::call("umad_register", format!("{registration:?}"), id))
    }

    /// Sends a packet. The layer below gets no timeout: this crate keeps the timeouts.
    ///
    /// # Errors
    /// If sending failed.
    pub fn send(&self, port: c_int, agent: u32, packet: &mut Packet) -> Result<(), LowerError> {
        let length = (packet.bytes().len() - HEADER_SIZE) as c_int;
        // SAFETY: header and MAD of that length.
        let result = unsafe {
            (self.umad_send)(
                port,
                agent.cast_signed(),
                packet.bytes_mut().as_mut_ptr().cast(),
                length,
                0,
                0,
            )
        };
        if result < 0 {
            return Err(LowerError::call(
                "umad_send",
                format!("agent {agent}, {length} bytes"),
                result,
            ));
        }
        Ok(())
    }

    /// Waits for a packet, at most `wait`. `None`: none arrived.
    pub fn receive(&self, port: c_int, wait: std::time::Duration) -> Option<Packet> {
        let mut bytes = vec![0; HEADER_SIZE + MAD_SIZE];
        let mut length = MAD_SIZE as c_int;
        let wait = c_int::try_from(wait.as_millis())
            .unwrap_or(c_int::MAX)
            .max(1);
        // SAFETY: there is room for the header and that many bytes of MAD.
        let result =
            unsafe { (self.umad_recv)(port, bytes.as_mut_ptr().cast(), &mut length, wait) };
        if result < 0 {
            return None;
        }
        bytes.truncate(HEADER_SIZE + usize::try_from(length).unwrap_or(0).min(MAD_SIZE));
        Packet::from_bytes(bytes)
    }
}

fn text(name: &[c_char]) -> String {
    let bytes: Vec<u8> = name
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
