//! What the environment says.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use crate::report::report_once;

/// Milliseconds between two readings of a port.
pub const POLL_MS: &str = "FABRIC_SIM_POLL_MS";
/// Path of the control socket.
pub const CONTROL: &str = "FABRIC_SIM_CONTROL";

const DEFAULT_POLL: Duration = Duration::from_millis(100);

/// How often a port is read. A value that is no number from 1 to 3600000 is reported, and the default holds.
pub fn poll_interval() -> Duration {
    std::env::var_os(POLL_MS).map_or(DEFAULT_POLL, |value| {
        read_poll_interval(&value).unwrap_or_else(|| {
            let default = DEFAULT_POLL.as_millis();
            report_once(&format!(
                "{POLL_MS}={value:?} is no number from 1 to 3600000; {default} ms it is"
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

/// Where the control socket is to be; none when unset or empty.
pub fn control_path() -> Option<PathBuf> {
    std::env::var_os(CONTROL)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

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
