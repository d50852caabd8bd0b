//! A MAD with libibumad's header (`struct ib_user_mad` of `<infiniband/umad.h>`).

use std::mem::offset_of;

use super::user_mad::{ib_mad_addr, ib_user_mad};

/// Length of the header (`umad_size()`).
pub const HEADER_SIZE: usize = size_of::<ib_user_mad>();
/// Length of the MAD header, which is all that the kernel returns of a timed-out request.
pub const MAD_HEADER_SIZE: usize = 24;

const AGENT_ID: usize = offset_of!(ib_user_mad, agent_id);
const STATUS: usize = offset_of!(ib_user_mad, status);
const TIMEOUT_MS: usize = offset_of!(ib_user_mad, timeout_ms);
const RETRIES: usize = offset_of!(ib_user_mad, retries);
const LENGTH: usize = offset_of!(ib_user_mad, length);
const ADDR: usize = offset_of!(ib_user_mad, addr);
const ADDR_QPN: usize = ADDR + offset_of!(ib_mad_addr, qpn);
const ADDR_LID: usize = ADDR + offset_of!(ib_mad_addr, lid);

/// Method TrapRepress, a response without the response bit.
const METHOD_TRAP_REPRESS: u8 = 0x07;
const RESPONSE_BIT: u8 = 0x80;

/// Header followed by MAD, as for `umad_send` and `umad_recv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet(Vec<u8>);

impl Packet {
    /// Makes a packet of header and MAD; `None` if it is shorter than the two headers.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() >= HEADER_SIZE + MAD_HEADER_SIZE).then_some(Self(bytes))
    }

    /// Makes a MAD addressed to a queue pair at a LID.
    pub fn new(mad: &[u8; crate::smp::MAD_SIZE], lid: u16, qpn: u32) -> Self {
        let mut bytes = vec![0; HEADER_SIZE];
        bytes[ADDR_QPN..ADDR_QPN + 4].copy_from_slice(&qpn.to_be_bytes());
        bytes[ADDR_LID..ADDR_LID + 2].copy_from_slice(&lid.to_be_bytes());
        bytes.extend_from_slice(mad);
        Self(bytes)
    }

    /// Returns header and MAD.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns header and MAD, to pass to libibumad.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Returns the MAD.
    pub fn mad(&self) -> &[u8] {
        &self.0[HEADER_SIZE..]
    }

    fn word(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.0[offset..offset + 4].try_into().expect("four bytes"))
    }

    fn set_word(&mut self, offset: usize, value: u32) {
        self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// Returns the agent that it comes from or goes to.
    pub fn agent(&self) -> u32 {
        self.word(AGENT_ID)
    }

    /// Returns 0 or an `errno` value.
    pub fn status(&self) -> u32 {
        self.word(STATUS)
    }

    /// Sets the fields that libibumad sets when it sends.
    pub fn set_sent_by(&mut self, agent: u32, timeout_ms: u32, retries: u32) {
        for (offset, value) in [
            (AGENT_ID, agent),
            (TIMEOUT_MS, timeout_ms),
            (RETRIES, retries),
        ] {
            self.set_word(offset, value);
        }
    }

    /// Sets the fields that the kernel sets when it passes a received packet to an agent. A MAD is 256 bytes on
    /// the wire, whatever length its sender passed to `umad_send`; umad2sim passes the sender's length on.
    pub fn set_received_by(&mut self, agent: u32) {
        self.0.resize(HEADER_SIZE + crate::smp::MAD_SIZE, 0);
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        for (offset, value) in [
            (AGENT_ID, agent),
            (STATUS, 0),
            (TIMEOUT_MS, 0),
            (RETRIES, 0),
            (LENGTH, length),
        ] {
            self.set_word(offset, value);
        }
    }

    /// Turns a sent request into the packet that the kernel returns after the timeout: status 110 and the
    /// headers only.
    pub fn time_out(&mut self) {
        self.0.truncate(HEADER_SIZE + MAD_HEADER_SIZE);
        self.set_word(STATUS, libc::ETIMEDOUT.cast_unsigned());
        let agent = self.agent();
        self.0[HEADER_SIZE + 8..HEADER_SIZE + 12].copy_from_slice(&agent.to_be_bytes());
    }

    /// Returns the management class.
    pub fn class(&self) -> u8 {
        self.mad()[1]
    }

    /// Returns the method, with its response bit.
    pub fn method(&self) -> u8 {
        self.mad()[3]
    }

    /// Returns the program's half of the transaction id; the kernel (and umad2sim) overwrites the other half.
    pub fn transaction(&self) -> u32 {
        u32::from_be_bytes(self.mad()[12..16].try_into().expect("four bytes"))
    }

    /// Returns the agent that sent the request, as umad2sim wrote it into the transaction id of request and
    /// response.
    pub fn asking_agent(&self) -> u32 {
        u32::from(u16::from_be_bytes([self.mad()[10], self.mad()[11]]))
    }

    /// Returns whether it is a response.
    pub fn is_response(&self) -> bool {
        self.method() & RESPONSE_BIT != 0 || self.method() == METHOD_TRAP_REPRESS
    }
}
