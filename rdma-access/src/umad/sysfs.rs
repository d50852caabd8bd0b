//! Reads devices and their ports for MADs from the kernel.
//!
//! libibumad skips a whole device if it cannot read one file of one port (the rate of an unplugged port, for
//! instance), or if there is a port 10. The ports can still be opened.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{UmadDevice, UmadPort, Unreadable};
use crate::address::{Guid, Lid};
use crate::diagnosis;

const CLASS_DEVICES: &str = "/sys/class/infiniband";
pub const CLASS_MADS: &str = "/sys/class/infiniband_mad";
/// Node types that libibumad lists: channel adapters, switches and routers. Others do not speak InfiniBand.
const NODE_TYPES: std::ops::RangeInclusive<u32> = 1..=3;

/// Reads the fields of a device that are needed to choose a port, as far as possible.
pub fn read_device(name: &str) -> UmadDevice {
    let folder = Path::new(CLASS_DEVICES).join(name);
    let mut reader = Reader::default();
    let node_type = reader.read(&folder.join("node_type"), number);
    let ports = folder.join("ports");
    let mut numbers: Vec<u8> = match fs::read_dir(&ports) {
        Ok(entries) => {
            let names = entries.flatten().map(|entry| entry.file_name());
            names
                .filter_map(|name| name.to_str()?.parse().ok())
                .collect()
        }
        Err(error) => {
            reader.unreadable.push(Unreadable::new(&ports, &error));
            Vec::new()
        }
    };
    numbers.sort_unstable();
    let ports = numbers
        .into_iter()
        .filter_map(|number| reader.port(&ports.join(number.to_string()), number))
        .collect();
    UmadDevice {
        name: name.to_owned(),
        is_switch: node_type == Some(super::ffi::NODE_TYPE_SWITCH),
        ports,
        unreadable: reader.unreadable,
    }
}

#[derive(Default)]
struct Reader {
    unreadable: Vec<Unreadable>,
}

impl Reader {
    /// Reads and parses a file; on failure records it and returns `None`.
    fn read<T>(&mut self, file: &Path, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = fs::read_to_string(file).and_then(|text| {
            parse(text.trim()).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("unexpected content {:?}", text.trim()),
                )
            })
        });
        value
            .map_err(|error| self.unreadable.push(Unreadable::new(file, &error)))
            .ok()
    }

    /// Reads a port; `None` if a field needed to judge its state cannot be read.
    fn port(&mut self, folder: &Path, number_of_port: u8) -> Option<UmadPort> {
        let state = self.read(&folder.join("state"), number);
        let physical_state = self.read(&folder.join("phys_state"), number);
        let capabilities = self.read(&folder.join("cap_mask"), number);
        // Kernels without this file support only InfiniBand.
        let link_layer = match fs::read_to_string(folder.join("link_layer")) {
            Ok(text) => text.trim().to_owned(),
            Err(_) => "IB".to_owned(),
        };
        let mut lid = |name| Lid(self.read(&folder.join(name), number).unwrap_or(0) as u16);
        let (lid, sm_lid) = (lid("lid"), lid("sm_lid"));
        let sm_sl = self.read(&folder.join("sm_sl"), number).unwrap_or(0);
        let guid = self.read(&folder.join("gids/0"), |text| {
            let gid: std::net::Ipv6Addr = text.parse().ok()?;
            Some(Guid(u128::from(gid) as u64))
        });
        Some(UmadPort {
            number: number_of_port,
            state: state?,
            physical_state: physical_state?,
            link_layer,
            capabilities: capabilities?,
            lid,
            sm_lid,
            sm_sl: u8::try_from(sm_sl).unwrap_or(0),
            guid: guid.unwrap_or_default(),
        })
    }
}

/// Parses the number at the beginning of a line such as `4: ACTIVE` or `0x2514868`.
fn number(text: &str) -> Option<u32> {
    let word = text.split(':').next()?.trim();
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Returns why libibumad does not list a device of that name; `None` if there is none of that name.
pub fn why_not_listed(name: &str) -> Option<String> {
    let entries = match fs::read_dir(CLASS_DEVICES) {
        Ok(entries) => entries,
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && Path::new("/sys/class").exists() =>
        {
            return None;
        }
        Err(error) => {
            return Some(diagnosis::class_unreadable(CLASS_DEVICES, &error, "ib_core").to_string());
        }
    };
    // Search the names: `name` is from the caller and may contain anything.
    entries.flatten().find(|entry| entry.file_name() == name)?;
    let file = Path::new(CLASS_DEVICES).join(name).join("node_type");
    Some(match fs::read_to_string(&file) {
        Err(error) => Unreadable::new(&file, &error).to_string(),
        Ok(text) => match number(&text) {
            Some(node_type) if NODE_TYPES.contains(&node_type) => {
                format!("{name} appeared while the devices were being listed; try again")
            }
            _ => format!(
                "{name} is not an InfiniBand device, so it has no MADs: {} contains {:?}",
                file.display(),
                text.trim()
            ),
        },
    })
}

/// The file of a port in `/dev`.
pub enum MadFile {
    /// Its path and number.
    Found(PathBuf, Option<u32>),
    /// The kernel has no file for that port.
    None,
    /// Unknown, because a file cannot be read.
    Unknown(Unreadable),
}

pub fn mad_file(device: &str, port: u8) -> MadFile {
    let entries = match fs::read_dir(CLASS_MADS) {
        Ok(entries) => entries,
        Err(error) => return MadFile::Unknown(Unreadable::new(Path::new(CLASS_MADS), &error)),
    };
    let mut unreadable = None;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Next to it is the subnet manager's file (issmN).
        let Some(digits) = name.strip_prefix("umad") else {
            continue;
        };
        let mut reader = Reader::default();
        let ibdev = reader.read(&entry.path().join("ibdev"), |text| Some(text.to_owned()));
        let number = reader.read(&entry.path().join("port"), number);
        if ibdev.as_deref() == Some(device) && number == Some(port.into()) {
            let path = Path::new("/dev/infiniband").join(&name);
            return MadFile::Found(path, digits.parse().ok());
        }
        if ibdev.is_none_or(|ibdev| ibdev == device) {
            unreadable = reader.unreadable.pop().or(unreadable);
        }
    }
    unreadable.map_or(MadFile::None, MadFile::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_a_line() {
        for (text, value) in [
            ("4: ACTIVE", Some(4)),
            ("1: CA\n", Some(1)),
            ("0x2514868", Some(0x0251_4868)),
            ("7", Some(7)),
            ("", None),
            ("ACTIVE", None),
            ("0x", None),
            ("-1", None),
        ] {
            assert_eq!(number(text), value, "{text:?}");
        }
    }
}
