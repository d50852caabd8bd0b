//! The core's own actions: ports up and down, addresses added and removed, and events.

use std::ffi::{CString, c_char, c_int, c_void};

use acm_prov_api::abi::{AcmEpType, acm_address, acm_endpoint, acm_ep_info, ibv_event_type};

use super::ledger::{Harmed, ViolationKind};
use super::memory::Lent;
use super::message::{Addr, Gid};
use super::shared::{KnownEndpoint, lock};
use super::{AddressId, Endpoint, LocalAddress, PortId, Refused, StandIn, wire};

impl StandIn {
    /// Brings a port up: opens the device for its first port, then the port, as the core does. An endpoint opens with its first
    /// address.
    ///
    /// # Errors
    /// The callback that failed. Like the real core, this then drops a newly opened device without closing it, and opens it
    /// again the next time.
    pub fn port_up(&mut self, id: PortId) -> Result<(), Refused> {
        let gids: Vec<Gid> = self.port(id).gids().collect();
        let device = &mut self.devices[id.device];
        let port = &device.ports[usize::from(id.port) - 1];
        let acm_port = port.acm.as_ptr();
        self.shared.set_gids(acm_port, gids);
        device.acm.set_accessible(true);
        port.acm.set_accessible(true);
        if device.users == 0 {
            let mut context = std::ptr::null_mut();
            let acm_device = device.acm.as_ptr();
            device.context = context;
            let code = call!(
                self,
                open_device(acm_device.cast_const(), &raw mut context),
                "device {}",
                self.devices[id.device].spec.name
            );
            self.take_context("open_device", code, context)?;
            self.devices[id.device].context = context;
        }
        let dev_context = self.devices[id.device].context;
        let mut context = std::ptr::null_mut();
        let code = call!(
            self,
            open_port(acm_port.cast_const(), dev_context, &raw mut context),
            "port {}, LID {}",
            id.port,
            self.port(id).lid
        );
        self.take_context("open_port", code, context)?;
        self.devices[id.device].users += 1;
        let port = self.port_mut(id);
        port.context = context;
        port.is_up = true;
        self.shared.sa.set_down(id.number(), false);
        Ok(())
    }

    /// Judges the context that an opening callback stored.
    fn take_context(
        &self,
        callback: &'static str,
        code: c_int,
        context: *mut c_void,
    ) -> Result<(), Refused> {
        let mut ledger = lock(&self.shared.ledger);
        if code != 0 && !context.is_null() {
            ledger.breach(
                ViolationKind::ContextAfterFailure,
                Harmed::Daemon,
                format!("{callback} failed but wrote its context: the core takes it for open"),
            );
        }
        if code == 0 && context.is_null() {
            ledger.breach(
                ViolationKind::NullContext,
                Harmed::Client,
                format!(
                    "{callback} succeeded with a NULL context, which the core takes for not open"
                ),
            );
        }
        if code == 0 {
            Ok(())
        } else {
            Err(Refused { callback, code })
        }
    }

    /// Adds an address to the endpoint of a P_Key, which opens with its first address.
    ///
    /// # Errors
    /// The callback that failed.
    pub fn add_address(
        &mut self,
        id: PortId,
        pkey: u16,
        addr: &Addr,
    ) -> Result<AddressId, Refused> {
        let acm_port = self.port_mut(id).acm.as_ptr();
        let port_context = self.port_mut(id).context;
        let existing = self
            .port_mut(id)
            .endpoints
            .iter()
            .position(|endpoint| endpoint.pkey == pkey);
        let index = existing.unwrap_or_else(|| {
            let acm = Lent::new(acm_endpoint {
                port: acm_port,
                pkey,
            });
            lock(&self.shared.endpoints).insert(
                acm.as_ptr().addr(),
                KnownEndpoint {
                    port: id.number(),
                    open: true,
                },
            );
            let endpoint = Endpoint {
                pkey,
                acm,
                context: std::ptr::null_mut(),
                addresses: Vec::new(),
                array: None,
            };
            let port = self.port_mut(id);
            port.endpoints.push(endpoint);
            port.endpoints.len() - 1
        });
        if self.port_mut(id).endpoints[index].context.is_null() {
            let acm = self.port_mut(id).endpoints[index].acm.as_ptr();
            let mut context = std::ptr::null_mut();
            let code = call!(
                self,
                open_endpoint(acm.cast_const(), port_context, &raw mut context),
                "P_Key {pkey:#06x}"
            );
            self.take_context("open_endpoint", code, context)?;
            self.port_mut(id).endpoints[index].context = context;
        }
        let text = CString::new(addr.to_string().replace('\0', " ")).unwrap_or_default();
        let text = Lent::array(text.as_bytes_with_nul());
        let endpoint = &mut self.port_mut(id).endpoints[index];
        let ep_context = endpoint.context;
        let (place, entry) = endpoint.place(addr, text.as_ptr().cast());
        let address = AddressId {
            port: id,
            pkey,
            index: place,
        };
        let mut context = std::ptr::null_mut();
        let code = call!(
            self,
            add_address(entry.cast_const(), ep_context, &raw mut context),
            "{addr:?}"
        );
        self.take_context("add_address", code, context)?;
        let entry = &mut self.port_mut(id).endpoints[index].addresses[address.index];
        entry.context = context;
        entry.valid = true;
        // The core may change the text, and moves the array at the next address.
        drop(text);
        Ok(address)
    }

    /// Brings the port up with one name and one IP address on the endpoint of its first P_Key.
    ///
    /// # Errors
    /// The callback that failed.
    pub fn up(&mut self, id: PortId) -> Result<AddressId, Refused> {
        self.port_up(id)?;
        let pkey = self
            .port(id)
            .pkeys
            .iter()
            .copied()
            .find(|pkey| pkey & 0x7fff != 0)
            .unwrap_or(0xffff);
        let octet = 200 + id.number() as u8;
        self.add_address(id, pkey, &Addr::Name(format!("self{}", id.number())))?;
        self.add_address(id, pkey, &Addr::Ip([10, 1, 0, octet].into()))
    }

    /// Removes an address.
    pub fn remove_address(&mut self, id: AddressId) {
        let Some(endpoint) = self.endpoint_mut(id.port, id.pkey) else {
            return;
        };
        let entry = &mut endpoint.addresses[id.index];
        entry.valid = false;
        let context = std::mem::replace(&mut entry.context, std::ptr::null_mut());
        if let Some(array) = &mut endpoint.array {
            let mut gone = array.get(id.index);
            gone.r#type = AcmEpType(0);
            array.set(id.index, gone);
        }
        if !context.is_null() {
            call!(self, remove_address(context));
        }
    }

    /// Marks an address invalid without calling the provider, as after a lost netlink message.
    pub fn lose_address(&mut self, id: AddressId) {
        if let Some(endpoint) = self.endpoint_mut(id.port, id.pkey) {
            endpoint.addresses[id.index].valid = false;
        }
    }

    /// Takes the port down: closes its endpoints and the port, and with the last port the device.
    pub fn port_down(&mut self, id: PortId) {
        self.close_port(id, true);
    }

    /// Does the same without removing the addresses first, as the core does for addresses marked invalid.
    pub fn port_down_keeping_addresses(&mut self, id: PortId) {
        self.close_port(id, false);
    }

    pub(super) fn close_port(&mut self, id: PortId, removes_addresses: bool) {
        self.shared.sa.set_down(id.number(), true);
        let endpoints = std::mem::take(&mut self.port_mut(id).endpoints);
        for endpoint in endpoints {
            for address in &endpoint.addresses {
                if removes_addresses && address.valid && !address.context.is_null() {
                    call!(self, remove_address(address.context));
                }
            }
            if !endpoint.context.is_null() {
                call!(self, close_endpoint(endpoint.context));
            }
            // The endpoint's memory is inaccessible from here on.
            if let Some(known) = lock(&self.shared.endpoints).get_mut(&endpoint.acm.as_ptr().addr())
            {
                known.open = false;
            }
        }
        let port = self.port_mut(id);
        port.is_up = false;
        let context = std::mem::replace(&mut port.context, std::ptr::null_mut());
        if context.is_null() {
            return;
        }
        call!(self, close_port(context));
        if self.hides_closed {
            self.port_mut(id).acm.set_accessible(false);
        }
        let device = &mut self.devices[id.device];
        device.users -= 1;
        if device.users > 0 {
            return;
        }
        let context = std::mem::replace(&mut device.context, std::ptr::null_mut());
        if !context.is_null() {
            call!(self, close_device(context));
        }
        if self.hides_closed {
            self.devices[id.device].acm.set_accessible(false);
        }
    }

    /// Sends the provider an event.
    pub fn event(&mut self, id: PortId, event: u32) -> c_int {
        let context = self.port_mut(id).context;
        call!(self, handle_event(context, ibv_event_type(event)))
    }

    /// Sends the provider `IBV_EVENT_CLIENT_REREGISTER`; the SM has lost all memberships.
    pub fn reregister(&mut self, id: PortId) -> c_int {
        wire::end_memberships(&self.devices[id.device].adapter, id.port);
        self.event(id, ibv_event_type::CLIENT_REREGISTER.0)
    }
}

impl Endpoint {
    /// Puts an address into the array, as the core does: at the first free place, or at the end of a larger array, which moves
    /// and makes the old one inaccessible. Returns its index and its location.
    fn place(&mut self, addr: &Addr, id_string: *mut c_char) -> (usize, *mut acm_address) {
        let entry = acm_address {
            endpoint: self.acm.as_ptr(),
            info: acm_ep_info { addr: addr.field() },
            id_string,
            r#type: AcmEpType(addr.code()),
        };
        let known = LocalAddress {
            addr: addr.clone(),
            context: std::ptr::null_mut(),
            valid: false,
        };
        let free = self.addresses.iter().position(|address| !address.valid);
        let (index, array) = match (free, self.array.take()) {
            (Some(free), Some(mut array)) => {
                array.set(free, entry);
                self.addresses[free] = known;
                (free, array)
            }
            (_, old) => {
                let entries: Vec<acm_address> = old
                    .iter()
                    .flat_map(|old| (0..self.addresses.len()).map(|known| old.get(known)))
                    .chain([entry])
                    .collect();
                self.addresses.push(known);
                (entries.len() - 1, Lent::array(&entries))
            }
        };
        let pointer = array.as_ptr().wrapping_add(index);
        self.array = Some(array);
        (index, pointer)
    }
}
