//! `ibv_attach_mcast(3)`.

use std::mem;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::UdQueuePair;
use crate::address::{Gid, Lid};
use crate::error::{Cause, Error, Result};
use crate::teardown;

/// Attaches a queue pair to a multicast group: it receives the group's datagrams as long as this lives.
///
/// The port must already be a member of the group: membership is between the port and the SA.
#[derive(Debug)]
pub struct MulticastAttachment {
    group: Gid,
    lid: Lid,
    pair: Arc<UdQueuePair>,
    has_ended: bool,
}

impl MulticastAttachment {
    /// Attaches the queue pair. `lid` is the group's MLID; 0 on Ethernet.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if the queue pair is already attached to that group and LID; else the error of
    /// `ibv_attach_mcast`.
    pub fn new(pair: &Arc<UdQueuePair>, group: Gid, lid: Lid) -> Result<Self> {
        const OPERATION: &str = "ibv_attach_mcast";
        let mut groups = pair.groups().lock();
        if groups.contains(&(group, lid)) {
            // The kernel accepts a second attachment silently, and the first detach ends both.
            let inputs = format_args!("queue pair {}, MGID {group}, MLID {lid}", pair.number());
            let cause =
                Cause::Invalid("the queue pair is already attached to that group".to_owned());
            return Err(Error::new(OPERATION, inputs, cause));
        }
        call(pair, group, lid, OPERATION, ffi::ibv_attach_mcast)?;
        groups.push((group, lid));
        Ok(Self {
            group,
            lid,
            pair: pair.clone(),
            has_ended: false,
        })
    }

    /// Returns the group's MGID.
    pub fn group(&self) -> Gid {
        self.group
    }

    /// Returns the group's MLID.
    pub fn lid(&self) -> Lid {
        self.lid
    }

    /// Detaches.
    ///
    /// # Errors
    /// The error of `ibv_detach_mcast`; the queue pair then stays attached, and cannot be destroyed.
    pub fn close(mut self) -> Result<()> {
        self.detach()
    }

    fn detach(&mut self) -> Result<()> {
        if mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        let mut groups = self.pair.groups().lock();
        call(
            &self.pair,
            self.group,
            self.lid,
            "ibv_detach_mcast",
            ffi::ibv_detach_mcast,
        )?;
        groups.retain(|attached| *attached != (self.group, self.lid));
        Ok(())
    }
}

type Verb = unsafe extern "C" fn(*mut ffi::ibv_qp, *const ffi::ibv_gid, u16) -> i32;

fn call(
    pair: &UdQueuePair,
    group: Gid,
    lid: Lid,
    operation: &'static str,
    verb: Verb,
) -> Result<()> {
    let c = ffi::ibv_gid { raw: group.0 };
    // SAFETY: the queue pair is alive, and the GID is readable.
    let returned = unsafe { verb(pair.raw(), &raw const c, lid.0) };
    let inputs = format_args!("queue pair {}, MGID {group}, MLID {lid}", pair.number());
    pair.context().check(operation, &inputs, returned)
}

impl Drop for MulticastAttachment {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            teardown::report(&error);
        }
    }
}
