/* A small provider that asks the SA for every path, or, as the macros below say, one with a fault. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/acm_prov.h>

/* Faults. */
#ifndef SL_OFF_BY            /* added to the SL of every answer */
#define SL_OFF_BY 0
#endif
#ifndef MADE_UP              /* resolve answers a path that it makes up, and every query succeeds */
#define MADE_UP 0
#endif
#ifndef SILENT               /* resolve never answers */
#define SILENT 0
#endif
#ifndef CRASHES              /* resolve takes the daemon down */
#define CRASHES 0
#endif
#ifndef REPORTED_VERSION
#define REPORTED_VERSION 1
#endif
#ifndef REPORTED_SIZE
#define REPORTED_SIZE sizeof(struct acm_provider)
#endif
#ifndef QUERY_RESULT         /* what provider_query returns */
#define QUERY_RESULT 0
#endif

struct request {
	uint64_t id;
	struct acm_msg msg;
	int is_query;
};

static void answer(struct request *request, const void *path, uint8_t status)
{
	struct acm_msg *msg = &request->msg;

	msg->hdr.opcode |= ACM_OP_ACK;
	msg->hdr.status = status;
	memset(msg->hdr.data, 0, sizeof msg->hdr.data);
	msg->hdr.length = ACM_MSG_HDR_LENGTH;
	if (!status) {
		msg->hdr.length += ACM_MSG_EP_LENGTH;
		memset(&msg->resolve_data[0], 0, ACM_MSG_EP_LENGTH);
		msg->resolve_data[0].type = ACM_EP_INFO_PATH;
		memcpy(&msg->resolve_data[0].info.path, path, sizeof(struct ibv_path_record));
		msg->resolve_data[0].info.path.qosclass_sl ^= htobe16(SL_OFF_BY);
#ifdef NO_SELECTORS
		msg->resolve_data[0].info.path.mtu &= 0x3f;
		msg->resolve_data[0].info.path.rate &= 0x3f;
		msg->resolve_data[0].info.path.packetlifetime &= 0x3f;
#endif
	}
	if (request->is_query)
		acm_query_response(request->id, msg);
	else
		acm_resolve_response(request->id, msg);
}

static void from_sa(struct acm_sa_mad *mad)
{
	struct request *request = mad->context;
	uint8_t status = mad->umad.status ? ACM_STATUS_ETIMEDOUT :
			 mad->sa_mad.mad_hdr.status ? ACM_STATUS_ENODATA : ACM_STATUS_SUCCESS;

	answer(request, mad->sa_mad.data, status);
	free(request);
	acm_free_sa_mad(mad);
}

static struct acm_endpoint *endpoint;

static int ask(struct acm_msg *msg, uint64_t id, int is_query)
{
	static uint32_t tid;
	struct request *request = calloc(1, sizeof *request);
	struct ibv_path_record *path = &msg->resolve_data[0].info.path;
	struct acm_sa_mad *mad;

	request->id = id;
	request->is_query = is_query;
	if (msg->resolve_data[0].type != ACM_EP_INFO_PATH) {
		memcpy(&request->msg, msg, sizeof *msg);
		answer(request, NULL, ACM_STATUS_EDESTTYPE);
		free(request);
		return 0;
	}
	memcpy(&request->msg, msg, sizeof *msg);
	if (CRASHES)
		abort();
	if (SILENT)
		return 0;
	if (MADE_UP) {
		struct ibv_path_record made_up = *path;

		made_up.mtu = 0x81;
		answer(request, &made_up, ACM_STATUS_SUCCESS);
		free(request);
		return 0;
	}
	mad = acm_alloc_sa_mad(endpoint, request, from_sa);
	mad->sa_mad.mad_hdr.base_version = 1;
	mad->sa_mad.mad_hdr.mgmt_class = UMAD_CLASS_SUBN_ADM;
	mad->sa_mad.mad_hdr.class_version = UMAD_SA_CLASS_VERSION;
	mad->sa_mad.mad_hdr.method = UMAD_METHOD_GET;
	mad->sa_mad.mad_hdr.tid = htobe64(++tid);
	mad->sa_mad.mad_hdr.attr_id = htobe16(UMAD_SA_ATTR_PATH_REC);
	if (!is_query) {
		union ibv_gid gid;

		acm_get_gid(endpoint->port, 0, &gid);
		path->sgid = gid;
	}
	mad->sa_mad.comp_mask = acm_path_comp_mask(path);
	memcpy(mad->sa_mad.data, path, sizeof *path);
	if (acm_send_sa_mad(mad)) {
		acm_free_sa_mad(mad);
		answer(request, NULL, ACM_STATUS_ENODATA);
		free(request);
	}
	return 0;
}

static int resolve(void *addr_context, struct acm_msg *msg, uint64_t id)
{
	return ask(msg, id, 0);
}

static int query(void *addr_context, struct acm_msg *msg, uint64_t id)
{
	return ask(msg, id, 1);
}

static int open_device(const struct acm_device *device, void **context)
{
	*context = (void *) device;
	return 0;
}

static int open_port(const struct acm_port *port, void *device, void **context)
{
#ifdef NO_PORT               /* every port is refused */
	return -1;
#endif
	*context = (void *) port;
	return 0;
}

static int open_endpoint(const struct acm_endpoint *opened, void *port, void **context)
{
	endpoint = (struct acm_endpoint *) opened;
	*context = endpoint;
	return 0;
}

static int add_address(const struct acm_address *address, void *opened, void **context)
{
	*context = opened;
	return 0;
}

static void close_context(void *context)
{
}

static int handle_event(void *port, enum ibv_event_type type)
{
	return 0;
}

static void query_perf(void *opened, uint64_t *values, uint8_t *count)
{
	memset(values, 0, ACM_MAX_COUNTER * sizeof *values);
	*count = ACM_MAX_COUNTER;
}

#ifdef LEAVES_A_DAEMON       /* a path: a file for the pid of a process that leaves session, parent and environment */
__attribute__((constructor)) static void leave_a_daemon(void)
{
	char *words[] = { "sh", "-c", "echo $$ >>" LEAVES_A_DAEMON "; exec sleep 600", NULL }, *none[] = { NULL };

	if (fork()) {
#ifdef HANGS                 /* the constructor does not return */
		for (;;)
			pause();
#endif
		return;
	}
	setsid();
	if (fork())
		_exit(0);
	execve("/bin/sh", words, none);
}
#endif

static struct acm_provider provider = {
	.size = REPORTED_SIZE,
	.version = REPORTED_VERSION,
	.name = "test-sa",
	.open_device = open_device,
	.close_device = close_context,
	.open_port = open_port,
	.close_port = close_context,
	.open_endpoint = open_endpoint,
	.close_endpoint = close_context,
	.add_address = add_address,
	.remove_address = close_context,
	.resolve = resolve,
	.query = query,
	.handle_event = handle_event,
	.query_perf = query_perf,
};

#ifdef CRASHES_ON_LOAD
__attribute__((constructor)) static void crash(void)
{
	abort();
}
#endif

/* Whether the options file has both lines; the second names a file that is there. */
static int has_options(void)
{
	FILE *file = fopen(acm_get_opts_file(), "r");
	char line[256], name[256], value[256];
	int found = 0;

	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "%255s %255s", name, value) != 2)
			continue;
		if (!strcmp(name, "first_of_mine"))
			found |= !strcmp(value, "yes") ? 1 : 0;
		if (!strcmp(name, "second_of_mine"))
			found |= !access(value, R_OK) ? 2 : 0;
	}
	if (file)
		fclose(file);
	return found == 3;
}

#ifdef AGENT                 /* a function of a library that it needs */
int agent(void);
#endif

#ifndef NO_ENTRY
int provider_query(struct acm_provider **info, uint32_t *version)
{
#ifdef NEEDS_OPTIONS
	if (!has_options())
		return ENOENT;
#endif
#ifdef AGENT
	if (!agent())
		return ENOSYS;
#endif
	*info = &provider;
	*version = REPORTED_VERSION;
	return QUERY_RESULT;
}
#endif
