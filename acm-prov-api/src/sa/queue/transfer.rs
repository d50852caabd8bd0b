//! Hands MADs to the core and receives them back.

use std::ffi::c_int;

use super::id::{Context, MadId};
use super::{MadRequest, QUEUE, RECORD_LENGTH, Returned};
use crate::abi::{self, Be16, Be64, acm_endpoint, acm_sa_mad, umad_hdr, umad_sa_packet};
use crate::host::Host;
use crate::host::guard::{self, Refusal};
use crate::sa::SaError;

/// Hands one MAD to the core.
///
/// # Safety
/// The endpoint is open.
pub(super) unsafe fn send(
    endpoint: *const acm_endpoint,
    host: &Host,
    context: Context,
    request: &MadRequest,
) -> Result<(), SaError> {
    let table = host.table();
    // SAFETY: as the caller promises; the context is a number that is never dereferenced.
    let mad = unsafe { (table.acm_alloc_sa_mad)(endpoint, context.to_pointer(), Some(came_back)) };
    if mad.is_null() {
        return Err(SaError::NoMemory);
    }
    // SAFETY: the core's fresh MAD is ours until it is sent.
    fill(unsafe { &mut *mad }, request, context.id);
    // SAFETY: the endpoint is open and the MAD complete. The core logs the endpoint's first address here, out of an array
    // that its server thread may be moving; nothing on this side can prevent that.
    let code: c_int = unsafe { (table.acm_send_sa_mad)(mad) };
    if code != 0 {
        // SAFETY: a MAD that was not taken stays with the caller.
        unsafe { (table.acm_free_sa_mad)(mad) };
        return Err(SaError::NotTaken { code });
    }
    Ok(())
}

fn fill(mad: &mut acm_sa_mad, request: &MadRequest, id: MadId) {
    let packet = &mut mad.sa_mad;
    packet.mad_hdr = umad_hdr {
        base_version: abi::UMAD_BASE_VERSION,
        mgmt_class: abi::UMAD_CLASS_SUBN_ADM,
        class_version: abi::UMAD_SA_CLASS_VERSION,
        method: request.method,
        tid: Be64::from_host(id.into()),
        attr_id: Be16::from_host(request.attribute),
        ..Default::default()
    };
    packet.comp_mask = Be64::from_host(request.mask);
    packet.data[..RECORD_LENGTH].copy_from_slice(&request.record);
}

/// A MAD that the core has returned. Dropping it frees the MAD.
struct Back {
    host: Host,
    mad: *mut acm_sa_mad,
}

impl Back {
    /// Returns the SA's response, or the core's error.
    fn packet(&self) -> Result<&umad_sa_packet, SaError> {
        // SAFETY: the handler owns the MAD until it is freed.
        let mad = unsafe { &*self.mad };
        match mad.umad.status {
            0 => Ok(&mad.sa_mad),
            status if status == libc::ETIMEDOUT as u32 => Err(SaError::TimedOut),
            errno => Err(SaError::NotSent { errno }),
        }
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        // SAFETY: the handler owns the MAD and frees it once.
        unsafe { (self.host.table().acm_free_sa_mad)(self.mad) };
    }
}

/// The core's SA thread returns a MAD, with or without a response.
unsafe extern "C" fn came_back(mad: *mut acm_sa_mad) {
    if mad.is_null() {
        return guard::report(
            QUEUE.table.lock().mads().host(None).as_ref(),
            format_args!("SA handler: the core passed no MAD"),
        );
    }
    // SAFETY: the core's MAD, ours to read until it is freed.
    let context = Context::from_pointer(unsafe { (*mad).context });
    let Returned {
        host,
        mad: known,
        next,
    } = QUEUE.returned(context);
    guard::enter("SA handler", host.as_ref(), (), || {
        let host = host.ok_or_else(|| Refusal::error("a MAD came back before any was sent"))?;
        let back = Back { host, mad };
        let Some(known) = known else {
            return Ok(());
        };
        QUEUE.hand_over(known.port, next);
        known.end(back.packet());
        Ok(())
    });
}
