//! Buffer allocators of Microsoft's MANA adapters: `manadv_set_context_attr(3)`. libmana (libmana.so.1) is
//! loaded at run time.
//!
//! With an allocator, a program chooses the memory of the driver library's queues (DPDK, for example, puts them
//! on huge pages).
//!
//! # Differences from libmana
//! | case | libmana | here | why |
//! | --- | --- | --- | --- |
//! | a context of another driver | writes into whatever follows the context | [`Cause::NotMana`], writes nothing | the function trusts its caller; the memory belongs to another driver |
//! | name of the attribute | the man page says `MANADV_SET_CTX_ATTR_BUF_ALLOCATORS`, of type `uint8_t` | the header's `MANADV_CTX_ATTR_BUF_ALLOCATORS` (0), a struct of `alloc`, `free`, `data` | the page is wrong |
//! | lifetime of the allocator | not documented | as long as the context, which owns it | the driver calls it until the last queue is destroyed |
//! | a request for 0 bytes | calls `alloc` | returns NULL without calling it | no queue is empty |
//! | `free` of NULL | calls `free` | does nothing | |
//! | a panic of the allocator | unwinds into C, which aborts the process | NULL (creating the queue fails with ENOMEM), or a leak; reported to [`set_teardown_report`](crate::set_teardown_report) | |
//! | setting it again | replaces the old allocator, and the new one frees its memory | [`Cause::Invalid`] | the allocator that gave memory must free it |
//! | `dlclose` of libmana | libibverbs still uses the registered driver | libmana stays loaded | the process would crash |
//! | libmana missing, or without the function | the program does not start | [`Cause::NoLibrary`], [`Cause::NoSymbol`] | |
//!
//! # What is tested
//! No such adapter was available. The tests show that the real libmana of rdma-core 44, 56 and 65, given a fake
//! context, stores exactly the three expected words, and that a library which calls the allocator gets the
//! behaviour described here. No queue was created on real hardware.
//!
//! # Threads
//! The driver calls an allocator from any thread that creates or destroys a queue, possibly several at a time:
//! [`Allocator`] is `Send` and `Sync`.

mod buffer;
mod shim;

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use ibverbs_sys::ibv_context;

use crate::errno::errno_of;
use crate::error::{Cause, Error, Result};
use crate::library::{Image, Kind, NativeLibrary, image_of};
use crate::verbs::Context;

pub use buffer::Buffer;
pub(crate) use shim::Shim;

static LIBRARY: Kind = Kind {
    file: "libmana.so.1",
    operation: "load libmana",
    remedy: "install rdma-core's driver libraries, 44 or later (Debian: ibverbs-providers)",
    // Once loaded, it is registered as a driver with libibverbs, which keeps using it.
    stays: true,
};
const OPERATION: &str = "manadv_set_context_attr";

/// `MANADV_CTX_ATTR_BUF_ALLOCATORS` of `enum manadv_set_ctx_attr_type`.
pub(crate) const BUFFER_ALLOCATORS: c_int = 0;

/// `struct manadv_ctx_allocators`.
#[repr(C)]
pub(crate) struct manadv_ctx_allocators {
    pub alloc: Option<unsafe extern "C" fn(size: usize, data: *mut c_void) -> *mut c_void>,
    pub free: Option<unsafe extern "C" fn(memory: *mut c_void, data: *mut c_void)>,
    pub data: *mut c_void,
}

/// Allocates memory for a device's queues.
///
/// If a method panics, the panic is caught: [`alloc`](Self::alloc) then counts as having returned `None`, and
/// [`free`](Self::free) as having leaked the buffer.
pub trait Allocator: Send + Sync + 'static {
    /// Returns memory of at least `size` bytes, aligned to 4096. `size` is never 0. If this returns `None` or
    /// unsuitable memory, creating the queue fails with ENOMEM.
    fn alloc(&self, size: usize) -> Option<Buffer>;

    /// Takes a buffer back after its queue was destroyed. By default drops it.
    fn free(&self, buffer: Buffer) {
        drop(buffer);
    }
}

/// libmana, loaded.
#[derive(Clone, Debug)]
pub struct Mana {
    functions: Arc<Functions>,
}

type SetContextAttribute = unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void) -> c_int;

#[derive(Debug)]
struct Functions {
    set_context_attribute: SetContextAttribute,
    _library: NativeLibrary,
}

impl Mana {
    /// Loads the system's libmana, which is also the driver of MANA devices.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`]; [`Cause::NoSymbol`] if it is older than rdma-core 44.
    pub fn load() -> Result<Self> {
        Self::of(NativeLibrary::system(&LIBRARY)?)
    }

    /// Loads libmana from a file. It works only with contexts that the same file opened.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`], [`Cause::NoSymbol`].
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self> {
        Self::of(NativeLibrary::in_file(&LIBRARY, path.as_ref())?)
    }

    fn of(library: NativeLibrary) -> Result<Self> {
        // SAFETY: the type is the header's, and the library is kept with the function.
        let set_context_attribute = unsafe { library.get(OPERATION) }?;
        Ok(Self {
            functions: Arc::new(Functions {
                set_context_attribute,
                _library: library,
            }),
        })
    }

    /// Makes `allocator` allocate the memory of all queues that are created in `context` from now on. The
    /// context owns it.
    ///
    /// # Errors
    /// [`Cause::NotMana`] if the context's driver is not this libmana; [`Cause::Invalid`] if the context
    /// already has an allocator; else the function's own error.
    pub fn set_allocator(&self, context: &Context, allocator: impl Allocator) -> Result<()> {
        let mut slot = context.mana_allocator().lock();
        if slot.is_some() {
            let cause = Cause::Invalid(
                "the context already has an allocator, whose memory may be in use".to_owned(),
            );
            return Err(Error::new(OPERATION, context.name(), cause));
        }
        let shim = Shim::new(allocator);
        // SAFETY: the context is open, and keeps the shim longer than the driver can call it.
        unsafe { self.install(context.raw(), context.name(), &shim) }?;
        *slot = Some(shim);
        Ok(())
    }

    /// # Safety
    /// `context` is alive, and `shim` does not move while it is.
    unsafe fn install(
        &self,
        context: *mut ibv_context,
        name: &str,
        shim: &Arc<Shim>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        if let Some(cause) = unsafe { self.other_driver(context) } {
            return Err(Error::new(OPERATION, name, cause));
        }
        // SAFETY: it is libmana's context.
        unsafe { self.call(context, name, shim) }
    }

    /// Returns the error if the context's driver is not this libmana, which shows by where its functions are.
    /// Nothing else in a context (names, vendor ids) identifies the library and its version.
    ///
    /// # Safety
    /// `context` is alive.
    unsafe fn other_driver(&self, context: *mut ibv_context) -> Option<Cause> {
        // SAFETY: the caller's promise.
        let function = unsafe { (*context).ops.post_send };
        let ours = image_of(self.functions.set_context_attribute as *const c_void);
        let driver = function.and_then(|function| image_of(function as *const c_void));
        if let (Some(ours), Some(driver)) = (&ours, &driver)
            && ours.start == driver.start
        {
            return None;
        }
        let file = |image: Option<Image>| {
            image.map_or("an unknown library".to_owned(), |image| image.file)
        };
        Some(Cause::NotMana {
            driver: file(driver),
            library: file(ours),
        })
    }

    /// # Safety
    /// `context` is libmana's, or memory that is writable wherever libmana stores the three words; `shim` does
    /// not move as long as the context is alive.
    unsafe fn call(&self, context: *mut ibv_context, name: &str, shim: &Arc<Shim>) -> Result<()> {
        let mut attribute = shim.to_c();
        // SAFETY: the caller's promise; the attribute has the type of its number, and libmana copies it.
        let returned = unsafe {
            (self.functions.set_context_attribute)(
                context,
                BUFFER_ALLOCATORS,
                (&raw mut attribute).cast(),
            )
        };
        match returned {
            0 => Ok(()),
            _ => Err(Error::errno(OPERATION, name, errno_of(returned), "")),
        }
    }
}

#[cfg(test)]
mod tests;
