//! IP addresses with a scope.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::diagnosis;
use crate::error::{Cause, Error, Result};

/// An IPv4 or IPv6 address; an IPv6 address may name its interface.
///
/// As text: `192.0.2.1`, `2001:db8::1`, `fe80::1%ib0` or `fe80::1%3` (name or number of an interface).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScopedIp {
    ip: IpAddr,
    scope: u32,
}

impl ScopedIp {
    /// Makes an IPv6 address on the interface with that index (`if_nametoindex(3)`), 0 for any.
    pub fn with_scope(ip: Ipv6Addr, scope: u32) -> Self {
        Self {
            ip: ip.into(),
            scope,
        }
    }

    /// Returns the address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the index of the interface, 0 for any.
    pub fn scope(&self) -> u32 {
        self.scope
    }

    /// Returns why the address cannot belong to one device, if so.
    pub(super) fn unsuitable(&self) -> Option<&'static str> {
        match self.ip {
            ip if ip.is_unspecified() => Some("the address of all interfaces has no device"),
            ip if ip.is_multicast() => Some("a multicast address has no device"),
            IpAddr::V6(ip) if ip.is_unicast_link_local() && self.scope == 0 => {
                Some("a link-local address needs its interface, as in fe80::1%ib0")
            }
            _ => None,
        }
    }

    /// Returns the C form, with port 0.
    pub(super) fn to_c(self) -> libc::sockaddr_storage {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let start = &raw mut storage;
        match self.ip {
            IpAddr::V4(ip) => {
                let c = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: 0,
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(ip).to_be(),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: a storage has room and alignment for each family's address.
                unsafe { start.cast::<libc::sockaddr_in>().write(c) };
            }
            IpAddr::V6(ip) => {
                let c = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: 0,
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    sin6_scope_id: self.scope,
                };
                // SAFETY: as above.
                unsafe { start.cast::<libc::sockaddr_in6>().write(c) };
            }
        }
        storage
    }
}

impl From<IpAddr> for ScopedIp {
    fn from(ip: IpAddr) -> Self {
        Self { ip, scope: 0 }
    }
}

impl From<Ipv4Addr> for ScopedIp {
    fn from(ip: Ipv4Addr) -> Self {
        IpAddr::from(ip).into()
    }
}

impl From<Ipv6Addr> for ScopedIp {
    fn from(ip: Ipv6Addr) -> Self {
        IpAddr::from(ip).into()
    }
}

impl fmt::Display for ScopedIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip.fmt(f)?;
        match self.scope {
            0 => Ok(()),
            scope => write!(f, "%{scope}"),
        }
    }
}

impl FromStr for ScopedIp {
    type Err = Error;

    /// # Errors
    /// [`Cause::Invalid`] for text that is no address, or a scope that is neither an interface's name nor a
    /// number.
    fn from_str(text: &str) -> Result<Self> {
        let fault = |why: String| Error::new("parse an address", text, Cause::Invalid(why));
        let (ip, scope) = match text.split_once('%') {
            Some((ip, scope)) => (ip, Some(scope)),
            None => (text, None),
        };
        let ip: IpAddr = ip
            .parse()
            .map_err(|_| fault("it is neither an IPv4 nor an IPv6 address".to_owned()))?;
        let Some(scope) = scope else {
            return Ok(ip.into());
        };
        let IpAddr::V6(ip) = ip else {
            return Err(fault("only IPv6 addresses have a scope".to_owned()));
        };
        // As in getaddrinfo(3): an interface's name may be a number.
        let index = match (interface(scope), scope.parse()) {
            (Ok(index), _) => index,
            (Err(_), Ok(0)) => return Err(fault("no interface has number 0".to_owned())),
            (Err(_), Ok(index)) => index,
            (Err(Errno::NODEV), Err(_)) => {
                return Err(fault(format!("there is no interface {scope:?}")));
            }
            (Err(error), Err(_)) => {
                return Err(Error::new(
                    "parse an address",
                    text,
                    lookup_error(scope, error),
                ));
            }
        };
        Ok(Self::with_scope(ip, index))
    }
}

/// Explains why the interface of that name could not be looked up.
fn lookup_error(name: &str, error: Errno) -> Cause {
    let limit = match error {
        Errno::MFILE => format!("; {}", diagnosis::descriptor_limit()),
        _ => String::new(),
    };
    Cause::Io {
        source: error.into(),
        likely: format!("cannot look up the interface {name:?}{limit}"),
    }
}

fn interface(name: &str) -> rustix::io::Result<u32> {
    // The kernel would truncate it.
    if name.len() >= libc::IFNAMSIZ {
        return Err(Errno::NODEV);
    }
    let any: OwnedFd = socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    name_to_index(any, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn addresses_are_read_with_their_scope() {
        for (text, ip, scope) in [
            ("192.0.2.1", "192.0.2.1", 0),
            ("2001:db8::1", "2001:db8::1", 0),
            ("fe80::1%7", "fe80::1", 7),
            // Every Linux has `lo`, with index 1.
            ("fe80::1%lo", "fe80::1", 1),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.1", 0),
        ] {
            let address: ScopedIp = text.parse().unwrap();
            assert_eq!(
                (address.ip(), address.scope()),
                (ip.parse().unwrap(), scope),
                "{text}"
            );
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn invalid_addresses_are_refused_with_the_reason() {
        for (text, reason) in [
            ("", "neither"),
            ("192.0.2", "neither"),
            ("192.0.2.1.5", "neither"),
            ("192.0.2.256", "neither"),
            ("host.example", "neither"),
            ("fe80::1::2", "neither"),
            ("[fe80::1]", "neither"),
            ("fe80::1%", "no interface"),
            ("fe80::1%0", "number 0"),
            ("fe80::1%nosuch0", "no interface \"nosuch0\""),
            ("fe80::1%a-name-that-is-longer-than-any", "no interface"),
            ("192.0.2.1%lo", "only IPv6"),
        ] {
            let error = text.parse::<ScopedIp>().unwrap_err();
            assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
            assert_eq!(error.inputs(), text);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_failed_interface_lookup_is_not_reported_as_a_missing_interface() {
        let cause = lookup_error("ib0", Errno::MFILE).to_string();
        assert!(
            cause.contains("ulimit -n") && !cause.contains("there is no interface"),
            "{cause}"
        );
        assert!(
            lookup_error("ib0", Errno::PERM)
                .to_string()
                .contains("cannot look up")
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn addresses_without_a_single_device_are_refused_beforehand() {
        for text in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "fe80::1"] {
            assert!(
                text.parse::<ScopedIp>().unwrap().unsuitable().is_some(),
                "{text}"
            );
        }
        for text in ["192.0.2.1", "127.0.0.1", "::1", "fe80::1%lo", "2001:db8::1"] {
            assert_eq!(
                text.parse::<ScopedIp>().unwrap().unsuitable(),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn c_gets_address_and_scope() {
        let c = "192.0.2.1".parse::<ScopedIp>().unwrap().to_c();
        // SAFETY: the family says which type it is.
        let v4 = unsafe { *(&raw const c).cast::<libc::sockaddr_in>() };
        assert_eq!(
            (i32::from(c.ss_family), v4.sin_addr.s_addr.to_ne_bytes()),
            (libc::AF_INET, [192, 0, 2, 1])
        );
        let c = ScopedIp::with_scope("fe80::1".parse().unwrap(), 7).to_c();
        // SAFETY: as above.
        let v6 = unsafe { *(&raw const c).cast::<libc::sockaddr_in6>() };
        assert_eq!(
            (i32::from(c.ss_family), v6.sin6_scope_id),
            (libc::AF_INET6, 7)
        );
        assert_eq!(v6.sin6_addr.s6_addr[..2], [0xfe, 0x80]);
    }
}
