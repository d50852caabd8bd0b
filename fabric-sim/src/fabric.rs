//! The adapters of this process, found at the first call that needs them.

use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(feature = "preload")]
use crate::live::{self, AttachError};
use crate::model::adapter::Adapter;
#[cfg(feature = "preload")]
use crate::wires;

static ADAPTERS: Mutex<Option<Vec<Arc<Adapter>>>> = Mutex::new(None);

/// The adapters that verbs show: those [installed](install), else one for each channel adapter that libibumad shows, on the
/// [wires] that the environment names.
///
/// # Errors
/// If an adapter does not answer; the next call tries again.
#[cfg(feature = "preload")]
pub fn adapters() -> Result<Vec<Arc<Adapter>>, AttachError> {
    let mut adapters = ADAPTERS.lock();
    if let Some(adapters) = &*adapters {
        return Ok(adapters.clone());
    }
    let found = live::attach_all()?;
    wires::connect_as_told(&found);
    *adapters = Some(found.clone());
    Ok(found)
}

/// The adapters that verbs show: those [installed](install), or none.
///
/// # Errors
/// None; with the feature `preload` the adapters are looked for.
#[cfg(not(feature = "preload"))]
pub fn adapters() -> Result<Vec<Arc<Adapter>>, std::convert::Infallible> {
    Ok(ADAPTERS.lock().clone().unwrap_or_default())
}

/// Makes verbs in this process show these adapters instead of looking for any. Contexts already open keep theirs.
pub fn install(adapters: Vec<Arc<Adapter>>) {
    *ADAPTERS.lock() = Some(adapters);
}
