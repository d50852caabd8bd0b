//! The identity of a MAD: in its transaction id, and as the core's context.

use std::ffi::c_void;
use std::num::NonZeroU32;

use crate::sync::atomic::{AtomicU32, Ordering};

/// A MAD's transaction id and identity. Never zero, and below 2^32, since the kernel uses the upper half of a transaction
/// id itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MadId(NonZeroU32);

impl From<MadId> for u64 {
    fn from(id: MadId) -> Self {
        id.0.get().into()
    }
}

impl MadId {
    #[cfg(any(feature = "cache", test))]
    pub(crate) fn from_u64(id: u64) -> Option<Self> {
        u32::try_from(id).ok().and_then(NonZeroU32::new).map(Self)
    }
}

/// Returns a new id. Ids repeat after 2^32 MADs; if the earlier MAD is then still outstanding, the new one is refused.
pub(crate) fn new_id() -> MadId {
    static LAST: AtomicU32 = AtomicU32::new(0);
    loop {
        let id = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if let Some(id) = NonZeroU32::new(id) {
            return MadId(id);
        }
    }
}

/// The context of a MAD in the core: the MAD's id, and the host that allocated it and can free it. It is not a pointer, so a
/// MAD that the core never returns leaks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) host: u32,
    pub(super) id: MadId,
}

impl Context {
    pub(super) fn to_pointer(self) -> *mut c_void {
        std::ptr::without_provenance_mut((self.host as usize) << 32 | self.id.0.get() as usize)
    }

    pub(super) fn from_pointer(context: *mut c_void) -> Option<Self> {
        let context = context.addr();
        Some(Self {
            host: (context >> 32) as u32,
            id: MadId(NonZeroU32::new(context as u32)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_holds_id_and_host() {
        let id = MadId::from_u64(0xffff_fffe).unwrap();
        let context = Context { host: 3, id };
        assert_eq!(Context::from_pointer(context.to_pointer()), Some(context));
        assert_eq!(Context::from_pointer(std::ptr::null_mut()), None);
    }

    #[test]
    fn an_id_is_neither_zero_nor_longer_than_32_bits() {
        assert_eq!(MadId::from_u64(0), None);
        assert_eq!(MadId::from_u64(1 << 32), None);
        let id = MadId::from_u64(0xffff_ffff);
        assert_eq!(id.map(u64::from), Some(0xffff_ffff));
    }
}
