//! rdma-access and fabric-sim share a declaration of `struct ib_user_mad`; it must agree with the mirror.

use std::mem::{align_of, offset_of, size_of};

use acm_prov_api::abi;

#[path = "../../rdma-access/src/umad/user_mad.rs"]
#[allow(dead_code)]
mod theirs;

/// Compares size, alignment and the offset and size of each field.
macro_rules! compare {
    ($structure:ident { $($field:ident),* $(,)? }) => {
        // Names every field, so that a new field does not compile until it is added here.
        let theirs::$structure { $($field),* } = theirs::$structure::default();
        let mirror = abi::$structure::default();
        assert_eq!(size_of::<theirs::$structure>(), size_of::<abi::$structure>());
        assert_eq!(align_of::<theirs::$structure>(), align_of::<abi::$structure>());
        $(
            assert_eq!(
                (offset_of!(theirs::$structure, $field), size_of_val(&$field)),
                (offset_of!(abi::$structure, $field), size_of_val(&mirror.$field)),
                "{}", stringify!($field)
            );
        )*
    };
}

#[test]
fn the_envelope_of_a_mad_is_the_mirrors() {
    compare!(ib_mad_addr {
        qpn,
        qkey,
        lid,
        sl,
        path_bits,
        grh_present,
        gid_index,
        hop_limit,
        traffic_class,
        gid,
        flow_label,
        pkey_index,
        reserved,
    });
    compare!(ib_user_mad {
        agent_id,
        status,
        timeout_ms,
        retries,
        length,
        addr,
    });
}
