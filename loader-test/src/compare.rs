//! Compares two path records, field by field.

use std::fmt;

use crate::record::PathRecord;

/// A field in which an answer differs from the SA's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The field's name in the specification.
    pub field: &'static str,
    /// The answer's value.
    pub answered: String,
    /// The SA's value.
    pub sa: String,
    /// Whether the difference makes the answer wrong. Fields that a client does not need to reach its destination, and that
    /// the SA may fill in differently, are reported but not judged.
    pub judged: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            answered,
            sa,
            judged,
        } = self;
        let note = if *judged { "" } else { " (not judged)" };
        write!(f, "{field} {answered}, the SA says {sa}{note}")
    }
}

/// Returns every field in which `answered` differs from `sa`, judged ones first.
///
/// Judges DLID, SLID, DGID, SGID, P_Key, SL, MTU, rate and packet lifetime, the last three with their selectors, as the suite
/// does: a client that reads the record as the SA's takes a value without a selector for a bound.
pub fn compare(answered: &PathRecord, sa: &PathRecord) -> Vec<Difference> {
    FIELDS
        .iter()
        .filter_map(|&(judged, field, value)| {
            let (answered, sa) = (value(answered), value(sa));
            (answered != sa).then_some(Difference {
                field,
                answered,
                sa,
                judged,
            })
        })
        .collect()
}

/// Returns the judged fields of `record`, by their names in the specification.
pub fn judged_fields(record: &PathRecord) -> impl Iterator<Item = (&'static str, String)> {
    let judged = FIELDS.iter().filter(|(judged, ..)| *judged);
    judged.map(|(_, field, value)| (*field, value(record)))
}

/// The name of the field that holds the selectors.
pub(crate) const SELECTORS: &str = "selectors of MTU, rate, packet lifetime";

const FIELDS: [Field; 19] = [
    (true, "DLID", |r| r.dlid().to_string()),
    (true, "SLID", |r| r.slid().to_string()),
    (true, "DGID", |r| r.dgid().to_string()),
    (true, "SGID", |r| r.sgid().to_string()),
    (true, "P_Key", |r| format!("0x{:04x}", r.pkey())),
    (true, "SL", |r| r.sl().to_string()),
    (true, "MTU", |r| r.mtu().to_string()),
    (true, "rate", |r| r.rate().to_string()),
    (true, "packet lifetime", |r| r.packet_lifetime().to_string()),
    (true, SELECTORS, |r| format!("{:?}", r.selectors())),
    (false, "flow label", |r| format!("0x{:05x}", r.flow_label())),
    (false, "hop limit", |r| r.hop_limit().to_string()),
    (false, "traffic class", |r| r.traffic_class().to_string()),
    (false, "reversible", |r| r.reversible().to_string()),
    (false, "number of paths", |r| {
        r.number_of_paths().to_string()
    }),
    (false, "QoS class", |r| r.qos_class().to_string()),
    (false, "service ID", |r| {
        format!("0x{:016x}", r.service_id())
    }),
    (false, "preference", |r| r.preference().to_string()),
    (false, "raw traffic", |r| r.raw_traffic().to_string()),
];

type Field = (bool, &'static str, fn(&PathRecord) -> String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Gid, Lid};

    fn record() -> PathRecord {
        let mut record = PathRecord::EMPTY;
        record
            .set_service_id(1)
            .set_dgid(Gid::new(2, 3))
            .set_sgid(Gid::new(4, 5))
            .set_dlid(Lid(6))
            .set_slid(Lid(7))
            .set_flow_label_and_hop_limit(8, 9)
            .set_traffic_class(10)
            .set_reversible_and_number(true, 1)
            .set_pkey(0xffff)
            .set_qos_class_and_sl(11, 12)
            .set_mtu_byte(0x84)
            .set_rate_byte(0x83)
            .set_packet_lifetime_byte(0x92);
        record
    }

    /// Every byte with a meaning shows up as a difference.
    #[test]
    fn every_byte_counts() {
        let sa = record();
        assert_eq!(compare(&sa, &sa), []);
        for byte in 0..PathRecord::SIZE {
            let mut answered = sa;
            answered.0[byte] ^= 0xff;
            let differences = compare(&answered, &sa);
            // The last six are reserved.
            assert_eq!(
                differences.is_empty(),
                byte >= 58,
                "byte {byte}: {differences:?}"
            );
            let judged = differences.iter().any(|difference| difference.judged);
            let unjudged_bytes = [0..8, 44..50, 52..53, 57..64];
            let expected = !unjudged_bytes.iter().any(|range| range.contains(&byte));
            assert_eq!(judged, expected, "byte {byte}: {differences:?}");
        }
    }

    #[test]
    fn a_missing_selector_is_judged() {
        let mut answered = record();
        answered
            .set_mtu_byte(4)
            .set_rate_byte(3)
            .set_packet_lifetime_byte(0x12);
        let differences = compare(&answered, &record());
        assert_eq!(differences.len(), 1);
        assert_eq!(
            differences[0].to_string(),
            "selectors of MTU, rate, packet lifetime [0, 0, 0], the SA says [2, 2, 2]"
        );
    }
}
