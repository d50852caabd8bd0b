//! Sends and times requests for random destinations.

use std::time::{Duration, Instant};

use super::case::Case;
use super::files::{ip_of, name_of};
use super::machine;
use super::numbers;
use crate::stand_in::bare::{Asked, Core, OWN_IP, OWN_NAME, gid_of, lid_of};
use crate::stand_in::message::{Addr, ENTRY, HEADER, Message, Path};

/// Time limit for an answer: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests per timed batch: enough for the clock, but few enough that interrupts hit few batches.
const BATCH: usize = 256;
/// Number of single requests to time for percentiles.
const SINGLES: usize = 100_000;
/// Only a request longer than this may have waited for the processor: reading that time for all requests would take too long.
const LONG: Duration = Duration::from_micros(20);
/// Number of service ids per host, as in a job start.
const SERVICES: u64 = 128;
/// The service id by which rdma_cm connects to the TCP port 0.
const FIRST_SERVICE: u64 = 0x0106_0000;
/// Reversible, one path: the values of clients.
const REVERSIBLE: u8 = 0x81;

/// The form of a destination in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Lid,
    Gid,
    Address,
    Kernel,
}

/// A core with requests for it.
pub struct Requests {
    /// The core.
    pub core: Core,
    form: Form,
    message: Message,
    template: Message,
    /// Used bytes of the template.
    length: usize,
    /// The addresses of the destinations, for requests by address.
    addresses: Vec<[u8; 64]>,
    client: u64,
    random: fastrand::Rng,
    /// Requests so far.
    pub made: u64,
}

impl Requests {
    /// Returns the requests of a case for a number of destinations.
    pub fn new(core: Core, case: Case, destinations: u32) -> Self {
        let to_address = |own: Addr, address: fn(u32) -> Addr| {
            let any = Message::destination(Some(&own), &address(0)).verified(None);
            let fields = (0..destinations).map(|destination| address(destination).field());
            (
                Form::Address,
                any.map(|(message, _)| message),
                fields.collect(),
            )
        };
        let plain = Path::default().with_reversible_numpath(REVERSIBLE);
        let (form, message, addresses) = match case {
            Case::Lid | Case::Preload => (Form::Lid, Ok(Message::path(&plain)), Vec::new()),
            Case::Name => to_address(Addr::Name(OWN_NAME.into()), name_of),
            Case::Ip => to_address(Addr::Ip(OWN_IP.into()), ip_of),
            Case::Kernel => {
                let path = plain.with_sgid(core.gid()).with_pkey(0xffff);
                (Form::Kernel, Ok(Message::path(&path)), Vec::new())
            }
            Case::Gid | Case::Churn | Case::Threads | Case::Flush => {
                (Form::Gid, Ok(Message::path(&plain)), Vec::new())
            }
        };
        let message = message.unwrap_or_else(|_| Message::resolve());
        Self {
            core,
            form,
            message,
            template: message,
            length: usize::from(message.length()),
            addresses,
            client: if form == Form::Kernel { 0 } else { 7 },
            random: fastrand::Rng::with_seed(0x1b_ac3),
            made: 0,
        }
    }

    /// Returns a random number below `count` that depends on the last answer. Otherwise the processor would overlap requests,
    /// which it cannot do in a daemon, where requests come one by one.
    #[inline]
    pub fn any(&mut self, count: u32) -> u32 {
        let random = self.random.u32(..).wrapping_add(self.core.last_dlid());
        ((u64::from(random) * u64::from(count)) >> 32) as u32
    }

    /// Sends a request for a destination.
    #[inline]
    pub fn ask(&mut self, destination: u32) -> Asked {
        const DGID: usize = HEADER + 8 + 8;
        const DLID: usize = HEADER + 8 + 40;
        const SERVICE: usize = HEADER + 8;
        const ADDRESS: usize = HEADER + ENTRY + 8;
        self.made += 1;
        let bytes = &mut self.message.0;
        // The provider may have written to it.
        bytes[..self.length].copy_from_slice(&self.template.0[..self.length]);
        match self.form {
            Form::Lid => {
                bytes[DLID..DLID + 2].copy_from_slice(&lid_of(destination).to_be_bytes());
            }
            Form::Gid => bytes[DGID..DGID + 16].copy_from_slice(&gid_of(destination).0),
            Form::Kernel => {
                let service = FIRST_SERVICE + self.random.u64(..SERVICES);
                bytes[SERVICE..SERVICE + 8].copy_from_slice(&service.to_be_bytes());
                bytes[DGID..DGID + 16].copy_from_slice(&gid_of(destination).0);
            }
            Form::Address => {
                if let Some(address) = self.addresses.get(destination as usize) {
                    bytes[ADDRESS..ADDRESS + 64].copy_from_slice(address);
                }
            }
        }
        self.core.ask(&mut self.message, self.client, destination)
    }

    /// Sends a request for a destination and lets the SA respond.
    ///
    /// # Errors
    /// If no answer comes.
    #[inline]
    pub fn resolve(&mut self, destination: u32) -> Result<(), String> {
        match self.ask(destination) {
            Asked::Answered => Ok(()),
            Asked::Pending => self.wait(),
        }
    }

    /// Returns a message for [`query`](Self::query).
    pub fn query_message(&self) -> Message {
        Message::query(&Path::default().with_reversible_numpath(REVERSIBLE))
    }

    /// Sends a query for a path that may be cached, without waiting for the answer.
    pub fn query(&mut self, message: &mut Message, destination: u32) {
        const DGID: usize = HEADER + 8 + 8;
        self.made += 1;
        message.0[DGID..DGID + 16].copy_from_slice(&gid_of(destination).0);
        self.core.query(message, self.client, destination);
    }

    /// Lets the SA respond until the last request has its answer.
    ///
    /// # Errors
    /// If no answer comes.
    pub fn wait(&self) -> Result<(), String> {
        self.core.pump();
        if self.core.is_answered() {
            return Ok(());
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.core.is_answered() {
            if self.core.pump() == 0 {
                std::thread::yield_now();
            }
            if Instant::now() > deadline {
                return Err(format!("a request was not answered within {PATIENCE:?}"));
            }
        }
        Ok(())
    }

    /// Requests each destination once, in random order; returns the nanoseconds per request.
    ///
    /// # Errors
    /// If an answer does not come.
    pub fn fill(&mut self, order: &[u32]) -> Result<f64, String> {
        let begin = Instant::now();
        for destination in order {
            self.resolve(*destination)?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / order.len().max(1) as f64)
    }

    /// Returns the nanoseconds per request, the median of batches over about `time`; `next` chooses the destinations.
    ///
    /// # Errors
    /// If an answer does not come.
    pub fn rate(
        &mut self,
        time: Duration,
        mut next: impl FnMut(&mut Self) -> u32,
    ) -> Result<f64, String> {
        let (begin, mut batches) = (Instant::now(), Vec::new());
        loop {
            let batch = Instant::now();
            for _ in 0..BATCH {
                let destination = next(self);
                self.resolve(destination)?;
            }
            batches.push(batch.elapsed().as_nanos() as f64 / BATCH as f64);
            if begin.elapsed() > time {
                return numbers::median(&mut batches).ok_or_else(|| "no batch".to_owned());
            }
        }
    }

    /// Times single requests; returns the median and the 99th percentile in nanoseconds, less the clock's own time.
    ///
    /// # Errors
    /// If an answer does not come.
    pub fn singles(
        &mut self,
        count: usize,
        mut next: impl FnMut(&mut Self) -> u32,
    ) -> Result<(f64, f64), String> {
        let clock = clock_cost();
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let destination = next(self);
            let begin = Instant::now();
            self.resolve(destination)?;
            let took = begin.elapsed().as_nanos();
            times.push(
                u32::try_from(took)
                    .unwrap_or(u32::MAX)
                    .saturating_sub(clock),
            );
        }
        times.sort_unstable();
        let at = |percent| numbers::percentile(&times, percent).map_or(0.0, f64::from);
        Ok((at(50.0), at(99.0)))
    }

    /// The longest that a request held this thread while `goes_on` said so, in microseconds, less the time in which others had the
    /// processor. The SA answers beside the time.
    ///
    /// # Errors
    /// If an answer does not come.
    pub fn longest(
        &mut self,
        destinations: u32,
        mut goes_on: impl FnMut(&mut Self, Asked) -> bool,
    ) -> Result<f64, String> {
        let (mut longest, mut waited) = (Duration::ZERO, machine::waited());
        loop {
            let destination = self.any(destinations);
            let begin = Instant::now();
            let asked = self.ask(destination);
            let took = begin.elapsed();
            if took > LONG {
                let now = machine::waited();
                longest = longest.max(took.saturating_sub(now.saturating_sub(waited)));
                waited = now;
            } else {
                longest = longest.max(took);
            }
            if asked == Asked::Pending {
                self.wait()?;
            }
            if !goes_on(self, asked) {
                return Ok(longest.as_nanos() as f64 / 1000.0);
            }
        }
    }
}

/// As many single requests as percentiles need, or fewer for a short run.
pub fn single_requests(time: Duration) -> usize {
    // A quarter of a microsecond each, about.
    (time.as_micros() as usize * 4).clamp(1000, SINGLES)
}

/// Returns the nanoseconds of reading the clock twice.
fn clock_cost() -> u32 {
    let mut times: Vec<u32> = (0..1000)
        .map(|_| {
            let begin = Instant::now();
            u32::try_from(begin.elapsed().as_nanos()).unwrap_or(u32::MAX)
        })
        .collect();
    times.sort_unstable();
    numbers::percentile(&times, 50.0).unwrap_or(0)
}

/// Returns the numbers below `count` in random order, the same in each run.
pub fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    fastrand::Rng::with_seed(0x5eed).shuffle(&mut order);
    order
}
