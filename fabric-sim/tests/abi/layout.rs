//! Compares every size, offset and constant of the mirror with the installed headers, by a C compiler.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use fabric_sim::model::event::PortEvent;
use fabric_sim::umad::exports::UmadRegAttr;
use fabric_sim::umad::lower::{CA_MAX_PORTS, CA_NAME_LEN, UmadCa, UmadPort};
use fabric_sim::verbs::abi::*;

/// A number of the mirror, and the C expression that must have the same value.
type Fact = (String, u64);

fn size_of_field<S, F>(_: fn(&S) -> &F) -> u64 {
    size_of::<F>() as u64
}

/// Size and alignment of structs, offset and size of their fields. It does not compile if a field is missing in
/// the list. `field as path` is for fields with another name in C.
macro_rules! structs {
    ($facts:ident; $($rust:ident = $c:literal { $($field:ident $(as $path:literal)?),* $(,)? })*) => {$({
        #[allow(dead_code)]
        fn all_fields_are_listed(value: $rust) {
            let $rust { $($field: _),* } = value;
        }
        $facts.push((format!("sizeof({})", $c), size_of::<$rust>() as u64));
        $facts.push((format!("_Alignof({})", $c), align_of::<$rust>() as u64));
        $(
            let path = None::<&str>$(.or(Some($path)))?.unwrap_or(stringify!($field));
            $facts.push((format!("offsetof({}, {path})", $c), std::mem::offset_of!($rust, $field) as u64));
            $facts.push((
                format!("sizeof((({} *)0)->{path})", $c),
                size_of_field(|value: &$rust| &value.$field),
            ));
        )*
    })*};
}

macro_rules! constants {
    ($facts:ident; $($name:ident)*) => {$(
        $facts.push((stringify!($name).to_owned(), $name as u64));
    )*};
}

fn verbs() -> Vec<Fact> {
    let mut facts = Vec::new();
    structs! { facts;
        ibv_gid = "union ibv_gid" { raw }
        ibv_device = "struct ibv_device" {
            _dummy1 as "_ops._dummy1", _dummy2 as "_ops._dummy2", node_type, transport_type, name, dev_name, dev_path,
            ibdev_path,
        }
        ibv_context_ops = "struct ibv_context_ops" {
            _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd, _compat_reg_mr,
            _compat_rereg_mr, _compat_dereg_mr, alloc_mw, bind_mw, dealloc_mw, _compat_create_cq, poll_cq,
            req_notify_cq, _compat_cq_event, _compat_resize_cq, _compat_destroy_cq, _compat_create_srq,
            _compat_modify_srq, _compat_query_srq, _compat_destroy_srq, post_srq_recv, _compat_create_qp,
            _compat_query_qp, _compat_modify_qp, _compat_destroy_qp, post_send, post_recv, _compat_create_ah,
            _compat_destroy_ah, _compat_attach_mcast, _compat_detach_mcast, _compat_async_event,
        }
        ibv_context = "struct ibv_context" {
            device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat,
        }
        ibv_device_attr = "struct ibv_device_attr" {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
            max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
            max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach,
            max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay,
            phys_port_cnt,
        }
        ibv_port_attr = "struct ibv_port_attr" {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
            pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
            active_speed, phys_state, link_layer, flags, port_cap_flags2,
        }
        ibv_gid_entry = "struct ibv_gid_entry" { gid, gid_index, port_num, gid_type, ndev_ifindex }
        ibv_async_event = "struct ibv_async_event" { element, event_type }
        ibv_pd = "struct ibv_pd" { context, handle }
        ibv_mr = "struct ibv_mr" { context, pd, addr, length, handle, lkey, rkey }
        ibv_global_route = "struct ibv_global_route" { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr = "struct ibv_ah_attr" { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_ah = "struct ibv_ah" { context, pd, handle }
        ibv_comp_channel = "struct ibv_comp_channel" { context, fd, refcnt }
        ibv_cq = "struct ibv_cq" {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed,
        }
        ibv_wc = "struct ibv_wc" {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits,
        }
        ibv_qp_cap = "struct ibv_qp_cap" { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr = "struct ibv_qp_init_attr" {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all,
        }
        ibv_qp_attr = "struct ibv_qp_attr" {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit,
        }
        ibv_qp = "struct ibv_qp" {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
            events_completed,
        }
        ibv_sge = "struct ibv_sge" { addr, length, lkey }
        ibv_recv_wr = "struct ibv_recv_wr" { wr_id, next, sg_list, num_sge }
        ibv_send_wr = "struct ibv_send_wr" {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            xrc_remote_srqn as "qp_type.xrc.remote_srqn", bind_mw_or_tso as "bind_mw",
        }
    }
    facts.push((
        "offsetof(struct ibv_send_wr, wr.ud.ah)".to_owned(),
        std::mem::offset_of!(ibv_send_wr, wr) as u64,
    ));
    facts.push((
        "offsetof(struct ibv_send_wr, wr.ud.remote_qkey) - offsetof(struct ibv_send_wr, wr)"
            .to_owned(),
        std::mem::offset_of!(ibv_send_wr_ud, remote_qkey) as u64,
    ));
    constants! { facts;
        IBV_NODE_CA IBV_TRANSPORT_IB IBV_LINK_LAYER_INFINIBAND IBV_QPT_UD IBV_QP_STATE IBV_QP_CUR_STATE
        IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_QKEY IBV_QP_SQ_PSN IBV_WR_SEND IBV_WR_SEND_WITH_IMM IBV_SEND_SIGNALED
        IBV_SEND_SOLICITED IBV_SEND_INLINE IBV_WC_SUCCESS IBV_WC_LOC_LEN_ERR IBV_WC_LOC_PROT_ERR IBV_WC_WR_FLUSH_ERR
        IBV_WC_SEND IBV_WC_RECV IBV_WC_GRH IBV_WC_WITH_IMM IBV_ACCESS_LOCAL_WRITE
    }
    for event in PortEvent::ALL {
        facts.push((format!("IBV_EVENT_{event}"), event.code() as u64));
    }
    use fabric_sim::model::queue_pair::State;
    for (name, state) in [
        ("RESET", State::Reset),
        ("INIT", State::Init),
        ("RTR", State::ReadyToReceive),
        ("RTS", State::ReadyToSend),
        ("ERR", State::Error),
    ] {
        facts.push((format!("IBV_QPS_{name}"), state as u64));
    }
    facts
}

fn umad() -> Vec<Fact> {
    let mut facts = Vec::new();
    structs! { facts;
        UmadPort = "umad_port_t" {
            ca_name, portnum, base_lid, lmc, sm_lid, sm_sl, state, phys_state, rate, capmask, gid_prefix, port_guid,
            pkeys_size, pkeys, link_layer,
        }
        UmadCa = "umad_ca_t" {
            ca_name, node_type, numports, fw_ver, ca_type, hw_ver, node_guid, system_guid, ports,
        }
        UmadRegAttr = "struct umad_reg_attr" {
            mgmt_class, mgmt_class_version, flags, method_mask, oui, rmpp_version,
        }
    }
    facts.extend([
        ("UMAD_CA_NAME_LEN".to_owned(), CA_NAME_LEN as u64),
        ("UMAD_CA_MAX_PORTS".to_owned(), CA_MAX_PORTS as u64),
    ]);
    facts
}

fn compare(name: &str, headers: &str, facts: &[Fact]) {
    let mut source =
        format!("#include <stddef.h>\n#include <stdio.h>\n{headers}\nint main(void) {{\n");
    for (expression, _) in facts {
        writeln!(
            source,
            "    printf(\"%llu\\n\", (unsigned long long)({expression}));"
        )
        .unwrap();
    }
    source.push_str("    return 0;\n}\n");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (code, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&code, source).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-o"])
        .args([&program, &code])
        .output();
    let compiled = compiled.expect("no C compiler; as root: apt-get install gcc");
    assert!(
        compiled.status.success(),
        "{} does not compile (as root: apt-get install libibverbs-dev libibumad-dev):\n{}",
        code.display(),
        String::from_utf8_lossy(&compiled.stderr)
    );
    let output = Command::new(&program).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let values: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values.len(), facts.len());
    let different: Vec<_> = facts
        .iter()
        .zip(&values)
        .filter(|((_, mirror), header)| mirror != *header)
        .map(|((expression, mirror), header)| {
            format!("{expression}: {mirror} in the mirror, {header} in the header")
        })
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn verbs_are_laid_out_as_the_header_says() {
    compare("layout-verbs", "#include <infiniband/verbs.h>", &verbs());
}

#[test]
fn management_datagrams_are_laid_out_as_the_header_says() {
    compare("layout-umad", "#include <infiniband/umad.h>", &umad());
}

#[test]
fn a_difference_is_found() {
    let wrong = [("sizeof(struct ibv_gid_entry)".to_owned(), 7)];
    let panic = std::panic::catch_unwind(|| {
        compare("layout-wrong", "#include <infiniband/verbs.h>", &wrong);
    });
    let message = panic.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.contains("7 in the mirror, 32 in the header"),
        "{message}"
    );
}
