//! Requests of clients, and their answers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ledger::{Harmed, Request, ViolationKind};
use super::memory::Lent;
use super::message::{self, Addr, FLAG_QUERY_SA, Kind, Message, PATH, Path, Reply};
use super::sa::SaRequest;
use super::shared::{self, lock};
use super::{AddressId, PortId, StandIn};

impl StandIn {
    /// Sends a client's request to the address that it concerns, which the core finds as for a real client.
    ///
    /// # Errors
    /// The ACM status with which the core itself refuses the request.
    pub fn ask(&mut self, message: &Message) -> Result<u64, u8> {
        const EINVAL: u8 = 2;
        const ESRCADDR: u8 = 7;
        const EDESTADDR: u8 = 9;
        const ONE_ENTRY: usize = message::HEADER + message::ENTRY;
        let (message, from) = if message.code(0) == PATH {
            let path = Path(message.field(0));
            let length = usize::from(message.length());
            let is_query = message.flags(0) & FLAG_QUERY_SA != 0;
            if length < ONE_ENTRY || is_query && length != ONE_ENTRY {
                return Err(EINVAL);
            }
            if !is_query && path.dlid() == 0 && path.dgid().is_zero() {
                return Err(EDESTADDR);
            }
            (*message, self.source_of_path(&path).ok_or(ESRCADDR)?)
        } else {
            let chosen = message
                .destination_code()
                .and_then(|code| self.first_of_family(code));
            let (message, from) = message.verified(chosen.as_ref())?;
            (message, self.find_address(&from).ok_or(ESRCADDR)?)
        };
        if message.code(0) == PATH && message.flags(0) & FLAG_QUERY_SA != 0 {
            return Ok(self.query_from(from, &message));
        }
        Ok(self.resolve_from(from, &message))
    }

    /// Sends a request unchanged to one of the provider's addresses.
    pub fn resolve_from(&mut self, from: AddressId, message: &Message) -> u64 {
        self.play(from, message, Kind::Resolve, None)
    }

    /// Sends a query to one of the provider's addresses.
    pub fn query_from(&mut self, from: AddressId, message: &Message) -> u64 {
        self.play(from, message, Kind::Query, None)
    }

    /// Sends a kernel request: client 0, with a pointer as transaction id.
    pub fn kernel_asks(&mut self, from: AddressId, path: &Path) -> u64 {
        lock(&self.shared.ledger).requests.remove(&0);
        self.play(from, &Message::path(path), Kind::Resolve, Some(0))
    }

    fn play(&mut self, from: AddressId, message: &Message, kind: Kind, id: Option<u64>) -> u64 {
        let id = id.unwrap_or_else(shared::next_client);
        let message = message.with_tid(shared::next_tid());
        let request = Request {
            kind,
            tid: message.tid(),
            wanted: (message.code(0) == PATH).then(|| {
                let wanted = self.whole(from, &Path(message.field(0)));
                (wanted, self.shared.subnet_changes())
            }),
            asked: Instant::now(),
            answered: None,
            connected: true,
            replies: Vec::new(),
        };
        lock(&self.shared.ledger).requests.insert(id, request);
        if kind == Kind::Resolve {
            self.shared.count_of_core(1);
        }
        let context = self.address_context(from);
        let lent = Lent::new(message);
        let pointer = lent.as_ptr().cast();
        let code = match kind {
            Kind::Resolve => call!(
                self,
                resolve(context, pointer, id),
                "client {id}: {message:?}"
            ),
            Kind::Query => call!(
                self,
                query(context, pointer, id),
                "client {id}: {message:?}"
            ),
        };
        // The core frees the message, even if the request is still pending.
        drop(lent);
        if code != 0 {
            lock(&self.shared.ledger).breach(
                ViolationKind::NonZeroReturn,
                Harmed::Client,
                format!("{kind} returned {code}: the core disconnects client {id}"),
            );
        }
        id
    }

    /// Disconnects a client before its answer.
    pub fn client_leaves(&mut self, id: u64) {
        if let Some(request) = lock(&self.shared.ledger).requests.get_mut(&id) {
            request.connected = false;
        }
    }

    /// Returns the answers to a client so far.
    pub fn replies(&self, id: u64) -> Vec<Reply> {
        lock(&self.shared.ledger)
            .requests
            .get(&id)
            .map(|request| request.replies.clone())
            .unwrap_or_default()
    }

    /// Returns how long a client waited for its first answer; `None` while it waits.
    pub fn waited(&self, id: u64) -> Option<Duration> {
        let ledger = lock(&self.shared.ledger);
        let request = ledger.requests.get(&id)?;
        Some(request.answered?.duration_since(request.asked))
    }

    /// Waits for the first answer to a client; `None` if it does not come within [`patience`](Self::patience) of the
    /// request.
    pub fn reply(&self, id: u64) -> Option<Reply> {
        let asked = lock(&self.shared.ledger).requests.get(&id)?.asked;
        let left = (asked + self.patience).saturating_duration_since(Instant::now());
        let reply = self.shared.wait(left, |ledger| {
            ledger.requests.get(&id)?.replies.first().cloned()
        });
        if reply.is_none() {
            self.note_timeout();
        }
        reply
    }

    /// Whether a wait ended after [`patience`](Self::patience): on a busy machine such a result says little.
    pub fn has_timed_out(&self) -> bool {
        self.has_timed_out.load(Ordering::Relaxed)
    }

    /// Notes that a wait ended without its event.
    pub fn note_timeout(&self) {
        self.has_timed_out.store(true, Ordering::Relaxed);
    }

    /// Calls `look` for each request in the ledger.
    pub fn each_request(&self, mut look: impl FnMut(&Request)) {
        lock(&self.shared.ledger)
            .requests
            .values()
            .for_each(&mut look);
    }

    /// Returns the ids of unanswered requests.
    pub fn unanswered(&self) -> Vec<u64> {
        let ledger = lock(&self.shared.ledger);
        ledger
            .requests
            .iter()
            .filter(|(_, request)| request.replies.is_empty())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Waits until `count` path queries have reached the SA, and returns all of them; `None` after `patience`.
    pub fn path_queries(&self, count: usize) -> Option<Vec<SaRequest>> {
        self.questions(count, SaRequest::is_path_query)
    }

    /// Waits until `count` MADs of a kind have reached the SA, and returns all of them; `None` after `patience`.
    pub fn questions(&self, count: usize, kind: fn(&SaRequest) -> bool) -> Option<Vec<SaRequest>> {
        let deadline = Instant::now() + self.patience;
        loop {
            let mut questions = self.sa().requests();
            questions.retain(kind);
            if questions.len() >= count {
                return Some(questions);
            }
            if Instant::now() > deadline {
                self.note_timeout();
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the SA is idle; false after `patience`.
    pub fn settle(&self) -> bool {
        let deadline = Instant::now() + self.patience;
        while !self.sa().is_idle() {
            if Instant::now() > deadline {
                self.note_timeout();
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Iterates over all usable addresses, in the core's order.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (AddressId, &Addr)> {
        self.devices.iter().enumerate().flat_map(|(device, known)| {
            known
                .ports
                .iter()
                .zip(1..)
                .filter(|(port, _)| port.is_up)
                .flat_map(move |(port, number)| {
                    let id = PortId {
                        device,
                        port: number,
                    };
                    port.endpoints.iter().flat_map(move |endpoint| {
                        let pkey = endpoint.pkey;
                        endpoint
                            .addresses
                            .iter()
                            .enumerate()
                            .filter(|(_, address)| address.valid)
                            .map(move |(index, address)| {
                                (
                                    AddressId {
                                        port: id,
                                        pkey,
                                        index,
                                    },
                                    &address.addr,
                                )
                            })
                    })
                })
        })
    }

    /// Returns the source that the core chooses for a destination. It uses the routing table, so only for IP destinations.
    fn first_of_family(&self, code: u16) -> Option<Addr> {
        self.addresses()
            .map(|(_, addr)| addr)
            .find(|addr| matches!(code, message::IP | message::IP6) && addr.code() == code)
            .cloned()
    }

    /// Finds the equal address, compared by the length of its type.
    fn find_address(&self, wanted: &Addr) -> Option<AddressId> {
        let length = match wanted.code() {
            message::IP => 4,
            message::IP6 | message::GID => 16,
            message::LID => 2,
            _ => 64,
        };
        let field = wanted.field();
        self.addresses()
            .find(|(_, addr)| {
                addr.code() == wanted.code()
                    && addr.field()[..length].eq_ignore_ascii_case(&field[..length])
            })
            .map(|(id, _)| id)
    }

    /// Returns the first address of the endpoint that a path request concerns: by SGID, SLID or subnet, and by partition.
    fn source_of_path(&self, path: &Path) -> Option<AddressId> {
        let from_port = |id: PortId| {
            let spec = self.port(id);
            if !path.sgid().is_zero() {
                return spec.gids().any(|gid| gid == path.sgid());
            }
            if path.slid() != 0 {
                return spec.has_lid(path.slid());
            }
            let dgid = path.dgid();
            dgid.is_zero()
                || spec
                    .gids()
                    .any(|gid| gid.subnet_prefix() == dgid.subnet_prefix())
        };
        let same_partition = |pkey: u16| path.pkey() == 0 || (path.pkey() ^ pkey) & 0x7fff == 0;
        self.addresses()
            .find(|(id, _)| from_port(id.port) && same_partition(id.pkey))
            .map(|(id, _)| id)
    }
}
