//! Finds out why librdmacm fails to start, or finds no device for an address. librdmacm itself reports at most
//! an error number, and not always the right one.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::ScopedIp;
use super::network::{self, Route};
use crate::diagnosis;
use crate::error::Cause;
use crate::verbs;

const DEVICE_FILE: &str = "/dev/infiniband/rdma_cm";
const CLASS_DEVICES: &str = "/sys/class/infiniband";
const ABI_VERSION: &str = "/sys/class/misc/rdma_cm/abi_version";
/// Versions of the kernel's interface that librdmacm supports (its rdma_cma_abi.h, since 2006).
const ABI_VERSIONS: std::ops::RangeInclusive<u32> = 3..=4;
/// `ARPHRD_INFINIBAND`: the type of an IPoIB interface.
const IPOIB: &str = "32";

/// Returns why librdmacm cannot start.
pub fn unavailable(errno: i32) -> Cause {
    let errno = Errno::from_raw_os_error(errno);
    // librdmacm lists the devices first, then opens its file.
    if errno == Errno::NODEV {
        return match verbs::diagnosis::none_shown() {
            // An unusable device would be another error.
            Cause::NoDevice { present, .. } if present.is_empty() => Cause::NoDevice {
                wanted: "RDMA device".to_owned(),
                present,
            },
            cause => cause,
        };
    }
    let version = fs::read_to_string(ABI_VERSION).ok();
    let version = version.as_deref().map(str::trim);
    let is_known = |text: &str| {
        text.parse()
            .is_ok_and(|version| ABI_VERSIONS.contains(&version))
    };
    if let Some(version) = version.filter(|_| errno == Errno::PERM)
        && !is_known(version)
    {
        return Cause::NotSupported(format!(
            "the kernel's rdma_ucm has interface version {version} ({ABI_VERSION}), librdmacm knows {} to {}",
            ABI_VERSIONS.start(),
            ABI_VERSIONS.end()
        ));
    }
    // librdmacm reports ENOMEM for any failure to open the file.
    let file = Path::new(DEVICE_FILE);
    match open(file, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) if version.is_none() => {
            let error = io::Error::from_raw_os_error(Errno::NOENT.raw_os_error());
            diagnosis::class_unreadable(ABI_VERSION, &error, "rdma_ucm")
        }
        Err(error) => diagnosis::open_failed(file, error.raw_os_error()),
        Ok(_) if errno == Errno::NOMEM => Cause::OutOfMemory,
        Ok(_) => Cause::Io {
            source: errno.into(),
            likely: format!("{DEVICE_FILE} opens, so permissions are not the cause"),
        },
    }
}

/// The kind of the failed lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// `rdma_bind_addr`.
    Local,
    /// `rdma_resolve_addr`, with its timeout.
    Remote(Duration),
}

/// Returns the likely cause of a failed lookup.
pub fn lookup_failed(lookup: Lookup, address: &ScopedIp, errno: i32) -> Cause {
    let errno = Errno::from_raw_os_error(errno);
    let likely = match (errno, lookup) {
        (Errno::NOMEM, _) => return Cause::OutOfMemory,
        (Errno::TIMEDOUT, Lookup::Remote(limit)) => {
            let interface_text = match network::route_to(address) {
                Ok(Route::By(interface, _)) => format!(" (the request went out on {interface})"),
                _ => String::new(),
            };
            let likely = format!("no host has that address, or it does not answer{interface_text}");
            return Cause::TimedOut { limit, likely };
        }
        // In a remote lookup, a failure that follows the kernel's answer shows as EPERM.
        (Errno::NODEV, _) | (Errno::PERM, Lookup::Remote(_)) => {
            return without_device(lookup, address, errno);
        }
        (Errno::ADDRNOTAVAIL, _) => not_here(address),
        (Errno::NETUNREACH | Errno::HOSTUNREACH, _) => unreachable(address),
        (Errno::INVAL, _) => "the kernel does not accept such an address".to_owned(),
        _ => String::new(),
    };
    io_cause(errno, likely)
}

fn io_cause(errno: Errno, likely: String) -> Cause {
    Cause::Io {
        source: errno.into(),
        likely,
    }
}

/// Returns why this machine does not have an address.
fn not_here(address: &ScopedIp) -> String {
    let anywhere = ScopedIp::from(address.ip());
    let interfaces = match network::interfaces_with(&anywhere) {
        Ok(interfaces) => interfaces,
        Err(error) => return format!("cannot determine its interface: {error}"),
    };
    let own = network::interfaces_with(address).unwrap_or_default();
    if let Some(interface) = own.first() {
        return format!(
            "{interface} has that address, but it may not be used yet or any more (tentative in ip address show \
             {interface}?)"
        );
    }
    if !interfaces.is_empty() {
        return format!(
            "that interface does not have it, but {}",
            interfaces.join(", ")
        );
    }
    let mapped = match address.ip() {
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map(ScopedIp::from),
        IpAddr::V4(_) => None,
    };
    match mapped.map(|v4| (v4, network::interfaces_with(&v4).unwrap_or_default())) {
        Some((v4, interfaces)) if !interfaces.is_empty() => {
            format!(
                "no interface of this machine has that IPv6 address; {} has {v4}",
                interfaces.join(", ")
            )
        }
        _ => "no interface of this machine has that address".to_owned(),
    }
}

/// Returns a text if the interface of an address's scope does not exist.
fn without_scope(address: &ScopedIp) -> Option<String> {
    let is_missing =
        address.scope() != 0 && network::interface(address.scope()) == Err(Errno::NODEV);
    is_missing.then(|| format!("there is no interface with number {}", address.scope()))
}

fn unreachable(address: &ScopedIp) -> String {
    if let Some(why) = without_scope(address) {
        return why;
    }
    match network::route_to(address) {
        Ok(Route::None(_)) => "there is no route to that address".to_owned(),
        Ok(Route::By(interface, _)) => {
            format!(
                "there is a route to that address by {interface}, but no router or host on it answers for the address"
            )
        }
        Ok(Route::Own) => "it is an address of this machine".to_owned(),
        Err(error) => format!("cannot determine its route: {error}"),
    }
}

/// Returns why the interface of a lookup has no device that librdmacm can use.
pub fn without_device(lookup: Lookup, address: &ScopedIp, errno: Errno) -> Cause {
    let unknown = |what, error| io_cause(errno, format!("cannot determine {what}: {error}"));
    if let Some(why) = without_scope(address) {
        return io_cause(errno, why);
    }
    let (interfaces, own) = match lookup {
        Lookup::Local => (network::interfaces_with(address), Some(address.ip())),
        Lookup::Remote(_) => match network::route_to(address) {
            Ok(Route::Own) => (network::interfaces_with(address), Some(address.ip())),
            Ok(Route::By(interface, source)) => (Ok(vec![interface]), source),
            Ok(Route::None(_)) => {
                return io_cause(errno, "there is no route to that address".to_owned());
            }
            Err(error) => return unknown("its route", error),
        },
    };
    let interfaces = match interfaces {
        Ok(interfaces) => interfaces,
        Err(error) => return unknown("its interface", error),
    };
    if interfaces.is_empty() {
        return io_cause(errno, not_here(address));
    }
    let mut devices = Devices::default();
    for interface in &interfaces {
        if let Err(error) = devices.find(Path::new("/sys"), interface, own) {
            return io_cause(
                errno,
                format!("cannot determine the devices of {interface}: {error}"),
            );
        }
    }
    let interfaces = interfaces.join(", ");
    let here = match lookup {
        Lookup::Local => format!("{interfaces}, which has that address,"),
        Lookup::Remote(_) => format!("{interfaces}, which is on the route,"),
    };
    // A device that the kernel has but the process may not use is reported as by a lookup by name.
    let exact = devices.with_address.iter().chain(&devices.of_interface);
    for device in exact {
        if let Some(cause) = verbs::diagnosis::unusable(device) {
            return cause;
        }
    }
    io_cause(errno, devices.verdict(&here))
}

/// Devices of an interface.
#[derive(Default)]
struct Devices {
    /// Devices with a GID for the address on it.
    with_address: Vec<String>,
    /// Devices with a port that uses the interface.
    of_interface: Vec<String>,
    /// Interfaces that have devices.
    others: Vec<String>,
}

impl Devices {
    /// Searches the ports' GID tables, and the adapter behind an IPoIB interface.
    fn find(&mut self, sys: &Path, interface: &str, own: Option<IpAddr>) -> io::Result<()> {
        let gid = own.map(|ip| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        });
        let class = sys.join("class/infiniband");
        for device in names(&class)? {
            let ports = class.join(&device).join("ports");
            for port in names(&ports)? {
                self.find_on_port(&device, &ports.join(port), interface, gid)?;
            }
        }
        let net = sys.join("class/net").join(interface);
        if line(&net.join("type")).as_deref() == Some(IPOIB) {
            for device in names(&net.join("device/infiniband"))? {
                push(&mut self.with_address, device);
            }
        }
        Ok(())
    }

    fn find_on_port(
        &mut self,
        device: &str,
        port: &Path,
        interface: &str,
        gid: Option<Ipv6Addr>,
    ) -> io::Result<()> {
        let attributes = port.join("gid_attrs/ndevs");
        for index in names(&attributes)? {
            // Reading an empty entry fails.
            let Some(its) = line(&attributes.join(&index)) else {
                continue;
            };
            if its != interface {
                push(&mut self.others, format!("{its} ({device})"));
                continue;
            }
            let entry = line(&port.join("gids").join(&index));
            let is_own = gid.is_some() && entry.and_then(|text| text.parse().ok()) == gid;
            let list = if is_own {
                &mut self.with_address
            } else {
                &mut self.of_interface
            };
            push(list, device.to_owned());
        }
        Ok(())
    }

    /// Describes the case in which each device found opens.
    fn verdict(&self, here: &str) -> String {
        if let [device, ..] = &self.with_address[..] {
            return format!("{here} has {device}, which opens and now has the address: try again");
        }
        if let [device, ..] = &self.of_interface[..] {
            return format!(
                "{here} has {device}, which opens, but that device's GID table has no entry for the \
                 address on that interface ({CLASS_DEVICES}/{device}/ports/*/gids): the kernel adds entries with a delay, \
                 and none if the table is full"
            );
        }
        let others = match self.others.is_empty() {
            true => "none has one".to_owned(),
            false => format!("these have one: {}", self.others.join(", ")),
        };
        format!(
            "{here} has no RDMA device: no GID in {CLASS_DEVICES}/*/ports/*/gid_attrs/ndevs is on it, and it is no IPoIB \
             interface of a device. Of all interfaces {others}"
        )
    }
}

fn push(list: &mut Vec<String>, name: String) {
    if !list.contains(&name) {
        list.push(name);
    }
}

/// Returns the names in a folder; none if it does not exist.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(io::Error::new(
                error.kind(),
                format!("{}: {error}", folder.display()),
            ));
        }
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<_> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

fn line(file: &Path) -> Option<String> {
    fs::read_to_string(file)
        .ok()
        .map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(with_address: &[&str], of_interface: &[&str], others: &[&str]) -> String {
        let own = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
        let devices = Devices {
            with_address: own(with_address),
            of_interface: own(of_interface),
            others: own(others),
        };
        devices.verdict("ib0, which has that address,")
    }

    #[test]
    fn each_verdict_names_what_was_found() {
        assert!(verdict(&["mlx5_0"], &[], &[]).ends_with("now has the address: try again"));
        let text = verdict(&[], &["mlx5_0"], &[]);
        assert!(
            text.contains("that device's GID table has no entry"),
            "{text}"
        );
        assert!(!text.contains("librdmacm"), "{text}");
        let text = verdict(&[], &[], &["ib1 (mlx5_1)"]);
        assert!(
            text.contains("ib0, which has that address, has no RDMA device"),
            "{text}"
        );
        assert!(text.contains("these have one: ib1 (mlx5_1)"), "{text}");
        assert!(verdict(&[], &[], &[]).contains("none has"));
    }

    fn put(sys: &Path, file: &str, text: &str) {
        let path = sys.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn devices_are_found_by_the_interface_and_the_address_of_their_gids() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        for (device, index, interface, gid) in [
            (
                "mlx5_0",
                0,
                "eth0",
                "fe80:0000:0000:0000:0202:c9ff:fe03:0001",
            ),
            (
                "mlx5_0",
                3,
                "eth0.100",
                "0000:0000:0000:0000:0000:ffff:0a07:0001",
            ),
            // Another network namespace has an interface of the same name.
            (
                "mlx5_1",
                0,
                "eth0.100",
                "0000:0000:0000:0000:0000:ffff:0a07:0002",
            ),
            (
                "mlx5_bond_0",
                1,
                "bond0",
                "fd00:0007:0000:0000:0000:0000:0000:0001",
            ),
        ] {
            let port = format!("class/infiniband/{device}/ports/1");
            put(sys, &format!("{port}/gid_attrs/ndevs/{index}"), interface);
            put(sys, &format!("{port}/gids/{index}"), gid);
        }
        // A partition of the second port's IPoIB interface, and an Ethernet interface of the same adapter.
        put(sys, "class/net/ib1.8001/type", "32");
        put(
            sys,
            "class/net/ib1.8001/device/infiniband/mlx5_2/node_guid",
            "",
        );
        put(sys, "class/net/eth9/type", "1");
        put(sys, "class/net/eth9/device/infiniband/mlx5_2/node_guid", "");
        let find = |interface: &str, own: &str| {
            let mut devices = Devices::default();
            devices.find(sys, interface, own.parse().ok()).unwrap();
            (devices.with_address, devices.of_interface)
        };
        // An IPoIB interface whose adapter has no device in this network namespace.
        put(sys, "class/net/ib7/type", "32");
        put(sys, "class/net/ib7/device/vendor", "0x15b3");
        // A bond that the adapter does not present as one device: both ports keep their own.
        for (device, interface) in [("mlx5_3", "eth3"), ("mlx5_4", "eth4")] {
            let port = format!("class/infiniband/{device}/ports/1");
            put(sys, &format!("{port}/gid_attrs/ndevs/0"), interface);
            put(sys, &format!("{port}/gids/0"), "fd00:7::1");
            put(sys, &format!("class/net/bond1/lower_{interface}/type"), "1");
        }
        put(sys, "class/net/bond1/type", "1");
        let names = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            find("eth0.100", "10.7.0.1"),
            (names(&["mlx5_0"]), names(&["mlx5_1"]))
        );
        assert_eq!(
            find("bond0", "fd00:7::1"),
            (names(&["mlx5_bond_0"]), vec![])
        );
        assert_eq!(find("eth0", "10.7.0.1"), (vec![], names(&["mlx5_0"])));
        assert_eq!(find("ib1.8001", "10.8.0.1"), (names(&["mlx5_2"]), vec![]));
        assert_eq!(find("eth9", "10.8.0.1"), (vec![], vec![]));
        assert_eq!(find("ib7", "10.8.0.1"), (vec![], vec![]));
        assert_eq!(find("bond1", "fd00:7::1"), (vec![], vec![]));
        assert_eq!(find("eth4", "fd00:7::1"), (names(&["mlx5_4"]), vec![]));
        assert_eq!(find("lo", "127.0.0.1"), (vec![], vec![]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_missing_address_and_a_mapped_one_have_different_errors() {
        let not_here = |text: &str| super::not_here(&text.parse().unwrap());
        assert_eq!(
            not_here("192.0.2.77"),
            "no interface of this machine has that address"
        );
        let text = not_here("::ffff:127.0.0.1");
        assert!(text.contains("lo has 127.0.0.1"), "{text}");
        assert!(not_here("127.0.0.1").starts_with("lo has that address, but"));
        assert_eq!(
            not_here("::ffff:192.0.2.77"),
            "no interface of this machine has that address"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn an_existing_route_is_not_reported_as_missing() {
        let unreachable = |text: &str| super::unreachable(&text.parse().unwrap());
        assert_eq!(unreachable("127.0.0.1"), "it is an address of this machine");
        assert_eq!(
            unreachable("fe80::1%987654"),
            "there is no interface with number 987654"
        );
        // The kernel does not route class E.
        let text = unreachable("240.0.0.1");
        assert!(
            text.starts_with("there is ") && text.contains(" route to that address"),
            "{text}"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_missing_interface_and_one_without_a_device_have_different_errors() {
        let cause = |text: &str| {
            without_device(Lookup::Local, &text.parse().unwrap(), Errno::NODEV).to_string()
        };
        assert!(cause("fe80::1%987654").contains("no interface with number 987654"));
        assert!(cause("192.0.2.77").contains("no interface of this machine has that address"));
        assert!(cause("127.0.0.1").contains("lo, which has that address, has no RDMA device"));
    }
}
