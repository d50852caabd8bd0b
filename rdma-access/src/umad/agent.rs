//! Agents, which send and receive the MADs of a class.

use std::ffi::{c_int, c_long};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::Port;
use super::packet::{Buffer, MadAddress, Received, transaction_id};
use super::port::{MAD_LENGTH, milliseconds};
use super::select::{ACTIVE, LINK_UP};
use crate::errno::last_errno;
use crate::error::{Cause, Error, Result};
use crate::teardown;

/// The request methods that an agent receives, one bit each. It receives responses to its own requests without
/// registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods(u128);

impl Methods {
    /// None: the agent only sends requests.
    pub const NONE: Self = Self(0);

    /// Adds `method` (0 to 127; responses have the bit above, and need no registration).
    pub fn and(self, method: u8) -> Self {
        Self(self.0 | 1u128.checked_shl(method.into()).unwrap_or(0))
    }

    fn to_c(self) -> [c_long; 16 / size_of::<c_long>()] {
        // The kernel expects a bitmap of longs.
        std::array::from_fn(|index| (self.0 >> (index * 8 * size_of::<c_long>())) as c_long)
    }
}

/// An agent for a management class. Keeps its port open.
pub struct Agent {
    port: Arc<Port>,
    id: c_int,
    class: u8,
    has_ended: bool,
}

/// Length of a MAD's header.
const HEADER_LENGTH: usize = 24;
/// Subnet management by LID and by directed route.
const SMI_CLASSES: [u8; 2] = [0x01, DIRECTED_ROUTE];
const DIRECTED_ROUTE: u8 = 0x81;
/// Maximum number of agents on an open port (the kernel's IB_UMAD_MAX_AGENTS).
const MOST_AGENTS: u32 = 32;

impl Port {
    /// Registers an agent for a version of a management class (0x01 subnet management, 0x81 the same by
    /// directed route, 0x03 subnet administration, ...) and for the request methods of that class that it wants
    /// to receive.
    ///
    /// # Errors
    /// The error of `umad_register`, usually because another agent, such as the subnet manager, receives the
    /// same requests.
    pub fn register(self: &Arc<Self>, class: u8, version: u8, methods: Methods) -> Result<Agent> {
        let mut mask = methods.to_c();
        let functions = &self.functions;
        // SAFETY: the port is open, and the mask has 128 bits.
        let id = unsafe {
            (functions.register)(self.id, class.into(), version.into(), 0, mask.as_mut_ptr())
        };
        if id < 0 {
            let errno = last_errno();
            let likely = self.why_not_registered(errno, class, version, methods);
            return Err(self.fault(
                "umad_register",
                format_args!("class {class:#04x}"),
                errno,
                &likely,
            ));
        }
        self.agents.fetch_add(1, Ordering::Relaxed);
        Ok(Agent {
            port: self.clone(),
            id,
            class,
            has_ended: false,
        })
    }

    fn why_not_registered(&self, errno: i32, class: u8, version: u8, methods: Methods) -> String {
        let (device, number) = (self.device(), self.number());
        match Errno::from_raw_os_error(errno) {
            Errno::INVAL | Errno::PROTONOSUPPORT
                if SMI_CLASSES.contains(&class) && self.lacks_smi() =>
            {
                format!(
                    "port {number} of {device} has its SMI disabled (IsSMDisabled) or is not InfiniBand"
                )
            }
            Errno::INVAL if methods != Methods::NONE => format!(
                "another agent on port {number} of {device} already receives these requests of class {class:#04x} (a \
                 subnet manager receives those of its class)"
            ),
            Errno::INVAL => {
                format!(
                    "the kernel does not accept agents for class {class:#04x}, version {version}"
                )
            }
            Errno::NOMEM if self.agents.load(Ordering::Relaxed) >= MOST_AGENTS => {
                format!(
                    "this open port has {MOST_AGENTS} agents, the maximum: open the port again for more"
                )
            }
            _ => String::new(),
        }
    }

    /// Returns whether the port supports no subnet management packets, as far as that can be read.
    fn lacks_smi(&self) -> bool {
        let port = self.look();
        port.is_some_and(|port| port.is_smi_disabled() || !port.is_infiniband())
    }
}

impl Agent {
    /// Returns its id on the port, which received packets carry.
    pub fn id(&self) -> u32 {
        self.id.cast_unsigned()
    }

    /// Returns its port.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Sends a MAD. With a `timeout` (at least 1 ms) it is a request: the kernel sends it up to `retries` more
    /// times, and without a response returns it with status 110. Without a timeout it is a response, and
    /// nothing comes back.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if `mad` is shorter than a header; else the error of `umad_send`, EINVAL for a MAD of
    /// another class.
    pub fn send(
        &self,
        to: &MadAddress,
        mad: &[u8],
        timeout: Option<Duration>,
        retries: u32,
    ) -> Result<()> {
        const OPERATION: &str = "umad_send";
        let inputs = || {
            format!(
                "class {:#04x}, {} bytes to LID {}",
                self.class,
                mad.len(),
                to.lid
            )
        };
        let length = c_int::try_from(mad.len())
            .ok()
            .filter(|_| mad.len() >= HEADER_LENGTH);
        let Some(length) = length else {
            let cause = Cause::Invalid(format!("a MAD must have at least {HEADER_LENGTH} bytes"));
            return Err(Error::new(OPERATION, inputs(), cause));
        };
        let functions = &self.port.functions;
        let mut buffer = Buffer::filled(functions, to, mad);
        let retries = c_int::try_from(retries).unwrap_or(c_int::MAX);
        // For the kernel 0 means: expect no response.
        let timeout = timeout.map_or(0, |timeout| milliseconds(timeout).max(1));
        // SAFETY: the port is open, and a MAD of that length follows the header.
        let returned = unsafe {
            (functions.send)(
                self.port.id,
                self.id,
                buffer.as_mut_ptr(),
                length,
                timeout,
                retries,
            )
        };
        match returned {
            0 => Ok(()),
            _ => Err(self.port.fault(OPERATION, inputs(), last_errno(), "")),
        }
    }

    /// Sends a request and waits for its response, which has the same low half of the transaction ID. Use it
    /// only on a port that nothing else receives from: it drops other packets that arrive meanwhile.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and [`Port::receive`]; [`Cause::TimedOut`] without a response within
    /// `timeout` x (`retries` + 1).
    pub fn exchange(
        &self,
        to: &MadAddress,
        mad: &[u8],
        timeout: Duration,
        retries: u32,
    ) -> Result<Received> {
        let transaction = |mad: &[u8]| transaction_id(mad).map(|id| id as u32);
        self.send(to, mad, Some(timeout), retries)?;
        let limit = timeout.saturating_mul(retries.saturating_add(1));
        // The kernel keeps the time; this deadline is for a kernel or simulation that does not.
        let deadline = Instant::now().checked_add(limit.saturating_add(Duration::from_secs(1)));
        let silent = |likely: String| {
            let inputs = format_args!(
                "{} port {}, class {:#04x}, LID {}",
                self.port.device(),
                self.port.number(),
                self.class,
                to.lid
            );
            Error::new("umad_recv", inputs, Cause::TimedOut { limit, likely })
        };
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let Some(received) = self.port.receive(left)? else {
                return Err(silent(
                    "the kernel did not return the request either".to_owned(),
                ));
            };
            if received.agent != self.id() || transaction(&received.mad) != transaction(mad) {
                continue;
            }
            return match received.status {
                0 => Ok(received),
                status if status == Errno::TIMEDOUT.raw_os_error().cast_unsigned() => {
                    Err(silent(self.why_silent()))
                }
                status => Err(self.port.fault(
                    "umad_send",
                    "returned by the kernel",
                    status.cast_signed(),
                    "",
                )),
            };
        }
    }

    /// Explains a missing response.
    fn why_silent(&self) -> String {
        let (device, number) = (self.port.device(), self.port.number());
        match self.port.look() {
            // A directed route needs only a link.
            Some(port) if port.physical_state != LINK_UP => format!(
                "port {number} of {device} has no link (physical state {})",
                port.physical_state
            ),
            Some(port) if port.state != ACTIVE && self.class != DIRECTED_ROUTE => format!(
                "port {number} of {device} has a link, but is not active (state {}): no subnet manager has set it up",
                port.state
            ),
            _ => "the destination does not exist, does not serve this class, or takes longer"
                .to_owned(),
        }
    }

    /// Unregisters it.
    ///
    /// # Errors
    /// The error of `umad_unregister`; the kernel then ends the agent with the port.
    pub fn unregister(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        self.port.agents.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the port is open.
        match unsafe { (self.port.functions.unregister)(self.port.id, self.id) } {
            0 => Ok(()),
            _ => Err(self.port.fault(
                "umad_unregister",
                format_args!("agent {}", self.id),
                last_errno(),
                "",
            )),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            teardown::report(&error);
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Agent({}, class {:#04x} on {:?})",
            self.id, self.class, self.port
        )
    }
}

const _: () = assert!(HEADER_LENGTH < MAD_LENGTH);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_bits_of_the_kernels_map() {
        let words = Methods::NONE.and(0x01).and(0x05).and(0x7f).and(0x81).to_c();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes.len(), 16);
        assert_eq!(words[0] & 0xff, 0b10_0010);
        assert_eq!(
            words[words.len() - 1].cast_unsigned() >> (c_long::BITS - 1),
            1
        );
    }
}
