//! The environment of a run: its programs and a network namespace.

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::programs::Programs;

/// The programs and the network namespace of a run.
#[derive(Debug)]
pub struct Machine {
    /// The paths of the programs.
    pub programs: Programs,
    /// The namespace of all programs.
    pub namespace: Namespace,
}

impl Machine {
    /// Finds the programs, see [`Programs::find`], and creates a namespace.
    ///
    /// # Errors
    /// If a program is missing, or the namespace is refused.
    pub fn prepare(fabric_sim: Option<&Path>) -> Result<Arc<Self>> {
        let programs = Programs::find(fabric_sim)?;
        let namespace = Namespace::new(&programs.loader_test)?;
        Ok(Arc::new(Self {
            programs,
            namespace,
        }))
    }
}
