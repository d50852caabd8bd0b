//! `ibv_create_ah(3)`.

use std::fmt;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::ProtectionDomain;
use crate::address::{Gid, Lid};
use crate::error::{Cause, Error, Result};
use crate::handle::Handle;

/// The way to a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressAttributes {
    /// The local port to send from; ports count from 1.
    pub port: u8,
    /// LID of the destination; does not count on Ethernet.
    pub destination_lid: Lid,
    /// Service level, 0 to 15.
    pub sl: u8,
    /// What to add to the local base LID for the source LID, below `2^lmc`.
    pub source_path_bits: u8,
    /// Largest rate, as the architecture's code (`enum ibv_rate`, the low 6 bits of a path record's); 0 for the port's.
    pub static_rate: u8,
    /// A global route: needed across subnets, for multicast, on Ethernet, and to have a GRH arrive.
    pub route: Option<GlobalRoute>,
}

/// What a Global Route Header will hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalRoute {
    /// The destination, a port or a multicast group.
    pub destination: Gid,
    /// Index of the source GID in the local port's table.
    pub source_index: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit; above 1 to leave the subnet.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

impl fmt::Display for AddressAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "port {}, DLID {}, SL {}",
            self.port, self.destination_lid, self.sl
        )?;
        if let Some(route) = &self.route {
            write!(
                f,
                ", DGID {}, source GID index {}",
                route.destination, route.source_index
            )?;
        }
        Ok(())
    }
}

/// An address that datagrams can be sent to. A send in flight holds it.
#[derive(Debug)]
pub struct AddressHandle {
    handle: Handle<ffi::ibv_ah>,
    attributes: AddressAttributes,
    domain: Arc<ProtectionDomain>,
}

impl AddressHandle {
    /// # Errors
    /// [`Cause::Invalid`] for a service level or flow label that does not fit; what `ibv_create_ah` fails with. On
    /// Ethernet that can be the neighbour's failing answer (ARP).
    pub fn new(domain: &Arc<ProtectionDomain>, attributes: &AddressAttributes) -> Result<Self> {
        const OPERATION: &str = "ibv_create_ah";
        let context = domain.context();
        let route = attributes.route.unwrap_or_default();
        if attributes.sl > 15 || route.flow_label > 0x000f_ffff {
            let cause = Cause::Invalid("the SL has 4 bits and the flow label 20".to_owned());
            return Err(Error::new(
                OPERATION,
                format_args!("{}, {attributes}", context.name()),
                cause,
            ));
        }
        let mut c = ffi::ibv_ah_attr {
            grh: ffi::ibv_global_route {
                dgid: ffi::ibv_gid {
                    raw: route.destination.0,
                },
                flow_label: route.flow_label,
                sgid_index: route.source_index,
                hop_limit: route.hop_limit,
                traffic_class: route.traffic_class,
            },
            dlid: attributes.destination_lid.0,
            sl: attributes.sl,
            src_path_bits: attributes.source_path_bits,
            static_rate: attributes.static_rate,
            is_global: attributes.route.is_some().into(),
            port_num: attributes.port,
        };
        // SAFETY: the domain is alive, the attributes are readable; the result is nobody else's.
        let handle = unsafe {
            Handle::take(ffi::ibv_create_ah(domain.raw(), &raw mut c), |errno| {
                context.fault(OPERATION, attributes, errno, "")
            })
        }?;
        Ok(Self {
            handle,
            attributes: *attributes,
            domain: domain.clone(),
        })
    }

    /// What it was made from.
    pub fn attributes(&self) -> &AddressAttributes {
        &self.attributes
    }

    /// Ends it.
    ///
    /// # Errors
    /// What `ibv_destroy_ah` fails with; the address then stays, for ever.
    pub fn close(self) -> Result<()> {
        self.handle.destroy()
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_ah {
        self.handle.as_ptr()
    }

    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}
