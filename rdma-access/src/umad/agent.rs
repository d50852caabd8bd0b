//! Agents: who sends MADs of a class, and gets those that come.

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

/// Requests that an agent wants: a bit a method. Answers to what it sent itself come without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods(u128);

impl Methods {
    /// None: the agent only asks.
    pub const NONE: Self = Self(0);

    /// These, and `method` (0 to 127; responses have the bit above and are nothing to register for).
    pub fn and(self, method: u8) -> Self {
        Self(self.0 | 1u128.checked_shl(method.into()).unwrap_or(0))
    }

    fn to_c(self) -> [c_long; 16 / size_of::<c_long>()] {
        // The kernel reads a bitmap of longs.
        std::array::from_fn(|index| (self.0 >> (index * 8 * size_of::<c_long>())) as c_long)
    }
}

/// An agent for a management class. It holds its port.
pub struct Agent {
    port: Arc<Port>,
    id: c_int,
    class: u8,
    has_ended: bool,
}

/// Bytes of a MAD's header.
const HEADER_LENGTH: usize = 24;
/// Subnet management by LID, and by directed route.
const SMI_CLASSES: [u8; 2] = [0x01, DIRECTED_ROUTE];
const DIRECTED_ROUTE: u8 = 0x81;
/// Agents that an open port can have (the kernel's IB_UMAD_MAX_AGENTS).
const MOST_AGENTS: u32 = 32;

impl Port {
    /// Registers an agent for a management class (0x01 subnet management, 0x81 by directed route, 0x03 subnet
    /// administration, ...) of a class version, and the requests of that class that it wants.
    ///
    /// # Errors
    /// What `umad_register` fails with: another agent, in most cases the subnet manager, wants the same requests.
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
                "another agent on port {number} of {device} takes requests of class {class:#04x} that this one wants (a \
                 subnet manager takes those of its class)"
            ),
            Errno::INVAL => {
                format!("the kernel takes no agents for class {class:#04x} of version {version}")
            }
            Errno::NOMEM if self.agents.load(Ordering::Relaxed) >= MOST_AGENTS => {
                format!(
                    "this opening of the port has {MOST_AGENTS} agents, the most that there are: open it once more"
                )
            }
            _ => String::new(),
        }
    }

    /// Whether nobody on this port is to be reached by subnet management packets, as far as that can be read.
    fn lacks_smi(&self) -> bool {
        let port = self.look();
        port.is_some_and(|port| port.is_smi_disabled() || !port.is_infiniband())
    }
}

impl Agent {
    /// Its number on its port, which received packets name.
    pub fn id(&self) -> u32 {
        self.id.cast_unsigned()
    }

    /// Its port.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Sends a MAD. With a `timeout` (a millisecond at least) it is a request: the kernel sends it `retries` more times, and
    /// if no answer has come then, returns it with status 110. Without one it is an answer, and nothing comes back.
    ///
    /// # Errors
    /// [`Cause::Invalid`] for less than a header; what `umad_send` fails with, EINVAL for a MAD of another class.
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
            let cause = Cause::Invalid(format!("a MAD has at least {HEADER_LENGTH} bytes"));
            return Err(Error::new(OPERATION, inputs(), cause));
        };
        let functions = &self.port.functions;
        let mut buffer = Buffer::filled(functions, to, mad);
        let retries = c_int::try_from(retries).unwrap_or(c_int::MAX);
        // 0 is no time at all, but none wanted.
        let timeout = timeout.map_or(0, |timeout| milliseconds(timeout).max(1));
        // SAFETY: the port is open, and the MAD of that length stands behind the header.
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

    /// Sends a request and waits for its answer, told by the low half of the transaction ID. For a port that nobody
    /// else receives from: other packets that come meanwhile are lost.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and [`Port::receive`]; [`Cause::TimedOut`] if no answer comes within
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
        // The kernel keeps the time; this is for a kernel, or a simulation, that does not.
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
                return Err(silent("nor did the kernel return the request".to_owned()));
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

    /// What it means that nobody answered.
    fn why_silent(&self) -> String {
        let (device, number) = (self.port.device(), self.port.number());
        match self.port.look() {
            // A directed route needs no more than a link.
            Some(port) if port.physical_state != LINK_UP => format!(
                "port {number} of {device} has no link (physical state {})",
                port.physical_state
            ),
            Some(port) if port.state != ACTIVE && self.class != DIRECTED_ROUTE => format!(
                "port {number} of {device} has a link, but is not active (state {}): no subnet manager has set it up",
                port.state
            ),
            _ => "the destination is not there, does not serve this class, or takes longer"
                .to_owned(),
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// What `umad_unregister` fails with; the kernel then ends it with the port.
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
