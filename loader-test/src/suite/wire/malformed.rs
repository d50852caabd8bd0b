//! Checks with datagrams that are no valid requests.

use super::line::{Line, line, own_name, stranger};
use crate::stand_in::FIRST_PORT;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Gid};
use crate::stand_in::wire::{AcmMad, Datagram, Node};
use crate::suite::ability::OPENS;
use crate::suite::fixture::{Fixture, refused};
use crate::suite::{Check, Outcome};

/// Declares a check of requests with changed bytes at an offset, each of which makes the request invalid.
macro_rules! altered {
    ($name:literal, $rule:literal, $how:literal, $at:literal: $values:expr, $replace:expr) => {
        Check {
            name: $name,
            rule: $rule,
            harmed: Harmed::Node,
            how: $how,
            needs: OPENS,
            run: |fixture| altered(fixture, $name, $at, &$values),
            fault: fault!(Fault {
                replace: &$replace,
                status: &[Status::Failed],
                also: &[],
            }),
        }
    };
}

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "wire-short",
        rule: "a datagram that is too short is no request: the rest of the buffer holds an earlier datagram",
        harmed: Harmed::Node,
        how: "sends requests of six lengths that are too short, after complete ones",
        needs: OPENS,
        run: short,
        fault: fault!(Fault {
            replace: &[(
                "if (wc->byte_len != BUFFER_LENGTH || !(wc",
                "if ((mad->method != UMAD_METHOD_GET && wc->byte_len != BUFFER_LENGTH) || !(wc",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-long",
        rule: "a datagram that is too long is no request, and its receive is posted again",
        harmed: Harmed::Node,
        how: "sends more than a thousand datagrams of 2,000 bytes and valid requests in between",
        needs: OPENS,
        run: long,
        fault: fault!(Fault {
            replace: &[(
                "if (wc.status != IBV_WC_WR_FLUSH_ERR)",
                "if (wc.status == IBV_WC_SUCCESS)",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    altered!(
        "wire-base-version",
        "a datagram of another base version is no request",
        "sends requests with other base versions",
        0: [[0], [2], [0xff]],
        [("mad->base_version == 1 && ", "")]
    ),
    altered!(
        "wire-class",
        "a datagram of another management class is no request",
        "sends requests of other management classes",
        1: [[0], [0x03], [0x04], [0x2d]],
        [("mad->mgmt_class == ACM_CLASS && ", "")]
    ),
    altered!(
        "wire-class-version",
        "a datagram of another class version is no request",
        "sends requests with other class versions",
        2: [[0], [2], [0xff]],
        [("mad->class_version == 1 &&", "")]
    ),
    altered!(
        "wire-method",
        "a datagram whose method is not Get is no request",
        "sends requests with other methods",
        3: [[0x00], [0x02], [0x03], [0x7f], [0x81], [0x82], [0xff]],
        [
            (
                "(mad->method == UMAD_METHOD_GET || mad->method == UMAD_METHOD_GET_RESP) &&",
                ""
            ),
            (
                "\tif (mad->method == UMAD_METHOD_GET)\n\t\ttake_request",
                "\tif (mad->method != UMAD_METHOD_GET_RESP)\n\t\ttake_request"
            )
        ]
    ),
    altered!(
        "wire-control",
        "a datagram whose control word is not resolve is no request",
        "sends requests with other control words",
        6: [[0, 0], [0, 2], [0x80, 1], [1, 0]],
        [("mad->control == ACM_RESOLVE && ", "")]
    ),
    Check {
        name: "wire-no-common-group",
        rule: "the port does not answer a request that names none of its groups: no path could lead back",
        harmed: Harmed::Node,
        how: "sends requests that name no group, one foreign group, and six",
        needs: OPENS,
        run: no_common_group,
        fault: fault!(Fault {
            replace: &[(
                "!names_group(group, mad)",
                "(mad->method != UMAD_METHOD_GET && !names_group(group, mad))",
            )],
            status: &[Status::Failed],
            also: &["wire-group-count"],
        }),
    },
    Check {
        name: "wire-group-count",
        rule: "the provider reads only the groups that lie within the request, whatever its group count says",
        harmed: Harmed::Daemon,
        how: "sends requests whose group count exceeds the groups that fit, after requests with the right group",
        needs: OPENS,
        run: group_count,
        fault: fault!(Fault {
            replace: &[(" && mad->gid_cnt <= WIRE_GROUPS;", ";")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-address-type",
        rule: "the port does not answer a request with addresses of unknown types",
        harmed: Harmed::Node,
        how: "sends requests with addresses of five unknown types, and one with no address",
        needs: OPENS,
        run: address_type,
        fault: fault!(Fault {
            replace: &[(
                "\tif (!is_address_type(mad->src_type) || !is_address_type(mad->dest_type))\n\t\treturn;\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-no-grh",
        rule: "the port does not answer a request without a GRH, which does not name its source",
        harmed: Harmed::Node,
        how: "sends requests without a GRH, after requests with one",
        needs: OPENS,
        run: no_grh,
        fault: fault!(Fault {
            replace: &[
                (
                    "if (wc->byte_len != BUFFER_LENGTH || !(wc->wc_flags & IBV_WC_GRH))",
                    "if (wc->byte_len != BUFFER_LENGTH)",
                ),
                (
                    " || !is_port_gid(&grh->sgid))\n\t\treturn;\n\tif (mad->method",
                    ")\n\t\treturn;\n\tif (mad->method",
                ),
            ],
            status: &[Status::Failed],
            also: &["wire-answer-no-grh"],
        }),
    },
];

fn altered<const N: usize>(
    fixture: &mut Fixture,
    name: &str,
    at: usize,
    values: &[[u8; N]],
) -> Outcome {
    let line = line(fixture, &["recv_depth 4"])?;
    // More requests than posted receives.
    for value in values.iter().cycle().take(values.len() * 3) {
        let tid = line.tid();
        let request = line.request(tid, &stranger(1), &own_name());
        line.multicast(&stranger(1), &request.with(at, value).0);
        line.expect_no_answer(
            tid,
            &format!("a datagram with {value:02x?} at {at} ({name})"),
        )?;
    }
    Ok(())
}

/// First fills every buffer with a valid request.
fn fill_buffers(line: &Line<'_>) -> Outcome {
    for _ in 0..12 {
        let tid = line.ask(&stranger(9), &own_name());
        line.answer_to(tid)?;
    }
    Ok(())
}

fn short(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &["recv_depth 4"])?;
    fill_buffers(&line)?;
    for length in [255, 152, 24, 16, 1, 0, 255, 152, 24] {
        let tid = line.tid();
        let request = line.request(tid, &stranger(1), &own_name());
        line.multicast(&stranger(1), &request.0[..length]);
        line.expect_no_answer(tid, &format!("a request of {length} bytes"))?;
    }
    Ok(())
}

fn long(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &["recv_depth 4"])?;
    // Also more than any default depth, for providers that ignore the option.
    for _ in 0..70 {
        for _ in 0..16 {
            let mut payload = line.request(1, &stranger(1), &own_name()).0.to_vec();
            payload.resize(2000, 0xa5);
            line.multicast(&stranger(1), &payload);
        }
        line.expect_no_answer(1, "a request of 2000 bytes")?;
    }
    Ok(())
}

/// Groups without members.
fn foreign_group(number: u8) -> Gid {
    Gid([
        0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 7, 5, 0, 0, 0, 0, 0, 0, number,
    ])
}

fn no_common_group(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    for groups in [
        vec![],
        vec![foreign_group(1)],
        (1..=6).map(foreign_group).collect(),
    ] {
        let tid = line.tid();
        let source = Addr::Name(stranger(1).name);
        let request = AcmMad::request(tid, &own_name(), &source, &groups);
        line.multicast(&stranger(1), &request.0);
        line.expect_no_answer(
            tid,
            &format!("a request with {} foreign groups", groups.len()),
        )?;
    }
    Ok(())
}

fn group_count(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &["recv_depth 4"])?;
    fill_buffers(&line)?;
    let foreign: Vec<Gid> = (1..=6).map(foreign_group).collect();
    for count in [7, 8, 9, 10, 11, 254, 255, 10, 10, 10] {
        let tid = line.tid();
        let source = Addr::Name(stranger(1).name);
        let request = AcmMad::request(tid, &own_name(), &source, &foreign).with(20, &[count]);
        line.multicast(&stranger(1), &request.0);
        line.expect_no_answer(
            tid,
            &format!("a request with 6 foreign groups that says {count}"),
        )?;
    }
    Ok(())
}

fn address_type(fixture: &mut Fixture) -> Outcome {
    const DEST_TYPE: usize = 16;
    const SOURCE_TYPE: usize = 18;
    let line = line(fixture, &[])?;
    // A removed address may leave an entry without a type.
    let extra = Addr::Name("extra1".into());
    let id = line
        .core
        .add_address(FIRST_PORT, 0xffff, &extra)
        .map_err(refused)?;
    line.core.remove_address(id);
    for at in [DEST_TYPE, SOURCE_TYPE] {
        for code in [0, 6, 16, 0x80, 0xff] {
            let tid = line.tid();
            let request = line
                .request(tid, &stranger(1), &own_name())
                .with(at, &[code]);
            line.multicast(&stranger(1), &request.0);
            let what = if at == DEST_TYPE {
                "destination"
            } else {
                "source"
            };
            line.expect_no_answer(tid, &format!("a request with a {what} of type {code}"))?;
        }
    }
    let tid = line.tid();
    let nothing = Addr::Raw(0, Box::new([0; 64]));
    line.multicast(&stranger(1), &line.request(tid, &stranger(1), &nothing).0);
    line.expect_no_answer(tid, "a request with an empty address")
}

fn no_grh(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &["recv_depth 4"])?;
    fill_buffers(&line)?;
    for _ in 0..6 {
        let tid = line.tid();
        let payload = line.request(tid, &stranger(1), &own_name()).0;
        let bare = Datagram {
            grh: None,
            ..line
                .wire
                .to_pair(&Node::of(&stranger(1)), line.pkey(), line.qpn, &payload)
        };
        line.wire.send(&bare);
        line.expect_no_answer(tid, "a request without a GRH")?;
    }
    Ok(())
}
