//! Frames for sockets that are full.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::folder::Socket;

/// Maximum time that a frame waits for its receiver.
pub const LIFETIME: Duration = Duration::from_millis(500);
/// Maximum number of frames that wait for one receiver.
pub const MOST_WAITING: usize = 4096;

/// Result of offering a frame to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Done: sent, or lost.
    Done,
    /// The receiver is full.
    Full,
}

/// The waiting frames, by the name of their socket, in order.
#[derive(Default)]
pub(super) struct Waiting(HashMap<String, Queue>);

struct Queue {
    socket: Socket,
    frames: VecDeque<(Instant, Arc<[u8]>)>,
}

impl Waiting {
    /// Sends a frame to a socket, after those that wait for it.
    pub(super) fn hand(
        &mut self,
        socket: &Socket,
        frame: &Arc<[u8]>,
        now: Instant,
        offer: impl FnOnce(&Socket, &[u8]) -> Offer,
    ) {
        if !self.0.contains_key(&socket.name) {
            if offer(socket, frame) == Offer::Done {
                return;
            }
            let queue = Queue {
                socket: socket.clone(),
                frames: VecDeque::new(),
            };
            self.0.insert(socket.name.clone(), queue);
        }
        if let Some(queue) = self.0.get_mut(&socket.name)
            && queue.frames.len() < MOST_WAITING
        {
            queue.frames.push_back((now, frame.clone()));
        }
    }

    /// Sends the waiting frames that can be sent, and drops those that waited too long. Returns false if no
    /// frame waits any more.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        offer: impl Fn(&Socket, &[u8]) -> Offer,
    ) -> bool {
        self.0.retain(|_, queue| {
            while let Some((since, frame)) = queue.frames.front() {
                let is_late = now.saturating_duration_since(*since) > LIFETIME;
                if !is_late && offer(&queue.socket, frame) == Offer::Full {
                    return true;
                }
                queue.frames.pop_front();
            }
            false
        });
        !self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rustix::net::SocketAddrUnix;

    use super::*;

    fn socket(name: &str) -> Socket {
        Socket {
            name: name.to_owned(),
            address: SocketAddrUnix::new(name).unwrap(),
        }
    }

    fn frame(number: usize) -> Arc<[u8]> {
        number.to_be_bytes().into()
    }

    #[test]
    fn order_is_kept_and_other_sockets_do_not_wait() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        let taken = RefCell::new(Vec::new());
        let busy = RefCell::new(true);
        let offer = |socket: &Socket, frame: &[u8]| {
            if socket.name == "busy" && *busy.borrow() {
                return Offer::Full;
            }
            taken.borrow_mut().push((socket.name.clone(), frame[7]));
            Offer::Done
        };
        for number in 0..2 {
            waiting.hand(&socket("busy"), &frame(number), now, offer);
            waiting.hand(&socket("idle"), &frame(number), now, offer);
        }
        assert!(waiting.hand_over(now, offer));
        *busy.borrow_mut() = false;
        // The socket would take it, but it must stay behind the others.
        waiting.hand(&socket("busy"), &frame(2), now, offer);
        assert!(!waiting.hand_over(now, offer));
        let expected = [
            ("idle", 0),
            ("idle", 1),
            ("busy", 0),
            ("busy", 1),
            ("busy", 2),
        ];
        assert_eq!(
            *taken.borrow(),
            expected.map(|(name, number)| (name.to_owned(), number))
        );
    }

    #[test]
    fn they_wait_neither_for_ever_nor_without_limit() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        let full = |_: &Socket, _: &[u8]| Offer::Full;
        for number in 0..MOST_WAITING + 5 {
            waiting.hand(&socket("busy"), &frame(number), now, full);
        }
        assert_eq!(waiting.0["busy"].frames.len(), MOST_WAITING);
        assert!(waiting.hand_over(now + LIFETIME, full));
        assert!(!waiting.hand_over(now + LIFETIME + Duration::from_millis(1), full));
        assert!(waiting.is_empty());
    }
}
