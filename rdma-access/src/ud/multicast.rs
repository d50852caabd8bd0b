//! `ibv_attach_mcast(3)`.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::UdQueuePair;
use crate::error::Result;
use crate::teardown;
use crate::types::{Gid, Lid};

/// A queue pair gets a multicast group's datagrams as long as this lives.
///
/// It is not the membership in the group: that is between the port and the SA, and has to be there first.
#[derive(Debug)]
pub struct MulticastAttachment {
    group: Gid,
    lid: Lid,
    pair: Arc<UdQueuePair>,
}

impl MulticastAttachment {
    /// Attaches. `lid` is the group's MLID; 0 on Ethernet.
    ///
    /// # Errors
    /// What `ibv_attach_mcast` fails with.
    pub fn new(pair: &Arc<UdQueuePair>, group: Gid, lid: Lid) -> Result<Self> {
        let this = ManuallyDrop::new(Self {
            group,
            lid,
            pair: pair.clone(),
        });
        this.call("ibv_attach_mcast", ffi::ibv_attach_mcast)?;
        Ok(ManuallyDrop::into_inner(this))
    }

    /// The group's MGID.
    pub fn group(&self) -> Gid {
        self.group
    }

    /// The group's MLID.
    pub fn lid(&self) -> Lid {
        self.lid
    }

    /// Detaches.
    ///
    /// # Errors
    /// What `ibv_detach_mcast` fails with; the queue pair then cannot be destroyed, either.
    pub fn close(self) -> Result<()> {
        let this = ManuallyDrop::new(self);
        let ended = this.detach();
        // SAFETY: `this` is not used any more, and nothing else of it has a destructor.
        drop(unsafe { std::ptr::read(&raw const this.pair) });
        ended
    }

    fn detach(&self) -> Result<()> {
        self.call("ibv_detach_mcast", ffi::ibv_detach_mcast)
    }

    fn call(
        &self,
        operation: &'static str,
        verb: unsafe extern "C" fn(*mut ffi::ibv_qp, *const ffi::ibv_gid, u16) -> i32,
    ) -> Result<()> {
        let group = ffi::ibv_gid { raw: self.group.0 };
        // SAFETY: the queue pair is alive, and the GID readable.
        let returned = unsafe { verb(self.pair.raw(), &raw const group, self.lid.0) };
        let inputs = format_args!(
            "queue pair {}, MGID {}, MLID {}",
            self.pair.number(),
            self.group,
            self.lid
        );
        self.pair.context().check(operation, &inputs, returned)
    }
}

impl Drop for MulticastAttachment {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            teardown::report(&error);
        }
    }
}
