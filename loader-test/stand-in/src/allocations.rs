//! Counts a provider's allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count per thread of the allocations of the provider's code: from the call of a callback to
/// its return, without the allocations of the core's functions.
///
/// ```
/// # use acm_prov_api::prelude::*;
/// # struct Mine;
/// # impl Provider for Mine {
/// #     const NAME: &CStr = c"mine";
/// #     type Endpoint = NoContext;
/// #     fn load(_: &Host, _: &Options) -> Result<Self, Error> { Ok(Self) }
/// #     fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) { request.refuse(Status::ENODATA) }
/// # }
/// # acm_prov_api::provider_table!(Mine);
/// use acm_stand_in::allocations::Allocations;
/// use acm_stand_in::by_hand::{ByHand, Request};
///
/// #[global_allocator]
/// static ALLOCATOR: Allocations = Allocations;
///
/// let mut core = ByHand::load::<Mine>("");
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
    static IS_PROVIDERS: Cell<bool> = const { Cell::new(false) };
}

impl Allocations {
    /// Returns the provider's allocations on this thread so far.
    pub fn calls() -> usize {
        CALLS.get()
    }
}

/// Marks whose code runs on this thread, until it is dropped.
pub(super) struct Whose(bool);

impl Whose {
    /// The provider's.
    pub(super) fn providers() -> Self {
        Self(IS_PROVIDERS.replace(true))
    }

    /// The core's.
    pub(super) fn cores() -> Self {
        Self(IS_PROVIDERS.replace(false))
    }
}

impl Drop for Whose {
    fn drop(&mut self) {
        IS_PROVIDERS.set(self.0);
    }
}

// SAFETY: the system's allocator does all work; counting only touches thread-local cells.
unsafe impl GlobalAlloc for Allocations {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + usize::from(IS_PROVIDERS.get()));
        // SAFETY: passes on the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passes on the caller's promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}
