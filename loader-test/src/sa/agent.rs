//! The process that sends queries to the SA through libibumad.

use std::ffi::{c_int, c_long, c_void};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libloading::Library;

use super::{Outcome, Reply, Request, from_hex, to_hex};
use crate::error::{Context, Error, Result};

/// Serves queries on standard input, which is a socket, until its other end closes.
pub fn serve() -> Result<()> {
    let operation = || "use standard input as a socket".to_owned();
    let stdin = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context(operation)?;
    let mut writer = UnixStream::from(stdin);
    let reader = BufReader::new(writer.try_clone().context(operation)?);
    let mut port = UmadPort::open()?;
    for line in reader.lines() {
        let line = line.context(|| "read a query".to_owned())?;
        let request: Request = serde_json::from_str(&line).map_err(|error| {
            Error::protocol("loader-test", format!("{error} in the line {line}"))
        })?;
        let reply = Reply {
            id: request.id,
            outcome: ask(&mut port, &request)
                .unwrap_or_else(|error| Outcome::Problem(error.to_string())),
        };
        let mut line = serde_json::to_string(&reply)
            .map_err(|error| Error::protocol("sa-agent", error.to_string()))?;
        line.push('\n');
        writer
            .write_all(line.as_bytes())
            .context(|| "answer a query".to_owned())?;
    }
    Ok(())
}

/// Repeats the query until a response comes: no layer below retries a lost MAD.
fn ask(port: &mut UmadPort, request: &Request) -> Result<Outcome> {
    let data = from_hex(&request.data)
        .filter(|data| data.len() <= Mad::SIZE - Mad::DATA)
        .ok_or_else(|| {
            Error::protocol("loader-test", format!("sends the data {}", request.data))
        })?;
    let limit = Duration::from_millis(request.timeout_ms.into());
    for _ in 0..request.attempts {
        let transaction = port.send(request, &data)?;
        let deadline = Instant::now() + limit;
        while let Some(received) = port.receive(deadline)? {
            if received.mad.transaction() != transaction {
                // The response belongs to an earlier attempt.
                continue;
            }
            if received.is_answer {
                return received.mad.outcome(request.attribute);
            }
            // Without an SA the simulator returns the MAD at once.
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
    }
    Ok(Outcome::Silence)
}

/// The 256 bytes of an SA MAD: InfiniBand Architecture Specification, volume 1, release 1.3, chapters 13.4.2 and 15.2.1.
struct Mad([u8; Self::SIZE]);

struct Received {
    /// If not, it is the sent MAD, returned undelivered.
    is_answer: bool,
    mad: Mad,
}

impl Mad {
    const SIZE: usize = 256;
    const BASE_VERSION: u8 = 1;
    const CLASS_SA: u8 = 0x03;
    const CLASS_VERSION: u8 = 2;
    const GET: u8 = 0x01;
    const GET_RESPONSE: u8 = 0x81;
    const DATA: usize = 56;

    /// Returns a Get; `data` must fit behind the header.
    fn get(transaction: u32, attribute: u16, component_mask: u64, data: &[u8]) -> Self {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&[
            Self::BASE_VERSION,
            Self::CLASS_SA,
            Self::CLASS_VERSION,
            Self::GET,
        ]);
        bytes[12..16].copy_from_slice(&transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[48..56].copy_from_slice(&component_mask.to_be_bytes());
        bytes[Self::DATA..Self::DATA + data.len()].copy_from_slice(data);
        Self(bytes)
    }

    fn word(&self, offset: usize) -> u16 {
        u16::from_be_bytes([self.0[offset], self.0[offset + 1]])
    }

    /// The lower half of the transaction ID; the upper half belongs to the transport.
    fn transaction(&self) -> u32 {
        (u32::from(self.word(12)) << 16) | u32::from(self.word(14))
    }

    fn outcome(&self, asked: u16) -> Result<Outcome> {
        let head = [self.0[1], self.0[2], self.0[3]];
        let attribute = self.word(16);
        if head != [Self::CLASS_SA, Self::CLASS_VERSION, Self::GET_RESPONSE] || attribute != asked {
            let problem = format!(
                "answers a Get of attribute {asked:x} with class, version, method {head:x?}, attribute {attribute:x}"
            );
            return Err(Error::protocol("the SA", problem));
        }
        // Both bytes count: the common status and the SA's status.
        Ok(match self.word(4) {
            0 => Outcome::Data(to_hex(&self.0[Self::DATA..])),
            status => Outcome::Refused(status),
        })
    }
}

/// An open port of libibumad with an SA agent registered on it. See umad_open_port(3) and its neighbours.
struct UmadPort {
    umad: Umad,
    port: c_int,
    agent: c_int,
    last_transaction: u32,
    /// Buffer for the header and a MAD, aligned for the header.
    buffer: Vec<u64>,
}

/// Functions of libibumad, looked up at run time so that this crate builds without it.
struct Umad {
    init: unsafe extern "C" fn() -> c_int,
    open_port: unsafe extern "C" fn(*const std::ffi::c_char, c_int) -> c_int,
    register: unsafe extern "C" fn(c_int, c_int, c_int, u8, *mut c_long) -> c_int,
    size: unsafe extern "C" fn() -> usize,
    set_address: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, c_int) -> c_int,
    send: unsafe extern "C" fn(c_int, c_int, *mut c_void, c_int, c_int, c_int) -> c_int,
    receive: unsafe extern "C" fn(c_int, *mut c_void, *mut c_int, c_int) -> c_int,
    status: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Keeps the functions above valid.
    _library: Library,
}

/// The port's queue pair and key for the general services, specification volume 1, chapter 10.2.
const GSI_QP: c_int = 1;
const GSI_QKEY: u32 = 0x8001_0000;

impl UmadPort {
    fn open() -> Result<Self> {
        let umad = Umad::load()?;
        let failed = |function: &str, value: c_int| {
            Error::protocol("libibumad", format!("{function} returns {value}"))
        };
        // SAFETY: takes nothing.
        let value = unsafe { (umad.init)() };
        if value < 0 {
            return Err(failed("umad_init", value));
        }
        // SAFETY: NULL and 0 ask for the first port of the first adapter.
        let port = unsafe { (umad.open_port)(std::ptr::null(), 0) };
        if port < 0 {
            return Err(failed("umad_open_port", port));
        }
        let (class, version) = (c_int::from(Mad::CLASS_SA), c_int::from(Mad::CLASS_VERSION));
        // SAFETY: the port is open; NULL for the methods means that no requests are received.
        let agent = unsafe { (umad.register)(port, class, version, 0, std::ptr::null_mut()) };
        if agent < 0 {
            return Err(failed("umad_register", agent));
        }
        // SAFETY: takes nothing.
        let header = unsafe { (umad.size)() };
        Ok(Self {
            umad,
            port,
            agent,
            last_transaction: 0,
            buffer: vec![0; (header + Mad::SIZE).div_ceil(size_of::<u64>())],
        })
    }

    /// Offset of the MAD in the buffer.
    fn header(&self) -> usize {
        // SAFETY: takes nothing.
        unsafe { (self.umad.size)() }
    }

    /// Copies `mad` into the buffer behind a header of zeros.
    fn fill(&mut self, mad: &Mad) {
        let header = self.header();
        let mut bytes = vec![0; size_of_val(self.buffer.as_slice())];
        bytes[header..header + Mad::SIZE].copy_from_slice(&mad.0);
        for (word, chunk) in self
            .buffer
            .iter_mut()
            .zip(bytes.chunks_exact(size_of::<u64>()))
        {
            *word = u64::from_ne_bytes(std::array::from_fn(|i| chunk[i]));
        }
    }

    fn mad(&self) -> Mad {
        let header = self.header();
        let bytes: Vec<u8> = self
            .buffer
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        Mad(std::array::from_fn(|i| bytes[header + i]))
    }

    fn send(&mut self, request: &Request, data: &[u8]) -> Result<u32> {
        self.last_transaction = self.last_transaction.wrapping_add(1).max(1);
        self.fill(&Mad::get(
            self.last_transaction,
            request.attribute,
            request.component_mask,
            data,
        ));
        let buffer = self.buffer.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer begins with a header, and is ours alone.
        unsafe {
            (self.umad.set_address)(buffer, request.sm_lid.into(), GSI_QP, 0, GSI_QKEY as c_int)
        };
        // SAFETY: port and agent are open; behind its header the buffer holds a MAD of that length.
        let sent =
            unsafe { (self.umad.send)(self.port, self.agent, buffer, Mad::SIZE as c_int, 0, 0) };
        if sent == 0 {
            Ok(self.last_transaction)
        } else {
            Err(Error::protocol(
                "libibumad",
                format!("umad_send returns {sent}"),
            ))
        }
    }

    /// Returns the next MAD that arrives before `deadline`.
    fn receive(&mut self, deadline: Instant) -> Result<Option<Received>> {
        // Rounded up, so that the last wait is not a busy one.
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_millis()
            + 1;
        let mut length = Mad::SIZE as c_int;
        let buffer = self.buffer.as_mut_ptr().cast::<c_void>();
        let left = c_int::try_from(left).unwrap_or(c_int::MAX);
        // SAFETY: the port is open, the buffer has room for a header and `length` bytes.
        let received = unsafe { (self.umad.receive)(self.port, buffer, &raw mut length, left) };
        if received < 0 {
            return match -received {
                TIMED_OUT | WOULD_BLOCK => Ok(None),
                _ => Err(Error::protocol(
                    "libibumad",
                    format!("umad_recv returns {received}"),
                )),
            };
        }
        // SAFETY: the buffer begins with a header.
        let status = unsafe { (self.umad.status)(self.buffer.as_mut_ptr().cast()) };
        Ok(Some(Received {
            is_answer: status == 0,
            mad: self.mad(),
        }))
    }
}

/// Values of errno.
const TIMED_OUT: c_int = 110;
const WOULD_BLOCK: c_int = 11;

impl Umad {
    fn load() -> Result<Self> {
        let failed = |error: libloading::Error| {
            Error::protocol("libibumad.so.3 (package libibumad3)", error.to_string())
        };
        // SAFETY: the distribution's library, whose initialisers only set up itself.
        let library = unsafe { Library::new("libibumad.so.3") }.map_err(failed)?;
        // SAFETY: the types are those of <infiniband/umad.h>; the library is kept with them.
        unsafe {
            Ok(Self {
                init: *library.get(b"umad_init").map_err(failed)?,
                open_port: *library.get(b"umad_open_port").map_err(failed)?,
                register: *library.get(b"umad_register").map_err(failed)?,
                size: *library.get(b"umad_size").map_err(failed)?,
                set_address: *library.get(b"umad_set_addr").map_err(failed)?,
                send: *library.get(b"umad_send").map_err(failed)?,
                receive: *library.get(b"umad_recv").map_err(failed)?,
                status: *library.get(b"umad_status").map_err(failed)?,
                _library: library,
            })
        }
    }
}
