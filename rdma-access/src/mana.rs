//! Buffer allocators of Microsoft's MANA adapters: `manadv_set_context_attr(3)`. libmana (libmana.so.1) is looked up at
//! run time.
//!
//! An allocator gives the memory of queues to the driver library, for programs that want it in a place of their own
//! (DPDK's, on huge pages).
//!
//! # Where this differs from libmana
//! | case | libmana | here | why |
//! | --- | --- | --- | --- |
//! | a context of another driver | writes into whatever follows the context | [`Cause::NotMana`], nothing is written | the function trusts its caller; the memory is another driver's |
//! | name of the attribute | the man page says `MANADV_SET_CTX_ATTR_BUF_ALLOCATORS`, of type `uint8_t` | the header's `MANADV_CTX_ATTR_BUF_ALLOCATORS` (0), a struct of `alloc`, `free`, `data` | the page is wrong |
//! | how long the allocator has to live | unsaid | as long as the context, which owns it | it is called until the last queue is gone |
//! | a request for 0 bytes | handed to `alloc` | NULL, without asking | no queue is empty |
//! | `free` of NULL | handed to `free` | nothing | |
//! | a panic of the allocator | would unwind into C, which ends the process | NULL (the queue's creation fails with ENOMEM), or a leak; told to [`set_teardown_report`](crate::set_teardown_report) | |
//! | setting it again | the old one is forgotten, its memory freed by the new | [`Cause::Invalid`] | memory goes back to who gave it |
//! | `dlclose` of it | libibverbs goes on looking at the driver that it was | it stays loaded once it is | the memory would be gone, and the process crash |
//! | libmana not installed, or without the function | does not start | [`Cause::NoLibrary`], [`Cause::NoSymbol`] | |
//!
//! # How far this is proven
//! No such adapter was at hand. Tested is that the real libmana of rdma-core 44, 56 and 65, given a made-up context,
//! stores exactly the three words that are meant; and that a library which calls the allocator back gets what is
//! promised here. A queue on real hardware was never made.
//!
//! # Threads
//! The driver calls an allocator from whichever thread makes or ends a queue, several at a time: [`Allocator`] is `Send`
//! and `Sync`.

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
    // libibverbs knows it as a driver once it is loaded, and looks at it from then on.
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

/// Gives memory to a device's queues.
///
/// A method that panics is taken to have given nothing ([`alloc`](Self::alloc)), or to have lost the buffer
/// ([`free`](Self::free)).
pub trait Allocator: Send + Sync + 'static {
    /// Memory of at least `size` bytes, which is never 0, beginning at a page of 4096 bytes. `None`, or memory that does
    /// not do, makes the creation of the queue fail with ENOMEM.
    fn alloc(&self, size: usize) -> Option<Buffer>;

    /// Takes a buffer back, whose queue is gone. Dropping it is enough unless it belongs somewhere.
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
    /// Loads the system's libmana: the same one that drives MANA devices.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`]; [`Cause::NoSymbol`]: it is of rdma-core before 44.
    pub fn load() -> Result<Self> {
        Self::of(NativeLibrary::system(&LIBRARY)?)
    }

    /// Loads the libmana in a file. It is of use with contexts only that were opened by the same file.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`], [`Cause::NoSymbol`].
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self> {
        Self::of(NativeLibrary::in_file(&LIBRARY, path.as_ref())?)
    }

    fn of(library: NativeLibrary) -> Result<Self> {
        // SAFETY: the type is that of the header's function, and the library stays with it.
        let set_context_attribute = unsafe { library.get(OPERATION) }?;
        Ok(Self {
            functions: Arc::new(Functions {
                set_context_attribute,
                _library: library,
            }),
        })
    }

    /// Has `allocator` give the memory of all queues that are made in `context` from now on. The context owns it.
    ///
    /// # Errors
    /// [`Cause::NotMana`] if the context's driver is not this libmana; [`Cause::Invalid`] if the context has an allocator;
    /// what the function fails with.
    pub fn set_allocator(&self, context: &Context, allocator: impl Allocator) -> Result<()> {
        let mut slot = context.mana_allocator().lock();
        if slot.is_some() {
            let cause = Cause::Invalid(
                "the context has an allocator, whose memory may be in use".to_owned(),
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
    /// `context` is alive, and `shim` stays in its place as long as it is.
    unsafe fn install(
        &self,
        context: *mut ibv_context,
        name: &str,
        shim: &Arc<Shim>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        if let Some(cause) = unsafe { self.stranger(context) } {
            return Err(Error::new(OPERATION, name, cause));
        }
        // SAFETY: it is libmana's context.
        unsafe { self.call(context, name, shim) }
    }

    /// The driver of a context, if it is not this libmana: else its functions are in it. Nothing else that a context tells
    /// (names, numbers of vendors) says which library's memory it is, and of which version.
    ///
    /// # Safety
    /// `context` is alive.
    unsafe fn stranger(&self, context: *mut ibv_context) -> Option<Cause> {
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
    /// `context` is libmana's, or memory that may be written wherever libmana keeps the three words; `shim` stays in its
    /// place as long as the context.
    unsafe fn call(&self, context: *mut ibv_context, name: &str, shim: &Arc<Shim>) -> Result<()> {
        let mut attribute = shim.to_c();
        // SAFETY: the caller's promise; the attribute is of the type that its number says, and is copied.
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
