//! Settings from environment variables.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use crate::report::report_once;

/// Milliseconds between two queries of a port.
pub const POLL_MS: &str = "FABRIC_SIM_POLL_MS";
/// Path of the control socket.
pub const CONTROL: &str = "FABRIC_SIM_CONTROL";
/// Folder of the wires, which connect processes.
pub const WIRES: &str = "FABRIC_SIM_WIRES";
/// Number of the first queue pair: its lower 16 bits.
pub const FIRST_QP: &str = "FABRIC_SIM_FIRST_QP";
/// SubnetTimeOut of the ports.
pub const SUBNET_TIMEOUT: &str = "FABRIC_SIM_SUBNET_TIMEOUT";

/// OpenSM's default: about a second.
const DEFAULT_SUBNET_TIMEOUT: u8 = 18;
const DEFAULT_POLL: Duration = Duration::from_millis(100);

/// Returns how often to query a port. Reports a value that is not a number from 1 to 3600000, and returns the
/// default.
pub fn poll_interval() -> Duration {
    std::env::var_os(POLL_MS).map_or(DEFAULT_POLL, |value| {
        read_poll_interval(&value).unwrap_or_else(|| {
            let default = DEFAULT_POLL.as_millis();
            report_once(&format!(
                "{POLL_MS}={value:?} is not a number from 1 to 3600000; using {default} ms"
            ));
            DEFAULT_POLL
        })
    })
}

fn read_poll_interval(value: &OsStr) -> Option<Duration> {
    let milliseconds = value.to_str()?.parse().ok()?;
    (1..=3_600_000)
        .contains(&milliseconds)
        .then(|| Duration::from_millis(milliseconds))
}

/// Returns the path of the control socket; `None` if unset or empty.
pub fn control_path() -> Option<PathBuf> {
    path(CONTROL)
}

/// Returns the folder of the wires; `None` if unset or empty.
pub fn wires() -> Option<PathBuf> {
    path(WIRES)
}

fn path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

/// Returns the number of the first queue pair on the wires; `None` if unset. Reports a value that is not a
/// number from 64 to 65534, and then returns `None`.
pub fn first_queue_pair() -> Option<u16> {
    let value = std::env::var_os(FIRST_QP)?;
    let number = read_queue_pair(&value);
    if number.is_none() {
        report_once(&format!(
            "{FIRST_QP}={value:?} is not a number from 64 to 65534; using any number"
        ));
    }
    number
}

/// Returns the SubnetTimeOut that ports report. Reports a value that is not a number from 0 to 31, and returns
/// the default.
pub fn subnet_timeout() -> u8 {
    std::env::var_os(SUBNET_TIMEOUT).map_or(DEFAULT_SUBNET_TIMEOUT, |value| {
        read_subnet_timeout(&value).unwrap_or_else(|| {
            report_once(&format!(
                "{SUBNET_TIMEOUT}={value:?} is not a number from 0 to 31; using {DEFAULT_SUBNET_TIMEOUT}"
            ));
            DEFAULT_SUBNET_TIMEOUT
        })
    })
}

fn read_subnet_timeout(value: &OsStr) -> Option<u8> {
    let exponent = value.to_str()?.parse().ok()?;
    (0..=31).contains(&exponent).then_some(exponent)
}

fn read_queue_pair(value: &OsStr) -> Option<u16> {
    let number = value.to_str()?.parse().ok()?;
    (0x40..=0xfffe).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pair_numbers_are_checked() {
        assert_eq!(read_queue_pair(OsStr::new("64")), Some(64));
        assert_eq!(read_queue_pair(OsStr::new("65534")), Some(65534));
        for bad in ["", "63", "65535", "70000", "0x40"] {
            assert_eq!(read_queue_pair(OsStr::new(bad)), None, "{bad}");
        }
    }

    #[test]
    fn subnet_timeouts_are_checked() {
        assert_eq!(read_subnet_timeout(OsStr::new("0")), Some(0));
        assert_eq!(read_subnet_timeout(OsStr::new("31")), Some(31));
        for bad in ["", "32", "-1", "x"] {
            assert_eq!(read_subnet_timeout(OsStr::new(bad)), None, "{bad}");
        }
    }

    #[test]
    fn intervals_are_checked() {
        assert_eq!(
            read_poll_interval(OsStr::new("20")),
            Some(Duration::from_millis(20))
        );
        for bad in ["", "0", "-1", "abc", "3600001", "99999999999999999999"] {
            assert_eq!(read_poll_interval(OsStr::new(bad)), None, "{bad}");
        }
    }
}
