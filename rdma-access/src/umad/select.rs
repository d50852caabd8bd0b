//! Chooses device and port by libibumad's rules, see the page of [`umad`](super).

use super::{UmadDevice, UmadPort};
use crate::error::Cause;

/// The purpose of opening a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Any MADs: `umad_open_port`.
    Any,
    /// Subnet management: `umad_open_smi_port`.
    Smi,
}

/// How suitable a port is; the most suitable is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Usable,
    LinkUp,
    Active,
}

pub const ACTIVE: u32 = 4;
const DISABLED: u32 = 3;
pub const LINK_UP: u32 = 5;

impl Purpose {
    fn refuses(self, port: &UmadPort) -> bool {
        self == Self::Smi && port.is_smi_disabled()
    }

    /// Returns what a device must have, for an error.
    fn wanted(self) -> &'static str {
        match self {
            Self::Any => "usable port for MADs",
            Self::Smi => "InfiniBand port that takes subnet management packets (an SMI port)",
        }
    }
}

/// Chooses device and port.
///
/// For [`Purpose::Any`] a port named together with its device is not checked: opening it reports what is wrong.
pub fn select(
    devices: &[UmadDevice],
    name: Option<&str>,
    port: Option<u8>,
    purpose: Purpose,
) -> Result<(String, u8), Cause> {
    let named = name.map(|name| devices.iter().find(|device| device.name == name));
    match (name, named.flatten(), port) {
        (Some(name), _, Some(port)) if purpose == Purpose::Any => Ok((name.to_owned(), port)),
        (Some(name), None, Some(_)) => Err(absent(devices, name)),
        (Some(name), Some(device), Some(number)) => match unsuitable(device, number) {
            Some(why) => Err(why),
            None => Ok((name.to_owned(), number)),
        },
        (Some(name), device, None) => device
            .and_then(|device| best_port(device, None, purpose))
            .map(|(_, port)| (name.to_owned(), port))
            .ok_or_else(|| none(devices, purpose)),
        (None, _, port) => {
            let mut best: Option<(Rank, &UmadDevice, u8)> = None;
            for device in devices {
                // Between devices, only an active port is decisive; else the first device with a suitable port
                // wins.
                if let Some((rank, number)) = best_port(device, port, purpose)
                    && best.is_none_or(|(old, ..)| old < Rank::Active && rank == Rank::Active)
                {
                    best = Some((rank, device, number));
                }
            }
            best.map(|(_, device, number)| (device.name.clone(), number))
                .ok_or_else(|| none(devices, purpose))
        }
    }
}

/// Returns the error for a device that does not exist.
pub fn absent(devices: &[UmadDevice], name: &str) -> Cause {
    Cause::Invalid(format!(
        "no device {name}; devices here: {}",
        names(devices).join(", ")
    ))
}

/// Returns why a named port cannot be used for subnet management.
fn unsuitable(device: &UmadDevice, number: u8) -> Option<Cause> {
    let name = &device.name;
    let invalid = |why| Some(Cause::Invalid(format!("port {number} of {name} {why}")));
    if device.is_switch {
        return invalid("is not a switch's management port, which is port 0");
    }
    let Some(port) = device.ports.iter().find(|port| port.number == number) else {
        return Some(missing_port(device, number));
    };
    if !port.is_infiniband() {
        invalid("is not an InfiniBand port, so it has no SMI")
    } else if port.is_smi_disabled() {
        invalid(
            "has its SMI disabled (IsSMDisabled), as virtual functions and some planes of a multi-plane device have",
        )
    } else {
        None
    }
}

/// Returns why a device has no such port.
pub fn missing_port(device: &UmadDevice, number: u8) -> Cause {
    let name = &device.name;
    let of_port = format!("ports/{number}");
    let is_of_port = |path: &std::path::Path| {
        // All of its ports, or this port.
        path.ends_with("ports")
            || path
                .parent()
                .is_some_and(|folder| folder.ends_with(&of_port))
    };
    match device.unreadable.iter().find(|file| is_of_port(&file.path)) {
        Some(file) => Cause::Unusable {
            device: name.clone(),
            why: format!("cannot determine whether port {number} of {name} is usable: {file}"),
        },
        None => Cause::Invalid(format!("port {number} of {name} does not exist")),
    }
}

/// Returns the most suitable port of a device, or the rank of the requested one.
fn best_port(device: &UmadDevice, wanted: Option<u8>, purpose: Purpose) -> Option<(Rank, u8)> {
    if device.is_switch {
        return Some((Rank::Active, 0));
    }
    if let Some(number) = wanted {
        let port = device.ports.iter().find(|port| port.number == number)?;
        if !port.is_infiniband() || purpose.refuses(port) {
            return None;
        }
        return match (port.state, port.physical_state) {
            (ACTIVE, _) => Some((Rank::Active, number)),
            (_, DISABLED) => None,
            _ => Some((Rank::LinkUp, number)),
        };
    }
    let rank = |port: &UmadPort| {
        if purpose.refuses(port) {
            None
        } else if port.is_infiniband() && port.state == ACTIVE {
            Some(Rank::Active)
        } else if port.is_infiniband() && port.physical_state == LINK_UP {
            Some(Rank::LinkUp)
        } else if port.physical_state != DISABLED
            && (port.is_infiniband() || purpose == Purpose::Any)
        {
            Some(Rank::Usable)
        } else {
            None
        }
    };
    let mut best = None;
    for port in &device.ports {
        if let Some(rank) = rank(port)
            && best.is_none_or(|(old, _)| old < rank)
        {
            best = Some((rank, port.number));
        }
    }
    best
}

fn none(devices: &[UmadDevice], purpose: Purpose) -> Cause {
    let describe = |device: &UmadDevice| {
        let mut about: Vec<String> = device.ports.iter().map(describe_port).collect();
        about.extend(device.unreadable.iter().map(ToString::to_string));
        format!("{} ({})", device.name, about.join("; "))
    };
    Cause::NoDevice {
        wanted: purpose.wanted().to_owned(),
        present: devices.iter().map(describe).collect(),
    }
}

fn describe_port(port: &UmadPort) -> String {
    let state = match (port.state, port.physical_state) {
        (ACTIVE, _) => "active",
        (_, DISABLED) => "disabled",
        (_, LINK_UP) => "link up",
        _ => "no link",
    };
    let smi = if port.is_smi_disabled() {
        ", SMI disabled"
    } else {
        ""
    };
    format!("port {} {}, {state}{smi}", port.number, port.link_layer)
}

fn names(devices: &[UmadDevice]) -> Vec<String> {
    match devices {
        [] => vec!["none".to_owned()],
        devices => devices.iter().map(|device| device.name.clone()).collect(),
    }
}
