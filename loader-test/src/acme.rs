//! Parses the output of stock's client ib_acme(1).

use crate::record::{Gid, Lid, PathRecord};

/// One destination, from its line "Destination:" to the empty line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// The destination as passed to ib_acme.
    pub destination: String,
    /// The path, if it printed a complete one.
    pub path: Option<PrintedPath>,
    /// Its error message.
    pub failure: Option<String>,
    /// Its own verdict with -v: that a second request to the same provider succeeded, nothing more.
    pub verification: Option<bool>,
}

/// A path as ib_acme prints it: without selectors, with the low five bits of MTU, rate and packet lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PrintedPath {
    pub dgid: Gid,
    pub sgid: Gid,
    pub dlid: Lid,
    pub slid: Lid,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: bool,
    pub pkey: u16,
    pub sl: u8,
    pub mtu: u8,
    pub rate: u8,
    pub packet_lifetime: u8,
}

impl PrintedPath {
    /// Returns a record for comparisons, with the fields that ib_acme does not print taken from `other`.
    pub fn to_record(self, other: &PathRecord) -> PathRecord {
        const PRINTED: u8 = 0x1f;
        let merge = |printed: u8, byte: u8| (byte & !PRINTED) | (printed & PRINTED);
        let mut record = *other;
        record
            .set_dgid(self.dgid)
            .set_sgid(self.sgid)
            .set_dlid(self.dlid)
            .set_slid(self.slid)
            .set_flow_label_and_hop_limit(self.flow_label, self.hop_limit)
            .set_traffic_class(self.traffic_class)
            .set_reversible_and_number(self.reversible, other.number_of_paths())
            .set_pkey(self.pkey)
            .set_qos_class_and_sl(other.qos_class(), self.sl)
            .set_mtu_byte(merge(self.mtu, other.0[54]))
            .set_rate_byte(merge(self.rate, other.0[55]))
            .set_packet_lifetime_byte(merge(self.packet_lifetime, other.0[56]));
        record
    }
}

/// Parses the output of `ib_acme -d …`: one item per destination, successful or not.
pub fn parse(output: &str) -> Vec<Resolution> {
    let mut resolutions = Vec::new();
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(destination) = line.strip_prefix("Destination: ") else {
            continue;
        };
        let mut resolution = Resolution {
            destination: destination.to_owned(),
            ..Resolution::default()
        };
        let mut fields = Vec::new();
        while let Some(line) =
            lines.next_if(|line| !line.is_empty() && !line.starts_with("Destination: "))
        {
            if let Some(verdict) = line.strip_prefix("SA verification: ") {
                resolution.verification = Some(verdict == "success");
                if verdict != "success" {
                    resolution.failure = Some(line.to_owned());
                }
            } else if line.contains(" failed: ") || line.contains("error") {
                resolution.failure = Some(line.to_owned());
            } else if let Some((name, value)) = line.trim_start().split_once(": ") {
                fields.push((name, value));
            }
        }
        resolution.path = printed_path(&fields);
        resolutions.push(resolution);
    }
    resolutions
}

fn printed_path(fields: &[(&str, &str)]) -> Option<PrintedPath> {
    let text = |wanted: &str| Some(fields.iter().find(|(name, _)| *name == wanted)?.1);
    let decimal = |wanted: &str| text(wanted)?.parse::<u16>().ok();
    let byte = |wanted: &str| text(wanted)?.parse::<u8>().ok();
    let hex = |wanted: &str| u32::from_str_radix(text(wanted)?.strip_prefix("0x")?, 16).ok();
    Some(PrintedPath {
        dgid: text("dgid")?.parse().ok()?,
        sgid: text("sgid")?.parse().ok()?,
        dlid: Lid(decimal("dlid")?),
        slid: Lid(decimal("slid")?),
        flow_label: hex("flow label")?,
        hop_limit: byte("hop limit")?,
        traffic_class: byte("tclass")?,
        reversible: byte("reversible")? != 0,
        pkey: u16::try_from(hex("pkey")?).ok()?,
        sl: byte("sl")?,
        mtu: byte("mtu")?,
        rate: byte("rate")?,
        packet_lifetime: byte("packet lifetime")?,
    })
}

/// Parses the row of `ib_acme -P`: pairs of counter name and value.
pub fn parse_counters(output: &str) -> Option<Vec<(String, u64)>> {
    let mut lines = output.lines().skip_while(|line| !line.starts_with("svc,"));
    let names = lines.next()?.split(',').skip(1);
    let values: Option<Vec<u64>> = lines
        .next()?
        .split(',')
        .skip(1)
        .map(|value| value.parse().ok())
        .collect();
    Some(names.map(str::to_owned).zip(values?).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Service: /run/ibacm-unix.sock\n\
        Destination: 4\n\
        Path information\n  dgid: fe80::10:4\n  sgid: fe80::10:1\n  dlid: 4\n  slid: 1\n  flow label: 0x12\n  \
        hop limit: 0\n  tclass: 0\n  reversible: 1\n  pkey: 0xffff\n  sl: 3\n  mtu: 4\n  rate: 3\n  \
        packet lifetime: 18\nSA verification: success\n\n\
        Destination: 99\nib_acm_resolve_path failed: No data available\n\n\
        return status 0xffffffff\n";

    #[test]
    fn every_destination_is_read() {
        let resolutions = parse(OUTPUT);
        let [good, bad] = &resolutions[..] else {
            panic!("{resolutions:?}");
        };
        let path = good.path.unwrap();
        assert_eq!((path.dlid, path.sl, path.flow_label), (Lid(4), 3, 0x12));
        assert_eq!((good.verification, &good.failure), (Some(true), &None));
        assert_eq!((bad.path, bad.verification), (None, None));
        assert!(bad.failure.as_ref().unwrap().contains("No data available"));
    }

    #[test]
    fn a_path_without_a_field_is_no_path() {
        let output = OUTPUT.replace("  sl: 3\n", "");
        assert_eq!(parse(&output)[0].path, None);
    }

    #[test]
    fn what_is_not_printed_does_not_differ() {
        let mut record = PathRecord::EMPTY;
        record
            .set_mtu_byte(0x84)
            .set_rate_byte(0xa3)
            .set_packet_lifetime_byte(0x92)
            .set_service_id(5);
        let mut path = parse(OUTPUT)[0].path.unwrap();
        let printed = path.to_record(&record);
        assert_eq!(
            (printed.mtu(), printed.selectors(), printed.service_id()),
            (4, [2, 2, 2], 5)
        );
        path.mtu = 5;
        assert_eq!(path.to_record(&record).mtu(), 5);
    }

    #[test]
    fn counters_are_read() {
        let counters = parse_counters(
            "svc,Error Count,No Data\n/run/ibacm-unix.sock,0,7\nreturn status 0x0\n",
        )
        .unwrap();
        assert_eq!(
            counters,
            [("Error Count".to_owned(), 0), ("No Data".to_owned(), 7)]
        );
    }
}
