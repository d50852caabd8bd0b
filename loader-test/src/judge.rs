//! Judges an answer: it is right if the SA returns that record for a query with the answer's own values.

use crate::compare::{Difference, compare};
use crate::error::Result;
use crate::record::{Gid, PathRecord};
use crate::rig::Rig;
use crate::sa::{Answer, Destination, SaQuery, component};

/// The partition of the hosts' addresses.
const DEFAULT_PARTITION: u16 = 0xffff;

/// The selector "exactly", in the two highest bits of a value's byte.
const EXACTLY: u8 = 0x80;
const VALUE: u8 = 0x3f;

/// The SA's record for a path in the default partition without further constraints, or why there is none.
pub type Truth = Result<PathRecord, String>;

/// The judgement of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The plain path. The differences are in fields that are not judged.
    Plain(Vec<Difference>),
    /// A path that the SA returns for a query with its values. The differences are from the plain path.
    OtherPath(Vec<Difference>),
    /// Not a path of the SA. The differences are from the plain path.
    Wrong(Vec<Difference>),
    /// Not a path of the SA, which for this reason has no plain path either.
    Unfounded(String),
}

/// A request: source port and destination.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The requesting port.
    pub sgid: Gid,
    /// The destination.
    pub destination: Destination,
    /// Whether the destination is one of the port's own addresses: the provider may then build the record itself, and only its
    /// ends are judged, as in the suite.
    pub own_address: bool,
}

impl Asked {
    fn compare(&self, answered: &PathRecord, truth: &PathRecord) -> Vec<Difference> {
        const ENDS: [&str; 4] = ["DLID", "SLID", "DGID", "SGID"];
        let mut differences = compare(answered, truth);
        for difference in &mut differences {
            difference.judged &= !self.own_address || ENDS.contains(&difference.field);
        }
        differences
    }
}

/// Queries the SA for the plain path.
///
/// # Errors
/// If the query cannot be sent.
pub fn plain_path(rig: &Rig, asked: &Asked) -> Result<Truth> {
    let query = SaQuery {
        sgid: asked.sgid,
        destination: asked.destination,
        pkey: Some(DEFAULT_PARTITION),
    };
    Ok(match rig.ask_sa(&query)? {
        Answer::Record(record) => Ok(record),
        Answer::Refused(status) => Err(format!("the SA refuses, status 0x{status:04x}")),
        Answer::Silence => {
            rig.check()?;
            Err("the SA does not respond".to_owned())
        }
    })
}

/// Judges an answer; `truth` is the plain path.
///
/// # Errors
/// If the query cannot be sent.
pub fn judge(rig: &Rig, asked: &Asked, answered: &PathRecord, truth: &Truth) -> Result<Judgement> {
    let differences = match truth {
        Ok(truth) => asked.compare(answered, truth),
        Err(_) => Vec::new(),
    };
    if truth.is_ok() && !has_judged(&differences) {
        return Ok(Judgement::Plain(differences));
    }
    let (mask, query) = own_values(asked, answered);
    if let Answer::Record(record) = rig.get_path(mask, &query)?
        && !has_judged(&asked.compare(answered, &record))
    {
        return Ok(Judgement::OtherPath(differences));
    }
    Ok(match truth {
        Ok(_) => Judgement::Wrong(differences),
        Err(reason) => Judgement::Unfounded(reason.clone()),
    })
}

fn has_judged(differences: &[Difference]) -> bool {
    differences.iter().any(|difference| difference.judged)
}

/// Returns the query for a path with the values of `answered` between the requested ends.
fn own_values(asked: &Asked, answered: &PathRecord) -> (u64, PathRecord) {
    let Asked {
        sgid, destination, ..
    } = *asked;
    let exactly = |byte: u8| EXACTLY | (byte & VALUE);
    let mut asked = PathRecord::EMPTY;
    asked
        .set_sgid(sgid)
        .set_slid(answered.slid())
        .set_dgid(answered.dgid())
        .set_dlid(answered.dlid())
        .set_reversible_and_number(true, 1)
        .set_pkey(answered.pkey())
        .set_qos_class_and_sl(0, answered.sl())
        .set_mtu_byte(exactly(answered.mtu()))
        .set_rate_byte(exactly(answered.rate()))
        .set_packet_lifetime_byte(exactly(answered.packet_lifetime()));
    match destination {
        Destination::Lid(lid) => asked.set_dlid(lid),
        Destination::Gid(gid) => asked.set_dgid(gid),
    };
    let mask = component::SGID
        | component::SLID
        | component::DGID
        | component::DLID
        | component::REVERSIBLE
        | component::NUMBER_OF_PATHS
        | component::PKEY
        | component::SL
        | component::MTU
        | component::RATE
        | component::PACKET_LIFETIME;
    (mask, asked)
}
