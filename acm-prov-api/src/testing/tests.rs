//! Queries the test core's SA for its ClassPortInfo through the core's own functions.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use super::host::TABLE;
use super::*;
use crate::host::Host;
use crate::provider::{LocalAddress, NoContext, Provider};
use crate::request::ResolveRequest;
use crate::text::options::Options;

struct Nobody;

impl Provider for Nobody {
    const NAME: &CStr = c"nobody";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
        request.refuse(AcmStatus::ENODATA);
    }
}

crate::provider_table!(Nobody);

/// A response: the status of the send, the first two bytes, and the word with CapabilityMask2.
type Response = (u32, [u8; 2], u32);

static RESPONSES: Mutex<Vec<Response>> = Mutex::new(Vec::new());

fn responses() -> Vec<Response> {
    std::mem::take(&mut RESPONSES.lock().unwrap_or_else(PoisonError::into_inner))
}

unsafe extern "C" fn take(mad: *mut acm_sa_mad) {
    // SAFETY: the core hands back a MAD of its own, which is freed once.
    unsafe {
        let data = (*mad).sa_mad.data;
        let word = u32::from_be_bytes([data[4], data[5], data[6], data[7]]);
        let status = (*mad).umad.status;
        RESPONSES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((status, [data[0], data[1]], word));
        (TABLE.acm_free_sa_mad)(mad);
    }
}

fn loaded() -> TestCore {
    let core = TestCore::load::<Nobody>("");
    // Discard responses from the drop of an earlier core.
    responses();
    core
}

fn ask(attribute: u16) {
    // SAFETY: the functions are used as acm_prov.h says.
    unsafe {
        let mad = (TABLE.acm_alloc_sa_mad)(ptr::null(), ptr::null_mut(), Some(take));
        (*mad).sa_mad.mad_hdr.method = UMAD_METHOD_GET;
        (*mad).sa_mad.mad_hdr.attr_id = Be16::from_host(attribute);
        assert_eq!((TABLE.acm_send_sa_mad)(mad), 0);
    }
}

const CLEAR: Response = (0, [1, 2], 0xb5e8 << 5 | 16);
const SET: Response = (0, [1, 2], 0xb5ea << 5 | 16);

#[test]
fn class_port_info_queries_are_answered_at_once_and_not_listed() {
    let core = loaded();
    ask(UMAD_ATTR_CLASS_PORT_INFO);
    ask(UMAD_SA_ATTR_PATH_REC);
    assert_eq!(core.sa_mads().len(), 1);
    assert_eq!(responses(), [CLEAR]);
    core.set_qos(true);
    ask(UMAD_ATTR_CLASS_PORT_INFO);
    core.wait_for_sa_mads(1);
    assert_eq!(responses(), [SET]);
    assert_eq!(core.class_port_info_queries(), 2);
    assert_eq!(core.mads(), 1);
}

#[test]
fn a_test_can_answer_class_port_info_queries_or_let_them_time_out() {
    let core = loaded();
    core.play_class_port_info(true);
    for _ in 0..2 {
        ask(UMAD_ATTR_CLASS_PORT_INFO);
    }
    assert_eq!(core.sa_mads().len(), 2);
    assert_eq!(responses(), []);
    core.sa_answers_class_port_info(true);
    assert_eq!(responses(), [SET]);
    core.sa_times_out();
    assert_eq!(responses(), [(libc::ETIMEDOUT as u32, [0, 0], 0)]);
    core.play_class_port_info(false);
    ask(UMAD_ATTR_CLASS_PORT_INFO);
    assert_eq!(core.sa_mads().len(), 0);
    assert_eq!(responses(), [CLEAR]);
}
