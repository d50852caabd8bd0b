/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two providers that `loader-test bench` compares others with. They keep no contract but that of the bench's own core.
 *
 * limit: keeps what the SA says in arrays and answers by index, without hash, lock or clock: LIDs are small numbers, and the
 * bench's GUIDs follow each other from FIRST_GUID. No provider that takes any GUID can be faster.
 *
 * nothing (with -DNOTHING): computes the answer from the request's number. What a request costs with it is what the core costs.
 */
#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "acm_prov_abi.h"

#define COUNT_LIDS 65536u

/* General management, primary, outbound and inbound-reverse. */
#define ANSWER_FLAGS (1 | 2 | 8 | 32)

static const struct acmabi_endpoint *the_endpoint;

static void answer(uint64_t tid, uint64_t id, const struct acmabi_ibv_path_record *path)
{
	struct {
		struct acmabi_hdr hdr;
		struct acmabi_ep_addr_data entry;
	} msg;

	memset(&msg.hdr, 0, sizeof msg.hdr);
	msg.hdr.version = 1;
	msg.hdr.opcode = ACMABI_OP_RESOLVE | ACMABI_OP_ACK;
	msg.hdr.tid = tid;
	msg.hdr.length = path ? sizeof msg : sizeof msg.hdr;
	if (path) {
		msg.entry.flags = ANSWER_FLAGS;
		msg.entry.type = ACMABI_EP_INFO_PATH;
		msg.entry.reserved = 0;
		msg.entry.info.path = *path;
	} else {
		msg.hdr.status = ACMABI_STATUS_ENODATA;
	}
	acmabi_resolve_response(id, (struct acmabi_msg *)&msg);
}

#ifdef NOTHING

static int resolve(void *context, struct acmabi_msg *msg, uint64_t id)
{
	uint32_t number = (uint32_t)msg->hdr.tid;
	struct acmabi_ibv_path_record path;

	(void)context;
	memset(&path, 0, sizeof path);
	path.dgid.global.subnet_prefix = htobe64(0xfe80ull << 48);
	path.dgid.global.interface_id = htobe64(FIRST_GUID + number);
	path.dlid = htobe16(1 + number % LIDS);
	answer(msg->hdr.tid, id, &path);
	return 0;
}

static bool known(struct acmabi_ibv_path_record *path)
{
	(void)path;
	return false;
}

#else

static struct acmabi_ibv_path_record by_lid[COUNT_LIDS];
static struct acmabi_ibv_path_record by_guid[GUIDS];

/* Fills in what is known of the path to a GUID. */
static bool known(struct acmabi_ibv_path_record *path)
{
	uint64_t number = be64toh(path->dgid.global.interface_id) - FIRST_GUID;

	if (number >= GUIDS || !by_guid[number].dlid)
		return false;
	*path = by_guid[number];
	return true;
}

struct asked {
	uint64_t tid, id;
	struct acmabi_ibv_path_record *path;
};

static void answered(struct acmabi_sa_mad *mad)
{
	struct asked *asked = mad->context;
	bool is_found = !mad->umad.status && !mad->sa_mad.mad_hdr.status;

	if (is_found)
		memcpy(asked->path, mad->sa_mad.data, sizeof *asked->path);
	answer(asked->tid, asked->id, is_found ? asked->path : NULL);
	free(asked);
	acmabi_free_sa_mad(mad);
}

static void ask(uint64_t tid, uint64_t id, struct acmabi_ibv_path_record *path,
		const struct acmabi_ibv_path_record *wanted)
{
	static uint32_t next;
	struct asked *asked = malloc(sizeof *asked);
	struct acmabi_sa_mad *mad = asked ? acmabi_alloc_sa_mad(the_endpoint, asked, answered) : NULL;
	struct acmabi_ibv_path_record record = *wanted;

	if (!mad) {
		free(asked);
		answer(tid, id, NULL);
		return;
	}
	*asked = (struct asked){ .tid = tid, .id = id, .path = path };
	mad->sa_mad.mad_hdr.base_version = 1;
	mad->sa_mad.mad_hdr.mgmt_class = 3;
	mad->sa_mad.mad_hdr.class_version = 2;
	mad->sa_mad.mad_hdr.method = 1;
	mad->sa_mad.mad_hdr.tid = htobe64(++next);
	mad->sa_mad.mad_hdr.attr_id = htobe16(0x35);
	record.service_id = 0;
	mad->sa_mad.comp_mask = acmabi_path_comp_mask(&record);
	memcpy(mad->sa_mad.data, &record, sizeof record);
	if (acmabi_send_sa_mad(mad)) {
		acmabi_free_sa_mad(mad);
		free(asked);
		answer(tid, id, NULL);
	}
}

static int resolve(void *context, struct acmabi_msg *msg, uint64_t id)
{
	const struct acmabi_ep_addr_data *entry = (const struct acmabi_ep_addr_data *)msg->body.data;
	const struct acmabi_ibv_path_record *wanted = &entry->info.path;
	struct acmabi_ibv_path_record *path = NULL;

	(void)context;
	if (entry->type == ACMABI_EP_INFO_PATH) {
		uint64_t number = be64toh(wanted->dgid.global.interface_id) - FIRST_GUID;

		if (wanted->dlid)
			path = &by_lid[be16toh(wanted->dlid)];
		else if (number < GUIDS)
			path = &by_guid[number];
	}
	if (!path)
		answer(msg->hdr.tid, id, NULL);
	else if (path->dlid)
		answer(msg->hdr.tid, id, path);
	else
		ask(msg->hdr.tid, id, path, wanted);
	return 0;
}

#endif

/* Contexts that are not NULL; nothing is kept in them. */
static char place;

static int open_device(const struct acmabi_device *device, void **context)
{
	(void)device;
	*context = &place;
	return 0;
}

static int open_port(const struct acmabi_port *port, void *device, void **context)
{
	(void)port;
	(void)device;
	*context = &place;
	return 0;
}

static int open_endpoint(const struct acmabi_endpoint *endpoint, void *port, void **context)
{
	(void)port;
	the_endpoint = endpoint;
	*context = &place;
	return 0;
}

static int add_address(const struct acmabi_address *address, void *endpoint, void **context)
{
	(void)address;
	(void)endpoint;
	*context = &place;
	return 0;
}

static void close_any(void *context)
{
	(void)context;
}

/* Stays here: the SA is not asked. */
static int query(void *context, struct acmabi_msg *msg, uint64_t id)
{
	struct acmabi_ep_addr_data *entry = (struct acmabi_ep_addr_data *)msg->body.data;

	(void)context;
	msg->hdr.opcode |= ACMABI_OP_ACK;
	if (!known(&entry->info.path))
		msg->hdr.status = ACMABI_STATUS_ENODATA;
	acmabi_query_response(id, msg);
	return 0;
}

static int handle_event(void *port, acmabi_ibv_event_type type)
{
	(void)port;
	(void)type;
	return 0;
}

static void query_perf(void *endpoint, acmabi_be64 *values, uint8_t *count)
{
	(void)endpoint;
	(void)values;
	*count = 0;
}

static struct acmabi_provider provider = {
	.size = sizeof provider,
	.version = 1,
#ifdef NOTHING
	.name = "nothing",
#else
	.name = "limit",
#endif
	.open_device = open_device,
	.close_device = close_any,
	.open_port = open_port,
	.close_port = close_any,
	.open_endpoint = open_endpoint,
	.close_endpoint = close_any,
	.add_address = add_address,
	.remove_address = close_any,
	.resolve = resolve,
	.query = query,
	.handle_event = handle_event,
	.query_perf = query_perf,
};

int acmabi_provider_query(struct acmabi_provider **info, uint32_t *version)
{
	*info = &provider;
	*version = 1;
	return 0;
}
