//! Whether what the SA sent answers the question, and what follows if not.

use crate::abi::AcmStatus;
use crate::address::{Gid, Lid, PKey};
use crate::path::{PathRecord, Selector, rate_mbps};
use crate::sa::{SaError, SaStatus};

use super::question::{Limit, Question, Source, Target};

/// What became of an SA query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// A path that answers the question.
    Path(PathRecord),
    /// The SA knows no such path (status 0x0300). The one failure that may be remembered.
    NoRecords,
    /// The SA is busy, lacks resources or kept silent, or the MAD was not sent: ask again.
    Again(SaError),
    /// The SA finds the request invalid (status 0x0200).
    Invalid,
    /// Any other status, or an answer to something else than a path query.
    Failed(SaError),
    /// A path, but not one that was asked for.
    Mismatch(Mismatch),
}

impl Judged {
    /// Judges what came back for `question`.
    #[must_use]
    pub fn new(
        question: &Question,
        source: &Source,
        answer: Result<PathRecord, SaError>,
    ) -> Judged {
        match answer {
            Ok(path) => match check(question, source, &path) {
                Ok(()) => Judged::Path(path),
                Err(mismatch) => Judged::Mismatch(mismatch),
            },
            Err(SaError::Status(SaStatus::NO_RECORDS)) => Judged::NoRecords,
            Err(SaError::Status(SaStatus::REQ_INVALID)) => Judged::Invalid,
            Err(error @ SaError::Status(status)) if status.is_transient() => Judged::Again(error),
            Err(error @ (SaError::TimedOut | SaError::NotSent { .. })) => Judged::Again(error),
            Err(error) => Judged::Failed(error),
        }
    }

    /// What the waiting clients get, unless the question is asked again.
    ///
    /// # Errors
    /// The status: no records and everything that has no better name is ENODATA, an invalid
    /// request EINVAL, one to be asked again (but for which no time is left) ETIMEDOUT, one
    /// whose endpoint was closed ENOTCONN.
    pub fn reply(&self) -> Result<PathRecord, AcmStatus> {
        match self {
            Judged::Path(path) => Ok(*path),
            Judged::Failed(SaError::Closed(_)) => Err(AcmStatus::ENOTCONN),
            Judged::NoRecords | Judged::Failed(_) | Judged::Mismatch(_) => Err(AcmStatus::ENODATA),
            Judged::Invalid => Err(AcmStatus::EINVAL),
            Judged::Again(_) => Err(AcmStatus::ETIMEDOUT),
        }
    }
}

/// How a path record fails to answer the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// It leads to another port.
    #[error("the SA's path leads to {dgid} (LID {dlid}), and {asked:?} was asked for")]
    Destination {
        /// Where the question wants to go.
        asked: Target,
        /// The answer's destination.
        dgid: Gid,
        /// The answer's destination.
        dlid: Lid,
    },
    /// Its DLID is none that a port can have.
    #[error("the SA's path has DLID {0}, which is not unicast")]
    DlidNotUnicast(Lid),
    /// It answers a DLID without saying whose it is.
    #[error("the SA's path to LID {0} has no unicast DGID")]
    NoDgid(Lid),
    /// It starts elsewhere.
    #[error("the SA's path starts at {sgid} (LID {slid}), not where it was asked from")]
    Source {
        /// The answer's source.
        sgid: Gid,
        /// The answer's source.
        slid: Lid,
    },
    /// It runs in another partition.
    #[error("the SA's path has P_Key {0}, another partition than asked")]
    Partition(PKey),
    /// It lacks a property that was asked for.
    #[error("the SA's path has another {0} than demanded")]
    Demand(&'static str),
}

/// Checks that `path` answers `question`.
///
/// Service id, QoS class, traffic class and flow label choose a path but need not be part of
/// it: SAs (OpenSM among them) return zeros there. So those must be as demanded or zero; SLID,
/// SL, MTU, rate and packet lifetime must be as demanded.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(question: &Question, source: &Source, path: &PathRecord) -> Result<(), Mismatch> {
    check_destination(question.target, path)?;
    let demands = &question.demands;
    let slid_as_asked = demands.slid.is_zero() || demands.slid == path.slid();
    if path.sgid() != question.sgid(source) || !slid_as_asked {
        return Err(Mismatch::Source {
            sgid: path.sgid(),
            slid: path.slid(),
        });
    }
    if !path.pkey().same_partition(question.pkey(source)) {
        return Err(Mismatch::Partition(path.pkey()));
    }
    let zero_or = |demanded: u64, actual: u64| demanded == 0 || actual == 0 || actual == demanded;
    let class = u64::from(path.qos_class());
    let traffic_class = u64::from(path.traffic_class());
    let flow_label = u64::from(path.flow_label());
    let met = [
        ("service id", zero_or(demands.service_id, path.service_id())),
        ("QoS class", zero_or(demands.qos_class.into(), class)),
        (
            "traffic class",
            zero_or(demands.traffic_class.into(), traffic_class),
        ),
        ("flow label", zero_or(demands.flow_label.into(), flow_label)),
        ("SL", demands.sl == 0 || demands.sl == path.sl()),
        (
            "MTU",
            meets(demands.mtu, path.mtu(), |code| Some(code.into())),
        ),
        ("rate", meets(demands.rate, path.rate(), rate_mbps)),
        (
            "packet lifetime",
            meets(demands.packet_lifetime, path.packet_lifetime(), |n| {
                Some(n.into())
            }),
        ),
    ];
    match met.into_iter().find(|(_, met)| !met) {
        Some((name, _)) => Err(Mismatch::Demand(name)),
        None => Ok(()),
    }
}

fn check_destination(target: Target, path: &PathRecord) -> Result<(), Mismatch> {
    let (dgid, dlid) = (path.dgid(), path.dlid());
    let same = match target {
        Target::Gid(gid) => dgid == gid,
        Target::Lid(lid) => dlid == lid,
    };
    if !same {
        return Err(Mismatch::Destination {
            asked: target,
            dgid,
            dlid,
        });
    }
    if !dlid.is_unicast() {
        return Err(Mismatch::DlidNotUnicast(dlid));
    }
    if dgid.is_zero() || dgid.is_multicast() {
        return Err(Mismatch::NoDgid(dlid));
    }
    Ok(())
}

/// Whether the code `actual` is within `limit`, codes being compared by what they stand for.
/// A code that stands for nothing known is the SA's to judge.
fn meets(limit: Limit, actual: u8, meaning: impl Fn(u8) -> Option<u32>) -> bool {
    if limit == Limit::NONE {
        return true;
    }
    let (Some(demanded), Some(got)) = (meaning(limit.value()), meaning(actual)) else {
        return limit.selector() != Selector::Exactly || limit.value() == actual;
    };
    match limit.selector() {
        Selector::GreaterThan => got > demanded,
        Selector::LessThan => got < demanded,
        Selector::Exactly => limit.value() == actual,
        Selector::Best => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Demand = fn(&mut Question);
    type Answer = fn(&mut PathRecord);

    fn source() -> Source {
        Source {
            gid: "fe80::1".parse().unwrap(),
            lid: Lid(1),
            pkey: PKey(0x7fff),
        }
    }

    fn peer() -> Gid {
        "fe80::2".parse().unwrap()
    }

    /// A path to `peer()` as OpenSM answers it.
    fn good() -> PathRecord {
        let mut path = PathRecord::default();
        path.set_dgid(peer())
            .set_dlid(Lid(2))
            .set_sgid(source().gid)
            .set_slid(Lid(1));
        path.set_pkey(PKey(0xffff)).set_reversible(true).set_sl(1);
        path.set_mtu(Selector::Exactly, 4)
            .set_rate(Selector::Exactly, 7);
        path.set_packet_lifetime(Selector::Exactly, 18);
        path
    }

    fn judge(question: Question, set: impl FnOnce(&mut PathRecord)) -> Result<(), Mismatch> {
        let mut path = good();
        set(&mut path);
        let judged = Judged::new(&question, &source(), Ok(path));
        match judged {
            Judged::Path(answer) => assert_eq!(answer, path),
            Judged::Mismatch(_) => assert_eq!(judged.reply(), Err(AcmStatus::ENODATA)),
            other => panic!("{other:?}"),
        }
        check(&question, &source(), &path)
    }

    fn by_gid() -> Question {
        Question::plain(Target::Gid(peer()))
    }

    fn by_lid() -> Question {
        Question::plain(Target::Lid(Lid(2)))
    }

    #[test]
    fn the_right_destination() {
        let other: Gid = "fe80::3".parse().unwrap();
        assert_eq!(judge(by_gid(), |_| {}), Ok(()));
        assert_eq!(judge(by_lid(), |_| {}), Ok(()));
        let elsewhere = |asked, dgid, dlid| Err(Mismatch::Destination { asked, dgid, dlid });
        assert_eq!(
            judge(by_gid(), |p| {
                p.set_dgid(other);
            }),
            elsewhere(Target::Gid(peer()), other, Lid(2))
        );
        assert_eq!(
            judge(by_lid(), |p| {
                p.set_dlid(Lid(3));
            }),
            elsewhere(Target::Lid(Lid(2)), peer(), Lid(3))
        );
        assert_eq!(
            judge(by_lid(), |p| {
                p.set_dgid(Gid::ZERO);
            }),
            Err(Mismatch::NoDgid(Lid(2)))
        );
        for lid in [0, 0xc000, 0xffff] {
            assert_eq!(
                judge(by_gid(), |p| {
                    p.set_dlid(Lid(lid));
                }),
                Err(Mismatch::DlidNotUnicast(Lid(lid)))
            );
        }
    }

    #[test]
    fn the_right_source_and_partition() {
        let other: Gid = "fe80::9".parse().unwrap();
        assert!(matches!(
            judge(by_gid(), |p| {
                p.set_sgid(other);
            }),
            Err(Mismatch::Source { .. })
        ));
        assert_eq!(
            judge(by_gid(), |p| {
                p.set_pkey(PKey(0x7fff));
            }),
            Ok(())
        );
        for pkey in [PKey(0x8001), PKey(0)] {
            assert_eq!(
                judge(by_gid(), |p| {
                    p.set_pkey(pkey);
                }),
                Err(Mismatch::Partition(pkey))
            );
        }
        let mut question = by_gid();
        question.demands.sgid = other;
        question.demands.partition = 1;
        question.demands.slid = Lid(3);
        let answer = |p: &mut PathRecord| {
            p.set_sgid(other).set_pkey(PKey(1)).set_slid(Lid(3));
        };
        assert_eq!(judge(question, answer), Ok(()));
        assert!(judge(question, |_| {}).is_err());
        question.demands.slid = Lid(4);
        assert!(matches!(
            judge(question, answer),
            Err(Mismatch::Source { .. })
        ));
    }

    #[test]
    fn the_demanded_properties() {
        use Selector::{Best, Exactly, GreaterThan, LessThan};
        // `good()` has SL 1, MTU code 4, rate 40 Gb/s (code 7), lifetime 18.
        let cases: [(&str, Demand, bool); 22] = [
            ("SL", |q| q.demands.sl = 1, true),
            ("SL", |q| q.demands.sl = 2, false),
            ("MTU", |q| q.demands.mtu = Limit::new(Exactly, 4), true),
            ("MTU", |q| q.demands.mtu = Limit::new(Exactly, 5), false),
            ("MTU", |q| q.demands.mtu = Limit::new(GreaterThan, 3), true),
            ("MTU", |q| q.demands.mtu = Limit::new(GreaterThan, 4), false),
            ("MTU", |q| q.demands.mtu = Limit::new(LessThan, 5), true),
            ("MTU", |q| q.demands.mtu = Limit::new(LessThan, 4), false),
            ("MTU", |q| q.demands.mtu = Limit::new(Best, 0), true),
            // Rate codes follow no order: 5 is 5 Gb/s, 16 is 100, 11 is 14, 4 is 30.
            (
                "rate",
                |q| q.demands.rate = Limit::new(GreaterThan, 11),
                true,
            ),
            (
                "rate",
                |q| q.demands.rate = Limit::new(GreaterThan, 8),
                false,
            ),
            ("rate", |q| q.demands.rate = Limit::new(LessThan, 16), true),
            ("rate", |q| q.demands.rate = Limit::new(LessThan, 4), false),
            ("rate", |q| q.demands.rate = Limit::new(Exactly, 7), true),
            ("rate", |q| q.demands.rate = Limit::new(Exactly, 63), false),
            ("rate", |q| q.demands.rate = Limit::new(LessThan, 63), true),
            (
                "packet lifetime",
                |q| q.demands.packet_lifetime = Limit::new(LessThan, 19),
                true,
            ),
            (
                "packet lifetime",
                |q| q.demands.packet_lifetime = Limit::new(LessThan, 18),
                false,
            ),
            ("service id", |q| q.demands.service_id = 9, true),
            ("QoS class", |q| q.demands.qos_class = 9, true),
            ("traffic class", |q| q.demands.traffic_class = 9, true),
            ("flow label", |q| q.demands.flow_label = 9, true),
        ];
        for (name, set, met) in cases {
            let mut question = by_gid();
            set(&mut question);
            let expected = if met {
                Ok(())
            } else {
                Err(Mismatch::Demand(name))
            };
            assert_eq!(judge(question, |_| {}), expected, "{question:?}");
        }
    }

    #[test]
    fn what_chose_the_path_is_echoed_or_left_out_but_not_contradicted() {
        let cases: [(Demand, Answer, &str); 4] = [
            (
                |q| q.demands.service_id = 9,
                |p| {
                    p.set_service_id(8);
                },
                "service id",
            ),
            (
                |q| q.demands.qos_class = 9,
                |p| {
                    p.set_qos_class(8);
                },
                "QoS class",
            ),
            (
                |q| q.demands.traffic_class = 9,
                |p| {
                    p.set_traffic_class(8);
                },
                "traffic class",
            ),
            (
                |q| q.demands.flow_label = 9,
                |p| {
                    p.set_flow_label(8);
                },
                "flow label",
            ),
        ];
        for (demand, answer, name) in cases {
            let mut question = by_gid();
            demand(&mut question);
            assert_eq!(judge(question, answer), Err(Mismatch::Demand(name)));
        }
    }

    #[test]
    fn every_failure_has_its_status() {
        let again = Err(AcmStatus::ETIMEDOUT);
        let no_data = Err(AcmStatus::ENODATA);
        let cases = [
            // The whole low byte counts as much as the high one.
            (SaError::Status(SaStatus(0x0001)), "Again", again),
            (SaError::Status(SaStatus(0x0100)), "Again", again),
            (
                SaError::Status(SaStatus(0x0200)),
                "Invalid",
                Err(AcmStatus::EINVAL),
            ),
            (SaError::Status(SaStatus(0x0300)), "NoRecords", no_data),
            (SaError::Status(SaStatus(0x0002)), "Failed", no_data),
            (SaError::Status(SaStatus(0x000c)), "Failed", no_data),
            (SaError::Status(SaStatus(0x001c)), "Failed", no_data),
            (SaError::Status(SaStatus(0x0400)), "Failed", no_data),
            (SaError::Status(SaStatus(0x0500)), "Failed", no_data),
            (SaError::Status(SaStatus(0x0600)), "Failed", no_data),
            (SaError::Status(SaStatus(0x0700)), "Failed", no_data),
            (SaError::Status(SaStatus(0xff00)), "Failed", no_data),
            (SaError::TimedOut, "Again", again),
            (SaError::NotSent { errno: 5 }, "Again", again),
            (
                SaError::Closed(crate::Closed),
                "Failed",
                Err(AcmStatus::ENOTCONN),
            ),
            (
                SaError::Unexpected {
                    class: 3,
                    method: 0x81,
                    attribute: 0x11,
                },
                "Failed",
                no_data,
            ),
        ];
        for (error, variant, reply) in cases {
            let judged = Judged::new(&by_gid(), &source(), Err(error));
            let shown = format!("{judged:?}");
            assert!(shown.starts_with(variant), "{error}: {shown}");
            assert_eq!(judged.reply(), reply, "{error}");
        }
    }
}
