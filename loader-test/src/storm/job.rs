//! A job start by rdma_cm: the kernel requests paths to each host by netlink, with many service ids.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::verdict::Phase;
use crate::error::Result;
use crate::ibacm::Host;
use crate::kernel::{Kernel, Request, service_id_of_port};
use crate::record::{Gid, PathRecord};

/// How long the kernel waits before it queries the SA itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of outstanding requests: their answers fit into a socket's buffer.
const AT_A_TIME: usize = 64;
/// The first TCP port of the job.
const FIRST_PORT: u16 = 20_000;

/// An outstanding request.
struct Out {
    sent: Instant,
    dgid: Gid,
}

/// Requests each host with each service id. A request without a path in time counts as an SA query, which the kernel would
/// then send itself.
///
/// # Errors
/// If the daemon violates the protocol.
pub fn ask(host: &Host, hosts: &[Gid], services: u16) -> Result<Phase> {
    let mut kernel = Kernel::of(host)?;
    let mut phase = Phase::default();
    let mut requests =
        (0..services).flat_map(|service| hosts.iter().map(move |dgid| (service, *dgid)));
    let mut out: BTreeMap<u32, Out> = BTreeMap::new();
    loop {
        while out.len() < AT_A_TIME
            && let Some((service, dgid)) = requests.next()
        {
            let request = Request::path(host.gid(), dgid, 0xffff)
                .service_id(service_id_of_port(FIRST_PORT + service));
            let sent = Instant::now();
            out.insert(kernel.ask(&request)?, Out { sent, dgid });
            phase.requests += 1;
        }
        if out.is_empty() {
            return Ok(phase);
        }
        kernel.receive()?;
        let now = Instant::now();
        out.retain(|sequence, asked| {
            let answer = kernel
                .answers()
                .get(sequence)
                .and_then(|answers| answers.first());
            match outcome(answer, asked.dgid, now - asked.sent) {
                Outcome::Waits => return true,
                Outcome::Right => {}
                Outcome::Wrong => phase.wrong += 1,
                Outcome::KernelAsks => phase.kernel_asks += 1,
            }
            false
        });
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Waits,
    Right,
    Wrong,
    /// Requests that were refused or answered too late.
    KernelAsks,
}

fn outcome(answer: Option<&Option<PathRecord>>, dgid: Gid, waited: Duration) -> Outcome {
    match answer {
        _ if waited > PATIENCE => Outcome::KernelAsks,
        None => Outcome::Waits,
        Some(None) => Outcome::KernelAsks,
        Some(Some(path)) if path.dgid() == dgid => Outcome::Right,
        Some(Some(_)) => Outcome::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_or_late_the_kernel_asks_itself() {
        let dgid = Gid::new(0xfe80 << 48, 7);
        let mut path = PathRecord::EMPTY;
        path.set_dgid(dgid);
        let (soon, late) = (Duration::from_millis(1), Duration::from_millis(2001));
        assert_eq!(outcome(None, dgid, soon), Outcome::Waits);
        assert_eq!(outcome(None, dgid, late), Outcome::KernelAsks);
        assert_eq!(outcome(Some(&None), dgid, soon), Outcome::KernelAsks);
        assert_eq!(outcome(Some(&Some(path)), dgid, soon), Outcome::Right);
        assert_eq!(outcome(Some(&Some(path)), dgid, late), Outcome::KernelAsks);
        let other = Gid::new(0xfe80 << 48, 8);
        assert_eq!(outcome(Some(&Some(path)), other, soon), Outcome::Wrong);
    }
}
