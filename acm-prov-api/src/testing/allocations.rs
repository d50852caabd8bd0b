//! Counts a provider's allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a count per thread.
///
/// Allocations of [`TestCore`](super::TestCore) itself do not count as calls, so that the calls between two points of a
/// test are the provider's:
///
/// ```
/// # use acm_prov_api::prelude::*;
/// # struct Nobody;
/// # impl Provider for Nobody {
/// #     const NAME: &CStr = c"nobody";
/// #     type Endpoint = NoContext;
/// #     fn load(_: &Host, _: &Options) -> Result<Self, Error> { Ok(Self) }
/// #     fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) { request.refuse(Status::ENODATA) }
/// # }
/// # acm_prov_api::provider_table!(Nobody);
/// use acm_prov_api::testing::{Allocations, Request, TestCore};
///
/// #[global_allocator]
/// static ALLOCATOR: Allocations = Allocations;
///
/// let mut core = TestCore::load::<Nobody>("");
/// core.open();
/// let request = Request::destination(&Address::Lid(Lid(7)));
/// core.resolve(&request);
/// let before = Allocations::calls();
/// core.resolve(&request);
/// assert_eq!(Allocations::calls(), before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Allocations;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    // Wraps, since a thread may free what another has allocated.
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static IS_CORES: Cell<bool> = const { Cell::new(false) };
}

impl Allocations {
    /// Allocations of this thread so far.
    pub fn calls() -> usize {
        CALLS.get()
    }

    /// Returns the bytes that this thread has allocated and not freed, rounded as malloc does: with its header, in steps of
    /// 16. Only differences have a meaning; use `wrapping_sub`.
    pub fn bytes() -> usize {
        BYTES.get()
    }

    /// Runs code. Also returns the peak of its additional memory, in bytes.
    pub fn peak_of<R>(code: impl FnOnce() -> R) -> (R, usize) {
        let before = BYTES.get();
        PEAK.set(before);
        let result = code();
        (result, PEAK.get().wrapping_sub(before))
    }

    /// Runs the test core's own code without counting calls.
    pub(super) fn of_the_core<R>(code: impl FnOnce() -> R) -> R {
        let was_cores = IS_CORES.replace(true);
        let result = code();
        IS_CORES.set(was_cores);
        result
    }
}

fn chunk(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

// SAFETY: all work is done by the system's allocator; counting touches cells of the thread only.
unsafe impl GlobalAlloc for Allocations {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let bytes = BYTES.get().wrapping_add(chunk(layout));
        BYTES.set(bytes);
        if bytes.wrapping_sub(PEAK.get()).cast_signed() > 0 {
            PEAK.set(bytes);
        }
        CALLS.set(CALLS.get() + usize::from(!IS_CORES.get()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(chunk(layout)));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}
