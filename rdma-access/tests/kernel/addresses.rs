//! Devices by address, compared with librpma.

use std::ffi::{CString, c_char, c_int, c_void};
use std::process::Command;
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use libloading::os::unix::Library;
use rdma_access::Cause;
use rdma_access::cm::{AddressDevice, Cm, ScopedIp};
use rdma_access::verbs::PortState;

use super::{
    ADDRESS, ADDRESS_V6, DEVICE, DOWN, HERE, HERE_ON_LINK, HERE_V6, LATECOMER, NEIGHBOUR,
    NEIGHBOURLY, NOBODY, SECOND_ADDRESS, THERE, THERE_ON_LINK, THERE_V6, WITHOUT_DEVICE,
    open_files, wait_for_open_files,
};

const TIMEOUT: Duration = Duration::from_secs(1);

fn address(text: &str) -> ScopedIp {
    text.parse().unwrap()
}

fn check(found: &AddressDevice, device: &str, text: &str) {
    assert_eq!((found.device(), found.port()), (device, 1), "{text}");
    let context = found.open().unwrap();
    assert_ne!(context.as_ptr(), found.as_ptr());
    assert_eq!(context.name(), device);
    assert_eq!(context.port(1).unwrap().state, PortState::ACTIVE);
    // The reported GID is in that port's table.
    let gids: Vec<_> = (0..16)
        .filter_map(|index| context.gid(1, index).ok())
        .collect();
    assert!(
        gids.contains(&found.gid()),
        "{text}: {} is not in {gids:?}",
        found.gid()
    );
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn local_addresses_lead_to_their_device() {
    let cm = Cm::load().unwrap();
    for (text, device) in [
        (ADDRESS, DEVICE),
        (SECOND_ADDRESS, DEVICE),
        (ADDRESS_V6, DEVICE),
        (HERE, NEIGHBOURLY),
        (HERE_V6, NEIGHBOURLY),
    ] {
        let found = cm.local(&address(text)).unwrap();
        assert_eq!(found.local_address(), Some(text.parse().unwrap()));
        check(&found, device, text);
        found.close().unwrap();
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn remote_addresses_lead_to_the_device_on_the_way() {
    let cm = Cm::load().unwrap();
    for (text, device, from) in [
        (THERE, NEIGHBOURLY, HERE),
        (THERE_V6, NEIGHBOURLY, HERE_V6),
        // An own address is reached through its own device, from its first address.
        (SECOND_ADDRESS, DEVICE, ADDRESS),
    ] {
        let found = cm.remote(&address(text), TIMEOUT).unwrap();
        assert_eq!(found.local_address(), Some(from.parse().unwrap()), "{text}");
        check(&found, device, text);
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn libraries_loaded_again_and_again_leave_nothing_open() {
    let look = || {
        let found = Cm::load().unwrap().local(&address(ADDRESS)).unwrap();
        assert_eq!(found.device(), DEVICE);
    };
    // librdmacm opens some files once and keeps them open.
    look();
    let before = open_files().len();
    (0..5).for_each(|_| look());
    wait_for_open_files(before);
}

/// Returns a link-local address of an interface of this machine.
fn link_local(interface: &str) -> String {
    let table = std::fs::read_to_string("/proc/net/if_inet6").unwrap();
    let line = table
        .lines()
        .find(|line| line.starts_with("fe80") && line.ends_with(interface))
        .unwrap();
    let groups: Vec<&str> = (0..8)
        .map(|index| &line[index * 4..index * 4 + 4])
        .collect();
    groups.join(":")
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn scope_ids_tell_the_interface() {
    let cm = Cm::load().unwrap();
    for (interface, device) in [("dummy0", DEVICE), ("veth0", NEIGHBOURLY)] {
        let ip = link_local(interface);
        let number =
            std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex")).unwrap();
        for text in [
            format!("{ip}%{interface}"),
            format!("{ip}%{}", number.trim()),
        ] {
            check(&cm.local(&address(&text)).unwrap(), device, &text);
        }
        let error = cm.local(&address(&ip)).unwrap_err();
        assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
    }
    let wrong = format!("{}%veth0", link_local("dummy0"));
    let error = cm.local(&address(&wrong)).unwrap_err();
    assert!(error.to_string().contains("but dummy0"), "{error}");
    // An interface whose name is a number.
    ip(&["link", "add", "4711", "type", "dummy"]);
    let named = address("fe80::1%4711").scope();
    let number = std::fs::read_to_string("/sys/class/net/4711/ifindex").unwrap();
    ip(&["link", "del", "4711"]);
    assert_eq!(named.to_string(), number.trim());
    assert_eq!(address("fe80::1%4711").scope(), 4711);
    // One address, two routes; a dummy interface resolves no neighbours.
    let other_way = THERE_ON_LINK.replace("veth0", "dummy0");
    for (text, device) in [(THERE_ON_LINK, NEIGHBOURLY), (&other_way, DEVICE)] {
        check(&cm.remote(&address(text), TIMEOUT).unwrap(), device, text);
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn failures_name_the_call_and_its_reason() {
    let cm = Cm::load().unwrap();
    let error = cm.local(&address(WITHOUT_DEVICE)).unwrap_err();
    assert_eq!(error.operation(), "rdma_bind_addr");
    for words in [
        "dummy1, which has that address, has no RDMA device",
        "dummy0 (rxe0)",
        "veth0 (rxe1)",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = cm.local(&address("10.7.0.77")).unwrap_err();
    assert_eq!(error.operation(), "rdma_bind_addr");
    assert!(
        error
            .to_string()
            .contains("no interface of this machine has that address"),
        "{error}"
    );
    let error = cm.remote(&address("203.0.113.1"), TIMEOUT).unwrap_err();
    assert_eq!(error.operation(), "rdma_resolve_addr");
    assert!(error.to_string().contains("no route"), "{error}");
    let error = cm.remote(&address("10.9.0.7"), TIMEOUT).unwrap_err();
    let words = "dummy1, which is on the route, has no RDMA device";
    assert!(error.to_string().contains(words), "{error}");
    let error = cm.remote(&address("fe80::7%987654"), TIMEOUT).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no interface with number 987654"),
        "{error}"
    );
    let error = cm.local(&address("::ffff:10.7.0.1")).unwrap_err();
    assert!(error.to_string().contains("dummy0 has 10.7.0.1"), "{error}");
    // A loopback address has no device, although there are devices.
    let error = cm.local(&address("127.0.0.1")).unwrap_err();
    assert!(
        matches!(error.cause(), Cause::NoDevice { present, .. } if present.len() == 3),
        "{error}"
    );
}

/// An address that exists as long as this value.
struct Added(&'static str, &'static str);

impl Added {
    fn new(address: &'static str, interface: &'static str) -> Self {
        ip(&["address", "add", address, "dev", interface]);
        Self(address, interface)
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        ip(&["address", "del", self.0, "dev", self.1]);
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn an_address_on_the_loopback_interface_names_that_interface() {
    let cm = Cm::load().unwrap();
    // As in routed networks: the host's address is on its loopback interface.
    let _host = Added::new("10.99.0.1/32", "lo");
    let error = cm.local(&address("10.99.0.1")).unwrap_err();
    let words = "lo, which has that address, has no RDMA device";
    assert!(error.to_string().contains(words), "{error}");
    // An interface that is down still has its device.
    let _idle = Added::new("10.11.0.1/24", "dummy2");
    wait_for_gid(DOWN, "0000:0000:0000:0000:0000:ffff:0a0b:0001");
    assert_eq!(cm.local(&address("10.11.0.1")).unwrap().device(), DOWN);
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn addresses_of_a_vlan_and_of_a_bond_lead_to_the_device_below() {
    let cm = Cm::load().unwrap();
    ip(&[
        "link",
        "add",
        "link",
        "dummy0",
        "name",
        "dummy0.100",
        "type",
        "vlan",
        "id",
        "100",
    ]);
    ip(&["link", "set", "dummy0.100", "up"]);
    let of_vlan = {
        let _address = Added::new("10.12.0.1/24", "dummy0.100");
        wait_for_gid(DEVICE, "0000:0000:0000:0000:0000:ffff:0a0c:0001");
        cm.local(&address("10.12.0.1"))
    };
    ip(&["link", "del", "dummy0.100"]);
    let found = of_vlan.unwrap();
    assert_eq!(
        (found.device(), found.local_address()),
        (DEVICE, "10.12.0.1".parse().ok())
    );
    // A bond of an interface without a device has no device.
    ip(&["link", "add", "bond7", "type", "bond"]);
    ip(&["link", "set", "dummy1", "down"]);
    ip(&["link", "set", "dummy1", "master", "bond7"]);
    ip(&["link", "set", "bond7", "up"]);
    let of_bond = {
        let _address = Added::new("10.13.0.1/24", "bond7");
        cm.local(&address("10.13.0.1"))
    };
    ip(&["link", "set", "dummy1", "nomaster"]);
    ip(&["link", "del", "bond7"]);
    ip(&["link", "set", "dummy1", "up"]);
    let error = of_bond.unwrap_err();
    let words = "bond7, which has that address, has no RDMA device";
    assert!(error.to_string().contains(words), "{error}");
}

/// Waits until a device has a GID, which the kernel adds some time after the address.
fn wait_for_gid(device: &str, gid: &str) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let gids = || -> Vec<String> {
        let entry = |index| format!("/sys/class/infiniband/{device}/ports/1/gids/{index}");
        (0..64)
            .filter_map(|index| std::fs::read_to_string(entry(index)).ok())
            .collect()
    };
    while !gids().iter().any(|text| text.trim() == gid) {
        assert!(
            std::time::Instant::now() < deadline,
            "{gid} is not in {:?}",
            gids()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_silent_neighbour_is_waited_for_as_long_as_asked() {
    let cm = Cm::load().unwrap();
    let nobody = address(LATECOMER);
    thread::scope(|scope| {
        let patient = scope.spawn(|| cm.remote(&nobody, Duration::from_secs(60)));
        let error = cm.remote(&nobody, Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error.cause(), Cause::TimedOut { .. }), "{error}");
        assert!(error.to_string().contains("300 ms"), "{error}");
        assert!(!patient.is_finished());
        neighbour(&["address", "add", &format!("{LATECOMER}/24"), "dev", "veth1"]);
        while !patient.is_finished() {
            // Whatever the result, the kernel has tried to resolve the address again.
            Command::new("ping")
                .args(["-c", "1", "-W", "1", LATECOMER])
                .output()
                .unwrap();
        }
        check(&patient.join().unwrap().unwrap(), NEIGHBOURLY, LATECOMER);
    });
    neighbour(&["address", "del", &format!("{LATECOMER}/24"), "dev", "veth1"]);
}

/// Runs `ip` in this network namespace.
fn ip(words: &[&str]) {
    let status = Command::new("/tools/ip").args(words).status().unwrap();
    assert!(status.success(), "{words:?}: {status}");
}

/// Runs `ip` in the neighbour's network namespace.
fn neighbour(words: &[&str]) {
    let process = std::fs::read_to_string(NEIGHBOUR).unwrap();
    let status = Command::new("nsenter")
        .args(["-t", process.trim(), "-n", "/tools/ip"])
        .args(words)
        .status()
        .unwrap();
    assert!(status.success(), "{words:?}: {status}");
}

/// Returns the device that librpma finds, `none` if it succeeds without one; `None` if it fails.
fn librpma(kind: &str, text: &str) -> Option<String> {
    let output = Command::new("/tools/rpma_probe")
        .args([kind, text])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    match said
        .trim()
        .split_once(' ')
        .unwrap_or_else(|| panic!("{kind} {text}: {said}"))
    {
        ("device", name) => Some(name.to_owned()),
        ("error", _) => None,
        _ => panic!("{kind} {text}: {said}"),
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn librpma_gives_the_same_answers() {
    let cm = Cm::load().unwrap();
    let dummy = format!("{}%dummy0", link_local("dummy0"));
    let veth = format!("{}%veth0", link_local("veth0"));
    let (mut found, mut differences) = (0, Vec::new());
    for (kind, text) in [
        ("local", ADDRESS),
        ("local", SECOND_ADDRESS),
        ("local", ADDRESS_V6),
        ("local", HERE),
        ("local", HERE_V6),
        ("local", dummy.as_str()),
        ("local", &veth),
        ("local", HERE_ON_LINK),
        ("local", "fe80::8:1%dummy0"),
        ("local", "fe80::8:1%nosuch0"),
        ("local", WITHOUT_DEVICE),
        ("local", "10.7.0.77"),
        ("local", THERE),
        ("local", "127.0.0.1"),
        ("local", "::1"),
        ("local", "127.0.0.2"),
        ("local", "224.0.0.1"),
        ("local", "255.255.255.255"),
        ("local", "240.0.0.1"),
        ("local", "::ffff:10.7.0.1"),
        ("local", "0:0:0:0:0:0:0:1"),
        ("local", "FD00:7::0:1"),
        ("local", ""),
        ("local", "fd00:77::1"),
        ("local", "300.1.1.1"),
        ("local", "not an address"),
        ("remote", THERE),
        ("remote", THERE_V6),
        ("remote", ADDRESS),
        ("remote", SECOND_ADDRESS),
        ("remote", ADDRESS_V6),
        ("remote", HERE),
        ("remote", dummy.as_str()),
        ("remote", THERE_ON_LINK),
        ("remote", "fe80::8:2%nosuch0"),
        ("remote", NOBODY),
        ("remote", "127.0.0.1"),
        ("remote", "::1"),
        ("remote", "224.0.0.1"),
        ("remote", "255.255.255.255"),
        ("remote", "::ffff:10.8.0.2"),
        ("remote", ""),
        ("remote", "10.9.0.7"),
        ("remote", "203.0.113.1"),
        ("remote", "fd00:77::1"),
        ("remote", "300.1.1.1"),
        ("remote", "not an address"),
    ] {
        let ours = text.parse().and_then(|address| match kind {
            "local" => cm.local(&address),
            _ => cm.remote(&address, TIMEOUT),
        });
        // Success without a device counts as failure here.
        let theirs = librpma(kind, text).filter(|name| name != "none");
        found += usize::from(theirs.is_some());
        let name = ours.as_ref().ok().map(|found| found.device().to_owned());
        if name != theirs {
            differences.push(format!("{kind} {text}: {theirs:?}, here {ours:?}"));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(found >= 15, "{found}");
    // The intended differences: librpma succeeds without a context.
    for text in ["0.0.0.0", "::", "127.0.0.1", "::1"] {
        assert_eq!(librpma("local", text).as_deref(), Some("none"), "{text}");
        cm.local(&address(text)).unwrap_err();
    }
    // The kernel takes these for its own addresses, on whichever device comes first.
    for text in ["0.0.0.0", "::"] {
        assert!(librpma("remote", text).is_some(), "{text}");
        cm.remote(&address(text), TIMEOUT).unwrap_err();
    }
    // The old short and octal forms.
    for text in ["10.7.1", "10.7.0.01"] {
        assert_eq!(librpma("local", text).as_deref(), Some(DEVICE), "{text}");
        text.parse::<ScopedIp>().unwrap_err();
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn rdma_getaddrinfo_runs() {
    type GetAddrInfo = unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const c_void,
        *mut *mut c_void,
    ) -> c_int;
    // SAFETY: a library of the distribution, whose constructors are harmless.
    let library = unsafe { Library::new("librdmacm.so.1") }.unwrap();
    // SAFETY: the type of the function.
    let getaddrinfo = unsafe { library.get::<GetAddrInfo>("rdma_getaddrinfo") }.unwrap();
    // SAFETY: the type of the function.
    let freeaddrinfo =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_void)>("rdma_freeaddrinfo") }.unwrap();
    for text in [ADDRESS, THERE, THERE_V6] {
        let node = CString::new(text).unwrap();
        let mut result = null_mut();
        // SAFETY: the texts end in NUL, and the result is writable.
        let returned =
            unsafe { getaddrinfo(node.as_ptr(), c"7471".as_ptr(), null_mut(), &raw mut result) };
        assert_eq!(returned, 0, "{text}: {}", std::io::Error::last_os_error());
        assert!(!result.is_null());
        // SAFETY: from `rdma_getaddrinfo`.
        unsafe { freeaddrinfo(result) };
    }
}
