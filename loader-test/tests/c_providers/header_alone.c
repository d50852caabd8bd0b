/* The least that a provider can do, with nothing but include/acm_prov_abi.h: every question is answered with "no data". */
#include <string.h>
#include "acm_prov_abi.h"

static int answer(uint64_t id, const struct acmabi_msg *request, int is_query)
{
	struct acmabi_msg msg;

	memset(&msg, 0, sizeof msg);
	msg.hdr = request->hdr;
	msg.hdr.opcode |= ACMABI_OP_ACK;
	msg.hdr.status = ACMABI_STATUS_ENODATA;
	memset(msg.hdr.data, 0, sizeof msg.hdr.data);
	msg.hdr.length = ACMABI_MSG_HDR_LENGTH;
	acmabi_write(2, "client %d: no data\n", (int) id);
	if (is_query)
		acmabi_query_response(id, &msg);
	else
		acmabi_resolve_response(id, &msg);
	return 0;
}

static int resolve(void *addr_context, struct acmabi_msg *msg, uint64_t id)
{
	(void) addr_context;
	return answer(id, msg, 0);
}

static int query(void *addr_context, struct acmabi_msg *msg, uint64_t id)
{
	(void) addr_context;
	return answer(id, msg, 1);
}

static int open_device(const struct acmabi_device *device, void **dev_context)
{
	*dev_context = (void *) device;
	return 0;
}

static int open_port(const struct acmabi_port *port, void *dev_context, void **port_context)
{
	(void) dev_context;
	*port_context = (void *) port;
	return 0;
}

static int open_endpoint(const struct acmabi_endpoint *endpoint, void *port_context, void **ep_context)
{
	(void) port_context;
	*ep_context = (void *) endpoint;
	return 0;
}

static int add_address(const struct acmabi_address *addr, void *ep_context, void **addr_context)
{
	(void) addr;
	*addr_context = ep_context;
	return 0;
}

static void close_any(void *context)
{
	(void) context;
}

static int handle_event(void *port_context, acmabi_ibv_event_type type)
{
	(void) port_context;
	(void) type;
	return 0;
}

static void query_perf(void *ep_context, acmabi_be64 *values, uint8_t *cnt)
{
	(void) ep_context;
	memset(values, 0, ACMABI_MAX_COUNTER * sizeof *values);
	*cnt = ACMABI_MAX_COUNTER;
}

static struct acmabi_provider provider = {
	.size = sizeof(struct acmabi_provider),
	.version = 1,
	.name = "header-alone",
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

__attribute__((visibility("default")))
int acmabi_provider_query(struct acmabi_provider **info, uint32_t *version)
{
	*info = &provider;
	*version = provider.version;
	return 0;
}
