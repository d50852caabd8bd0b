//! Handles of the core's device, port and endpoint. A provider may use them from any thread, at any time.
//!
//! A handle uses the core's structure only while the core keeps it open; afterwards every call returns
//! [`Closed`]. Handles are reference-counted and hold their parent.

mod changes;
mod device_name;
mod hourly;
mod link_rate;
mod subnet_path;
mod threads;

use std::ffi::c_int;

use crate::abi::{
    _compat_ibv_port_attr, AcmCounter, Be16, acm_device, acm_endpoint, acm_port, ibv_context,
    ibv_gid,
};
use crate::address::{Gid, Guid, PKey};
use crate::host::Host;
use crate::host::counters::Counters;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, RwLock};

use device_name::device_name;
use hourly::Hourly;
use threads::PortThreads;

pub use changes::PortChanges;
pub use rdma_access::PortAttributes;
pub use threads::{SpawnError, StopSignal};

/// The core has closed the device, port or endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the core has closed this endpoint, port or device")]
pub struct Closed;

/// A pointer to a structure of the core, usable while the core keeps it open.
pub(crate) struct Gate<T>(RwLock<Option<CorePointer<T>>>);

struct CorePointer<T>(*const T);

// SAFETY: the pointer is only handed to the core's functions, which may be called from any thread, and its fields are
// constant while the structure is open.
unsafe impl<T> Send for CorePointer<T> {}
// SAFETY: see above.
unsafe impl<T> Sync for CorePointer<T> {}

impl<T> Gate<T> {
    /// `pointer` stays valid until `close`: that is the core's promise for its open structures.
    fn new(pointer: *const T) -> Self {
        Self(RwLock::new(Some(CorePointer(pointer))))
    }

    /// Runs `call` with the structure, which is not closed meanwhile.
    pub(crate) fn with<R>(&self, call: impl FnOnce(*const T) -> R) -> Result<R, Closed> {
        match &*self.0.read() {
            Some(pointer) => Ok(call(pointer.0)),
            None => Err(Closed),
        }
    }

    /// Waits for the calls in progress; later ones return [`Closed`].
    pub(crate) fn close(&self) {
        *self.0.write() = None;
    }
}

/// An RDMA device that the core has opened.
#[derive(Clone)]
pub struct DeviceHandle(Arc<DeviceInner>);

struct DeviceInner {
    host: Host,
    gate: Gate<acm_device>,
    verbs: CorePointer<ibv_context>,
    guid: Guid,
}

impl DeviceHandle {
    /// # Safety
    /// `device` is the core's, and open until `close`.
    pub(crate) unsafe fn new(host: Host, device: *const acm_device) -> Self {
        // SAFETY: the caller's promise.
        let acm_device { verbs, dev_guid } = unsafe { device.read() };
        let inner = DeviceInner {
            host,
            gate: Gate::new(device),
            verbs: CorePointer(verbs),
            guid: Guid(dev_guid.to_host()),
        };
        Self(Arc::new(inner))
    }

    /// Returns the device's node GUID. It does not identify a device: physical and virtual functions of one adapter can
    /// share it.
    pub fn guid(&self) -> Guid {
        self.0.guid
    }

    /// Returns the verbs context that the core opened, for libraries that need one. It belongs to the core: it is valid while
    /// the device is open, and the provider must not close it.
    pub fn verbs(&self) -> *mut ibv_context {
        self.0.verbs.0.cast_mut()
    }

    /// The kernel's name for the device, such as `mlx5_0`; `None` when it is closed, or for a context without a device.
    pub(crate) fn name(&self) -> Option<String> {
        // SAFETY: the gate keeps the device, and so the core's context, open during the call.
        let name = self.0.gate.with(|_| unsafe { device_name(self.verbs()) });
        name.ok().flatten()
    }

    /// Opens the device again, as the provider's own verbs context. The context and its objects stay valid when the core
    /// closes the device.
    ///
    /// # Errors
    /// If the core has closed the device, or the device does not open.
    #[cfg(feature = "verbs")]
    pub fn open_verbs(&self) -> Result<rdma_access::verbs::Context, OpenVerbsError> {
        self.0.gate.with(|_| {
            // SAFETY: the gate keeps the device, and so the core's context, open during the call.
            unsafe { rdma_access::verbs::Context::open_same_device(self.verbs().cast()) }
                .map_err(OpenVerbsError::Verbs)
        })?
    }

    /// The core that opened the device.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    pub(crate) fn close(&self) {
        self.0.gate.close();
    }
}

/// Error from opening a verbs context.
#[cfg(feature = "verbs")]
#[derive(Debug, thiserror::Error)]
pub enum OpenVerbsError {
    /// See [`Closed`].
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The device does not open.
    #[error(transparent)]
    Verbs(rdma_access::Error),
}

/// Error from querying a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// See [`Closed`].
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The port has no GID.
    #[error("port {0} has no GID to ask the SA with")]
    NoGid(u8),
    /// The verbs call failed.
    #[error("{call} on port {port}: error {code}; is the device still there?")]
    Verbs {
        /// The verbs function.
        call: &'static str,
        /// The port's number.
        port: u8,
        /// What the function returned.
        code: c_int,
    },
}

/// A port that the core has opened.
#[derive(Clone)]
pub struct PortHandle(Arc<PortInner>);

struct PortInner {
    device: DeviceHandle,
    gate: Gate<acm_port>,
    number: u8,
    hourly: Mutex<Hourly>,
    id: CorePort,
    changes: Mutex<Option<PortChanges>>,
    threads: PortThreads,
}

/// Identifies a port of the core across openings: the core passes the same structure each time. It is only compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CorePort(usize);

impl PortHandle {
    /// # Safety
    /// `port` is the core's, and open until `close`.
    pub(crate) unsafe fn new(device: DeviceHandle, port: *const acm_port) -> Self {
        // SAFETY: the caller's promise.
        let number = unsafe { (*port).port_num };
        Self(Arc::new(PortInner {
            device,
            gate: Gate::new(port),
            number,
            hourly: Mutex::default(),
            id: CorePort(port.addr()),
            changes: Mutex::default(),
            threads: PortThreads::new(),
        }))
    }

    /// Returns the port's identity across its openings.
    pub(crate) fn core_port(&self) -> CorePort {
        self.0.id
    }

    /// Returns the port's name in log lines.
    pub(crate) fn place(&self) -> String {
        let guid = self.device().guid();
        format!("device {guid} port {}", self.number())
    }

    /// The port's number on its device, from 1.
    pub fn number(&self) -> u8 {
        self.0.number
    }

    /// The device.
    pub fn device(&self) -> &DeviceHandle {
        &self.0.device
    }

    /// The core that opened the port.
    pub fn host(&self) -> &Host {
        self.device().host()
    }

    /// Reads the port's attributes (`ibv_query_port`).
    ///
    /// # Errors
    /// If the port is closed or the call fails.
    pub fn attributes(&self) -> Result<PortAttributes, PortError> {
        /// Room for a library that writes the fields of a newer `ibv_port_attr` as well.
        #[derive(Default)]
        #[repr(C)]
        struct Attributes {
            known: _compat_ibv_port_attr,
            room: [u64; 8],
        }
        let attributes = self.verbs(
            "ibv_query_port",
            |verbs, number, attributes: &mut Attributes| {
                // SAFETY: the context is open (see `verbs`), and there is room for the attributes.
                unsafe {
                    (self.host().table().ibv_query_port)(
                        verbs,
                        number,
                        (&raw mut *attributes).cast(),
                    )
                }
            },
        )?;
        Ok(attributes.known.into())
    }

    /// Reads an entry of the P_Key table (`ibv_query_pkey`). An entry can be empty or invalid (0x0000, 0x8000).
    ///
    /// # Errors
    /// If the port is closed, or the call fails, for example because `index` is beyond the table's end.
    pub fn pkey(&self, index: u16) -> Result<PKey, PortError> {
        let pkey = self.verbs("ibv_query_pkey", |verbs, number, pkey: &mut Be16| {
            // SAFETY: the context is open (see `verbs`); the function writes one P_Key.
            unsafe { (self.host().table().ibv_query_pkey)(verbs, number, index.into(), pkey) }
        })?;
        Ok(PKey(pkey.to_host()))
    }

    /// Calls a verbs function while the core keeps the port, and so its context, open.
    fn verbs<T: Default>(
        &self,
        call: &'static str,
        query: impl FnOnce(*mut ibv_context, u8, &mut T) -> c_int,
    ) -> Result<T, PortError> {
        let mut value = T::default();
        match self
            .0
            .gate
            .with(|_| query(self.device().verbs(), self.0.number, &mut value))?
        {
            0 => Ok(value),
            code => Err(PortError::Verbs {
                call,
                port: self.0.number,
                code,
            }),
        }
    }

    /// Returns the port's GID at `index`; `None` beyond the table's end, or if the port is closed. Index 0 has the subnet
    /// prefix and the port GUID.
    pub fn gid(&self, index: u8) -> Option<Gid> {
        let mut gid = ibv_gid::default();
        let found = self.0.gate.with(|port| {
            // SAFETY: the port is open; the core writes one GID.
            unsafe { (self.host().table().acm_get_gid)(port.cast_mut(), index.into(), &mut gid) }
        });
        (found == Ok(0)).then(|| Gid::from(gid))
    }

    /// Whether `gid` is one of the port's.
    pub fn has_gid(&self, gid: Gid) -> bool {
        let mut raw = ibv_gid::from(gid);
        let index = self.0.gate.with(|port| {
            // SAFETY: the port is open; the core reads one GID.
            unsafe { (self.host().table().acm_gid_index)(port.cast_mut(), &mut raw) }
        });
        // For an unknown GID the core returns the length of its table.
        index.is_ok_and(|index| self.gid(index) == Some(gid))
    }

    /// Ends the port's threads. Later calls return [`Closed`].
    pub(crate) fn close(&self) {
        self.stop_threads();
        self.0.gate.close();
    }
}

/// An endpoint that the core has opened: one partition of one port.
#[derive(Clone)]
pub struct EndpointHandle(Arc<EndpointInner>);

struct EndpointInner {
    /// A copy of the port's reference, because every request uses it.
    host: Host,
    port: PortHandle,
    gate: Gate<acm_endpoint>,
    pkey: PKey,
    id: u64,
    counters: Counters,
}

impl EndpointHandle {
    /// # Safety
    /// `endpoint` is the core's, and open until `close`.
    pub(crate) unsafe fn new(port: PortHandle, endpoint: *const acm_endpoint) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        // SAFETY: the caller's promise.
        let pkey = PKey(unsafe { (*endpoint).pkey });
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(EndpointInner {
            host: *port.host(),
            port,
            gate: Gate::new(endpoint),
            pkey,
            id,
            counters: Counters::default(),
        }))
    }

    /// The endpoint's P_Key, with the membership bit as the port's table has it.
    pub fn pkey(&self) -> PKey {
        self.0.pkey
    }

    /// The port.
    pub fn port(&self) -> &PortHandle {
        &self.0.port
    }

    /// The core that opened the endpoint.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Returns a number that identifies the endpoint. The process never uses it again for another one.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The endpoint's own counters, as `query_perf` shows them.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Counts an address query, a route query or a cache hit, in both sets of counters: the endpoint's and the core's.
    ///
    /// Do not count requests, errors and no-data answers: the SDK and the core count them. [`ask_path`](Self::ask_path)
    /// counts its route query itself.
    pub fn count(&self, counter: AcmCounter) {
        self.0.counters.increment(counter);
        self.host().increment_counter(counter);
    }

    pub(crate) fn gate(&self) -> &Gate<acm_endpoint> {
        &self.0.gate
    }
}
