//! Files that a provider reads at start: names and addresses of the destinations, and a dump of paths.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::stand_in::bare::{OWN_LID, gid_of, guid_of, lid_of};
use crate::stand_in::message::Addr;

/// Returns the name of a destination.
pub fn name_of(destination: u32) -> Addr {
    Addr::Name(format!("node{destination}.bench"))
}

/// Returns the IPv4 address of a destination, in 10.0.0.0/8.
pub fn ip_of(destination: u32) -> Addr {
    Addr::Ip(Ipv4Addr::from((10 << 24) + destination + 1))
}

/// Writes the acm_hosts file of a number of destinations, by names or by addresses.
///
/// # Errors
/// If it cannot be written.
pub fn write_hosts(folder: &Path, count: u32, address: fn(u32) -> Addr) -> io::Result<PathBuf> {
    let path = folder.join("hosts");
    let mut file = BufWriter::new(File::create(&path)?);
    for destination in 0..count {
        let gid = gid_of(destination);
        match address(destination) {
            Addr::Name(name) => writeln!(file, "{name} {gid}")?,
            other => writeln!(file, "{other} {gid}")?,
        }
    }
    file.flush()?;
    Ok(path)
}

/// Writes a dump like OpenSM's dump_pr plugin for a number of hosts and this port: a section for each port, with a line for
/// every port in each.
///
/// # Errors
/// If it cannot be written.
pub fn write_dump(path: &Path, hosts: u32, own_guid: u64) -> io::Result<()> {
    use std::fmt::Write as _;
    let mut lines = String::new();
    let ports = (0..hosts).map(|host| (guid_of(host), lid_of(host)));
    let ports: Vec<(u64, u16)> = ports.chain([(own_guid, OWN_LID)]).collect();
    for (_, lid) in &ports {
        // Writing to a String does not fail.
        let _ = writeln!(lines, "0x{lid:04x} : 0  : 4   : 3   ");
    }
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for (guid, lid) in &ports {
        writeln!(
            file,
            "Channel Adapter 0x{guid:016x}, base LID {lid}, \"node{lid}\", port 1\n# LID  : SL : MTU : RATE"
        )?;
        file.write_all(lines.as_bytes())?;
        writeln!(file)?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use acm_prov_api::address::Lid;
    use acm_prov_api::dump::Routes;

    #[test]
    fn the_dump_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump");
        write_dump(&path, 5, 0x77).unwrap();
        let routes = Routes::read(&path, 0x77, Lid(OWN_LID));
        assert_eq!(routes.reports(), []);
        assert_eq!(routes.iter().count(), 6);
        assert_eq!(routes.by_lid(Lid(5)).unwrap().guid, guid_of(4));
        assert_eq!(routes.lid_of(guid_of(0)), Some(Lid(1)));
    }
}
