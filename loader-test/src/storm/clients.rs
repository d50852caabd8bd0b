//! Concurrent clients of the daemon's socket, each with one outstanding request.

use std::time::Instant;

use super::verdict::Phase;
use crate::client::{Client, Destination, Status, entries};
use crate::error::Result;
use crate::ibacm::Host;
use crate::record::Lid;

/// Number of threads. Each sends the requests of all its clients, then receives all their answers.
const THREADS: usize = 4;

/// Makes each client request a number of destinations, which differ between clients.
///
/// # Errors
/// If a client loses its connection. Wrong answers are counted, not errors.
pub fn ask(host: &Host, lids: &[Lid], clients: usize, each: usize) -> Result<Phase> {
    let mut connected: Vec<Client> = (0..clients)
        .map(|_| host.connect())
        .collect::<Result<_>>()?;
    let share = clients.div_ceil(THREADS);
    let begin = Instant::now();
    let parts: Vec<Result<Phase>> = std::thread::scope(|scope| {
        let threads: Vec<_> = connected
            .chunks_mut(share)
            .enumerate()
            .map(|(index, part)| {
                scope.spawn(move || ask_from(part, lids, (index * share, clients), each))
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut phase = Phase {
        seconds: begin.elapsed().as_secs_f64(),
        ..Phase::default()
    };
    for part in parts {
        let part = part?;
        phase.requests += part.requests;
        phase.wrong += part.wrong;
    }
    Ok(phase)
}

/// `place` is the number of the first of these clients, and of all.
fn ask_from(
    clients: &mut [Client],
    lids: &[Lid],
    place: (usize, usize),
    each: usize,
) -> Result<Phase> {
    let mut phase = Phase::default();
    for turn in 0..each {
        let mut asked = Vec::with_capacity(clients.len());
        for (index, client) in clients.iter_mut().enumerate() {
            let lid = destination(lids, place.0 + index, place.1, turn);
            let id = client.send(&entries(&Destination::Lid(lid), 0)?)?;
            asked.push((id, lid));
        }
        for (client, (id, lid)) in clients.iter_mut().zip(asked) {
            let answer = client.receive(id)?;
            phase.requests += 1;
            let right = answer.status == Status::SUCCESS
                && answer.path().is_some_and(|path| path.dlid() == lid);
            phase.wrong += usize::from(!right);
        }
    }
    Ok(phase)
}

/// Returns a client's destinations. Each client starts at another one, so that together they cover all.
fn destination(lids: &[Lid], client: usize, clients: usize, turn: usize) -> Lid {
    lids[(client * lids.len() / clients + turn) % lids.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_client_asks_for_different_destinations_and_all_together_for_all() {
        let lids: Vec<Lid> = (1..=1599).map(Lid).collect();
        let of = |client| (0..40).map(move |turn| (client, turn));
        let asked = |(client, turn)| destination(&lids, client, 200, turn).0;
        assert_eq!(of(3).map(asked).collect::<BTreeSet<_>>().len(), 40);
        let all: BTreeSet<u16> = (0..200).flat_map(of).map(asked).collect();
        assert_eq!(all.len(), lids.len());
    }
}
