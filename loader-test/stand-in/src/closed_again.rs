//! Calls that the real core never makes: a second close, and the close of a device whose port did not open.

use std::ffi::c_void;

use super::ledger::ViolationKind;
use super::{AddressId, StandIn};

/// The provider's contexts of a device, a port, an endpoint and an address.
#[derive(Clone, Copy, Debug)]
pub struct Contexts([*mut c_void; 4]);

impl StandIn {
    /// Returns the contexts behind an address.
    pub fn all_contexts(&mut self, id: AddressId) -> Contexts {
        Contexts(self.contexts(id))
    }

    /// Closes the contexts a second time: a provider that keeps its contexts in a table survives this.
    pub fn close_again(&mut self, Contexts([device, port, endpoint, address]): Contexts) {
        call!(self, remove_address(address));
        call!(self, close_endpoint(endpoint));
        call!(self, close_port(port));
        call!(self, close_device(device));
    }

    /// Closes the devices that are open without a port: ibacm forgets them, and opens them again with the next port.
    pub fn close_forgotten_devices(&mut self) {
        for device in 0..self.devices.len() {
            let known = &mut self.devices[device];
            if known.users > 0 || known.context.is_null() {
                continue;
            }
            let context = std::mem::replace(&mut known.context, std::ptr::null_mut());
            call!(self, close_device(context));
        }
    }

    /// Removes all violations from the ledger: the test has handled them.
    pub fn forgive_all(&self) {
        for kind in ViolationKind::ALL {
            self.forgive(kind);
        }
    }
}
