//! Runs a provider of this process under the stand-in core, for the unit tests of a vendor's provider.
//!
//! The core passes its host functions to the SDK as a table. A test loads no library and needs no `unsafe` and no daemon.
//! In the provider's crate, with `acm-stand-in` as a development dependency:
//!
//! ```
//! # use acm_prov_api::prelude::*;
//! # struct Mine;
//! # impl Provider for Mine {
//! #     const NAME: &CStr = c"mine";
//! #     type Endpoint = NoContext;
//! #     fn load(_: &Host, _: &Options) -> Result<Self, Error> { Ok(Self) }
//! #     fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) { request.refuse(Status::ENODATA) }
//! # }
//! // Or `export_provider!`, which a provider's crate already has.
//! acm_prov_api::provider_table!(Mine);
//!
//! use acm_stand_in::fabric::Peer;
//! use acm_stand_in::in_process::InProcess;
//! use acm_stand_in::message::{Message, Path};
//! use acm_stand_in::FIRST_PORT;
//!
//! let mut core = InProcess::load::<Mine>(&["timeout 300"])?;
//! let from = core.up(FIRST_PORT)?;
//! let wanted = Path::default().with_dlid(Peer::number(1).lid);
//! let id = core.resolve_from(from, &Message::path(&wanted));
//! assert_eq!(core.reply(id).expect("an answer").status, 3);
//! // Closes everything, waits for outstanding MADs, and returns the ledger's violations.
//! assert_eq!(core.finish(), []);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! The SA responds like OpenSM, for the peers of [`fabric`](super::fabric), their alias GIDs and the subnet behind the router.
//! [`StandIn::set_qos`] sets whether service ids select paths, [`StandIn::sa`] makes the SA fail, and
//! [`StandIn::refuse_sls`] makes it refuse an SL.
//!
//! [`finish`](InProcess::finish) returns the violations that make a conformance check fail or warn, such as a panic that the
//! SDK caught, a dropped request, an answer long after its deadline, or a callback that blocked the core's thread. Dropping
//! the core without `finish` panics if there are any. [`StandIn::judge`] checks that a client got a path that the SA gives,
//! even if the provider has its own policy.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use acm_prov_api::{Exported, Turn};
use tempfile::TempDir;

use super::fabric::DeviceSpec;
use super::ledger::Violation;
use super::{Setup, StandIn};

/// A [`StandIn`] with a provider of this process. Only one exists at a time: a second test waits until the first has
/// dropped it.
pub struct InProcess {
    core: StandIn,
    /// Unloads the provider.
    unload: fn(),
    is_finished: bool,
    // Fields drop in this order: the provider's files outlive the core, and the next test may start last.
    _folder: TempDir,
    _turn: Turn,
}

impl InProcess {
    /// Loads the provider on a node with one active port. `options` are lines of ibacm_opts.cfg after the default ones.
    ///
    /// # Errors
    /// The provider's own, from its `load`.
    ///
    /// # Panics
    /// If the core's own files cannot be written.
    pub fn load<P: Exported>(options: &[&str]) -> Result<Self, acm_prov_api::Error> {
        Self::load_with::<P>(vec![DeviceSpec::single()], options)
    }

    /// Does the same as [`load`](Self::load), with other devices.
    ///
    /// # Errors
    /// The provider's own, from its `load`.
    ///
    /// # Panics
    /// If the core's own files cannot be written.
    pub fn load_with<P: Exported>(
        devices: Vec<DeviceSpec>,
        options: &[&str],
    ) -> Result<Self, acm_prov_api::Error> {
        Self::load_configured::<P>(devices, |folder| {
            let mut lines = StandIn::default_options(folder);
            lines.extend(options.iter().map(|line| (*line).to_owned()));
            lines
        })
    }

    /// Does the same with only these lines of ibacm_opts.cfg; without lines there is no such file.
    ///
    /// # Errors
    /// The provider's own, from its `load`.
    ///
    /// # Panics
    /// If the core's own files cannot be written.
    pub fn load_with_exactly<P: Exported>(
        devices: Vec<DeviceSpec>,
        options: &[&str],
    ) -> Result<Self, acm_prov_api::Error> {
        Self::load_configured::<P>(devices, |_| {
            options.iter().map(|line| (*line).to_owned()).collect()
        })
    }

    fn load_configured<P: Exported>(
        devices: Vec<DeviceSpec>,
        options: impl FnOnce(&Path) -> Vec<String>,
    ) -> Result<Self, acm_prov_api::Error> {
        let turn = acm_prov_api::turn();
        let folder = tempfile::Builder::new()
            .prefix("acm-stand-in-")
            .tempdir()
            .unwrap_or_else(|error| panic!("a temporary folder: {error}"));
        let lines = options(folder.path());
        let (shared, devices) = StandIn::prepare(Setup {
            devices,
            options: lines,
            folder: folder.path().to_owned(),
            trace: None,
            deadline: None,
        })
        .unwrap_or_else(|error| panic!("the core's own files: {error}"));
        // SAFETY: the table holds this core's functions, which behave as the real core's, on any thread.
        let provider = unsafe { acm_prov_api::load::<P>(StandIn::host_table()) }?;
        Ok(Self {
            core: StandIn::with_provider(shared, devices, provider),
            unload: acm_prov_api::unload::<P>,
            is_finished: false,
            _folder: folder,
            _turn: turn,
        })
    }

    /// Closes everything, waits for outstanding MADs, unloads the provider, and returns the violations of the contract.
    /// They include requests that the provider still held, which thus cannot disturb a later test.
    pub fn finish(mut self) -> Vec<Violation> {
        self.end()
    }

    fn end(&mut self) -> Vec<Violation> {
        self.is_finished = true;
        let before = self.core.finish();
        (self.unload)();
        // The provider held these requests until now.
        let mut breaches = self.core.violations();
        let known = |breach: &Violation| breaches.contains(breach);
        let outstanding: Vec<_> = before.into_iter().filter(|breach| !known(breach)).collect();
        breaches.extend(outstanding);
        breaches
    }
}

impl Deref for InProcess {
    type Target = StandIn;

    fn deref(&self) -> &StandIn {
        &self.core
    }
}

impl DerefMut for InProcess {
    fn deref_mut(&mut self) -> &mut StandIn {
        &mut self.core
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let breaches = self.end();
        if !std::thread::panicking() {
            assert!(
                breaches.is_empty(),
                "violations of the contract: {breaches:#?}\nthe log: {:#?}",
                self.core.log()
            );
        }
    }
}
