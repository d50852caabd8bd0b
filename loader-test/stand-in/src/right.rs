//! Judges whether an answer is right.
//!
//! The SA's record for the request is right. So is a record that the SA returns for the same request with the answer's own
//! values: a provider may have a policy, such as another SL or a lower MTU, and put it into its query.

use std::fmt;

use super::message::Path;
use super::sa::{
    COMP_LIFETIME, COMP_LIFETIME_SELECTOR, COMP_MTU, COMP_MTU_SELECTOR, COMP_RATE,
    COMP_RATE_SELECTOR,
};
use super::shared::lock;
use super::subnet::{EXACTLY, LESS, MTUS, RATES, Subnet};
use super::{AddressId, StandIn};

/// Value bits of an MTU, rate or packet lifetime; the other bits are the selector.
const CODE: u8 = 0x3f;

/// The right answers to a request.
#[derive(Clone, Debug)]
pub struct Expected {
    asked: Path,
    plain: Option<Path>,
    subnet: Subnet,
}

impl Expected {
    /// Returns the right answers of `subnet` to a request that names its SGID and P_Key.
    pub fn new(asked: Path, subnet: Subnet) -> Self {
        let plain = subnet.path(&asked, asked.comp_mask(), 0).ok();
        Self {
            asked,
            plain,
            subnet,
        }
    }

    /// Returns the SA's record for the request; `None` if the SA refuses.
    pub fn plain(&self) -> Option<Path> {
        self.plain
    }

    /// Whether a record is right.
    pub fn is_met_by(&self, answer: &Path) -> bool {
        self.subnet.gives(&self.asked, answer)
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plain {
            Some(plain) => write!(
                f,
                "{plain:?}, or a record that the SA gives for the answer's own values"
            ),
            None => f.write_str("an error, as the SA's"),
        }
    }
}

impl StandIn {
    /// Returns the right answers to a path request from an address; missing ends and partition are filled in.
    pub fn expected(&self, from: AddressId, asked: &Path) -> Expected {
        Expected::new(self.whole(from, asked), self.subnet())
    }

    /// Judges a client's answer by the SA. An error is not a wrong answer.
    ///
    /// # Errors
    /// A text with the expected answer and the actual one.
    ///
    /// # Panics
    /// If the client requested no path record, or has no answer.
    pub fn judge(&self, id: u64) -> Result<(), String> {
        let ledger = lock(&self.shared.ledger);
        let request = ledger.requests.get(&id).expect("the client asked");
        let (asked, _) = request.wanted.expect("the client asked for a path record");
        let reply = request.replies.first().expect("the client has its answer");
        let Some(path) = reply.path().filter(|_| reply.status == 0) else {
            return Ok(());
        };
        let expected = Expected::new(asked, self.subnet());
        match expected.is_met_by(&path) {
            true => Ok(()),
            false => Err(format!("expected: {expected}; seen: {path:?}")),
        }
    }

    /// Fills in the ends and the partition that a request leaves out.
    pub(super) fn whole(&self, from: AddressId, asked: &Path) -> Path {
        let mut asked = *asked;
        if asked.sgid().is_zero() {
            asked = asked.with_sgid(self.port(from.port).gid());
        }
        if asked.pkey() == 0 {
            asked = asked.with_pkey(from.pkey);
        }
        asked
    }
}

impl Subnet {
    /// Whether `answer` is right for what was `asked`, which names its SGID and P_Key.
    pub fn gives(&self, asked: &Path, answer: &Path) -> bool {
        let plain = self.path(asked, asked.comp_mask(), 0);
        if plain.is_ok_and(|plain| same(&plain, answer)) {
            return true;
        }
        meets_demands(asked, answer)
            && [EXACTLY, LESS].into_iter().any(|rate_selector| {
                let Some(question) = with_own_values(asked, answer, rate_selector) else {
                    return false;
                };
                let mut question = question;
                if self.draws_sl {
                    // Such an SA refuses a query that names an SL. It draws SLs from 1 to 14.
                    question = question.with_qos_sl(question.qos_sl() & 0xfff0);
                }
                const LIMITS: u64 = COMP_MTU_SELECTOR
                    | COMP_MTU
                    | COMP_RATE_SELECTOR
                    | COMP_RATE
                    | COMP_LIFETIME_SELECTOR
                    | COMP_LIFETIME;
                let given = self.path(&question, question.comp_mask() | LIMITS, 0);
                given.is_ok_and(|given| match self.draws_sl {
                    true if (1..=14).contains(&(answer.qos_sl() & 0xf)) => {
                        same(&given.with_qos_sl(answer.qos_sl()), answer)
                    }
                    true => false,
                    false => same(&given, answer),
                })
            })
    }
}

/// Whether two records are the same to a client. Fields for the SA's own use, reserved bytes and the selectors of single
/// values do not count.
pub fn same(one: &Path, other: &Path) -> bool {
    let comparable = |path: &Path| {
        let mut path = path
            .with_reversible_numpath(path.reversible_numpath() & 0x80)
            .with_mtu(path.mtu() & CODE)
            .with_rate(path.rate() & CODE)
            .with_lifetime(path.lifetime() & CODE);
        path.0[57..].fill(0);
        path
    };
    comparable(one) == comparable(other)
}

/// Adds the answer's values where the request names none; `None` if a query cannot name one of them.
fn with_own_values(asked: &Path, answer: &Path, rate_selector: u8) -> Option<Path> {
    let rate = answer.rate() & CODE;
    let rate = match rate_selector {
        EXACTLY => rate,
        // An SA may not adjust a rate that the query names exactly.
        _ => {
            let place = RATES.iter().position(|known| *known == rate)?;
            *RATES.get(place + 1)?
        }
    };
    let mut question = asked
        .with_mtu(EXACTLY << 6 | answer.mtu() & CODE)
        .with_rate(rate_selector << 6 | rate)
        .with_lifetime(EXACTLY << 6 | answer.lifetime() & CODE);
    if asked.dlid() == 0 {
        question = question.with_dlid(answer.dlid());
    }
    if asked.slid() == 0 {
        question = question.with_slid(answer.slid());
    }
    if asked.qos_sl() & 0xf == 0 {
        question = question.with_qos_sl(asked.qos_sl() | answer.qos_sl() & 0xf);
    }
    Some(question)
}

/// Whether an answer meets the requested MTU, rate and packet lifetime.
fn meets_demands(asked: &Path, answer: &Path) -> bool {
    let lifetimes: [u8; 64] = std::array::from_fn(|code| code as u8);
    [
        (asked.mtu(), answer.mtu(), &MTUS[..]),
        (asked.rate(), answer.rate(), &RATES[..]),
        (asked.lifetime(), answer.lifetime(), &lifetimes[..]),
    ]
    .into_iter()
    .all(|(demand, has, order)| {
        let place = |byte: u8| order.iter().position(|known| *known == byte & CODE);
        match demand >> 6 {
            LESS => place(has) < place(demand),
            EXACTLY => place(has) == place(demand),
            // Without a selector it is no constraint.
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Peer, PortSpec, gid};
    use crate::message::Gid;

    const OWN: u64 = 0x0010_0001;

    fn subnet() -> Subnet {
        Subnet {
            ports: vec![PortSpec::new(OWN, 10)],
            ..Subnet::default()
        }
    }

    fn asked() -> Path {
        Path::default()
            .with_sgid(gid(OWN))
            .with_dgid(Peer::number(3).gid())
            .with_pkey(0xffff)
    }

    fn plain(asked: &Path) -> Path {
        subnet().path(asked, asked.comp_mask(), 0).unwrap()
    }

    #[test]
    fn a_policys_record_is_right_if_the_sa_gives_it() {
        let record = plain(&asked());
        for answer in [
            record,
            record.with_qos_sl(2),
            record.with_mtu(0x83),
            record.with_rate(0x85),
            record.with_rate(0x82).with_mtu(0x81).with_qos_sl(15),
            record.with_lifetime(0x8a),
            record.with_mtu(0x04).with_rate(0x03),
        ] {
            assert!(subnet().gives(&asked(), &answer), "{answer:?}");
            let by_lid = asked().with_dgid(Gid::ZERO).with_dlid(record.dlid());
            assert!(subnet().gives(&by_lid, &answer), "{answer:?}");
        }
    }

    #[test]
    fn a_record_that_the_sa_does_not_give_is_wrong() {
        let record = plain(&asked());
        for answer in [
            record.with_dlid(0),
            record.with_dlid(Peer::number(4).lid),
            record.with_dgid(Peer::number(4).gid()),
            record.with_slid(11),
            record.with_sgid(gid(0x0bad)),
            record.with_pkey(0x8001),
            record.with_mtu(0x85),
            record.with_rate(0x87),
            record.with_rate(0),
            record.with_mtu(0),
            record.with_lifetime(0x93),
            record.with_tclass(1),
            record.with_reversible_numpath(0),
            Path::default(),
        ] {
            assert!(!subnet().gives(&asked(), &answer), "{answer:?}");
        }
        let mut subnet = subnet();
        subnet.refused_sls.insert(record.dlid(), vec![2]);
        assert!(!subnet.gives(&asked(), &record.with_qos_sl(2)));
        assert!(subnet.gives(&asked(), &record.with_qos_sl(3)));
    }

    #[test]
    fn what_was_asked_for_is_no_values_of_the_answers_own() {
        let record = plain(&asked());
        assert!(!subnet().gives(&asked().with_qos_sl(6), &record));
        assert!(!subnet().gives(&asked().with_mtu(0x44), &record));
        assert!(subnet().gives(&asked().with_mtu(0x44), &record.with_mtu(0x82)));
        assert!(!subnet().gives(&asked().with_mtu(0x81), &record.with_mtu(0x82)));
        // A service that selects a path.
        let mut subnet = subnet();
        subnet.qos = true;
        let service = asked().with_service_id(7);
        assert!(!subnet.gives(&service, &record));
        assert!(subnet.gives(&service, &record.with_qos_sl(7)));
    }
}
