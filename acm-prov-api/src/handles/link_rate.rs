//! The rate of a port's link as IB rate code.
//!
//! The core's own table (`acm_get_rate`) ends at EDR and knows no width 2x, so it says nothing about today's adapters.

use std::path::Path;

use super::{PortAttributes, PortHandle};

/// Link speed code of NDR; faster links have it, too.
const NDR: u8 = 128;

/// Lanes of a link width code.
const fn lanes(width: u8) -> Option<u32> {
    Some(match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    })
}

/// Nominal rate of one lane by link speed code, in units of 100 Mb/s.
const fn lane_rate(speed: u8) -> Option<u32> {
    Some(match speed {
        1 => 25,
        2 => 50,
        // FDR10 counts as QDR, for the SA as well.
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        NDR => 1_000,
        _ => return None,
    })
}

/// IB rate code of a nominal rate in units of 100 Mb/s.
const fn rate_code(nominal: u32) -> Option<u8> {
    Some(match nominal {
        25 => 2,
        50 => 5,
        100 => 3,
        140 => 11,
        200 => 6,
        250 => 15,
        280 => 19,
        300 => 4,
        400 => 7,
        500 => 20,
        560 => 12,
        600 => 8,
        800 => 9,
        1_000 => 16,
        1_120 => 13,
        1_200 => 10,
        1_680 => 14,
        2_000 => 17,
        3_000 => 18,
        4_000 => 21,
        6_000 => 22,
        8_000 => 23,
        12_000 => 24,
        _ => return None,
    })
}

/// The nominal rate that the kernel writes into a port's file `rate`, such as `800 Gb/sec (4X XDR)`.
fn nominal_rate(text: &str) -> Option<u32> {
    let (number, _) = text.split_once(" Gb/sec")?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let tenths: u32 = tenths.parse().ok().filter(|&tenths| tenths < 10)?;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(10)?
        .checked_add(tenths)
}

/// The rate of a link of that width and speed; `kernels` gives the text of the port's file `rate`.
fn link_rate(width: u8, speed: u8, kernels: impl FnOnce() -> Option<String>) -> Option<u8> {
    let by_codes = rate_code(lanes(width)? * lane_rate(speed)?);
    let by_kernel = || rate_code(nominal_rate(&kernels()?)?);
    (speed == NDR).then(by_kernel).flatten().or(by_codes)
}

/// The text of a port's file `rate` below `folder`.
fn kernels_rate(folder: &Path, device: &str, port: u8) -> Option<String> {
    // The name of a device becomes a path component. It comes from C, so check it first.
    if device.is_empty() || device.starts_with('.') || device.contains('/') {
        return None;
    }
    std::fs::read_to_string(folder.join(format!("{device}/ports/{port}/rate"))).ok()
}

impl PortHandle {
    /// Returns the rate of the port's link now, as IB rate code (see [`rate_mbps`](crate::path::rate_mbps)).
    ///
    /// It follows from the link's width and speed (`ibv_query_port`). XDR and faster links read as NDR there: the field has
    /// eight bits, and the kernel puts NDR into it. Their rate is that of `/sys/class/infiniband/DEV/ports/N/rate`; if the
    /// file cannot be read, or IB has no code for its rate (8x XDR), it is that of NDR.
    ///
    /// `None` for width and speed codes that are not known here, and when the port is closed.
    #[must_use]
    pub fn rate(&self) -> Option<u8> {
        self.rate_of(&self.attributes().ok()?)
    }

    pub(crate) fn rate_of(&self, attributes: &PortAttributes) -> Option<u8> {
        link_rate(attributes.active_width, attributes.active_speed, || {
            let device = self.device().name()?;
            kernels_rate(Path::new("/sys/class/infiniband"), &device, self.number())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::rate_mbps;

    const WIDTHS: [u8; 5] = [1, 16, 2, 4, 8];
    const SPEEDS: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, NDR];

    fn by_codes(width: u8, speed: u8) -> Option<u8> {
        link_rate(width, speed, || None)
    }

    /// As OpenSM's `ib_port_info_compute_rate` has them.
    #[test]
    fn every_width_and_speed_has_its_code() {
        // 1x, 2x, 4x, 8x, 12x
        let table = [
            [2, 5, 3, 6, 4],
            [5, 3, 6, 7, 8],
            [3, 6, 7, 9, 10],
            [3, 6, 7, 9, 10],
            [11, 19, 12, 13, 14],
            [15, 20, 16, 17, 18],
            [20, 16, 17, 21, 22],
            [16, 17, 21, 23, 24],
        ];
        for (speed, codes) in SPEEDS.into_iter().zip(table) {
            for (width, code) in WIDTHS.into_iter().zip(codes) {
                assert_eq!(
                    by_codes(width, speed),
                    Some(code),
                    "width {width}, speed {speed}"
                );
            }
        }
    }

    /// The other direction of the table: each code is as fast as that many lanes.
    #[test]
    fn a_code_is_as_fast_as_its_lanes() {
        for speed in SPEEDS {
            let lane = rate_mbps(by_codes(1, speed).unwrap()).unwrap();
            for width in WIDTHS {
                let link = rate_mbps(by_codes(width, speed).unwrap()).unwrap();
                let lanes = lanes(width).unwrap() * lane;
                assert!(
                    link.abs_diff(lanes) * 100 <= 4 * lanes,
                    "width {width}, speed {speed}: {link} Mb/s for lanes of {lanes}"
                );
            }
        }
    }

    #[test]
    fn unknown_codes_have_no_rate() {
        for width in 0..=u8::MAX {
            for speed in 0..=u8::MAX {
                let is_known = WIDTHS.contains(&width) && SPEEDS.contains(&speed);
                let rate = link_rate(width, speed, || Some("100 Gb/sec (4X EDR)".to_owned()));
                assert_eq!(rate.is_some(), is_known, "width {width}, speed {speed}");
            }
        }
    }

    #[test]
    fn what_reads_as_ndr_may_be_faster() {
        for (width, text, code) in [
            (2, Some("400 Gb/sec (4X NDR)\n"), 21),
            (1, Some("200 Gb/sec (1X XDR)\n"), 17),
            (16, Some("400 Gb/sec (2X XDR)\n"), 21),
            (2, Some("800 Gb/sec (4X XDR)\n"), 23),
            // No code: NDR's.
            (4, Some("1600 Gb/sec (8X XDR)\n"), 23),
            (8, Some("2400 Gb/sec (12X XDR)\n"), 24),
            // Nothing that can be used: NDR's.
            (2, None, 21),
            (2, Some(""), 21),
            (2, Some("Gb/sec"), 21),
            (2, Some(" Gb/sec"), 21),
            (2, Some("800"), 21),
            (2, Some("-800 Gb/sec (4X XDR)\n"), 21),
            (2, Some("4294967295 Gb/sec (4X XDR)\n"), 21),
            (2, Some("80.10 Gb/sec (4X XDR)\n"), 21),
        ] {
            let rate = link_rate(width, NDR, || text.map(str::to_owned));
            assert_eq!(rate, Some(code), "width {width}, {text:?}");
        }
        // For speeds that the kernel does not know, its file says SDR: use the file only for NDR.
        for speed in SPEEDS.into_iter().filter(|speed| *speed != NDR) {
            let rate = link_rate(2, speed, || panic!("speed {speed} needs no file"));
            assert_eq!(rate, by_codes(2, speed));
        }
    }

    #[test]
    fn the_kernels_numbers_are_read() {
        for (text, nominal) in [
            ("2.5 Gb/sec (1X SDR)", 25),
            ("10 Gb/sec (4X SDR)", 100),
            ("56 Gb/sec (4X FDR)", 560),
            ("112 Gb/sec (8X FDR)", 1_120),
        ] {
            assert_eq!(nominal_rate(text), Some(nominal), "{text}");
        }
    }

    #[test]
    fn the_file_is_that_of_the_device_and_port() {
        let folder = tempfile::tempdir().unwrap();
        for (port, text) in [(1, "800 Gb/sec (4X XDR)\n"), (2, "400 Gb/sec (4X NDR)\n")] {
            let port = folder.path().join(format!("mlx5_0/ports/{port}"));
            std::fs::create_dir_all(&port).unwrap();
            std::fs::write(port.join("rate"), text).unwrap();
        }
        let read = |device, port| kernels_rate(folder.path(), device, port);
        assert_eq!(read("mlx5_0", 1).as_deref(), Some("800 Gb/sec (4X XDR)\n"));
        assert_eq!(read("mlx5_0", 2).as_deref(), Some("400 Gb/sec (4X NDR)\n"));
        let outside = folder.path().join("mlx5_0");
        for device in ["mlx5_1", "", ".", "../mlx5_0", outside.to_str().unwrap()] {
            assert_eq!(read(device, 1), None, "{device}");
        }
        assert_eq!(read("mlx5_0", 3), None);
    }
}
