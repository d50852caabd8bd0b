//! Requests for random destinations, made and timed.

use std::time::{Duration, Instant};

use super::case::Case;
use super::files::{ip_of, name_of};
use super::machine;
use super::numbers;
use crate::stand_in::bare::{Asked, Core, OWN_IP, OWN_NAME, gid_of, lid_of};
use crate::stand_in::message::{Addr, ENTRY, HEADER, Message, Path};

/// How long an answer may take: other programs may have the processors.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests that are timed together: many for the clock, and soon over, so that few batches are interrupted.
const BATCH: usize = 256;
/// Single requests that are timed for percentiles.
const SINGLES: usize = 100_000;
/// A request that takes longer may have waited for the processor; the system is not asked about others, which takes long itself.
const LONG: Duration = Duration::from_micros(20);
/// Service ids that a host is asked with, as in the start of a job.
const SERVICES: u64 = 128;
/// The service id by which rdma_cm connects to the TCP port 0.
const FIRST_SERVICE: u64 = 0x0106_0000;
/// Reversible, and one path: what clients ask for.
const REVERSIBLE: u8 = 0x81;

/// How a destination is named in a request.
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
    /// Bytes of the template that count.
    length: usize,
    /// The addresses of the destinations, if they are asked for by address.
    addresses: Vec<[u8; 64]>,
    client: u64,
    random: fastrand::Rng,
    /// Requests so far.
    pub made: u64,
}

impl Requests {
    /// Requests as the case has them, for so many destinations.
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

    /// A random number below `count`. It depends on the last answer, if only by a hair: a processor would otherwise work at the
    /// next requests while one waits for its memory, which it cannot where requests come one by one.
    #[inline]
    pub fn any(&mut self, count: u32) -> u32 {
        let random = self.random.u32(..).wrapping_add(self.core.last_dlid());
        ((u64::from(random) * u64::from(count)) >> 32) as u32
    }

    /// Asks for a destination.
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

    /// Asks for a destination and has the SA answer.
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

    /// A message for [`query`](Self::query).
    pub fn query_message(&self) -> Message {
        Message::query(&Path::default().with_reversible_numpath(REVERSIBLE))
    }

    /// Has the provider ask the SA for a path that it may know; the answer is not waited for.
    pub fn query(&mut self, message: &mut Message, destination: u32) {
        const DGID: usize = HEADER + 8 + 8;
        self.made += 1;
        message.0[DGID..DGID + 16].copy_from_slice(&gid_of(destination).0);
        self.core.query(message, self.client, destination);
    }

    /// Has the SA answer until the last request is answered.
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

    /// Asks once for each of so many destinations, in random order; the nanoseconds of each.
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

    /// Nanoseconds of a request, the median of batches for about as long as `time`; `next` chooses the destinations.
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

    /// Times single requests: the median and the 99th percentile, in nanoseconds, less what the clock takes.
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

/// What reading the clock twice takes, in nanoseconds.
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

/// The numbers below `count` in random order, the same in each run.
pub fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    fastrand::Rng::with_seed(0x5eed).shuffle(&mut order);
    order
}
