/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The interface between ibacm and its providers, for C and C++, on its own: what <infiniband/acm_prov.h> of rdma-core
 * declares, and what that takes from acm.h, sa.h, umad.h, umad_types.h, umad_sa.h, umad_sa_mcm.h and verbs.h.
 *
 * Generated from the Rust mirror of the same headers (acm-prov-api/src/abi) by `cargo xtask headers`; do not edit.
 *
 * All names begin with acmabi_ or ACMABI_ (instead of acm_ and ACM_, where the original has that), so that a file can include
 * both. Functions are those of the core and of libibverbs under their own names, and acmabi_provider_query is the
 * provider_query that a provider exports: the compiler is told which symbol each stands for (gcc and clang).
 *
 * Numbers are in host byte order but for those of the types acmabi_be16, acmabi_be32 and acmabi_be64, and for what is said to
 * be in network byte order. The layout is that of LP64 (x86-64, aarch64): anything else fails to compile.
 */

#ifndef ACM_PROV_ABI_H
#define ACM_PROV_ABI_H

#include <stddef.h>
#include <stdint.h>
#define ACMABI_ALIGNED(n) __attribute__((aligned(n)))
#define ACMABI_PACKED __attribute__((packed))
/* The symbol that a declaration stands for. */
#define ACMABI_SYMBOL(name) __asm__(name)


/** A completion queue is in error. */
#define ACMABI_IBV_EVENT_CQ_ERR 0

/** A queue pair went to the error state. */
#define ACMABI_IBV_EVENT_QP_FATAL 1

/** An invalid request reached a queue pair. */
#define ACMABI_IBV_EVENT_QP_REQ_ERR 2

/** A remote access violated a queue pair's rights. */
#define ACMABI_IBV_EVENT_QP_ACCESS_ERR 3

/** Data arrived on a queue pair that is not yet ready to send. */
#define ACMABI_IBV_EVENT_COMM_EST 4

/** A queue pair's send queue was drained as requested. */
#define ACMABI_IBV_EVENT_SQ_DRAINED 5

/** A connection moved to its alternate path. */
#define ACMABI_IBV_EVENT_PATH_MIG 6

/** A connection failed to move to its alternate path. */
#define ACMABI_IBV_EVENT_PATH_MIG_ERR 7

/** The device no longer works. */
#define ACMABI_IBV_EVENT_DEVICE_FATAL 8

/** A port became active. */
#define ACMABI_IBV_EVENT_PORT_ACTIVE 9

/** A port's link went down. */
#define ACMABI_IBV_EVENT_PORT_ERR 10

/** A port got another LID. */
#define ACMABI_IBV_EVENT_LID_CHANGE 11

/** A port's P_Key table changed. */
#define ACMABI_IBV_EVENT_PKEY_CHANGE 12

/** Another subnet manager took over. */
#define ACMABI_IBV_EVENT_SM_CHANGE 13

/** A shared receive queue is in error. */
#define ACMABI_IBV_EVENT_SRQ_ERR 14

/** A shared receive queue fell to its limit. */
#define ACMABI_IBV_EVENT_SRQ_LIMIT_REACHED 15

/** The last receive of a queue pair with a shared receive queue is done. */
#define ACMABI_IBV_EVENT_QP_LAST_WQE_REACHED 16

/** The subnet manager asks every client to subscribe and join again. */
#define ACMABI_IBV_EVENT_CLIENT_REREGISTER 17

/** A port's GID table changed. */
#define ACMABI_IBV_EVENT_GID_CHANGE 18

/** A work queue is in error. */
#define ACMABI_IBV_EVENT_WQ_FATAL 19

/** 256 bytes. */
#define ACMABI_IBV_MTU_256 1

/** 512 bytes. */
#define ACMABI_IBV_MTU_512 2

/** 1024 bytes. */
#define ACMABI_IBV_MTU_1024 3

/** 2048 bytes. */
#define ACMABI_IBV_MTU_2048 4

/** 4096 bytes. */
#define ACMABI_IBV_MTU_4096 5

/** The maximum of the port; the core's acmabi_get_rate also returns it for unknown speeds. */
#define ACMABI_IBV_RATE_MAX 0

/** 2.5 Gb/s. */
#define ACMABI_IBV_RATE_2_5_GBPS 2

/** 5 Gb/s. */
#define ACMABI_IBV_RATE_5_GBPS 5

/** 10 Gb/s. */
#define ACMABI_IBV_RATE_10_GBPS 3

/** 20 Gb/s. */
#define ACMABI_IBV_RATE_20_GBPS 6

/** 30 Gb/s. */
#define ACMABI_IBV_RATE_30_GBPS 4

/** 40 Gb/s. */
#define ACMABI_IBV_RATE_40_GBPS 7

/** 60 Gb/s. */
#define ACMABI_IBV_RATE_60_GBPS 8

/** 80 Gb/s. */
#define ACMABI_IBV_RATE_80_GBPS 9

/** 120 Gb/s. */
#define ACMABI_IBV_RATE_120_GBPS 10

/** 14 Gb/s. */
#define ACMABI_IBV_RATE_14_GBPS 11

/** 56 Gb/s. */
#define ACMABI_IBV_RATE_56_GBPS 12

/** 112 Gb/s. */
#define ACMABI_IBV_RATE_112_GBPS 13

/** 168 Gb/s. */
#define ACMABI_IBV_RATE_168_GBPS 14

/** 25 Gb/s. */
#define ACMABI_IBV_RATE_25_GBPS 15

/** 100 Gb/s. */
#define ACMABI_IBV_RATE_100_GBPS 16

/** 200 Gb/s. */
#define ACMABI_IBV_RATE_200_GBPS 17

/** 300 Gb/s. */
#define ACMABI_IBV_RATE_300_GBPS 18

/** 28 Gb/s. */
#define ACMABI_IBV_RATE_28_GBPS 19

/** 50 Gb/s. */
#define ACMABI_IBV_RATE_50_GBPS 20

/** 400 Gb/s. */
#define ACMABI_IBV_RATE_400_GBPS 21

/** 600 Gb/s. */
#define ACMABI_IBV_RATE_600_GBPS 22

/** 800 Gb/s. */
#define ACMABI_IBV_RATE_800_GBPS 23

/** 1200 Gb/s. */
#define ACMABI_IBV_RATE_1200_GBPS 24

/** No state; in a request, InfiniBand's code for "do not change the state". */
#define ACMABI_IBV_PORT_NOP 0

/** No link. */
#define ACMABI_IBV_PORT_DOWN 1

/** Link, not yet configured by the subnet manager. */
#define ACMABI_IBV_PORT_INIT 2

/** Configured, not yet active. */
#define ACMABI_IBV_PORT_ARMED 3

/** In use. */
#define ACMABI_IBV_PORT_ACTIVE 4

/** In use with a link error that may pass. */
#define ACMABI_IBV_PORT_ACTIVE_DEFER 5

/** acmabi_compat_ibv_port_attr.link_layer of a driver that does not report it: InfiniBand. (verbs.h) */
#define ACMABI_IBV_LINK_LAYER_UNSPECIFIED 0

/** acmabi_compat_ibv_port_attr.link_layer of an InfiniBand port. (verbs.h) */
#define ACMABI_IBV_LINK_LAYER_INFINIBAND 1

/** acmabi_compat_ibv_port_attr.link_layer of an Ethernet (RoCE) port: no LIDs, no SA. (verbs.h) */
#define ACMABI_IBV_LINK_LAYER_ETHERNET 2

/**
 * The bit of acmabi_ibv_path_record.reversible_numpath for a path that works in both directions: a constraint
 * in a query, a fact in a response. (sa.h)
 */
#define ACMABI_IBV_PATH_RECORD_REVERSIBLE 0x80

/** The path serves general services (management). (sa.h) */
#define ACMABI_IBV_PATH_FLAG_GMP 0x1

/** The primary path. (sa.h) */
#define ACMABI_IBV_PATH_FLAG_PRIMARY 0x2

/** The alternate path, for failover. (sa.h) */
#define ACMABI_IBV_PATH_FLAG_ALTERNATE 0x4

/** From this host to the other side. (sa.h) */
#define ACMABI_IBV_PATH_FLAG_OUTBOUND 0x8

/** From the other side to this host. (sa.h) */
#define ACMABI_IBV_PATH_FLAG_INBOUND 0x10

/** From the other side to this host, written as the reverse path. (sa.h) */
#define ACMABI_IBV_PATH_FLAG_INBOUND_REVERSE 0x20

/** One record for both directions. (sa.h) */
#define ACMABI_IBV_PATH_FLAG_BIDIRECTIONAL (ACMABI_IBV_PATH_FLAG_OUTBOUND | ACMABI_IBV_PATH_FLAG_INBOUND_REVERSE)

/** acmabi_umad_hdr.base_version of every MAD. */
#define ACMABI_UMAD_BASE_VERSION 1

/** The queue key of queue pair 1. */
#define ACMABI_UMAD_QKEY 0x80010000

/** Management class: subnet management, routed by LID. */
#define ACMABI_UMAD_CLASS_SUBN_LID_ROUTED 0x1

/** Management class: subnet management, routed hop by hop. */
#define ACMABI_UMAD_CLASS_SUBN_DIRECTED_ROUTE 0x81

/** Management class: subnet administration, the SA. */
#define ACMABI_UMAD_CLASS_SUBN_ADM 0x3

/** Management class: performance counters. */
#define ACMABI_UMAD_CLASS_PERF_MGMT 0x4

/** Management class: baseboard management. */
#define ACMABI_UMAD_CLASS_BM 0x5

/** Management class: device management. */
#define ACMABI_UMAD_CLASS_DEVICE_MGMT 0x6

/** Management class: connection management. */
#define ACMABI_UMAD_CLASS_CM 0x7

/** Management class: SNMP tunnelling. */
#define ACMABI_UMAD_CLASS_SNMP 0x8

/** First of the vendors' classes without RMPP. */
#define ACMABI_UMAD_CLASS_VENDOR_RANGE1_START 0x9

/** Last of the vendors' classes without RMPP. */
#define ACMABI_UMAD_CLASS_VENDOR_RANGE1_END 0xf

/** First of the applications' classes. */
#define ACMABI_UMAD_CLASS_APPLICATION_START 0x10

/** Management class: device administration. */
#define ACMABI_UMAD_CLASS_DEVICE_ADM ACMABI_UMAD_CLASS_APPLICATION_START

/** Management class: boot management. */
#define ACMABI_UMAD_CLASS_BOOT_MGMT 0x11

/** Management class: BIS. */
#define ACMABI_UMAD_CLASS_BIS 0x12

/** Management class: congestion control. */
#define ACMABI_UMAD_CLASS_CONG_MGMT 0x21

/** Last of the applications' classes; ACM's own 0x2C lies in this range. */
#define ACMABI_UMAD_CLASS_APPLICATION_END 0x2f

/** First of the vendors' classes with RMPP. */
#define ACMABI_UMAD_CLASS_VENDOR_RANGE2_START 0x30

/** Last of the vendors' classes with RMPP. */
#define ACMABI_UMAD_CLASS_VENDOR_RANGE2_END 0x4f

/** Method: read an attribute. */
#define ACMABI_UMAD_METHOD_GET 0x1

/** Method: write an attribute; at the SA: create a record, join a group. */
#define ACMABI_UMAD_METHOD_SET 0x2

/** Method: the response to ACMABI_UMAD_METHOD_GET and ACMABI_UMAD_METHOD_SET. */
#define ACMABI_UMAD_METHOD_GET_RESP 0x81

/** Method: a datagram without a response. */
#define ACMABI_UMAD_METHOD_SEND 0x3

/** Method: a notice of an event. */
#define ACMABI_UMAD_METHOD_TRAP 0x5

/** Method: a trap forwarded to a subscriber. */
#define ACMABI_UMAD_METHOD_REPORT 0x6

/** Method: the response to ACMABI_UMAD_METHOD_REPORT. */
#define ACMABI_UMAD_METHOD_REPORT_RESP 0x86

/** Method: a trap was received, stop repeating it. */
#define ACMABI_UMAD_METHOD_TRAP_REPRESS 0x7

/** The bit that marks a method as a response. */
#define ACMABI_UMAD_METHOD_RESP_MASK 0x80

/** Status: success. */
#define ACMABI_UMAD_STATUS_SUCCESS 0x0

/** Status: busy, try again. */
#define ACMABI_UMAD_STATUS_BUSY 0x1

/** Status: redirected, send the request elsewhere. */
#define ACMABI_UMAD_STATUS_REDIRECT 0x2

/** Status, invalid field code: the version of base or class is not supported. */
#define ACMABI_UMAD_STATUS_BAD_VERSION 0x4

/** Status, invalid field code: the method is not supported. */
#define ACMABI_UMAD_STATUS_METHOD_NOT_SUPPORTED 0x8

/** Status, invalid field code: the attribute does not support the method. */
#define ACMABI_UMAD_STATUS_ATTR_NOT_SUPPORTED 0xc

/** Status, invalid field code: a value in the attribute or its modifier is not valid. */
#define ACMABI_UMAD_STATUS_INVALID_ATTR_VALUE 0x1c

/** The bits of a status that hold the invalid field code. */
#define ACMABI_UMAD_STATUS_INVALID_FIELD_MASK 0x1c

/** The bits of a status that belong to the management class. */
#define ACMABI_UMAD_STATUS_CLASS_MASK 0xff00

/** Attribute of several classes: what the class at this port supports. */
#define ACMABI_UMAD_ATTR_CLASS_PORT_INFO 0x1

/** Attribute of several classes: the content of a trap. */
#define ACMABI_UMAD_ATTR_NOTICE 0x2

/** Attribute of several classes: a subscription to traps. */
#define ACMABI_UMAD_ATTR_INFORM_INFO 0x3

/** acmabi_umad_rmpp_hdr.rmpp_version of a MAD that uses RMPP. */
#define ACMABI_UMAD_RMPP_VERSION 1

/** The bit of acmabi_umad_rmpp_hdr.rmpp_rtime_flags that says that RMPP is active. */
#define ACMABI_UMAD_RMPP_FLAG_ACTIVE 1

/** Length of the data after the header of a plain MAD, in bytes. */
#define ACMABI_UMAD_LEN_DATA 232

/** Length of the data after the header of an RMPP MAD, in bytes. */
#define ACMABI_UMAD_LEN_RMPP_DATA 220

/** Length of the data in a device management MAD, in bytes. */
#define ACMABI_UMAD_LEN_DM_DATA 192

/** Length of the data in a vendor's MAD with an OUI, in bytes. */
#define ACMABI_UMAD_LEN_VENDOR_DATA 216

/** acmabi_umad_hdr.class_version of the SA class. */
#define ACMABI_UMAD_SA_CLASS_VERSION 2

/** SA method: get all matching records. */
#define ACMABI_UMAD_SA_METHOD_GET_TABLE 0x12

/** SA method: the response to ACMABI_UMAD_SA_METHOD_GET_TABLE. */
#define ACMABI_UMAD_SA_METHOD_GET_TABLE_RESP 0x92

/** SA method: delete a record, leave a multicast group. */
#define ACMABI_UMAD_SA_METHOD_DELETE 0x15

/** SA method: the response to ACMABI_UMAD_SA_METHOD_DELETE. */
#define ACMABI_UMAD_SA_METHOD_DELETE_RESP 0x95

/** SA method: get paths between several ports. */
#define ACMABI_UMAD_SA_METHOD_GET_MULTI 0x14

/** SA method: the response to ACMABI_UMAD_SA_METHOD_GET_MULTI. */
#define ACMABI_UMAD_SA_METHOD_GET_MULTI_RESP 0x94

/** SA method: get the route of a path. */
#define ACMABI_UMAD_SA_METHOD_GET_TRACE_TABLE 0x13

/** SA status (high byte of the MAD's status): success. */
#define ACMABI_UMAD_SA_STATUS_SUCCESS 0

/** SA status: no resources at the moment. */
#define ACMABI_UMAD_SA_STATUS_NO_RESOURCES 1

/** SA status: the request is not valid. */
#define ACMABI_UMAD_SA_STATUS_REQ_INVALID 2

/** SA status: no record matches. */
#define ACMABI_UMAD_SA_STATUS_NO_RECORDS 3

/** SA status: more than one record matches a GET. */
#define ACMABI_UMAD_SA_STATUS_TOO_MANY_RECORDS 4

/** SA status: a GID in the request is not valid. */
#define ACMABI_UMAD_SA_STATUS_INVALID_GID 5

/** SA status: the request lacks a required component. */
#define ACMABI_UMAD_SA_STATUS_INSUF_COMPS 6

/** SA status: denied. */
#define ACMABI_UMAD_SA_STATUS_REQ_DENIED 7

/** SA status: success, but the SA suggests another priority. */
#define ACMABI_UMAD_SA_STATUS_PRI_SUGGESTED 8

/** SA attribute: NodeRecord. */
#define ACMABI_UMAD_SA_ATTR_NODE_REC 0x11

/** SA attribute: PortInfoRecord. */
#define ACMABI_UMAD_SA_ATTR_PORT_INFO_REC 0x12

/** SA attribute: SLtoVLMappingTableRecord. */
#define ACMABI_UMAD_SA_ATTR_SLVL_REC 0x13

/** SA attribute: SwitchInfoRecord. */
#define ACMABI_UMAD_SA_ATTR_SWITCH_INFO_REC 0x14

/** SA attribute: LinearForwardingTableRecord. */
#define ACMABI_UMAD_SA_ATTR_LINEAR_FT_REC 0x15

/** SA attribute: RandomForwardingTableRecord. */
#define ACMABI_UMAD_SA_ATTR_RANDOM_FT_REC 0x16

/** SA attribute: MulticastForwardingTableRecord. */
#define ACMABI_UMAD_SA_ATTR_MCAST_FT_REC 0x17

/** SA attribute: SMInfoRecord. */
#define ACMABI_UMAD_SA_ATTR_SM_INFO_REC 0x18

/** SA attribute: LinkSpeedWidthPairsTableRecord. */
#define ACMABI_UMAD_SA_ATTR_LINK_SPD_WIDTH_TABLE_REC 0x19

/** SA attribute: InformInfoRecord. */
#define ACMABI_UMAD_SA_ATTR_INFORM_INFO_REC 0xf3

/** SA attribute: LinkRecord. */
#define ACMABI_UMAD_SA_ATTR_LINK_REC 0x20

/** SA attribute: GUIDInfoRecord. */
#define ACMABI_UMAD_SA_ATTR_GUID_INFO_REC 0x30

/** SA attribute: ServiceRecord. */
#define ACMABI_UMAD_SA_ATTR_SERVICE_REC 0x31

/** SA attribute: P_KeyTableRecord. */
#define ACMABI_UMAD_SA_ATTR_PKEY_TABLE_REC 0x33

/** SA attribute: PathRecord, an acmabi_ibv_path_record. */
#define ACMABI_UMAD_SA_ATTR_PATH_REC 0x35

/** SA attribute: VLArbitrationTableRecord. */
#define ACMABI_UMAD_SA_ATTR_VL_ARB_REC 0x36

/** SA attribute: MCMemberRecord, an acmabi_umad_sa_mcmember_record. */
#define ACMABI_UMAD_SA_ATTR_MCMEMBER_REC 0x38

/** SA attribute: TraceRecord. */
#define ACMABI_UMAD_SA_ATTR_TRACE_REC 0x39

/** SA attribute: MultiPathRecord. */
#define ACMABI_UMAD_SA_ATTR_MULTI_PATH_REC 0x3a

/** SA attribute: ServiceAssociationRecord. */
#define ACMABI_UMAD_SA_ATTR_SERVICE_ASSOC_REC 0x3b

/** SA attribute: HierarchyInfoRecord. */
#define ACMABI_UMAD_SA_ATTR_HIERARCHY_INFO_REC 0x3c

/** SA attribute: CableInfoRecord. */
#define ACMABI_UMAD_SA_ATTR_CABLE_INFO_REC 0x3d

/** SA attribute: PortInfoExtendedRecord. */
#define ACMABI_UMAD_SA_ATTR_PORT_INFO_EXT_REC 0x3e

/** Length of the data in an SA MAD, in bytes. */
#define ACMABI_UMAD_LEN_SA_DATA 200

/** ClassPortInfo CapabilityMask of the SA: optional records. */
#define ACMABI_UMAD_SA_CAP_MASK_IS_SUBNET_OPT_REC_SUP 0x100

/** ClassPortInfo CapabilityMask of the SA: multicast. */
#define ACMABI_UMAD_SA_CAP_MASK_IS_UD_MCAST_SUP 0x200

/** ClassPortInfo CapabilityMask of the SA: MultiPathRecord. */
#define ACMABI_UMAD_SA_CAP_MASK_IS_MULTIPATH_SUP 0x400

/** ClassPortInfo CapabilityMask of the SA: reinitialisation. */
#define ACMABI_UMAD_SA_CAP_MASK_IS_REINIT_SUP 0x800

/** ClassPortInfo CapabilityMask of the SA: MultiPathRecord by scope of GID. */
#define ACMABI_UMAD_SA_CAP_MASK_IS_GID_SCOPED_MULTIPATH_SUP 0x1000

/** ClassPortInfo CapabilityMask of the SA: PortInfoRecord by single capability bits. */
#define ACMABI_UMAD_SA_CAP_MASK_IS_PORTINFO_CAP_MASK_MATCH_SUP 0x2000

/** ClassPortInfo CapabilityMask of the SA: LinkSpeedWidthPairsTableRecord. */
#define ACMABI_UMAD_SA_CAP_MASK_IS_LINK_SPEED_WIDTH_PAIRS_REC_SUP 0x4000

/** ClassPortInfo CapabilityMask of the SA: performance administration services. */
#define ACMABI_UMAD_SA_CAP_MASK_IS_PA_SERVICES_SUP 0x8000

/** ClassPortInfo CapabilityMask2 of the SA: notice of lost and regained paths. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_UNPATH_REPATH_SUP 0x1

/** ClassPortInfo CapabilityMask2 of the SA: quality of service. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_QOS_SUP 0x2

/** ClassPortInfo CapabilityMask2 of the SA: the membership bit of a reverse path's P_Key. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_REV_PATH_PKEY_MEM_BIT_SUP 0x4

/** ClassPortInfo CapabilityMask2 of the SA: the topmost switch of a multicast tree. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_MCAST_TOP_SUP 0x8

/** ClassPortInfo CapabilityMask2 of the SA: HierarchyInfoRecord. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_HIERARCHY_INFO_SUP 0x10

/** ClassPortInfo CapabilityMask2 of the SA: additional GUIDs for a port. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_ADDITIONAL_GUID_SUP 0x20

/** ClassPortInfo CapabilityMask2 of the SA: all of PortInfo in PortInfoRecord. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_FULL_PORTINFO_REC_SUP 0x40

/** ClassPortInfo CapabilityMask2 of the SA: extended link speeds. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_EXT_SPEEDS_SUP 0x80

/** ClassPortInfo CapabilityMask2 of the SA: ServiceRecords of multicast groups. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_MCAST_SERVICE_REC_SUP 0x100

/** ClassPortInfo CapabilityMask2 of the SA: CableInfoRecord. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_CABLE_INFO_REC_SUP 0x200

/** ClassPortInfo CapabilityMask2 of the SA: PortInfoRecord by single bits of the second mask. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_PORT_INFO_CAPMASK2_MATCH_SUP 0x400

/** ClassPortInfo CapabilityMask2 of the SA: PortInfoExtendedRecord. */
#define ACMABI_UMAD_SA_CAP_MASK2_IS_PORT_INFO_EXT_REC_SUP 0x800

/** Selector of MTU, rate or packet lifetime: more than the value. */
#define ACMABI_UMAD_SA_SELECTOR_GREATER_THAN 0

/** Selector of MTU, rate or packet lifetime: less than the value. */
#define ACMABI_UMAD_SA_SELECTOR_LESS_THAN 1

/** Selector of MTU, rate or packet lifetime: the value. */
#define ACMABI_UMAD_SA_SELECTOR_EXACTLY 2

/** Selector of MTU or rate: the largest available. */
#define ACMABI_UMAD_SA_SELECTOR_LARGEST_AVAIL 3

/** Selector of packet lifetime: the smallest available. */
#define ACMABI_UMAD_SA_SELECTOR_SMALLEST_AVAIL 3

/** Position of the selector in the byte of an MTU, rate or packet lifetime. */
#define ACMABI_UMAD_SA_SELECTOR_SHIFT 6

/** The bits of such a byte that hold the value. */
#define ACMABI_UMAD_SA_RATE_MTU_PKT_LIFE_MASK 0x3f

/** The bits of a selector, shifted down. */
#define ACMABI_UMAD_SA_SELECTOR_MASK 0x3

/** Component of MCMemberRecord: the group's GID. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_MGID 0x1

/** Component of MCMemberRecord: the member's GID. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_PORT_GID 0x2

/** Component of MCMemberRecord: the Q_Key. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_QKEY 0x4

/** Component of MCMemberRecord: the group's LID. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_MLID 0x8

/** Component of MCMemberRecord: the MTU's selector. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_MTU_SEL 0x10

/** Component of MCMemberRecord: the MTU. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_MTU 0x20

/** Component of MCMemberRecord: the traffic class. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_TCLASS 0x40

/** Component of MCMemberRecord: the P_Key. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_PKEY 0x80

/** Component of MCMemberRecord: the rate's selector. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_RATE_SEL 0x100

/** Component of MCMemberRecord: the rate. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_RATE 0x200

/** Component of MCMemberRecord: the packet lifetime's selector. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_LIFE_TIME_SEL 0x400

/** Component of MCMemberRecord: the packet lifetime. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_LIFE_TIME 0x800

/** Component of MCMemberRecord: the service level. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_SL 0x1000

/** Component of MCMemberRecord: the flow label. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_FLOW_LABEL 0x2000

/** Component of MCMemberRecord: the hop limit. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_HOP_LIMIT 0x4000

/** Component of MCMemberRecord: the scope. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_SCOPE 0x8000

/** Component of MCMemberRecord: the join state. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_JOIN_STATE 0x10000

/** Component of MCMemberRecord: joined on behalf of another port. */
#define ACMABI_UMAD_SA_MCM_COMP_MASK_PROXY_JOIN 0x20000

/** Join state: sends and receives. */
#define ACMABI_UMAD_SA_MCM_JOIN_STATE_FULL_MEMBER 0x1

/** Join state: receives; does not keep the group alive. */
#define ACMABI_UMAD_SA_MCM_JOIN_STATE_NON_MEMBER 0x2

/** Join state: sends only; does not keep the group alive. */
#define ACMABI_UMAD_SA_MCM_JOIN_STATE_SEND_ONLY_NON_MEMBER 0x4

/** Join state: sends only. */
#define ACMABI_UMAD_SA_MCM_JOIN_STATE_SEND_ONLY_FULL_MEMBER 0x8

/** Scope: the subnet. */
#define ACMABI_UMAD_SA_MCM_ADDR_SCOPE_LINK_LOCAL 0x2

/** Scope: the site. */
#define ACMABI_UMAD_SA_MCM_ADDR_SCOPE_SITE_LOCAL 0x5

/** Scope: the organisation. */
#define ACMABI_UMAD_SA_MCM_ADDR_SCOPE_ORG_LOCAL 0x8

/** Scope: everywhere. */
#define ACMABI_UMAD_SA_MCM_ADDR_SCOPE_GLOBAL 0xe

/** acmabi_hdr.version of every message. */
#define ACMABI_VERSION 1

/** The bits of acmabi_hdr.opcode that hold the operation. */
#define ACMABI_OP_MASK 0xf

/** The bit of acmabi_hdr.opcode that marks a response. */
#define ACMABI_OP_ACK 0x80

/** Resolve an address to a path. */
#define ACMABI_OP_RESOLVE 0x1

/** Read counters. */
#define ACMABI_OP_PERF_QUERY 0x2

/** List endpoints. */
#define ACMABI_OP_EP_QUERY 0x3

/** Success. */
#define ACMABI_STATUS_SUCCESS 0

/** Out of memory. */
#define ACMABI_STATUS_ENOMEM 1

/** The request is not valid. */
#define ACMABI_STATUS_EINVAL 2

/** The destination does not exist, or is not known yet. */
#define ACMABI_STATUS_ENODATA 3

/** Not connected. */
#define ACMABI_STATUS_ENOTCONN 5

/** No answer in time. */
#define ACMABI_STATUS_ETIMEDOUT 6

/** The source address is not an address of this host. */
#define ACMABI_STATUS_ESRCADDR 7

/** The type of the source address is not supported. */
#define ACMABI_STATUS_ESRCTYPE 8

/** The destination address is not valid. */
#define ACMABI_STATUS_EDESTADDR 9

/** The type of the destination address is not supported. */
#define ACMABI_STATUS_EDESTTYPE 10

/** Flag of an acmabi_ep_addr_data: ask the SA even if the answer is cached. (acm.h) */
#define ACMABI_FLAGS_QUERY_SA 0x80000000

/** Flag of an acmabi_ep_addr_data: answer at once from what is cached. (acm.h) */
#define ACMABI_FLAGS_NODELAY 0x40000000

/** Length of an acmabi_hdr in bytes. (acm.h) */
#define ACMABI_MSG_HDR_LENGTH 16

/** Length of an address in bytes. (acm.h) */
#define ACMABI_MAX_ADDRESS 64

/** Length of an acmabi_ep_addr_data in bytes. (acm.h) */
#define ACMABI_MSG_EP_LENGTH 72

/** Maximum length of a provider's name in bytes, including its NUL. (acm.h) */
#define ACMABI_MAX_PROV_NAME 64

/** Maximum length of a message in bytes after the header: eight entries. (acm.h) */
#define ACMABI_MSG_DATA_LENGTH (ACMABI_MSG_EP_LENGTH * 8)

/** A host name, NUL-terminated unless it fills all 64 bytes. */
#define ACMABI_EP_INFO_NAME 0x1

/** An IPv4 address, 4 bytes. */
#define ACMABI_EP_INFO_ADDRESS_IP 0x2

/** An IPv6 address, 16 bytes. */
#define ACMABI_EP_INFO_ADDRESS_IP6 0x3

/** A path record. */
#define ACMABI_EP_INFO_PATH 0x10

/**
 * A GID, 16 bytes. The core accepts it from clients although acm.h does not define it (the header of ibacm's
 * network protocol does).
 */
#define ACMABI_EP_INFO_ADDRESS_GID 0x4

/**
 * A LID, 2 bytes in network byte order. The core accepts it from clients although acm.h does not define it (the
 * header of ibacm's network protocol does).
 */
#define ACMABI_EP_INFO_ADDRESS_LID 0x5

/** Flag of an acmabi_ep_addr_data: the source. (acm.h) */
#define ACMABI_EP_FLAG_SOURCE 0x1

/** Flag of an acmabi_ep_addr_data: the destination. (acm.h) */
#define ACMABI_EP_FLAG_DEST 0x2

/** Requests that failed. */
#define ACMABI_CNTR_ERROR 0

/** Resolve requests. */
#define ACMABI_CNTR_RESOLVE 1

/** Requests answered with ENODATA. */
#define ACMABI_CNTR_NODATA 2

/** Address queries on the network. */
#define ACMABI_CNTR_ADDR_QUERY 3

/** Address cache hits. */
#define ACMABI_CNTR_ADDR_CACHE 4

/** Route queries on the network. */
#define ACMABI_CNTR_ROUTE_QUERY 5

/** Route cache hits. */
#define ACMABI_CNTR_ROUTE_CACHE 6

/** The number of counters. (acm.h) */
#define ACMABI_MAX_COUNTER 7

/** The version of the provider interface that this header describes. (acm_prov.h) */
#define ACMABI_PROV_VERSION 1

/**
 * An open device of libibverbs, used only through a pointer. (verbs.h)
 *
 * The core opens it and keeps it open as long as the process lives.
 */
struct ibv_context;

/** The state of a port's link: C's enum ibv_port_state. (verbs.h) */
typedef unsigned int acmabi_ibv_port_state;

/** A path MTU: C's enum ibv_mtu, which is also InfiniBand's code on the wire. (verbs.h) */
typedef unsigned int acmabi_ibv_mtu;

/**
 * A port's attributes as the exported function acmabi_ibv_query_port writes them.
 *
 * verbs.h declares the type without its fields. They are those that struct ibv_port_attr had when the
 * function's symbol version was fixed. That structure still grows; this one never changes.
 */
struct acmabi_compat_ibv_port_attr {
    /** The link's state. */
    acmabi_ibv_port_state state;
    /** The largest MTU of the port. */
    acmabi_ibv_mtu max_mtu;
    /** The MTU in use. */
    acmabi_ibv_mtu active_mtu;
    /** Entries in the GID table. */
    int gid_tbl_len;
    /** PortInfo's CapabilityMask, in host byte order. */
    uint32_t port_cap_flags;
    /** The largest message, in bytes. */
    uint32_t max_msg_sz;
    /** Packets refused for their P_Key. */
    uint32_t bad_pkey_cntr;
    /** Packets refused for their Q_Key. */
    uint32_t qkey_viol_cntr;
    /** Entries in the P_Key table. */
    uint16_t pkey_tbl_len;
    /** The port's base LID, in host byte order; 0 until the subnet manager assigns one. */
    uint16_t lid;
    /** The subnet manager's LID, in host byte order. */
    uint16_t sm_lid;
    /** LID mask control: the port has 2^lmc LIDs, starting at its base LID. */
    uint8_t lmc;
    /** The code of the number of virtual lanes. */
    uint8_t max_vl_num;
    /** The service level that reaches the subnet manager. */
    uint8_t sm_sl;
    /** PortInfo's SubnetTimeOut: the subnet's maximum delay is 4.096 us x 2^subnet_timeout. */
    uint8_t subnet_timeout;
    /** PortInfo's InitTypeReply. */
    uint8_t init_type_reply;
    /** Link width, one bit set: 1 for 1x, 2 for 4x, 4 for 8x, 8 for 12x, 16 for 2x. */
    uint8_t active_width;
    /** Link speed, one bit set: 1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR, 128 NDR. */
    uint8_t active_speed;
    /** PortInfo's PortPhysicalState: 5 is "link up". */
    uint8_t phys_state;
    /** One of the ACMABI_IBV_LINK_LAYER_ codes. */
    uint8_t link_layer;
    /** Flags of verbs.h about a port's need for a GRH. */
    uint8_t flags;
};

/** A 16-bit integer in network byte order (C's __be16), aligned like a uint16_t. */
typedef uint16_t acmabi_be16;

/** A 64-bit integer in network byte order (C's __be64), aligned like a uint64_t. */
typedef uint64_t acmabi_be64;

/** The two halves of a GID; a nameless structure inside union ibv_gid. (verbs.h) */
struct acmabi_ibv_gid_global {
    /** The subnet's prefix, by default fe80::/64. */
    acmabi_be64 subnet_prefix;
    /** Usually the port's GUID. */
    acmabi_be64 interface_id;
};

/**
 * A GID: the 128-bit address of a port, in network byte order. (verbs.h)
 *
 * Aligned to 8 bytes; acmabi_umad_gid is the same value aligned to 4.
 */
union acmabi_ibv_gid {
    /** The 16 bytes in wire order. */
    uint8_t raw[16];
    /** The two halves. */
    struct acmabi_ibv_gid_global global;
};

/** A device (adapter). Lives as long as the process. (acm_prov.h) */
struct acmabi_device {
    /** The device as libibverbs opened it. */
    struct ibv_context *verbs;
    /** Its node GUID; several functions of one adapter may share it. */
    acmabi_be64 dev_guid;
};

/** A port of a device. Lives as long as the process. (acm_prov.h) */
struct acmabi_port {
    /** The device. */
    struct acmabi_device *dev;
    /** The port's number, from 1. */
    uint8_t port_num;
};

/** A port in one partition. Freed by the core after close_endpoint. (acm_prov.h) */
struct acmabi_endpoint {
    /** The port. */
    struct acmabi_port *port;
    /** The P_Key with its membership bit, in host byte order. */
    uint16_t pkey;
};

/** A 32-bit integer in network byte order (C's __be32), aligned like a uint32_t. */
typedef uint32_t acmabi_be32;

/**
 * A PathRecord as the SA sends it, 64 bytes. sa.h; InfiniBand Architecture Specification, volume 1, section
 * 15.2.5.16
 *
 * Numbers are in network byte order, also between the core and its local clients.
 */
struct acmabi_ibv_path_record {
    /** The service id of the path; 0 if none was named. */
    acmabi_be64 service_id;
    /** The destination port's GID. */
    union acmabi_ibv_gid dgid;
    /** The source port's GID. */
    union acmabi_ibv_gid sgid;
    /** The destination port's LID. */
    acmabi_be16 dlid;
    /** The source port's LID. */
    acmabi_be16 slid;
    /** Flow label in bits 27 to 8, hop limit in bits 7 to 0. */
    acmabi_be32 flowlabel_hoplimit;
    /** Traffic class of a global route. */
    uint8_t tclass;
    /** ACMABI_IBV_PATH_RECORD_REVERSIBLE; the number of requested paths in bits 6 to 0. */
    uint8_t reversible_numpath;
    /** The partition, membership bit 0x8000 included. */
    acmabi_be16 pkey;
    /** QoS class in bits 15 to 4, service level in bits 3 to 0. */
    acmabi_be16 qosclass_sl;
    /** Selector in bits 7 and 6, an acmabi_ibv_mtu code in the others. */
    uint8_t mtu;
    /** Selector in bits 7 and 6, an acmabi_ibv_rate code in the others. */
    uint8_t rate;
    /** Selector in bits 7 and 6; the other bits are n of 4.096 us x 2^n. */
    uint8_t packetlifetime;
    /** Preference among several paths; 0 is the highest. */
    uint8_t preference;
    /** Zero. */
    uint8_t reserved[6];
};

/**
 * An address or a path; the entry's type says which. (acm.h)
 *
 * Bytes after an address's own length have any content.
 */
union acmabi_ep_info {
    /** An address in network byte order. */
    uint8_t addr[ACMABI_MAX_ADDRESS];
    /** A name; not always NUL-terminated. */
    uint8_t name[ACMABI_MAX_ADDRESS];
    /** A path, in network byte order. */
    struct acmabi_ibv_path_record path;
};

/** The type of an address. (acm.h) */
typedef uint16_t acmabi_ep_type;

/**
 * An address of an endpoint. (acm_prov.h)
 *
 * The core moves these structures: do not keep a pointer to one, or its id_string, after the call that passed
 * it.
 */
struct acmabi_address {
    /** The endpoint. */
    struct acmabi_endpoint *endpoint;
    /** The address. */
    union acmabi_ep_info info;
    /** The address as text, NUL-terminated. */
    char *id_string;
    /** The kind of info, in host byte order. */
    acmabi_ep_type type;
};

/** The operation of a message; a response also has ACMABI_OP_ACK set. (acm.h) */
typedef uint8_t acmabi_opcode;

/** The result of a request. (acm.h) */
typedef uint8_t acmabi_status;

/** The header of every message, 16 bytes. (acm.h) */
struct acmabi_hdr {
    /** ACMABI_VERSION. */
    uint8_t version;
    /** The operation. */
    acmabi_opcode opcode;
    /** In a response, the result. */
    acmabi_status status;
    /**
     * When the core calls a provider's resolve: src_out, src_index, dst_index (C has macros of these names). In
     * responses with counters, the number of counters. In an ACMABI_EP_INFO_PATH request, whatever the client sent.
     */
    uint8_t data[3];
    /**
     * Length of the whole message in bytes. In host byte order in a resolve message, big-endian in all others; only
     * the opcode tells which.
     */
    uint16_t length;
    /** The client's transaction ID, returned unchanged; no byte order. */
    uint64_t tid;
};

/** An endpoint and its addresses; numbers are in network byte order. (acm.h) */
struct acmabi_ep_config_data {
    /** The device's node GUID. */
    acmabi_be64 dev_guid;
    /** The port's number, from 1. */
    uint8_t port_num;
    /** The device's number of ports. */
    uint8_t phys_port_cnt;
    /** Zero. */
    uint8_t rsvd[2];
    /** The endpoint's P_Key. */
    acmabi_be16 pkey;
    /** The number of addresses that follow. */
    acmabi_be16 addr_cnt;
    /** The provider's name, NUL-terminated. */
    uint8_t prov_name[ACMABI_MAX_PROV_NAME];
};

/** The part of a message after the header; a nameless union inside struct acm_msg. (acm.h) */
union acmabi_msg_body {
    /** The bytes. */
    uint8_t data[ACMABI_MSG_DATA_LENGTH];
    /** An endpoint. */
    struct acmabi_ep_config_data ep_data;
};

/**
 * A message with room for the maximum length, 592 bytes. (acm.h)
 *
 * Bytes after hdr.length are undefined.
 */
struct acmabi_msg {
    /** The header. */
    struct acmabi_hdr hdr;
    /** The part after the header. */
    union acmabi_msg_body body;
};

/**
 * An asynchronous event: C's enum ibv_event_type. (verbs.h)
 *
 * The core passes only ACMABI_IBV_EVENT_CLIENT_REREGISTER to providers.
 */
typedef unsigned int acmabi_ibv_event_type;

/**
 * The table of a provider. (acm_prov.h)
 *
 * The core accepts the table if size equals the size that the core knows and version matches. It then calls the
 * functions without checking for NULL. It calls all but query_perf on its server thread. An int result is 0 for
 * success.
 */
struct acmabi_provider {
    /** The size of this table in bytes. */
    size_t size;
    /** ACMABI_PROV_VERSION when the provider was built. */
    uint32_t version;
    /** The provider's name, NUL-terminated; compared without regard to case. */
    const char *name;
    /** A device appeared. On success the provider stores a context, not NULL, which later calls pass back. */
    int (*open_device)(const struct acmabi_device *device, void **dev_context);
    /** The device is being removed. */
    void (*close_device)(void *dev_context);
    /** A port became active. On success the provider stores a context, not NULL, which later calls pass back. */
    int (*open_port)(const struct acmabi_port *port, void *dev_context, void **port_context);
    /** The port went down, or changes its LID, GID or P_Keys. */
    void (*close_port)(void *port_context);
    /**
     * An endpoint got its first address. On success the provider stores a context, not NULL, which later calls pass
     * back.
     */
    int (*open_endpoint)(const struct acmabi_endpoint *endpoint, void *port_context, void **ep_context);
    /** The endpoint closes, with all addresses that it still has. */
    void (*close_endpoint)(void *ep_context);
    /** An endpoint got an address. On success the provider stores a context, not NULL, which later calls pass back. */
    int (*add_address)(const struct acmabi_address *addr, void *ep_context, void **addr_context);
    /** An endpoint lost an address. */
    void (*remove_address)(void *addr_context);
    /**
     * A client requests the path to a destination. The provider returns 0 and answers id exactly once, now or
     * later, by acmabi_resolve_response. msg is invalid after the return.
     */
    int (*resolve)(void *addr_context, struct acmabi_msg *msg, uint64_t id);
    /**
     * A client requests a path from the SA. The provider returns 0 and answers id exactly once, now or later, by
     * acmabi_query_response. msg is invalid after the return.
     */
    int (*query)(void *addr_context, struct acmabi_msg *msg, uint64_t id);
    /** An event occurred on a port. */
    int (*handle_event)(void *port_context, acmabi_ibv_event_type type);
    /** Stores an endpoint's counters, big-endian, and their number, at most ACMABI_MAX_COUNTER. */
    void (*query_perf)(void *ep_context, acmabi_be64 *values, uint8_t *cnt);
};

/**
 * A path rate: C's enum ibv_rate, which is also InfiniBand's code on the wire. (verbs.h)
 *
 * The codes are not in the order of the speeds.
 */
typedef unsigned int acmabi_ibv_rate;

/**
 * The two halves of a GID; a nameless structure inside union umad_gid. (umad.h)
 *
 * Packed, unlike the nameless structure in C, so that it fits a union aligned to 4.
 */
struct ACMABI_PACKED acmabi_umad_gid_global {
    /** The subnet's prefix. */
    acmabi_be64 subnet_prefix;
    /** Usually the port's GUID. */
    acmabi_be64 interface_id;
};

/**
 * A GID inside a MAD: 16 bytes in network byte order, aligned to 4. (umad.h)
 *
 * Do not cast it from or to acmabi_ibv_gid, whose alignment is 8.
 */
union ACMABI_ALIGNED(4) acmabi_umad_gid {
    /** The 16 bytes in wire order. */
    uint8_t raw[16];
    /** Eight groups of 16 bits. */
    acmabi_be16 raw_be16[8];
    /** The two halves. */
    struct acmabi_umad_gid_global global;
};

/**
 * The other side of a MAD: its destination or its source. (umad.h)
 *
 * For a MAD to the SA, the core fills it in.
 */
struct acmabi_ib_mad_addr {
    /** The other side's queue pair number; 1 is the general services interface. */
    acmabi_be32 qpn;
    /** The queue key, ACMABI_UMAD_QKEY for queue pair 1. */
    acmabi_be32 qkey;
    /** The other side's LID. */
    acmabi_be16 lid;
    /** The service level. */
    uint8_t sl;
    /** The low bits of the local LID; the port's LMC says how many. */
    uint8_t path_bits;
    /** Non-zero if the fields of a global route (those that follow) are valid. */
    uint8_t grh_present;
    /** Index of the local GID. */
    uint8_t gid_index;
    /** Hop limit of the global route. */
    uint8_t hop_limit;
    /** Traffic class of the global route. */
    uint8_t traffic_class;
    /** The other side's GID; in C a nameless union of this and a plain array called gid. */
    union acmabi_umad_gid gid;
    /** Flow label of the global route. */
    acmabi_be32 flow_label;
    /** Index of the P_Key in the port's table, in host byte order. */
    uint16_t pkey_index;
    /** Zero. */
    uint8_t reserved[6];
};

/**
 * The envelope of a MAD that is written to or read from the kernel; the MAD follows. (umad.h)
 *
 * Numbers are in host byte order unless the address says otherwise.
 */
struct acmabi_ib_user_mad {
    /** The kernel agent that sends or receives. */
    uint32_t agent_id;
    /** 0, or the errno of the failure: 110 (ETIMEDOUT) without a response. */
    uint32_t status;
    /** Time to wait for a response before the next try, in milliseconds; 0 expects no response. */
    uint32_t timeout_ms;
    /** Number of further tries. */
    uint32_t retries;
    /** Length of envelope and MAD in bytes. */
    uint32_t length;
    /** The other side. */
    struct acmabi_ib_mad_addr addr;
};

/** The header of every MAD, 24 bytes. */
struct acmabi_umad_hdr {
    /** ACMABI_UMAD_BASE_VERSION. */
    uint8_t base_version;
    /** An ACMABI_UMAD_CLASS_ code. */
    uint8_t mgmt_class;
    /** The version of the class, 2 for the SA. */
    uint8_t class_version;
    /** An ACMABI_UMAD_METHOD_ or ACMABI_UMAD_SA_METHOD_ code. */
    uint8_t method;
    /**
     * 0 in a request. In a response, a code of the class in the high byte and an ACMABI_UMAD_STATUS_ code in the
     * low byte: either one means failure.
     */
    acmabi_be16 status;
    /** Used for directed routes only. */
    acmabi_be16 class_specific;
    /**
     * Chosen by the sender and repeated in the response. Only the low 32 bits are the sender's: the kernel
     * overwrites the high ones.
     */
    acmabi_be64 tid;
    /** An ACMABI_UMAD_ATTR_ or ACMABI_UMAD_SA_ATTR_ code. */
    acmabi_be16 attr_id;
    /** Zero. */
    acmabi_be16 resv;
    /** Part or port of the attribute; 0 for the SA. */
    acmabi_be32 attr_mod;
};

/** The 12 bytes after acmabi_umad_hdr, which divide a long message into segments. */
struct acmabi_umad_rmpp_hdr {
    /** ACMABI_UMAD_RMPP_VERSION, or 0 without RMPP. */
    uint8_t rmpp_version;
    /** 1 data, 2 acknowledgement, 3 stop, 4 abort. */
    uint8_t rmpp_type;
    /** Response time in bits 7 to 3, flags in bits 2 to 0. */
    uint8_t rmpp_rtime_flags;
    /** 0 unless stopped or aborted. */
    uint8_t rmpp_status;
    /** The segment's number, from 1. */
    acmabi_be32 seg_num;
    /** In data the length of the payload in bytes, in an acknowledgement the last segment of the new window. */
    acmabi_be32 paylen_newwin;
};

/** A MAD of the SA class, 256 bytes. */
struct acmabi_umad_sa_packet {
    /** The header. */
    struct acmabi_umad_hdr mad_hdr;
    /** The segment's header. */
    struct acmabi_umad_rmpp_hdr rmpp_hdr;
    /** The SM_Key, in network byte order; zero in a client's request. A byte array because it is not aligned. */
    uint8_t sm_key[8];
    /** Distance between records, in units of 8 bytes. */
    acmabi_be16 attr_offset;
    /** Zero. */
    acmabi_be16 reserved;
    /** The components of the record that the query constrains. */
    acmabi_be64 comp_mask;
    /** The record, in network byte order. */
    uint8_t data[ACMABI_UMAD_LEN_SA_DATA];
};

/** A MAD to the SA, and the SA's response. The core allocates and frees it. (acm_prov.h) */
struct acmabi_sa_mad {
    /** The context that the provider passed to acmabi_alloc_sa_mad. */
    void *context;
    /** The envelope, filled by the core; umad.status is not 0 if there was no response. */
    struct acmabi_ib_user_mad umad;
    /** The query; later the response. */
    struct acmabi_umad_sa_packet sa_mad;
};

/**
 * Gets a MAD back, with the SA's response or with an error in umad.status. It runs on the core's SA thread and
 * must free the MAD. (acm_prov.h)
 */
typedef void (*acmabi_sa_handler_fn)(struct acmabi_sa_mad *mad);

/** A counter: its index in the array of counters. (acm.h) */
typedef int acmabi_counter;

/** A path and its use, as the kernel and librdmacm exchange it. (sa.h) */
struct acmabi_ibv_path_data {
    /** ACMABI_IBV_PATH_FLAG_ bits, in host byte order. */
    uint32_t flags;
    /** Zero. */
    uint32_t reserved;
    /** The path. */
    struct acmabi_ibv_path_record path;
};

/** A plain MAD, 256 bytes. */
struct acmabi_umad_packet {
    /** The header. */
    struct acmabi_umad_hdr mad_hdr;
    /** The data, in network byte order. */
    uint8_t data[ACMABI_UMAD_LEN_DATA];
};

/** A MAD with RMPP, 256 bytes. */
struct acmabi_umad_rmpp_packet {
    /** The header. */
    struct acmabi_umad_hdr mad_hdr;
    /** The segment's header. */
    struct acmabi_umad_rmpp_hdr rmpp_hdr;
    /** The data, in network byte order. */
    uint8_t data[ACMABI_UMAD_LEN_RMPP_DATA];
};

/** An MCMemberRecord as the SA sends it, padded to 56 bytes. */
struct acmabi_umad_sa_mcmember_record {
    /** The group's GID, in network byte order. */
    uint8_t mgid[16];
    /** The member's GID, in network byte order. */
    uint8_t portgid[16];
    /** The group's Q_Key. */
    acmabi_be32 qkey;
    /** The group's LID, 0xC000 or above. */
    acmabi_be16 mlid;
    /** Selector in bits 7 and 6, an acmabi_ibv_mtu code in the others. */
    uint8_t mtu;
    /** Traffic class. */
    uint8_t tclass;
    /** The group's partition. */
    acmabi_be16 pkey;
    /** Selector in bits 7 and 6, an acmabi_ibv_rate code in the others. */
    uint8_t rate;
    /** Selector in bits 7 and 6; the other bits are n of 4.096 us x 2^n. */
    uint8_t pkt_life;
    /** Service level in bits 31 to 28, flow label in bits 27 to 8, hop limit in bits 7 to 0. */
    acmabi_be32 sl_flow_hop;
    /** Scope in bits 7 to 4, join state in bits 3 to 0. */
    uint8_t scope_state;
    /** Bit 7: joined on behalf of another port, set by the SA. */
    uint8_t proxy_join;
    /** Zero. */
    uint8_t reserved[2];
    /** Pads the record to a multiple of 8 bytes. */
    uint8_t pad[4];
};

/** One entry of a resolve message, 72 bytes: an address or a path. (acm.h) */
struct acmabi_ep_addr_data {
    /**
     * In a request ACMABI_EP_FLAG_ and ACMABI_FLAGS_ bits, in a response ACMABI_IBV_PATH_FLAG_ bits; in host byte
     * order.
     */
    uint32_t flags;
    /** The kind of info, in host byte order. */
    acmabi_ep_type type;
    /** Zero. */
    uint16_t reserved;
    /** The address or path. */
    union acmabi_ep_info info;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * acmabi_ibv_query_port: fills port_attr with the attributes of port port_num (from 1). Returns 0 or an errno.
 * libibverbs, symbol version IBVERBS_1.1.
 */
extern int acmabi_ibv_query_port(struct ibv_context *context,
                                 uint8_t port_num,
                                 struct acmabi_compat_ibv_port_attr *port_attr)
    ACMABI_SYMBOL("ibv_query_port");

/**
 * acmabi_ibv_query_pkey: stores the P_Key at index (from 0) of the port's table; an empty entry reads as 0x0000
 * or 0x8000. Returns 0, or non-zero on failure. libibverbs, symbol version IBVERBS_1.1.
 */
extern int acmabi_ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, acmabi_be16 *pkey)
    ACMABI_SYMBOL("ibv_query_pkey");

/**
 * acmabi_ibv_query_gid: stores the GID at index (from 0) of the port's table. Returns 0, or non-zero on
 * failure. libibverbs, symbol version IBVERBS_1.1.
 */
extern int acmabi_ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union acmabi_ibv_gid *gid)
    ACMABI_SYMBOL("ibv_query_gid");

/**
 * acmabi_provider_query, the only symbol that a provider's library exports. It stores the provider's table,
 * which must live as long as the library is loaded, and the version that the provider was built for. Returns 0
 * for success. (acm_prov.h)
 */
extern int acmabi_provider_query(struct acmabi_provider **info, uint32_t *version)
    ACMABI_SYMBOL("provider_query");

/**
 * acmabi_write: writes to the daemon's log if its level is at least level (0 always, 1 verbose, 2 every
 * operation). format is as for printf. (acm_prov.h)
 */
extern void acmabi_write(int level, const char *format, ...)
    ACMABI_SYMBOL("acm_write") __attribute__((format(printf, 2, 3)));

/**
 * acmabi_format_name: writes an address as text to name. If the log's level is below level, leaves name
 * unchanged. (acm_prov.h)
 */
extern void acmabi_format_name(int level,
                               char *name,
                               size_t name_size,
                               uint8_t addr_type,
                               const uint8_t *addr,
                               size_t addr_size)
    ACMABI_SYMBOL("acm_format_name");

/** acmabi_ib_any_gid: returns non-zero if the GID is ::. (acm_prov.h) */
extern int acmabi_ib_any_gid(union acmabi_ibv_gid *gid)
    ACMABI_SYMBOL("ib_any_gid");

/**
 * acmabi_gid_index: returns the index of a GID in the port's table, or the table's length if it is not there.
 * (acm_prov.h)
 */
extern uint8_t acmabi_gid_index(struct acmabi_port *port, union acmabi_ibv_gid *gid)
    ACMABI_SYMBOL("acm_gid_index");

/** acmabi_get_gid: stores the GID at index (from 0) of the port's table. Returns 0 for success. (acm_prov.h) */
extern int acmabi_get_gid(struct acmabi_port *port, int index, union acmabi_ibv_gid *gid)
    ACMABI_SYMBOL("acm_get_gid");

/**
 * acmabi_path_comp_mask: returns the component mask of a path query, with a bit for each field of the record
 * that is not zero. (acm_prov.h)
 */
extern acmabi_be64 acmabi_path_comp_mask(struct acmabi_ibv_path_record *path)
    ACMABI_SYMBOL("acm_path_comp_mask");

/**
 * acmabi_resolve_response: answers a resolve. Call it once for each id, from any thread. Returns non-zero if
 * the client has disconnected. (acm_prov.h)
 */
extern int acmabi_resolve_response(uint64_t id, struct acmabi_msg *msg)
    ACMABI_SYMBOL("acm_resolve_response");

/**
 * acmabi_query_response: answers a query. Call it once for each id, from any thread. Returns non-zero if the
 * client has disconnected. (acm_prov.h)
 */
extern int acmabi_query_response(uint64_t id, struct acmabi_msg *msg)
    ACMABI_SYMBOL("acm_query_response");

/**
 * acmabi_get_rate: returns the rate for a port's active_width and active_speed, or 0 for values that the core
 * does not know. (acm_prov.h)
 */
extern acmabi_ibv_rate acmabi_get_rate(uint8_t width, uint8_t speed)
    ACMABI_SYMBOL("acm_get_rate");

/** acmabi_convert_mtu: returns the code of an MTU in bytes. (acm_prov.h) */
extern acmabi_ibv_mtu acmabi_convert_mtu(int mtu)
    ACMABI_SYMBOL("acm_convert_mtu");

/** acmabi_convert_rate: returns the code of a rate in Gb/s. (acm_prov.h) */
extern acmabi_ibv_rate acmabi_convert_rate(int rate)
    ACMABI_SYMBOL("acm_convert_rate");

/** acmabi_alloc_sa_mad: returns a zeroed MAD for an open endpoint, or NULL. (acm_prov.h) */
extern struct acmabi_sa_mad *acmabi_alloc_sa_mad(const struct acmabi_endpoint *endpoint,
                                                 void *context,
                                                 acmabi_sa_handler_fn handler)
    ACMABI_SYMBOL("acm_alloc_sa_mad");

/** acmabi_free_sa_mad: frees a MAD that was not sent, or that the handler got back. (acm_prov.h) */
extern void acmabi_free_sa_mad(struct acmabi_sa_mad *mad)
    ACMABI_SYMBOL("acm_free_sa_mad");

/**
 * acmabi_send_sa_mad: sends a MAD. On success (0) the core owns the MAD until it calls the handler; on failure
 * the caller still owns it. The endpoint must be open. (acm_prov.h)
 */
extern int acmabi_send_sa_mad(struct acmabi_sa_mad *mad)
    ACMABI_SYMBOL("acm_send_sa_mad");

/**
 * acmabi_get_opts_file: returns the path of the options file, NUL-terminated; valid as long as the process
 * lives. (acm_prov.h)
 */
extern const char *acmabi_get_opts_file(void)
    ACMABI_SYMBOL("acm_get_opts_file");

/**
 * acmabi_increment_counter: adds one to a counter of the core's own set. type is an acmabi_counter.
 * (acm_prov.h)
 */
extern void acmabi_increment_counter(acmabi_counter type)
    ACMABI_SYMBOL("acm_increment_counter");

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/* What the Rust mirror has, seen by the compiler. */
#if defined(__cplusplus)
#define ACMABI_ASSERT(holds) static_assert(holds, #holds)
#define ACMABI_ALIGNOF(type) alignof(type)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define ACMABI_ASSERT(holds) _Static_assert(holds, #holds)
#define ACMABI_ALIGNOF(type) _Alignof(type)
#else
#define ACMABI_ASSERT(holds) extern char acmabi_assert[(holds) ? 1 : -1]
#define ACMABI_ALIGNOF(type) __alignof__(type)
#endif

ACMABI_ASSERT(sizeof(acmabi_be16) == 2);
ACMABI_ASSERT(ACMABI_ALIGNOF(acmabi_be16) == 2);

ACMABI_ASSERT(sizeof(acmabi_be32) == 4);
ACMABI_ASSERT(ACMABI_ALIGNOF(acmabi_be32) == 4);

ACMABI_ASSERT(sizeof(acmabi_be64) == 8);
ACMABI_ASSERT(ACMABI_ALIGNOF(acmabi_be64) == 8);

ACMABI_ASSERT(sizeof(struct acmabi_device) == 16);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_device) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_device, verbs) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_device *)0)->verbs) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_device, dev_guid) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_device *)0)->dev_guid) == 8);

ACMABI_ASSERT(sizeof(struct acmabi_port) == 16);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_port) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_port, dev) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_port *)0)->dev) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_port, port_num) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_port *)0)->port_num) == 1);

ACMABI_ASSERT(sizeof(struct acmabi_endpoint) == 16);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_endpoint) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_endpoint, port) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_endpoint *)0)->port) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_endpoint, pkey) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_endpoint *)0)->pkey) == 2);

ACMABI_ASSERT(sizeof(struct acmabi_address) == 88);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_address) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_address, endpoint) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_address *)0)->endpoint) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_address, info) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_address *)0)->info) == 64);
ACMABI_ASSERT(offsetof(struct acmabi_address, id_string) == 72);
ACMABI_ASSERT(sizeof(((struct acmabi_address *)0)->id_string) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_address, type) == 80);
ACMABI_ASSERT(sizeof(((struct acmabi_address *)0)->type) == 2);

ACMABI_ASSERT(sizeof(struct acmabi_provider) == 120);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_provider) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, size) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->size) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, version) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->version) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_provider, name) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->name) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, open_device) == 24);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->open_device) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, close_device) == 32);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->close_device) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, open_port) == 40);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->open_port) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, close_port) == 48);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->close_port) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, open_endpoint) == 56);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->open_endpoint) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, close_endpoint) == 64);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->close_endpoint) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, add_address) == 72);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->add_address) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, remove_address) == 80);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->remove_address) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, resolve) == 88);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->resolve) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, query) == 96);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->query) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, handle_event) == 104);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->handle_event) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_provider, query_perf) == 112);
ACMABI_ASSERT(sizeof(((struct acmabi_provider *)0)->query_perf) == 8);

ACMABI_ASSERT(sizeof(struct acmabi_sa_mad) == 328);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_sa_mad) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_sa_mad, context) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_sa_mad *)0)->context) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_sa_mad, umad) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_sa_mad *)0)->umad) == 64);
ACMABI_ASSERT(offsetof(struct acmabi_sa_mad, sa_mad) == 72);
ACMABI_ASSERT(sizeof(((struct acmabi_sa_mad *)0)->sa_mad) == 256);

ACMABI_ASSERT(sizeof(struct acmabi_hdr) == 16);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_hdr) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_hdr, version) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_hdr *)0)->version) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_hdr, opcode) == 1);
ACMABI_ASSERT(sizeof(((struct acmabi_hdr *)0)->opcode) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_hdr, status) == 2);
ACMABI_ASSERT(sizeof(((struct acmabi_hdr *)0)->status) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_hdr, data) == 3);
ACMABI_ASSERT(sizeof(((struct acmabi_hdr *)0)->data) == 3);
ACMABI_ASSERT(offsetof(struct acmabi_hdr, length) == 6);
ACMABI_ASSERT(sizeof(((struct acmabi_hdr *)0)->length) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_hdr, tid) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_hdr *)0)->tid) == 8);

ACMABI_ASSERT(sizeof(union acmabi_ep_info) == 64);
ACMABI_ASSERT(ACMABI_ALIGNOF(union acmabi_ep_info) == 8);
ACMABI_ASSERT(offsetof(union acmabi_ep_info, addr) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_ep_info *)0)->addr) == 64);
ACMABI_ASSERT(offsetof(union acmabi_ep_info, name) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_ep_info *)0)->name) == 64);
ACMABI_ASSERT(offsetof(union acmabi_ep_info, path) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_ep_info *)0)->path) == 64);

ACMABI_ASSERT(sizeof(struct acmabi_ep_addr_data) == 72);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_ep_addr_data) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_ep_addr_data, flags) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_addr_data *)0)->flags) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ep_addr_data, type) == 4);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_addr_data *)0)->type) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ep_addr_data, reserved) == 6);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_addr_data *)0)->reserved) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ep_addr_data, info) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_addr_data *)0)->info) == 64);

ACMABI_ASSERT(sizeof(struct acmabi_ep_config_data) == 80);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_ep_config_data) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_ep_config_data, dev_guid) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_config_data *)0)->dev_guid) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_ep_config_data, port_num) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_config_data *)0)->port_num) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ep_config_data, phys_port_cnt) == 9);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_config_data *)0)->phys_port_cnt) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ep_config_data, rsvd) == 10);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_config_data *)0)->rsvd) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ep_config_data, pkey) == 12);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_config_data *)0)->pkey) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ep_config_data, addr_cnt) == 14);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_config_data *)0)->addr_cnt) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ep_config_data, prov_name) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_ep_config_data *)0)->prov_name) == 64);

ACMABI_ASSERT(sizeof(struct acmabi_msg) == 592);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_msg) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_msg, hdr) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_msg *)0)->hdr) == 16);
ACMABI_ASSERT(offsetof(struct acmabi_msg, body.data) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_msg *)0)->body.data) == 576);
ACMABI_ASSERT(offsetof(struct acmabi_msg, body.ep_data) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_msg *)0)->body.ep_data) == 80);

ACMABI_ASSERT(sizeof(struct acmabi_ibv_path_record) == 64);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_ibv_path_record) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, service_id) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->service_id) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, dgid) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->dgid) == 16);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, sgid) == 24);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->sgid) == 16);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, dlid) == 40);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->dlid) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, slid) == 42);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->slid) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, flowlabel_hoplimit) == 44);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->flowlabel_hoplimit) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, tclass) == 48);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->tclass) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, reversible_numpath) == 49);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->reversible_numpath) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, pkey) == 50);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->pkey) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, qosclass_sl) == 52);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->qosclass_sl) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, mtu) == 54);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->mtu) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, rate) == 55);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->rate) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, packetlifetime) == 56);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->packetlifetime) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, preference) == 57);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->preference) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_record, reserved) == 58);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_record *)0)->reserved) == 6);

ACMABI_ASSERT(sizeof(struct acmabi_ibv_path_data) == 72);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_ibv_path_data) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_data, flags) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_data *)0)->flags) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_data, reserved) == 4);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_data *)0)->reserved) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ibv_path_data, path) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_ibv_path_data *)0)->path) == 64);

ACMABI_ASSERT(sizeof(union acmabi_umad_gid) == 16);
ACMABI_ASSERT(ACMABI_ALIGNOF(union acmabi_umad_gid) == 4);
ACMABI_ASSERT(offsetof(union acmabi_umad_gid, raw) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_umad_gid *)0)->raw) == 16);
ACMABI_ASSERT(offsetof(union acmabi_umad_gid, raw_be16) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_umad_gid *)0)->raw_be16) == 16);
ACMABI_ASSERT(offsetof(union acmabi_umad_gid, global) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_umad_gid *)0)->global) == 16);
ACMABI_ASSERT(offsetof(union acmabi_umad_gid, global.subnet_prefix) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_umad_gid *)0)->global.subnet_prefix) == 8);
ACMABI_ASSERT(offsetof(union acmabi_umad_gid, global.interface_id) == 8);
ACMABI_ASSERT(sizeof(((union acmabi_umad_gid *)0)->global.interface_id) == 8);

ACMABI_ASSERT(sizeof(struct acmabi_ib_mad_addr) == 44);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_ib_mad_addr) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, qpn) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->qpn) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, qkey) == 4);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->qkey) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, lid) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->lid) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, sl) == 10);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->sl) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, path_bits) == 11);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->path_bits) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, grh_present) == 12);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->grh_present) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, gid_index) == 13);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->gid_index) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, hop_limit) == 14);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->hop_limit) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, traffic_class) == 15);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->traffic_class) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, gid) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->gid) == 16);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, flow_label) == 32);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->flow_label) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, pkey_index) == 36);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->pkey_index) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_ib_mad_addr, reserved) == 38);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_mad_addr *)0)->reserved) == 6);

ACMABI_ASSERT(sizeof(struct acmabi_ib_user_mad) == 64);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_ib_user_mad) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_user_mad, agent_id) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_user_mad *)0)->agent_id) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_user_mad, status) == 4);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_user_mad *)0)->status) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_user_mad, timeout_ms) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_user_mad *)0)->timeout_ms) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_user_mad, retries) == 12);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_user_mad *)0)->retries) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_user_mad, length) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_user_mad *)0)->length) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_ib_user_mad, addr) == 20);
ACMABI_ASSERT(sizeof(((struct acmabi_ib_user_mad *)0)->addr) == 44);

ACMABI_ASSERT(sizeof(struct acmabi_umad_hdr) == 24);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_umad_hdr) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, base_version) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->base_version) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, mgmt_class) == 1);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->mgmt_class) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, class_version) == 2);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->class_version) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, method) == 3);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->method) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, status) == 4);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->status) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, class_specific) == 6);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->class_specific) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, tid) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->tid) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, attr_id) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->attr_id) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, resv) == 18);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->resv) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_hdr, attr_mod) == 20);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_hdr *)0)->attr_mod) == 4);

ACMABI_ASSERT(sizeof(struct acmabi_umad_rmpp_hdr) == 12);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_umad_rmpp_hdr) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_hdr, rmpp_version) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_hdr *)0)->rmpp_version) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_hdr, rmpp_type) == 1);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_hdr *)0)->rmpp_type) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_hdr, rmpp_rtime_flags) == 2);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_hdr *)0)->rmpp_rtime_flags) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_hdr, rmpp_status) == 3);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_hdr *)0)->rmpp_status) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_hdr, seg_num) == 4);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_hdr *)0)->seg_num) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_hdr, paylen_newwin) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_hdr *)0)->paylen_newwin) == 4);

ACMABI_ASSERT(sizeof(struct acmabi_umad_packet) == 256);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_umad_packet) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_umad_packet, mad_hdr) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_packet *)0)->mad_hdr) == 24);
ACMABI_ASSERT(offsetof(struct acmabi_umad_packet, data) == 24);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_packet *)0)->data) == 232);

ACMABI_ASSERT(sizeof(struct acmabi_umad_rmpp_packet) == 256);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_umad_rmpp_packet) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_packet, mad_hdr) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_packet *)0)->mad_hdr) == 24);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_packet, rmpp_hdr) == 24);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_packet *)0)->rmpp_hdr) == 12);
ACMABI_ASSERT(offsetof(struct acmabi_umad_rmpp_packet, data) == 36);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_rmpp_packet *)0)->data) == 220);

ACMABI_ASSERT(sizeof(struct acmabi_umad_sa_packet) == 256);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_umad_sa_packet) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_packet, mad_hdr) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_packet *)0)->mad_hdr) == 24);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_packet, rmpp_hdr) == 24);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_packet *)0)->rmpp_hdr) == 12);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_packet, sm_key) == 36);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_packet *)0)->sm_key) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_packet, attr_offset) == 44);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_packet *)0)->attr_offset) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_packet, reserved) == 46);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_packet *)0)->reserved) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_packet, comp_mask) == 48);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_packet *)0)->comp_mask) == 8);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_packet, data) == 56);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_packet *)0)->data) == 200);

ACMABI_ASSERT(sizeof(struct acmabi_umad_sa_mcmember_record) == 56);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_umad_sa_mcmember_record) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, mgid) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->mgid) == 16);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, portgid) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->portgid) == 16);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, qkey) == 32);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->qkey) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, mlid) == 36);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->mlid) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, mtu) == 38);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->mtu) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, tclass) == 39);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->tclass) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, pkey) == 40);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->pkey) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, rate) == 42);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->rate) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, pkt_life) == 43);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->pkt_life) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, sl_flow_hop) == 44);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->sl_flow_hop) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, scope_state) == 48);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->scope_state) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, proxy_join) == 49);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->proxy_join) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, reserved) == 50);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->reserved) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_umad_sa_mcmember_record, pad) == 52);
ACMABI_ASSERT(sizeof(((struct acmabi_umad_sa_mcmember_record *)0)->pad) == 4);

ACMABI_ASSERT(sizeof(union acmabi_ibv_gid) == 16);
ACMABI_ASSERT(ACMABI_ALIGNOF(union acmabi_ibv_gid) == 8);
ACMABI_ASSERT(offsetof(union acmabi_ibv_gid, raw) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_ibv_gid *)0)->raw) == 16);
ACMABI_ASSERT(offsetof(union acmabi_ibv_gid, global) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_ibv_gid *)0)->global) == 16);
ACMABI_ASSERT(offsetof(union acmabi_ibv_gid, global.subnet_prefix) == 0);
ACMABI_ASSERT(sizeof(((union acmabi_ibv_gid *)0)->global.subnet_prefix) == 8);
ACMABI_ASSERT(offsetof(union acmabi_ibv_gid, global.interface_id) == 8);
ACMABI_ASSERT(sizeof(((union acmabi_ibv_gid *)0)->global.interface_id) == 8);

ACMABI_ASSERT(sizeof(acmabi_ibv_event_type) == 4);
ACMABI_ASSERT(ACMABI_ALIGNOF(acmabi_ibv_event_type) == 4);

ACMABI_ASSERT(sizeof(acmabi_ibv_mtu) == 4);
ACMABI_ASSERT(ACMABI_ALIGNOF(acmabi_ibv_mtu) == 4);

ACMABI_ASSERT(sizeof(acmabi_ibv_rate) == 4);
ACMABI_ASSERT(ACMABI_ALIGNOF(acmabi_ibv_rate) == 4);

ACMABI_ASSERT(sizeof(acmabi_ibv_port_state) == 4);
ACMABI_ASSERT(ACMABI_ALIGNOF(acmabi_ibv_port_state) == 4);

ACMABI_ASSERT(sizeof(struct acmabi_compat_ibv_port_attr) == 48);
ACMABI_ASSERT(ACMABI_ALIGNOF(struct acmabi_compat_ibv_port_attr) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, state) == 0);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->state) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, max_mtu) == 4);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->max_mtu) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, active_mtu) == 8);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->active_mtu) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, gid_tbl_len) == 12);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->gid_tbl_len) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, port_cap_flags) == 16);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->port_cap_flags) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, max_msg_sz) == 20);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->max_msg_sz) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, bad_pkey_cntr) == 24);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->bad_pkey_cntr) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, qkey_viol_cntr) == 28);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->qkey_viol_cntr) == 4);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, pkey_tbl_len) == 32);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->pkey_tbl_len) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, lid) == 34);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->lid) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, sm_lid) == 36);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->sm_lid) == 2);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, lmc) == 38);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->lmc) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, max_vl_num) == 39);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->max_vl_num) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, sm_sl) == 40);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->sm_sl) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, subnet_timeout) == 41);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->subnet_timeout) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, init_type_reply) == 42);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->init_type_reply) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, active_width) == 43);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->active_width) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, active_speed) == 44);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->active_speed) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, phys_state) == 45);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->phys_state) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, link_layer) == 46);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->link_layer) == 1);
ACMABI_ASSERT(offsetof(struct acmabi_compat_ibv_port_attr, flags) == 47);
ACMABI_ASSERT(sizeof(((struct acmabi_compat_ibv_port_attr *)0)->flags) == 1);

#undef ACMABI_ASSERT
#undef ACMABI_ALIGNOF

#endif  /* ACM_PROV_ABI_H */
