//! Whether an answer is right: it is if the SA gives that record to who asks for the answer's own values.

use crate::compare::{Difference, compare};
use crate::error::Result;
use crate::record::{Gid, PathRecord};
use crate::rig::Rig;
use crate::sa::{Answer, Destination, SaQuery, component};

/// Hosts have their addresses in this partition.
const DEFAULT_PARTITION: u16 = 0xffff;

/// The selector by which the SA is asked for exactly a value, in the two highest bits of its byte.
const EXACTLY: u8 = 0x80;
const VALUE: u8 = 0x3f;

/// What the SA says about a path, in the default partition, to who asks for nothing else; or why it says nothing.
pub type Truth = Result<PathRecord, String>;

/// What an answer is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is the plain path. The differences are in fields that are not judged.
    Plain(Vec<Difference>),
    /// The SA gives it to who asks for its values. The differences are those from the plain path.
    OtherPath(Vec<Difference>),
    /// It has these differences from the plain path, and the SA does not give it.
    Wrong(Vec<Difference>),
    /// There is no plain path, for that reason, and the SA does not give the answer either.
    Unfounded(String),
}

/// Who asked for what.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The port that asked.
    pub sgid: Gid,
    /// What it asked for.
    pub destination: Destination,
    /// Whether it asked by an address of its own: then the record may be the provider's own, and its ends alone are judged, as
    /// the suite judges it.
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

/// Asks the SA for the plain path.
///
/// # Errors
/// If it cannot be asked.
pub fn plain_path(rig: &Rig, asked: &Asked) -> Result<Truth> {
    let query = SaQuery {
        sgid: asked.sgid,
        destination: asked.destination,
        pkey: Some(DEFAULT_PARTITION),
    };
    Ok(match rig.ask_sa(&query)? {
        Answer::Record(record) => Ok(record),
        Answer::Refused(status) => Err(format!("the SA itself refuses, status 0x{status:04x}")),
        Answer::Silence => {
            rig.check()?;
            Err("the SA itself is silent".to_owned())
        }
    })
}

/// Judges an answer; `truth` is the plain path.
///
/// # Errors
/// If the SA cannot be asked.
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

/// The query for a path with the values of `answered` between the ends that were asked for.
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
