//! The process for sequences: a fork of one that has loaded the library.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use acm_prov_api::abi::acm_provider;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::fork::{self, Ended};
use crate::stand_in::fabric::DeviceSpec;
use crate::stand_in::library::{Library, LoadError};
use crate::stand_in::{Setup, StandIn, sequence};

/// Time limit for loading.
const LOADS_WITHIN: Duration = Duration::from_secs(20);

/// A loaded library for forks, or the need to load it for each sequence.
pub(super) struct Stage {
    library: PathBuf,
    options: Vec<String>,
    /// The provider, if forks of the process that loaded it can use it.
    provider: Option<&'static acm_provider>,
}

/// State of a load that a fork would lack, or share with others.
#[derive(Debug, PartialEq, Eq)]
struct Leftovers {
    threads: usize,
    descriptors: usize,
}

impl Leftovers {
    fn now() -> io::Result<Self> {
        let count = |folder| fs::read_dir(folder).map(Iterator::count);
        Ok(Self {
            threads: count("/proc/self/task")?,
            descriptors: count("/proc/self/fd")?,
        })
    }
}

/// Exit codes of the process that checks the state after a load.
const NOTHING_LEFT: i32 = 0;
const THREADS_LEFT: i32 = 1;
const DESCRIPTORS_LEFT: i32 = 2;
const NOT_LOADED: i32 = 3;

impl Stage {
    /// Loads the library, if one load suffices; otherwise says why not.
    ///
    /// # Errors
    /// If the core's files cannot be written, or a fork fails.
    pub(super) fn new(
        library: &Path,
        options: Vec<String>,
        folder: &Path,
    ) -> io::Result<(Self, Option<String>)> {
        let mut stage = Self {
            library: library.to_owned(),
            options,
            provider: None,
        };
        let trial = fork::start(|| {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            stage.try_loading(folder).unwrap_or(NOT_LOADED)
        })?;
        let why = match trial.wait(LOADS_WITHIN)? {
            Some(Ended::Exit(NOTHING_LEFT)) => None,
            Some(Ended::Exit(THREADS_LEFT)) => Some("it starts threads when it is loaded"),
            Some(Ended::Exit(DESCRIPTORS_LEFT)) => Some("it opens files when it is loaded"),
            _ => Some("it did not load"),
        };
        if why.is_none() {
            StandIn::install_alone(stage.setup(folder))?;
            let loaded = Library::open(&stage.library).and_then(Library::provider);
            StandIn::remove_installed();
            stage.provider = Some(loaded.map_err(io::Error::other)?);
        }
        Ok((stage, why.map(str::to_owned)))
    }

    /// Loads the library, and returns the exit code for the state that it leaves.
    fn try_loading(&self, folder: &Path) -> io::Result<i32> {
        StandIn::install_alone(self.setup(folder))?;
        let before = Leftovers::now()?;
        let loaded = Library::open(&self.library).and_then(Library::provider);
        let after = Leftovers::now()?;
        Ok(match loaded {
            Ok(_) if after.threads != before.threads => THREADS_LEFT,
            Ok(_) if after.descriptors != before.descriptors => DESCRIPTORS_LEFT,
            Ok(_) => NOTHING_LEFT,
            Err(_) => NOT_LOADED,
        })
    }

    /// Starts a core with the provider and nothing open; its files are in `folder`.
    ///
    /// # Errors
    /// If the core's own files cannot be written, or the library does not load.
    pub(super) fn core(&self, folder: &Path) -> Result<StandIn, LoadError> {
        let setup = self.setup(folder);
        match self.provider {
            Some(provider) => StandIn::with_loaded(setup, provider)
                .map_err(|error| LoadError::NoCore(error.to_string())),
            None => StandIn::start(setup, &self.library),
        }
    }

    fn setup(&self, folder: &Path) -> Setup {
        let mut options = StandIn::default_options(folder);
        options.extend(self.options.iter().cloned());
        options.extend(sequence::OPTIONS.iter().map(|line| (*line).to_owned()));
        Setup {
            deadline: None,
            devices: vec![DeviceSpec::single()],
            options,
            folder: folder.to_owned(),
            trace: None,
        }
    }
}
