//! Unreliable datagrams over verbs. A program cannot touch memory while a device uses it.
//!
//! ```no_run
//! use std::sync::Arc;
//! use rdma_access::ud::*;
//! use rdma_access::{QKey, verbs::Context};
//!
//! let context = Arc::new(Context::open_by_name("mlx5_0")?);
//! let domain = Arc::new(ProtectionDomain::new(&context)?);
//! let channel = Arc::new(CompletionChannel::new(&context)?);
//! let queue = Arc::new(CompletionQueue::new(&context, 64, Some(&channel))?);
//! let buffers = Arc::new(MemoryRegion::new(&domain, GRH_LENGTH + 256, 64)?);
//! let attributes = UdAttributes { port: 1, pkey_index: 0, qkey: QKey(0x8001_0000), send_depth: 8, receive_depth: 32, spill: 0 };
//! let pair = UdQueuePair::new(&domain, &queue, &queue, &attributes)?;
//! while let Some(slot) = buffers.take_slot() {
//!     if pair.post_receive(slot, 0).is_err() {
//!         break;
//!     }
//! }
//! queue.arm(false)?;
//! channel.wait(None)?;
//! channel.take_event()?;
//! let mut completions = Vec::new();
//! while queue.poll(&mut completions)? > 0 {
//!     for completion in completions.drain(..) {
//!         if let Some(received) = completion.received() {
//!             println!("{} bytes from {}", received.payload().len(), received.source_qp());
//!         }
//!     }
//! }
//! # Ok::<(), rdma_access::Error>(())
//! ```
//!
//! # Buffers
//! A [`Slot`] of a [`MemoryRegion`] is the only access to its bytes. Posting consumes the slot, and the
//! completion returns it, so nothing can read the bytes while the device may write them. When a queue pair
//! ends, its posted slots go back to their regions.
//!
//! # Completions
//! A completion queue knows the requests posted to its queue pairs, so a completion comes with its slot and the
//! token (a number) of the poster; an unknown identifier is skipped. The requests posted and not yet polled
//! never exceed the queue's capacity, so it cannot overrun. For events, follow `ibv_req_notify_cq(3)`: arm,
//! poll until nothing comes, and only then wait.
//!
//! # Differences from libibverbs
//! | case | libibverbs | here | why |
//! | --- | --- | --- | --- |
//! | `ibv_create_qp` | any type, state RESET | UD, brought to RTS | one step to a usable queue pair |
//! | completions | only for requests with `IBV_SEND_SIGNALED` | for every request | the completion returns the buffer |
//! | `wr_id` | the caller's number, returned unchecked | this crate's number, looked up in a table; the caller's token comes with it | a stale or foreign number finds nothing |
//! | more requests than the completion queue holds | the queue overruns and breaks | [`Cause::Full`], with the slot | |
//! | `ibv_get_cq_event` | blocks; without acknowledging events, `ibv_destroy_cq` hangs | never blocks, acknowledges at once | |
//! | `ibv_destroy_*` in a wrong order | `EBUSY`, or memory that a device still writes to | cannot happen; an object that still cannot be destroyed is reported and leaked, never freed | |
//! | `ibv_attach_mcast`, `ibv_detach_mcast` | two calls | one guard; the types fix the byte order of LID and MGID | |
//! | an address of another protection domain | the completion fails and stops the queue pair | [`Cause::Invalid`] before posting | |
//!
//! # Threads and processes
//! A process that forks keeps its memory regions on kernels from 5.12. On older kernels the device may use the
//! wrong copy of pages that parent and child share; the program must call `ibv_fork_init(3)` first.
//!
//! Any thread may use everything here. libibverbs' drivers lock their queues unless environment variables (such
//! as `MLX5_SINGLE_THREADED`) disable that; the locks of this crate around posting and polling hold even then.

mod address;
mod channel;
mod completion;
mod grh;
mod memory;
mod multicast;
mod protection_domain;
mod queue_pair;
mod work;

#[cfg(doc)]
use crate::Cause;

pub use address::{AddressAttributes, AddressHandle, GlobalRoute};
pub use channel::{CompletionChannel, QueueId};
pub use completion::{Completion, CompletionQueue, CompletionStatus, Opcode, Received, WcFlags};
pub use grh::{GRH_LENGTH, Grh};
pub use memory::{MemoryRegion, Slot};
pub use multicast::MulticastAttachment;
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{Destination, PostError, UdAttributes, UdQueuePair};
pub use work::Direction;
