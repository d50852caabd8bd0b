//! `ibv_create_ah(3)`.

use std::fmt;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::ProtectionDomain;
use crate::address::{Gid, Lid};
use crate::error::{Cause, Error, Result};
use crate::handle::Handle;

/// The path to a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressAttributes {
    /// The local port to send from; ports count from 1.
    pub port: u8,
    /// LID of the destination; ignored on Ethernet.
    pub destination_lid: Lid,
    /// Service level, 0 to 15.
    pub sl: u8,
    /// Offset from the local base LID to the source LID, below `2^lmc`.
    pub source_path_bits: u8,
    /// Maximum rate, as the architecture's code (`enum ibv_rate`, the low 6 bits of a path record's rate); 0
    /// for the port's rate.
    pub static_rate: u8,
    /// Global route: required across subnets, for multicast, on Ethernet, and to send a GRH.
    pub route: Option<GlobalRoute>,
}

/// Contents of a Global Route Header.
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

/// An address to send datagrams to. A send in flight keeps it alive.
#[derive(Debug)]
pub struct AddressHandle {
    handle: Handle<ffi::ibv_ah>,
    attributes: AddressAttributes,
    domain: Arc<ProtectionDomain>,
}

impl AddressHandle {
    /// # Errors
    /// [`Cause::Invalid`] for a service level or flow label out of range; else the error of `ibv_create_ah`. On
    /// Ethernet that may be a failure to resolve the neighbour (ARP).
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
        // SAFETY: the domain is alive, the attributes are readable; the handle owns the result.
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

    /// Returns the attributes that it was made from.
    pub fn attributes(&self) -> &AddressAttributes {
        &self.attributes
    }

    /// Destroys it.
    ///
    /// # Errors
    /// The error of `ibv_destroy_ah`; the address then leaks.
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
