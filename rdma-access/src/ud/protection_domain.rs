//! `ibv_alloc_pd(3)`.

use std::ffi::c_void;
use std::sync::Arc;

use ibverbs_sys as ffi;

use crate::error::Result;
use crate::handle::Handle;
use crate::verbs::Context;

/// What memory, queue pairs and addresses have to have in common to work together.
#[derive(Debug)]
pub struct ProtectionDomain {
    handle: Handle<ffi::ibv_pd>,
    context: Arc<Context>,
}

impl ProtectionDomain {
    /// # Errors
    /// What `ibv_alloc_pd` fails with.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        // SAFETY: the context is open; the result is nobody else's.
        let handle = unsafe {
            Handle::take(ffi::ibv_alloc_pd(context.raw()), |errno| {
                context.fault("ibv_alloc_pd", &"", errno, "")
            })
        }?;
        Ok(Self {
            handle,
            context: context.clone(),
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// What `ibv_dealloc_pd` fails with; the domain then stays, for ever.
    pub fn close(self) -> Result<()> {
        self.handle.destroy()
    }

    /// The context that it was made in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The `struct ibv_pd *`, alive as long as this value, for C libraries that work on one.
    pub fn as_ptr(&self) -> *mut c_void {
        self.raw().cast()
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_pd {
        self.handle.as_ptr()
    }
}
