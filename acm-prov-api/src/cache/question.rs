//! What was asked, in a form that compares and hashes, and the SA query that asks it.

use crate::abi::AcmStatus;
use crate::address::{Gid, Lid, PKey};
use crate::path::{PathRecord, Selector};

/// Components of a PathRecord query (IBA vol. 1, 15.2.5.16), by bit of the component mask.
mod component {
    pub const SERVICE_ID: u64 = 1 << 0 | 1 << 1;
    pub const DGID: u64 = 1 << 2;
    pub const SGID: u64 = 1 << 3;
    pub const DLID: u64 = 1 << 4;
    pub const SLID: u64 = 1 << 5;
    pub const FLOW_LABEL: u64 = 1 << 8;
    pub const TRAFFIC_CLASS: u64 = 1 << 10;
    pub const REVERSIBLE: u64 = 1 << 11;
    pub const NUMB_PATH: u64 = 1 << 12;
    pub const P_KEY: u64 = 1 << 13;
    pub const QOS_CLASS: u64 = 1 << 14;
    pub const SL: u64 = 1 << 15;
    pub const MTU: u64 = 1 << 16 | 1 << 17;
    pub const RATE: u64 = 1 << 18 | 1 << 19;
    pub const PACKET_LIFETIME: u64 = 1 << 20 | 1 << 21;
}

/// The asking side of every question of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The port's GID.
    pub gid: Gid,
    /// The port's base LID.
    pub lid: Lid,
    /// The endpoint's P_Key, as the port's table has it.
    pub pkey: PKey,
}

/// Whom a path is wanted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A port by its GID.
    Gid(Gid),
    /// A port by its LID.
    Lid(Lid),
}

/// A demand on MTU, rate or packet lifetime: the selector in the upper two bits, the value in
/// the others; all zero demands nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limit(u8);

impl Limit {
    /// No demand.
    pub const NONE: Limit = Limit(0);

    /// A demand. "Greater than 0" is none: nothing that exists has the value 0.
    #[must_use]
    pub const fn new(selector: Selector, value: u8) -> Limit {
        Limit((selector as u8) << 6 | value & 0x3f)
    }

    /// How the value is meant.
    #[must_use]
    pub const fn selector(self) -> Selector {
        match self.0 >> 6 {
            0 => Selector::GreaterThan,
            1 => Selector::LessThan,
            2 => Selector::Exactly,
            _ => Selector::Best,
        }
    }

    /// The value: a code, six bits.
    #[must_use]
    pub const fn value(self) -> u8 {
        self.0 & 0x3f
    }
}

/// What a question demands of a path besides where it leads. Zero demands nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Demands {
    /// The service that the path is for.
    pub service_id: u64,
    /// Another source GID than the endpoint's.
    pub sgid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Another source LID than the port's base LID.
    pub slid: Lid,
    /// Another partition than the endpoint's, without the membership bit.
    pub partition: u16,
    /// QoS class, 12 bits.
    pub qos_class: u16,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// MTU codes.
    pub mtu: Limit,
    /// Rate codes.
    pub rate: Limit,
    /// Packet lifetimes.
    pub packet_lifetime: Limit,
}

impl Demands {
    /// Whether any path will do.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Demands::default()
    }
}

/// A question for a path. Equal questions of one endpoint have one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// Where to.
    pub target: Target,
    /// What else.
    pub demands: Demands,
}

/// Why a request asks for nothing that a path can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionError {
    /// Neither a DLID nor a DGID.
    #[error("the request names neither DLID nor DGID")]
    NoDestination,
    /// A DLID that no port has.
    #[error("DLID {0} is not unicast (1 to 49151)")]
    LidNotUnicast(Lid),
    /// A DGID that no port has.
    #[error("DGID {0} is a multicast group, which no path leads to")]
    GidNotUnicast(Gid),
}

impl QuestionError {
    /// What the client is told.
    #[must_use]
    pub const fn status(self) -> AcmStatus {
        AcmStatus::EDESTADDR
    }
}

impl Question {
    /// The question for any path to `target`.
    #[must_use]
    pub fn plain(target: Target) -> Question {
        Question {
            target,
            demands: Demands::default(),
        }
    }

    /// The question that a path record in a request asks: to its DLID, or its DGID without
    /// one, with all else that is not zero as a demand. What the endpoint has anyway (its
    /// GID, LID and partition) is no demand.
    ///
    /// Reversible, number of paths, hop limit and preference are not looked at: every path
    /// that is asked for is one path in both directions, and its hop limit is the SA's to say.
    ///
    /// # Errors
    /// No destination, or one that is not a port.
    pub fn from_path(asked: &PathRecord, source: &Source) -> Result<Question, QuestionError> {
        let target = if !asked.dlid().is_zero() {
            Target::Lid(asked.dlid())
        } else if !asked.dgid().is_zero() {
            Target::Gid(asked.dgid())
        } else {
            return Err(QuestionError::NoDestination);
        };
        Question::new(target, asked, source)
    }

    /// The question for a path to `target`, with the demands of `asked` (see
    /// [`from_path`](Question::from_path)), whose own destination does not count.
    ///
    /// # Errors
    /// `target` is not a port.
    pub fn new(
        target: Target,
        asked: &PathRecord,
        source: &Source,
    ) -> Result<Question, QuestionError> {
        match target {
            Target::Lid(lid) if !lid.is_unicast() => {
                return Err(QuestionError::LidNotUnicast(lid));
            }
            Target::Gid(gid) if gid.is_zero() => return Err(QuestionError::NoDestination),
            Target::Gid(gid) if gid.is_multicast() => {
                return Err(QuestionError::GidNotUnicast(gid));
            }
            _ => {}
        }
        let mut demands = Demands {
            service_id: asked.service_id(),
            flow_label: asked.flow_label(),
            qos_class: asked.qos_class(),
            traffic_class: asked.traffic_class(),
            sl: asked.sl(),
            mtu: Limit::new(asked.mtu_selector(), asked.mtu()),
            rate: Limit::new(asked.rate_selector(), asked.rate()),
            packet_lifetime: Limit::new(asked.packet_lifetime_selector(), asked.packet_lifetime()),
            ..Demands::default()
        };
        if asked.sgid() != source.gid {
            demands.sgid = asked.sgid();
        }
        if asked.slid() != source.lid {
            demands.slid = asked.slid();
        }
        if !asked.pkey().same_partition(source.pkey) {
            demands.partition = asked.pkey().partition();
        }
        Ok(Question { target, demands })
    }

    /// The source GID that an answer must have.
    #[must_use]
    pub fn sgid(&self, source: &Source) -> Gid {
        if self.demands.sgid.is_zero() {
            source.gid
        } else {
            self.demands.sgid
        }
    }

    /// The P_Key to ask with: the endpoint's own, or the full member's of another partition.
    #[must_use]
    pub fn pkey(&self, source: &Source) -> PKey {
        match self.demands.partition {
            0 => source.pkey,
            other => PKey(other | PKey::FULL_MEMBER),
        }
    }

    /// The record to ask the SA with: source GID, destination, P_Key, one reversible path, and
    /// what the question demands. Nothing in it comes from an earlier answer.
    #[must_use]
    pub fn record(&self, source: &Source) -> PathRecord {
        let demands = &self.demands;
        let mut record = PathRecord::default();
        match self.target {
            Target::Gid(gid) => record.set_dgid(gid),
            Target::Lid(lid) => record.set_dlid(lid),
        };
        record
            .set_sgid(self.sgid(source))
            .set_pkey(self.pkey(source))
            .set_reversible(true)
            .set_numb_path(1)
            .set_service_id(demands.service_id)
            .set_slid(demands.slid)
            .set_flow_label(demands.flow_label)
            .set_qos_class(demands.qos_class)
            .set_traffic_class(demands.traffic_class)
            .set_sl(demands.sl)
            .set_mtu(demands.mtu.selector(), demands.mtu.value())
            .set_rate(demands.rate.selector(), demands.rate.value())
            .set_packet_lifetime(
                demands.packet_lifetime.selector(),
                demands.packet_lifetime.value(),
            );
        record
    }

    /// The component mask, host order, that makes the SA look at what
    /// [`record`](Question::record) holds and at nothing else. Selector and value are always
    /// named together: an SA ignores a lone one.
    #[must_use]
    pub fn component_mask(&self) -> u64 {
        let demands = &self.demands;
        let target = match self.target {
            Target::Gid(_) => component::DGID,
            Target::Lid(_) => component::DLID,
        };
        let always =
            component::SGID | component::P_KEY | component::REVERSIBLE | component::NUMB_PATH;
        [
            (demands.service_id != 0, component::SERVICE_ID),
            (!demands.slid.is_zero(), component::SLID),
            (demands.flow_label != 0, component::FLOW_LABEL),
            (demands.qos_class != 0, component::QOS_CLASS),
            (demands.traffic_class != 0, component::TRAFFIC_CLASS),
            (demands.sl != 0, component::SL),
            (demands.mtu != Limit::NONE, component::MTU),
            (demands.rate != Limit::NONE, component::RATE),
            (
                demands.packet_lifetime != Limit::NONE,
                component::PACKET_LIFETIME,
            ),
        ]
        .into_iter()
        .filter(|(demanded, _)| *demanded)
        .fold(target | always, |mask, (_, bits)| mask | bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Ask = fn(&mut PathRecord);

    fn source() -> Source {
        Source {
            gid: "fe80::1".parse().unwrap(),
            lid: Lid(1),
            pkey: PKey(0x7fff),
        }
    }

    fn asked(set: impl FnOnce(&mut PathRecord)) -> Result<Question, QuestionError> {
        let mut record = PathRecord::default();
        record.set_dlid(Lid(2));
        set(&mut record);
        Question::from_path(&record, &source())
    }

    #[test]
    fn what_the_endpoint_has_anyway_is_no_demand() {
        let plain = Question::plain(Target::Lid(Lid(2)));
        let same = [
            asked(|_| {}),
            asked(|r| {
                r.set_sgid(source().gid);
            }),
            asked(|r| {
                r.set_slid(source().lid);
            }),
            asked(|r| {
                r.set_pkey(PKey(0x7fff));
            }),
            asked(|r| {
                r.set_pkey(PKey(0xffff));
            }),
            asked(|r| {
                r.set_pkey(PKey(0x8000));
            }),
            asked(|r| {
                r.set_reversible(true).set_numb_path(1);
            }),
            asked(|r| {
                r.set_hop_limit(64).set_preference(3);
            }),
        ];
        for question in same {
            assert_eq!(question, Ok(plain));
        }
    }

    #[test]
    fn every_demand_makes_another_question_and_is_asked_for() {
        let cases: [(Ask, u64); 11] = [
            (
                |r| {
                    r.set_service_id(7);
                },
                component::SERVICE_ID,
            ),
            (
                |r| {
                    r.set_sgid(Gid::new(1, 2));
                },
                component::SGID,
            ),
            (
                |r| {
                    r.set_slid(Lid(9));
                },
                component::SLID,
            ),
            (
                |r| {
                    r.set_pkey(PKey(0x8001));
                },
                component::P_KEY,
            ),
            (
                |r| {
                    r.set_flow_label(5);
                },
                component::FLOW_LABEL,
            ),
            (
                |r| {
                    r.set_qos_class(3);
                },
                component::QOS_CLASS,
            ),
            (
                |r| {
                    r.set_traffic_class(3);
                },
                component::TRAFFIC_CLASS,
            ),
            (
                |r| {
                    r.set_sl(3);
                },
                component::SL,
            ),
            (
                |r| {
                    r.set_mtu(Selector::GreaterThan, 3);
                },
                component::MTU,
            ),
            (
                |r| {
                    r.set_rate(Selector::Exactly, 3);
                },
                component::RATE,
            ),
            (
                |r| {
                    r.set_packet_lifetime(Selector::LessThan, 18);
                },
                component::PACKET_LIFETIME,
            ),
        ];
        let plain = asked(|_| {}).unwrap();
        for (set, bits) in cases {
            let question = asked(set).unwrap();
            assert_ne!(question, plain, "{question:?}");
            assert!(!question.demands.is_none());
            assert_eq!(question.component_mask(), plain.component_mask() | bits);

            let mut expected = plain.record(&source());
            set(&mut expected);
            assert_eq!(question.record(&source()), expected);
        }
    }

    #[test]
    fn a_plain_query_names_source_destination_partition_and_one_reversible_path() {
        let by_lid = Question::plain(Target::Lid(Lid(2)));
        let record = by_lid.record(&source());
        let mut expected = PathRecord::default();
        expected
            .set_dlid(Lid(2))
            .set_sgid(source().gid)
            .set_pkey(PKey(0x7fff));
        expected.set_reversible(true).set_numb_path(1);
        assert_eq!(record, expected);
        assert_eq!(by_lid.component_mask(), 0x3818);

        let gid = "fe80::2".parse().unwrap();
        let by_gid = Question::plain(Target::Gid(gid));
        assert_eq!(by_gid.record(&source()).dgid(), gid);
        assert_eq!(by_gid.record(&source()).dlid(), Lid::ZERO);
        assert_eq!(by_gid.component_mask(), 0x380c);
    }

    #[test]
    fn the_dlid_comes_first() {
        let gid: Gid = "fe80::2".parse().unwrap();
        let both = asked(|r| {
            r.set_dgid(gid);
        })
        .unwrap();
        assert_eq!(both.target, Target::Lid(Lid(2)));
        let gid_only = asked(|r| {
            r.set_dgid(gid).set_dlid(Lid(0));
        })
        .unwrap();
        assert_eq!(gid_only.target, Target::Gid(gid));
    }

    #[test]
    fn destinations_that_are_no_port_are_refused() {
        let group: Gid = "ff12::1".parse().unwrap();
        let none = asked(|r| {
            r.set_dlid(Lid(0));
        });
        assert_eq!(none, Err(QuestionError::NoDestination));
        for lid in [0xc000, 0xffff] {
            let error = asked(|r| {
                r.set_dlid(Lid(lid));
            })
            .unwrap_err();
            assert_eq!(error, QuestionError::LidNotUnicast(Lid(lid)));
            assert_eq!(error.status(), AcmStatus::EDESTADDR);
        }
        let error = asked(|r| {
            r.set_dlid(Lid(0)).set_dgid(group);
        });
        assert_eq!(error, Err(QuestionError::GidNotUnicast(group)));
    }
}
