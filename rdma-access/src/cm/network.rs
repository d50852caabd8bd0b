//! Asks the kernel's network, by rtnetlink(7), which interfaces have an address and which route leads to it.

use std::net::IpAddr;

use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use rustix::net::netdevice::index_to_name;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::ScopedIp;

const GET_ADDRESSES: u16 = 22;
const ADDRESS: u16 = 20;
const GET_ROUTE: u16 = 26;
const ROUTE: u16 = 24;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
/// Lengths of a message's header, and of the headers before the attributes.
const HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;

/// Returns the names of the interfaces that have an address (on its scope's interface only, if it has a scope).
pub fn interfaces_with(address: &ScopedIp) -> Result<Vec<String>> {
    let socket = Socket::new()?;
    let family = family(address.ip());
    let mut body = [0; ADDRESS_HEADER];
    body[0] = family;
    let mut names = Vec::new();
    for message in socket.ask(GET_ADDRESSES, DUMP, &body)? {
        let Some(index) = message.content.get(4..8).and_then(number) else {
            continue;
        };
        if message.kind != ADDRESS || message.content[0] != family {
            continue;
        }
        if address.scope() != 0 && address.scope() != index {
            continue;
        }
        // IFA_LOCAL, or IFA_ADDRESS if the two are equal.
        let own = message.attribute(ADDRESS_HEADER, 2);
        let own = own.or_else(|| message.attribute(ADDRESS_HEADER, 1));
        if own == Some(&bytes(address.ip())[..]) {
            names.push(index_to_name(&socket.0, index)?);
        }
    }
    Ok(names)
}

/// The route to an address.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// The address is this machine's own.
    Own,
    /// Through this interface, from this source address.
    By(String, Option<IpAddr>),
    /// No route.
    None(Errno),
}

/// Returns the route that the kernel would use now.
pub fn route_to(address: &ScopedIp) -> Result<Route> {
    const OWN: u8 = 2;
    let socket = Socket::new()?;
    let target = bytes(address.ip());
    let mut body = [0; ROUTE_HEADER].to_vec();
    (body[0], body[1]) = (family(address.ip()), (target.len() * 8) as u8);
    put_attribute(&mut body, 1, &target);
    if address.scope() != 0 {
        put_attribute(&mut body, 4, &address.scope().to_ne_bytes());
    }
    let answers = match socket.ask(GET_ROUTE, 0, &body) {
        Ok(answers) => answers,
        Err(error) => return Ok(Route::None(error)),
    };
    let route = answers.iter().find(|message| message.kind == ROUTE);
    let route = route.ok_or(Errno::NODATA)?;
    if route.content.get(7) == Some(&OWN) {
        return Ok(Route::Own);
    }
    let index = route.attribute(ROUTE_HEADER, 4).and_then(number);
    let name = index_to_name(&socket.0, index.ok_or(Errno::NODATA)?)?;
    let source = route.attribute(ROUTE_HEADER, 7).and_then(ip);
    Ok(Route::By(name, source))
}

/// Returns the name of an interface by its index.
pub fn interface(number: u32) -> Result<String> {
    index_to_name(&Socket::new()?.0, number)
}

struct Socket(OwnedFd);

struct Message {
    kind: u16,
    content: Vec<u8>,
}

impl Socket {
    fn new() -> Result<Self> {
        // Protocol 0 is NETLINK_ROUTE.
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        socket_with(family, kind, SocketFlags::CLOEXEC, None).map(Self)
    }

    /// Sends a request and reads the answers.
    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> Result<Vec<Message>> {
        let length = (HEADER + body.len()) as u32;
        let mut request = length.to_ne_bytes().to_vec();
        request.extend(kind.to_ne_bytes());
        request.extend((REQUEST | flags).to_ne_bytes());
        request.extend([0; 8]);
        request.extend(body);
        send(&self.0, &request, SendFlags::empty())?;
        let mut answers = Vec::new();
        // The kernel fills at most 32 KiB of a dump.
        let mut buffer = vec![0; 64 << 10];
        loop {
            let (length, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            for message in messages(&buffer[..length]) {
                match message.kind {
                    DONE => return Ok(answers),
                    ERROR => {
                        let errno = message.content.get(..4).and_then(number).unwrap_or(0);
                        return Err(Errno::from_raw_os_error(errno.cast_signed().wrapping_neg()));
                    }
                    _ => answers.push(message),
                }
            }
            if flags & DUMP == 0 {
                return Ok(answers);
            }
        }
    }
}

fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(length) = bytes.get(..4).and_then(number) {
        let length = length as usize;
        let (Some(content), Some(kind)) = (bytes.get(HEADER..length), bytes.get(4..6)) else {
            break;
        };
        messages.push(Message {
            kind: u16::from_ne_bytes([kind[0], kind[1]]),
            content: content.to_vec(),
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

impl Message {
    fn attribute(&self, header: usize, wanted: u16) -> Option<&[u8]> {
        let mut rest = self.content.get(header..)?;
        loop {
            let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
            let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
            let value = rest.get(4..length)?;
            if kind == wanted {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }
}

fn put_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(((4 + value.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
}

fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    }) as u8
}

fn bytes(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4().or_else(|_| v6()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> ScopedIp {
        text.parse().unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn the_loopback_addresses_are_the_loopback_interfaces_own() {
        for text in ["127.0.0.1", "::1"] {
            // A machine may have no IPv6.
            let names = interfaces_with(&address(text)).unwrap();
            assert!(
                names == ["lo"] || text == "::1" && names.is_empty(),
                "{text}: {names:?}"
            );
        }
        assert_eq!(route_to(&address("127.0.0.1")), Ok(Route::Own));
        // An address of the same network that no interface has.
        assert_eq!(interfaces_with(&address("127.0.0.77")), Ok(vec![]));
        assert_eq!(interface(1).as_deref(), Ok("lo"));
        interface(0).unwrap_err();
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn there_is_no_route_by_a_missing_interface() {
        let address = ScopedIp::with_scope("fe80::1".parse().unwrap(), 987_654);
        assert!(
            matches!(route_to(&address), Ok(Route::None(_))),
            "{:?}",
            route_to(&address)
        );
    }

    #[test]
    fn attributes_are_found_behind_others_and_not_beyond_the_end() {
        let mut content = vec![0; ROUTE_HEADER];
        put_attribute(&mut content, 15, &[254, 0, 0, 0]);
        put_attribute(&mut content, 4, &7u32.to_ne_bytes());
        let message = Message {
            kind: ROUTE,
            content,
        };
        assert_eq!(message.attribute(ROUTE_HEADER, 4).and_then(number), Some(7));
        assert_eq!(message.attribute(ROUTE_HEADER, 7), None);
        let cut = Message {
            kind: ROUTE,
            content: message.content[..message.content.len() - 1].to_vec(),
        };
        assert_eq!(cut.attribute(ROUTE_HEADER, 4), None);
        // Parsing an attribute of length 0 must end.
        let endless = Message {
            kind: ROUTE,
            content: vec![0; ROUTE_HEADER + 8],
        };
        assert_eq!(endless.attribute(ROUTE_HEADER, 4), None);
    }

    #[test]
    fn messages_end_with_their_bytes() {
        let mut bytes = 20u32.to_ne_bytes().to_vec();
        bytes.extend(ROUTE.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([1, 2, 3, 4]);
        assert_eq!(messages(&bytes).len(), 1);
        assert_eq!(messages(&bytes)[0].content, [1, 2, 3, 4]);
        assert!(messages(&bytes[..19]).is_empty());
        assert!(messages(&[0; 64]).is_empty());
    }
}
