//! Unreliable datagrams over verbs, with memory that cannot be touched while a device uses it.
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
//! A [`Slot`] of a [`MemoryRegion`] is the only way to its bytes. Posting consumes the slot, and the completion gives it
//! back: while the device may write, nobody can read. A queue pair that ends releases what was still posted to it.
//!
//! # Completions
//! A completion queue knows what is posted to its queue pairs, so a completion comes with its slot and the number (the
//! token) that the poster gave; an identifier that the queue does not know is skipped. What is posted and not yet polled
//! never exceeds the queue's capacity, so it cannot overrun. The event protocol is that of `ibv_req_notify_cq(3)`: arm,
//! poll until nothing comes, and only then wait.
//!
//! # Where this differs from libibverbs
//! | case | libibverbs | here | why |
//! | --- | --- | --- | --- |
//! | `ibv_create_qp` | any type, state RESET | UD, brought to RTS | what a datagram needs, in one step |
//! | completions | asked for by request (`IBV_SEND_SIGNALED`) | every request has one | it brings the buffer back |
//! | `wr_id` | the caller's, taken as it comes back | a number of this crate's, looked up; the caller's token beside it | a stale or foreign number finds nothing |
//! | more requests than the completion queue holds | the queue overruns, and is dead | [`Cause::Full`], with the slot | |
//! | `ibv_get_cq_event` | blocks; events to be acknowledged, or `ibv_destroy_cq` hangs | never blocks, acknowledged at once | |
//! | `ibv_destroy_*` in a wrong order | `EBUSY`, or memory that a device still writes to | cannot happen; what fails all the same is told and leaked, never freed | |
//! | `ibv_attach_mcast`, `ibv_detach_mcast` | two calls | one guard; LID and MGID in host order and wire order by type | |
//! | an address of another protection domain | a failed completion, which stops the queue pair | [`Cause::Invalid`] before posting | |
//!
//! # Threads and processes
//! A process that forks keeps its memory regions if the kernel is 5.12 or later; before, pages that parent and child share
//! can be the wrong ones for the device, and it is up to the program to call `ibv_fork_init(3)` first.
//!
//! Everything here may be used from any thread. libibverbs' drivers lock their queues unless told otherwise by
//! environment variables (`MLX5_SINGLE_THREADED` and its kin); a lock of this crate around posting and polling holds
//! then as well.

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
