//! Compares the layout of the C structures that this crate declares with the installed headers.

use std::fmt::Write as _;
use std::fs;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

use crate::{cm, mana, umad};

/// A structure: its name in C, size and alignment, and its members with their offsets.
struct Layout {
    name: &'static str,
    /// `None` where only the first members are declared.
    size: Option<usize>,
    alignment: usize,
    members: Vec<(&'static str, usize)>,
}

macro_rules! layout {
    ($rust:ty, $c:literal, whole: $whole:literal, $($member:literal = $($field:tt).+),* $(,)?) => {
        Layout {
            name: $c,
            size: $whole.then_some(size_of::<$rust>()),
            alignment: align_of::<$rust>(),
            members: vec![$(($member, offset_of!($rust, $($field).+))),*],
        }
    };
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!(umad::ffi::umad_port, "struct umad_port", whole: true,
            "ca_name" = ca_name, "portnum" = portnum, "base_lid" = base_lid, "lmc" = lmc, "sm_lid" = sm_lid,
            "sm_sl" = sm_sl, "state" = state, "phys_state" = phys_state, "rate" = rate, "capmask" = capmask,
            "gid_prefix" = gid_prefix, "port_guid" = port_guid, "pkeys_size" = pkeys_size, "pkeys" = pkeys,
            "link_layer" = link_layer),
        layout!(umad::ffi::umad_ca, "struct umad_ca", whole: true,
            "ca_name" = ca_name, "node_type" = node_type, "numports" = numports, "fw_ver" = fw_ver,
            "ca_type" = ca_type, "hw_ver" = hw_ver, "node_guid" = node_guid, "system_guid" = system_guid,
            "ports" = ports),
        layout!(umad::ffi::umad_device_node, "struct umad_device_node", whole: true,
            "next" = next, "ca_name" = ca_name),
        layout!(umad::user_mad::ib_mad_addr, "struct ib_mad_addr", whole: true,
            "qpn" = qpn, "qkey" = qkey, "lid" = lid, "sl" = sl, "path_bits" = path_bits,
            "grh_present" = grh_present, "gid_index" = gid_index, "hop_limit" = hop_limit,
            "traffic_class" = traffic_class, "gid" = gid, "flow_label" = flow_label, "pkey_index" = pkey_index,
            "reserved" = reserved),
        layout!(umad::user_mad::ib_user_mad, "struct ib_user_mad", whole: true,
            "agent_id" = agent_id, "status" = status, "timeout_ms" = timeout_ms, "retries" = retries,
            "length" = length, "addr" = addr),
        layout!(cm::ffi::rdma_cm_id, "struct rdma_cm_id", whole: false,
            "verbs" = verbs, "channel" = channel, "context" = context, "qp" = qp, "route" = route,
            "route.addr.src_storage" = route.addr.src_addr, "route.addr.dst_storage" = route.addr.dst_addr,
            "route.addr.addr.ibaddr.sgid" = route.addr.ibaddr.sgid,
            "route.addr.addr.ibaddr.dgid" = route.addr.ibaddr.dgid,
            "route.addr.addr.ibaddr.pkey" = route.addr.ibaddr.pkey,
            "route.path_rec" = route.path_rec, "route.num_paths" = route.num_paths, "ps" = ps,
            "port_num" = port_num),
        layout!(mana::manadv_ctx_allocators, "struct manadv_ctx_allocators", whole: true,
            "alloc" = alloc, "free" = free, "data" = data),
    ]
}

#[test]
#[ignore = "needs the headers of libibumad and librdmacm: the daemon tier runs it"]
fn structures_lie_as_the_headers_say() {
    let mut program =
        "#include <stddef.h>\n#include <infiniband/umad.h>\n#include <rdma/rdma_cma.h>\n\
        #include <infiniband/manadv.h>\n"
            .to_owned();
    let mut assert = |condition: String| {
        writeln!(program, "_Static_assert({condition}, \"{condition}\");").unwrap();
    };
    let mut checks = 0;
    for Layout {
        name,
        size,
        alignment,
        members,
    } in layouts()
    {
        assert(format!("_Alignof({name}) == {alignment}"));
        if let Some(size) = size {
            assert(format!("sizeof({name}) == {size}"));
        }
        for (member, offset) in members {
            assert(format!("offsetof({name}, {member}) == {offset}"));
            checks += 1;
        }
    }
    assert(format!("UMAD_CA_MAX_PORTS == {}", umad::ffi::CA_MAX_PORTS));
    assert(format!("UMAD_CA_NAME_LEN == {}", umad::ffi::CA_NAME_LENGTH));
    assert(format!("IB_UMAD_ABI_VERSION == {}", umad::ffi::ABI_VERSION));
    assert(format!("RDMA_PS_TCP == {}", cm::ffi::RDMA_PS_TCP));
    assert(format!(
        "MANADV_CTX_ATTR_BUF_ALLOCATORS == {}",
        mana::BUFFER_ALLOCATORS
    ));
    assert!(checks > 60, "{checks}");

    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    fs::write(&source, program).unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-fsyntax-only"])
        .arg(&source)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
