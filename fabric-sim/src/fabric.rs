//! The adapters of this process, found when first needed.

use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(feature = "preload")]
use crate::live::{self, AttachError};
use crate::model::adapter::Adapter;
#[cfg(feature = "preload")]
use crate::wires;

static ADAPTERS: Mutex<Option<Vec<Arc<Adapter>>>> = Mutex::new(None);

/// Returns the adapters that verbs list: those [installed](install), else one for each channel adapter that
/// libibumad lists, connected to the [wires] that the environment names.
///
/// # Errors
/// If an adapter does not respond; the next call tries again.
#[cfg(feature = "preload")]
pub fn adapters() -> Result<Vec<Arc<Adapter>>, AttachError> {
    let mut adapters = ADAPTERS.lock();
    if let Some(adapters) = &*adapters {
        return Ok(adapters.clone());
    }
    let found = live::attach_all()?;
    wires::connect_from_environment(&found);
    *adapters = Some(found.clone());
    Ok(found)
}

/// Returns the adapters that verbs list: those [installed](install), or none.
///
/// # Errors
/// None; the version with the feature `preload` can fail.
#[cfg(not(feature = "preload"))]
pub fn adapters() -> Result<Vec<Arc<Adapter>>, std::convert::Infallible> {
    Ok(ADAPTERS.lock().clone().unwrap_or_default())
}

/// Sets the adapters that verbs list in this process, instead of searching for them. Open contexts keep theirs.
pub fn install(adapters: Vec<Arc<Adapter>>) {
    *ADAPTERS.lock() = Some(adapters);
}
