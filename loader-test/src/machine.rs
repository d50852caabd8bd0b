//! What a run has of the machine: its programs, and a network namespace.

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::programs::Programs;

/// See the module.
#[derive(Debug)]
pub struct Machine {
    /// Where everything is that the run starts.
    pub programs: Programs,
    /// Where everything runs that it starts.
    pub namespace: Namespace,
}

impl Machine {
    /// Finds the programs, see [`Programs::find`], and makes a namespace.
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
