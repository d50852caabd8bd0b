//! Requests with all pairs of path components, consistent and contradictory.
//!
//! The SA's response to a Get with the same components decides: the provider must return a path exactly if the SA has one, and
//! that path. A request with a contradictory LID and GID may also get the path to the GID.
//!
//! The stock provider differs, see [`Fabric::stocks`].

use std::collections::HashMap;
use std::fmt;

use loader_test::client::{Client, Entry, Status, flag};
use loader_test::compare::compare;
use loader_test::record::{Gid, Lid, PathRecord};
use loader_test::rig::Rig;
use loader_test::sa::{Answer, component};

use super::{ASKING, PEER, WHOLE_PKEY, ask, asking, beside, rig, start};
use crate::subject;

/// How a request reaches the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// A PATH entry alone.
    Resolve,
    /// The same with the flag QUERY_SA.
    Query,
    /// A PATH entry beside the addresses of source and destination, as librdmacm sends it. Its DGID and DLID say nothing.
    Beside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Component {
    Dgid,
    Dlid,
    Sgid,
    Slid,
    Pkey,
    ServiceId,
    QosClass,
    TrafficClass,
    FlowLabel,
    Sl,
    Mtu,
    Rate,
    PacketLifetime,
}
use Component::{
    Dgid, Dlid, FlowLabel, Mtu, PacketLifetime, Pkey, QosClass, Rate, ServiceId, Sgid, Sl, Slid,
    TrafficClass,
};

/// What is named, beside the SA's path to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    /// The path's own value.
    Consistent,
    /// Another value: of MTU, rate and packet lifetime exactly that.
    Contradicting,
    /// The other kind of membership of the same partition.
    OtherMembership,
    /// The path's own value with selector 0: no demand.
    SelectorZero,
}
use Value::{Consistent, Contradicting, OtherMembership, SelectorZero};

type Named = (Component, Value);

/// The values of each component. Where a path has a zero, to name it is to name nothing.
const NAMED: [&[Named]; 13] = [
    &[(Dgid, Consistent), (Dgid, Contradicting)],
    &[(Dlid, Consistent), (Dlid, Contradicting)],
    &[(Sgid, Consistent), (Sgid, Contradicting)],
    &[(Slid, Consistent), (Slid, Contradicting)],
    &[
        (Pkey, Consistent),
        (Pkey, OtherMembership),
        (Pkey, Contradicting),
    ],
    &[(ServiceId, Contradicting)],
    &[(QosClass, Contradicting)],
    &[(TrafficClass, Contradicting)],
    &[(FlowLabel, Contradicting)],
    &[(Sl, Contradicting)],
    &[(Mtu, Consistent), (Mtu, Contradicting), (Mtu, SelectorZero)],
    &[
        (Rate, Consistent),
        (Rate, Contradicting),
        (Rate, SelectorZero),
    ],
    &[
        (PacketLifetime, Consistent),
        (PacketLifetime, Contradicting),
        (PacketLifetime, SelectorZero),
    ],
];

/// Nothing, each value alone, and all pairs of two components' values.
fn all_pairs() -> Vec<Vec<Named>> {
    let mut all = vec![Vec::new()];
    for (at, component) in NAMED.iter().enumerate() {
        for &first in *component {
            all.push(vec![first]);
            for &second in NAMED[at + 1..].iter().copied().flatten() {
                all.push(vec![first, second]);
            }
        }
    }
    all
}

struct Case {
    form: Form,
    named: Vec<Named>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.form, self.named)
    }
}

impl Case {
    fn new(form: Form, named: &[Named]) -> Self {
        Self {
            form,
            named: named.to_vec(),
        }
    }

    fn names(&self, named: Named) -> bool {
        self.named.contains(&named)
    }

    fn named(&self, component: Component) -> Option<Named> {
        let mut named = self.named.iter().copied();
        named.find(|(named, _)| *named == component)
    }

    fn names_component(&self, component: Component) -> bool {
        self.named(component).is_some()
    }

    fn without(&self, component: Component) -> Self {
        let mut named = self.named.clone();
        named.retain(|(named, _)| *named != component);
        Self {
            form: self.form,
            named,
        }
    }

    /// The core looks for the endpoint of a PATH entry by its SGID, else by its SLID, and its partition.
    fn is_refused_by_core(&self) -> bool {
        self.form != Form::Beside
            && (self.names((Sgid, Contradicting))
                || self.names((Slid, Contradicting)) && !self.names_component(Sgid)
                || self.names((Pkey, Contradicting)))
    }

    /// Whose GID and LID do not belong together.
    fn has_two_destinations(&self) -> bool {
        self.names_component(Dgid)
            && self.names_component(Dlid)
            && !(self.names((Dgid, Consistent)) && self.names((Dlid, Consistent)))
    }
}

/// The fabric that the requests are about.
struct Fabric<'a> {
    rig: &'a Rig,
    own: Gid,
    /// The SA's path to the peer.
    path: PathRecord,
    other_gid: Gid,
    other_lid: Lid,
    /// The SA's answers so far, by component mask and record.
    answers: HashMap<(u64, PathRecord), Option<PathRecord>>,
}

impl<'a> Fabric<'a> {
    fn new(rig: &'a Rig) -> Self {
        let own = asking(rig).gid();
        let peer = rig.gid(PEER).unwrap();
        let path = rig
            .sa_path(own, loader_test::sa::Destination::Gid(peer))
            .unwrap();
        Self {
            rig,
            own,
            path,
            other_gid: rig.gid("Hca3").unwrap(),
            other_lid: rig.lid("Hca4").unwrap(),
            answers: HashMap::new(),
        }
    }

    /// Puts what is named into a record, and returns the component's bits.
    fn put(&self, (component, value): Named, record: &mut PathRecord) -> u64 {
        const EXACTLY: u8 = 2 << 6;
        let path = &self.path;
        let other = value == Contradicting;
        let selector = match value {
            SelectorZero => 0,
            _ => EXACTLY,
        };
        match component {
            Dgid => {
                record.set_dgid(if other { self.other_gid } else { path.dgid() });
                component::DGID
            }
            Dlid => {
                record.set_dlid(if other { self.other_lid } else { path.dlid() });
                component::DLID
            }
            Sgid => {
                record.set_sgid(if other { self.other_gid } else { self.own });
                component::SGID
            }
            Slid => {
                record.set_slid(if other { self.other_lid } else { path.slid() });
                component::SLID
            }
            Pkey => {
                record.set_pkey(match value {
                    Contradicting => 0x8123,
                    OtherMembership => WHOLE_PKEY & 0x7fff,
                    _ => WHOLE_PKEY,
                });
                component::PKEY
            }
            ServiceId => {
                record.set_service_id(0x0106_1234);
                component::SERVICE_ID
            }
            QosClass => {
                record.set_qos_class_and_sl(5, record.sl());
                component::QOS_CLASS
            }
            TrafficClass => {
                record.set_traffic_class(0x20);
                component::TRAFFIC_CLASS
            }
            FlowLabel => {
                record.set_flow_label_and_hop_limit(0x12345, 0);
                component::FLOW_LABEL
            }
            Sl => {
                record.set_qos_class_and_sl(record.qos_class(), 5);
                component::SL
            }
            Mtu => {
                record.set_mtu_byte(selector | (path.mtu() - u8::from(other)));
                component::MTU
            }
            Rate => {
                record.set_rate_byte(selector | (path.rate() - u8::from(other)));
                component::RATE
            }
            PacketLifetime => {
                record.set_packet_lifetime_byte(
                    selector | (path.packet_lifetime() + u8::from(other)),
                );
                component::PACKET_LIFETIME
            }
        }
    }

    /// The PATH entry of a request.
    fn record(&self, case: &Case) -> PathRecord {
        let mut record = PathRecord::EMPTY;
        for named in &case.named {
            self.put(*named, &mut record);
        }
        if case.form != Form::Beside && !case.names_component(Dgid) && !case.names_component(Dlid) {
            self.put((Dgid, Consistent), &mut record);
        }
        record
    }

    /// What the SA says to a Get with exactly these values.
    fn get(&mut self, mask: u64, record: PathRecord) -> Option<PathRecord> {
        let rig = self.rig;
        let answer = self.answers.entry((mask, record)).or_insert_with(|| {
            match rig.get_path(mask, &record).unwrap() {
                Answer::Record(record) => Some(record),
                Answer::Refused(_) => None,
                Answer::Silence => panic!("the SA does not answer a Get of {record:?}"),
            }
        });
        *answer
    }

    /// What the SA says to a Get with the same components, and those that every request has, named or not.
    fn sa(&mut self, case: &Case) -> Option<PathRecord> {
        let mut record = PathRecord::EMPTY;
        record.set_reversible_and_number(true, 1);
        let mut mask = component::REVERSIBLE | component::NUMBER_OF_PATHS;
        mask |= self.put((Sgid, Consistent), &mut record);
        mask |= self.put((Pkey, Consistent), &mut record);
        let by_address = case.form == Form::Beside;
        if by_address || !case.names_component(Dlid) {
            mask |= self.put((Dgid, Consistent), &mut record);
        }
        for &(component, value) in &case.named {
            let is_destination = matches!(component, Dgid | Dlid);
            if value != SelectorZero && !(by_address && is_destination) {
                mask |= self.put((component, value), &mut record);
            }
        }
        self.get(mask, record)
    }

    /// The right answers, one of them.
    fn right(&mut self, case: &Case) -> Vec<Option<PathRecord>> {
        // OpenSM has a path from there, which is no path from here.
        if case.names((Sgid, Contradicting)) {
            return vec![None];
        }
        let mut right = vec![self.sa(case)];
        if case.form != Form::Beside && case.has_two_destinations() {
            right.push(self.sa(&case.without(Dlid)));
        }
        right
    }

    /// The stock provider looks at the destination alone, at the LID first, once it knows that one; and puts a query to the SA
    /// as it is, whose path may begin anywhere then.
    fn stocks(&mut self, case: &Case) -> Option<PathRecord> {
        let mut record = PathRecord::EMPTY;
        match case.form {
            Form::Beside => return Some(self.path),
            Form::Resolve => {
                let (component, value) = case
                    .named(Dlid)
                    .or(case.named(Dgid))
                    .unwrap_or((Dgid, Consistent));
                return self.sa(&Case::new(Form::Resolve, &[(component, value)]));
            }
            Form::Query => {}
        }
        let mut mask = 0;
        if case.named(Dlid).or(case.named(Dgid)).is_none() {
            mask |= self.put((Dgid, Consistent), &mut record);
        }
        for &(component, value) in &case.named {
            let bits = self.put((component, value), &mut record);
            // Without a selector OpenSM does not look at the value.
            if value != SelectorZero {
                mask |= bits;
            }
        }
        self.get(mask, record)
    }

    /// Sends a request, and says what is wrong with the answer.
    fn judge(&mut self, client: &mut Client, case: &Case) -> Option<String> {
        let record = self.record(case);
        let entries = match case.form {
            Form::Resolve => vec![Entry::path(0, &record)],
            Form::Query => vec![Entry::path(flag::QUERY_SA, &record)],
            Form::Beside => beside(&record),
        };
        let answer = ask(client, &entries);
        if case.is_refused_by_core() {
            return (answer.status != Status::ESRCADDR)
                .then(|| format!("{:?}, though the core refuses it", answer.status));
        }
        let path = match answer.status {
            Status::SUCCESS => Some(answer.path().expect("a path record")),
            _ => None,
        };
        let right = if subject::IS_STOCK {
            vec![self.stocks(case)]
        } else {
            self.right(case)
        };
        let problems: Vec<String> = right
            .iter()
            .filter_map(|right| match (&path, right) {
                (None, None) => None,
                (Some(path), None) => Some(format!("{path:?}, and the SA has no path")),
                (None, Some(_)) => Some(format!("{:?}, and the SA has a path", answer.status)),
                (Some(path), Some(right)) => differences(path, right, &record),
            })
            .collect();
        (problems.len() == right.len()).then(|| problems.join("; or "))
    }
}

/// In what an answer to the request `asked` differs from what the SA says. The membership bit is no demand, and what OpenSM
/// does not look at may be as asked.
fn differences(path: &PathRecord, truth: &PathRecord, asked: &PathRecord) -> Option<String> {
    let mut path = *path;
    let mut truth = *truth;
    if path.pkey() & 0x7fff == truth.pkey() & 0x7fff {
        path.set_pkey(truth.pkey());
    }
    if path.service_id() == asked.service_id() {
        path.set_service_id(truth.service_id());
    }
    if path.qos_class() == asked.qos_class() {
        path.set_qos_class_and_sl(truth.qos_class(), path.sl());
    }
    if path.traffic_class() == asked.traffic_class() {
        path.set_traffic_class(truth.traffic_class());
    }
    if path.flow_label() == asked.flow_label() {
        truth.set_flow_label_and_hop_limit(asked.flow_label(), truth.hop_limit());
    }
    let differences: Vec<String> = compare(&path, &truth)
        .iter()
        .map(ToString::to_string)
        .collect();
    (!differences.is_empty()).then(|| differences.join("; "))
}

/// The service ID and the QoS class of [`Fabric::put`] choose another service level.
const QOS_POLICY: &str = "\
qos-levels
    qos-level
        name: DEFAULT
        sl: 0
    end-qos-level
    qos-level
        name: storage
        sl: 3
    end-qos-level
    qos-level
        name: fast
        sl: 4
        mtu-limit: 3
    end-qos-level
end-qos-levels
qos-match-rules
    qos-match-rule
        service-id: 0x1061234
        qos-level-name: storage
    end-qos-match-rule
    qos-match-rule
        qos-class: 5
        qos-level-name: fast
    end-qos-match-rule
end-qos-match-rules
";

#[test]
fn whatever_two_components_are_named_the_answer_is_the_sas() {
    expect_the_sas_answers(&start(rig(), ASKING));
}

#[test]
fn so_it_is_where_service_id_and_qos_class_choose_the_path() {
    let rig = start(
        rig()
            .opensm_option("qos", "TRUE")
            .opensm_file("qos-policy.conf", QOS_POLICY),
        ASKING,
    );
    for (component, sl) in [(ServiceId, 3), (QosClass, 4)] {
        let mut fabric = Fabric::new(&rig);
        let case = Case::new(Form::Resolve, &[(component, Contradicting)]);
        assert_eq!(fabric.sa(&case).unwrap().sl(), sl, "the policy");
    }
    expect_the_sas_answers(&rig);
}

fn expect_the_sas_answers(rig: &Rig) {
    let mut fabric = Fabric::new(rig);
    let mut client = asking(rig).connect().unwrap();
    let pairs = all_pairs();
    // The second time what is cached by then must not show.
    let twice = || pairs.iter().chain(pairs.iter().rev());
    let resolved = [Form::Resolve, Form::Beside]
        .into_iter()
        .flat_map(|form| twice().map(move |named| Case::new(form, named)));
    let queried = pairs.iter().map(|named| Case::new(Form::Query, named));
    let mut wrong = Vec::new();
    for case in destinations().chain(resolved).chain(queried) {
        if let Some(problem) = fabric.judge(&mut client, &case) {
            wrong.push(format!("{case}: {problem}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Every destination plainly: the stock provider remembers these answers for all that follow.
fn destinations() -> impl Iterator<Item = Case> {
    [Dgid, Dlid].into_iter().flat_map(|component| {
        [Consistent, Contradicting]
            .into_iter()
            .map(move |value| Case::new(Form::Resolve, &[(component, value)]))
    })
}
