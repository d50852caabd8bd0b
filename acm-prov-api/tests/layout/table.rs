//! All layouts and constants of the mirror, once: the comparisons with the recorded layout and with
//! the installed headers both use this table.

use acm_prov_api::abi::*;

/// A type of the mirror beside its counterpart in C.
#[derive(Clone, Debug)]
pub struct Layout {
    pub c_name: &'static str,
    /// The C expression instead of `sizeof` if the counterpart has grown at its end.
    pub c_size: Option<&'static str>,
    pub size: usize,
    pub align: usize,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub c_name: &'static str,
    /// C has no size for a flexible array member; it counts as 0.
    pub flexible: bool,
    pub offset: usize,
    pub size: usize,
}

/// A constant of the mirror; in C it has the same name.
#[derive(Clone, Debug)]
pub struct Constant {
    pub name: &'static str,
    pub value: i128,
}

fn size_of_pointee<T, F>(_field: impl Fn(*const T) -> *const F) -> usize {
    size_of::<F>()
}

macro_rules! layout {
    ($c_name:literal $(sized $c_size:literal)?, $rust:ty $({
        $( $first:ident $(. $rest:ident)* $([] $flexible:tt)? $(as $c_field:literal)? ),* $(,)?
    })?) => {
        Layout {
            c_name: $c_name,
            c_size: [$($c_size)?].first().copied(),
            size: size_of::<$rust>(),
            align: align_of::<$rust>(),
            fields: vec![$($(
                Field {
                    c_name: [$($c_field,)? concat!(stringify!($first) $(, ".", stringify!($rest))*)][0]
                        .trim_start_matches("r#"),
                    flexible: !<[&str]>::is_empty(&[$(stringify!($flexible))?]),
                    offset: core::mem::offset_of!($rust, $first $(. $rest)*),
                    // SAFETY: the closure exists only for its type and is never called.
                    size: size_of_pointee(|whole: *const $rust| unsafe {
                        &raw const (*whole).$first $(. $rest)*
                    }),
                },
            )*)?],
        }
    };
}

/// Every type of the mirror, except types that are opaque in C.
pub fn layouts() -> Vec<Layout> {
    vec![
        layout!("__be16", Be16),
        layout!("__be32", Be32),
        layout!("__be64", Be64),
        layout!("struct acm_device", acm_device { verbs, dev_guid }),
        layout!("struct acm_port", acm_port { dev, port_num }),
        layout!("struct acm_endpoint", acm_endpoint { port, pkey }),
        layout!(
            "struct acm_address",
            acm_address {
                endpoint,
                info,
                id_string,
                r#type
            }
        ),
        layout!(
            "struct acm_provider",
            acm_provider {
                size,
                version,
                name,
                open_device,
                close_device,
                open_port,
                close_port,
                open_endpoint,
                close_endpoint,
                add_address,
                remove_address,
                resolve,
                query,
                handle_event,
                query_perf,
            }
        ),
        layout!(
            "struct acm_sa_mad",
            acm_sa_mad {
                context,
                umad,
                sa_mad
            }
        ),
        layout!(
            "struct acm_hdr",
            acm_hdr {
                version,
                opcode,
                status,
                data,
                length,
                tid
            }
        ),
        layout!("union acm_ep_info", acm_ep_info { addr, name, path }),
        layout!(
            "struct acm_ep_addr_data",
            acm_ep_addr_data {
                flags,
                r#type,
                reserved,
                info
            }
        ),
        layout!("struct acm_resolve_msg", acm_resolve_msg { hdr, data [] flexible }),
        layout!("struct acm_perf_msg", acm_perf_msg { hdr, data [] flexible }),
        layout!("struct acm_ep_config_data", acm_ep_config_data {
            dev_guid, port_num, phys_port_cnt, rsvd, pkey, addr_cnt, prov_name, addrs [] flexible,
        }),
        layout!("struct acm_ep_query_msg", acm_ep_query_msg { hdr, data [] flexible }),
        layout!("struct acm_msg", acm_msg {
            hdr,
            body.data as "data",
            body.resolve_data as "resolve_data",
            body.perf_data as "perf_data",
            body.ep_data as "ep_data",
        }),
        layout!(
            "struct ibv_path_record",
            ibv_path_record {
                service_id,
                dgid,
                sgid,
                dlid,
                slid,
                flowlabel_hoplimit,
                tclass,
                reversible_numpath,
                pkey,
                qosclass_sl,
                mtu,
                rate,
                packetlifetime,
                preference,
                reserved,
            }
        ),
        layout!(
            "struct ibv_path_data",
            ibv_path_data {
                flags,
                reserved,
                path
            }
        ),
        layout!("union umad_gid", umad_gid {
            raw, raw_be16, global, global.subnet_prefix, global.interface_id
        }),
        layout!("struct ib_mad_addr", ib_mad_addr {
            qpn, qkey, lid, sl, path_bits, grh_present, gid_index, hop_limit, traffic_class, gid,
            gid as "ib_gid", flow_label, pkey_index, reserved,
        }),
        layout!(
            "struct ib_user_mad",
            ib_user_mad {
                agent_id,
                status,
                timeout_ms,
                retries,
                length,
                addr,
                data
            }
        ),
        layout!(
            "struct umad_hdr",
            umad_hdr {
                base_version,
                mgmt_class,
                class_version,
                method,
                status,
                class_specific,
                tid,
                attr_id,
                resv,
                attr_mod,
            }
        ),
        layout!(
            "struct umad_rmpp_hdr",
            umad_rmpp_hdr {
                rmpp_version,
                rmpp_type,
                rmpp_rtime_flags,
                rmpp_status,
                seg_num,
                paylen_newwin
            }
        ),
        layout!("struct umad_packet", umad_packet { mad_hdr, data }),
        layout!(
            "struct umad_rmpp_packet",
            umad_rmpp_packet {
                mad_hdr,
                rmpp_hdr,
                data
            }
        ),
        layout!(
            "struct umad_sa_packet",
            umad_sa_packet {
                mad_hdr,
                rmpp_hdr,
                sm_key,
                attr_offset,
                reserved,
                comp_mask,
                data
            }
        ),
        layout!(
            "struct umad_sa_mcmember_record",
            umad_sa_mcmember_record {
                mgid,
                portgid,
                qkey,
                mlid,
                mtu,
                tclass,
                pkey,
                rate,
                pkt_life,
                sl_flow_hop,
                scope_state,
                proxy_join,
                reserved,
                pad,
            }
        ),
        layout!("union ibv_gid", ibv_gid {
            raw, global, global.subnet_prefix, global.interface_id
        }),
        layout!("enum ibv_event_type", ibv_event_type),
        layout!("enum ibv_mtu", ibv_mtu),
        layout!("enum ibv_rate", ibv_rate),
        layout!("enum ibv_port_state", ibv_port_state),
        // The header declares _compat_ibv_port_attr without fields: it is ibv_port_attr
        // as before port_cap_flags2.
        layout!("struct ibv_port_attr" sized "offsetof(struct ibv_port_attr, port_cap_flags2)",
        _compat_ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
        }),
    ]
}

macro_rules! constants {
    ($($name:ident),* $(,)?) => {
        vec![$( Constant { name: stringify!($name), value: i128::try_from($name).unwrap() } ),*]
    };
}

macro_rules! codes {
    ($($family:ident),* $(,)?) => {
        [$( $family::NAMED.iter().map(|(name, code)| Constant { name, value: code.0.into() })
            .collect::<Vec<_>>() ),*].concat()
    };
}

/// Every constant of the mirror that has a name in the installed headers.
#[rustfmt::skip]
pub fn constants() -> Vec<Constant> {
    let mut all: Vec<Constant> = constants![
        ACM_PROV_VERSION,
        ACM_VERSION, ACM_OP_MASK, ACM_OP_ACK, ACM_FLAGS_QUERY_SA, ACM_FLAGS_NODELAY,
        ACM_MSG_HDR_LENGTH, ACM_MAX_ADDRESS, ACM_MSG_EP_LENGTH, ACM_MAX_PROV_NAME,
        ACM_MSG_DATA_LENGTH, ACM_EP_FLAG_SOURCE, ACM_EP_FLAG_DEST, ACM_MAX_COUNTER,
        IBV_PATH_RECORD_REVERSIBLE, IBV_PATH_FLAG_GMP, IBV_PATH_FLAG_PRIMARY,
        IBV_PATH_FLAG_ALTERNATE, IBV_PATH_FLAG_OUTBOUND, IBV_PATH_FLAG_INBOUND,
        IBV_PATH_FLAG_INBOUND_REVERSE, IBV_PATH_FLAG_BIDIRECTIONAL,
        IBV_LINK_LAYER_UNSPECIFIED, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET,
        UMAD_BASE_VERSION, UMAD_QKEY,
        UMAD_CLASS_SUBN_LID_ROUTED, UMAD_CLASS_SUBN_DIRECTED_ROUTE, UMAD_CLASS_SUBN_ADM,
        UMAD_CLASS_PERF_MGMT, UMAD_CLASS_BM, UMAD_CLASS_DEVICE_MGMT, UMAD_CLASS_CM,
        UMAD_CLASS_SNMP, UMAD_CLASS_VENDOR_RANGE1_START, UMAD_CLASS_VENDOR_RANGE1_END,
        UMAD_CLASS_APPLICATION_START, UMAD_CLASS_DEVICE_ADM, UMAD_CLASS_BOOT_MGMT, UMAD_CLASS_BIS,
        UMAD_CLASS_CONG_MGMT, UMAD_CLASS_APPLICATION_END, UMAD_CLASS_VENDOR_RANGE2_START,
        UMAD_CLASS_VENDOR_RANGE2_END,
        UMAD_METHOD_GET, UMAD_METHOD_SET, UMAD_METHOD_GET_RESP, UMAD_METHOD_SEND, UMAD_METHOD_TRAP,
        UMAD_METHOD_REPORT, UMAD_METHOD_REPORT_RESP, UMAD_METHOD_TRAP_REPRESS,
        UMAD_METHOD_RESP_MASK,
        UMAD_STATUS_SUCCESS, UMAD_STATUS_BUSY, UMAD_STATUS_REDIRECT, UMAD_STATUS_BAD_VERSION,
        UMAD_STATUS_METHOD_NOT_SUPPORTED, UMAD_STATUS_ATTR_NOT_SUPPORTED,
        UMAD_STATUS_INVALID_ATTR_VALUE, UMAD_STATUS_INVALID_FIELD_MASK, UMAD_STATUS_CLASS_MASK,
        UMAD_ATTR_CLASS_PORT_INFO, UMAD_ATTR_NOTICE, UMAD_ATTR_INFORM_INFO,
        UMAD_RMPP_VERSION, UMAD_RMPP_FLAG_ACTIVE,
        UMAD_LEN_DATA, UMAD_LEN_RMPP_DATA, UMAD_LEN_DM_DATA, UMAD_LEN_VENDOR_DATA,
        UMAD_SA_CLASS_VERSION,
        UMAD_SA_METHOD_GET_TABLE, UMAD_SA_METHOD_GET_TABLE_RESP, UMAD_SA_METHOD_DELETE,
        UMAD_SA_METHOD_DELETE_RESP, UMAD_SA_METHOD_GET_MULTI, UMAD_SA_METHOD_GET_MULTI_RESP,
        UMAD_SA_METHOD_GET_TRACE_TABLE,
        UMAD_SA_STATUS_SUCCESS, UMAD_SA_STATUS_NO_RESOURCES, UMAD_SA_STATUS_REQ_INVALID,
        UMAD_SA_STATUS_NO_RECORDS, UMAD_SA_STATUS_TOO_MANY_RECORDS, UMAD_SA_STATUS_INVALID_GID,
        UMAD_SA_STATUS_INSUF_COMPS, UMAD_SA_STATUS_REQ_DENIED, UMAD_SA_STATUS_PRI_SUGGESTED,
        UMAD_SA_ATTR_NODE_REC, UMAD_SA_ATTR_PORT_INFO_REC, UMAD_SA_ATTR_SLVL_REC,
        UMAD_SA_ATTR_SWITCH_INFO_REC, UMAD_SA_ATTR_LINEAR_FT_REC, UMAD_SA_ATTR_RANDOM_FT_REC,
        UMAD_SA_ATTR_MCAST_FT_REC, UMAD_SA_ATTR_SM_INFO_REC,
        UMAD_SA_ATTR_LINK_SPD_WIDTH_TABLE_REC, UMAD_SA_ATTR_INFORM_INFO_REC, UMAD_SA_ATTR_LINK_REC,
        UMAD_SA_ATTR_GUID_INFO_REC, UMAD_SA_ATTR_SERVICE_REC, UMAD_SA_ATTR_PKEY_TABLE_REC,
        UMAD_SA_ATTR_PATH_REC, UMAD_SA_ATTR_VL_ARB_REC, UMAD_SA_ATTR_MCMEMBER_REC,
        UMAD_SA_ATTR_TRACE_REC, UMAD_SA_ATTR_MULTI_PATH_REC, UMAD_SA_ATTR_SERVICE_ASSOC_REC,
        UMAD_SA_ATTR_HIERARCHY_INFO_REC, UMAD_SA_ATTR_CABLE_INFO_REC,
        UMAD_SA_ATTR_PORT_INFO_EXT_REC, UMAD_LEN_SA_DATA,
        UMAD_SA_CAP_MASK_IS_SUBNET_OPT_REC_SUP, UMAD_SA_CAP_MASK_IS_UD_MCAST_SUP,
        UMAD_SA_CAP_MASK_IS_MULTIPATH_SUP, UMAD_SA_CAP_MASK_IS_REINIT_SUP,
        UMAD_SA_CAP_MASK_IS_GID_SCOPED_MULTIPATH_SUP,
        UMAD_SA_CAP_MASK_IS_PORTINFO_CAP_MASK_MATCH_SUP,
        UMAD_SA_CAP_MASK_IS_LINK_SPEED_WIDTH_PAIRS_REC_SUP, UMAD_SA_CAP_MASK_IS_PA_SERVICES_SUP,
        UMAD_SA_CAP_MASK2_IS_UNPATH_REPATH_SUP, UMAD_SA_CAP_MASK2_IS_QOS_SUP,
        UMAD_SA_CAP_MASK2_IS_REV_PATH_PKEY_MEM_BIT_SUP, UMAD_SA_CAP_MASK2_IS_MCAST_TOP_SUP,
        UMAD_SA_CAP_MASK2_IS_HIERARCHY_INFO_SUP, UMAD_SA_CAP_MASK2_IS_ADDITIONAL_GUID_SUP,
        UMAD_SA_CAP_MASK2_IS_FULL_PORTINFO_REC_SUP, UMAD_SA_CAP_MASK2_IS_EXT_SPEEDS_SUP,
        UMAD_SA_CAP_MASK2_IS_MCAST_SERVICE_REC_SUP, UMAD_SA_CAP_MASK2_IS_CABLE_INFO_REC_SUP,
        UMAD_SA_CAP_MASK2_IS_PORT_INFO_CAPMASK2_MATCH_SUP,
        UMAD_SA_CAP_MASK2_IS_PORT_INFO_EXT_REC_SUP,
        UMAD_SA_SELECTOR_GREATER_THAN, UMAD_SA_SELECTOR_LESS_THAN, UMAD_SA_SELECTOR_EXACTLY,
        UMAD_SA_SELECTOR_LARGEST_AVAIL, UMAD_SA_SELECTOR_SMALLEST_AVAIL, UMAD_SA_SELECTOR_SHIFT,
        UMAD_SA_RATE_MTU_PKT_LIFE_MASK, UMAD_SA_SELECTOR_MASK,
        UMAD_SA_MCM_COMP_MASK_MGID, UMAD_SA_MCM_COMP_MASK_PORT_GID, UMAD_SA_MCM_COMP_MASK_QKEY,
        UMAD_SA_MCM_COMP_MASK_MLID, UMAD_SA_MCM_COMP_MASK_MTU_SEL, UMAD_SA_MCM_COMP_MASK_MTU,
        UMAD_SA_MCM_COMP_MASK_TCLASS, UMAD_SA_MCM_COMP_MASK_PKEY, UMAD_SA_MCM_COMP_MASK_RATE_SEL,
        UMAD_SA_MCM_COMP_MASK_RATE, UMAD_SA_MCM_COMP_MASK_LIFE_TIME_SEL,
        UMAD_SA_MCM_COMP_MASK_LIFE_TIME, UMAD_SA_MCM_COMP_MASK_SL,
        UMAD_SA_MCM_COMP_MASK_FLOW_LABEL, UMAD_SA_MCM_COMP_MASK_HOP_LIMIT,
        UMAD_SA_MCM_COMP_MASK_SCOPE, UMAD_SA_MCM_COMP_MASK_JOIN_STATE,
        UMAD_SA_MCM_COMP_MASK_PROXY_JOIN,
        UMAD_SA_MCM_JOIN_STATE_FULL_MEMBER, UMAD_SA_MCM_JOIN_STATE_NON_MEMBER,
        UMAD_SA_MCM_JOIN_STATE_SEND_ONLY_NON_MEMBER, UMAD_SA_MCM_JOIN_STATE_SEND_ONLY_FULL_MEMBER,
        UMAD_SA_MCM_ADDR_SCOPE_LINK_LOCAL, UMAD_SA_MCM_ADDR_SCOPE_SITE_LOCAL,
        UMAD_SA_MCM_ADDR_SCOPE_ORG_LOCAL, UMAD_SA_MCM_ADDR_SCOPE_GLOBAL,
    ];
    all.extend(codes![
        AcmOpcode, AcmStatus, AcmEpType, AcmCounter, ibv_event_type, ibv_mtu, ibv_rate,
        ibv_port_state,
    ]);
    all
}
