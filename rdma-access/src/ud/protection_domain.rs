//! `ibv_alloc_pd(3)`.

use std::ffi::c_void;
use std::sync::Arc;

use ibverbs_sys as ffi;

use crate::error::Result;
use crate::handle::Handle;
use crate::verbs::Context;

/// A protection domain: memory, queue pairs and addresses work together only within the same one.
#[derive(Debug)]
pub struct ProtectionDomain {
    handle: Handle<ffi::ibv_pd>,
    context: Arc<Context>,
}

impl ProtectionDomain {
    /// # Errors
    /// The error of `ibv_alloc_pd`.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        // SAFETY: the context is open; the handle owns the result.
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

    /// Destroys it.
    ///
    /// # Errors
    /// The error of `ibv_dealloc_pd`; the domain then leaks.
    pub fn close(self) -> Result<()> {
        self.handle.destroy()
    }

    /// Returns its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the `struct ibv_pd *`, valid as long as this value, for other C libraries.
    pub fn as_ptr(&self) -> *mut c_void {
        self.raw().cast()
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_pd {
        self.handle.as_ptr()
    }
}
