/*
 * A program like any that uses libibverbs and libibumad, to be run with the simulated adapter preloaded.
 *
 * It reads commands from standard input, one a line, and prints a line for each thing that it learns:
 *
 *   port PORT                                          -> port PORT state=S lid=L sm_lid=L pkeys=P,... gid=GID
 *   path TIMEOUT_MS RETRIES TRANSACTION SM_LID DLID    -> sent TRANSACTION or refused TRANSACTION ERRNO
 *   reopen COUNT SM_LID DLID                           -> reopened COUNT, having left a request in each port it closed
 *   verbs                                              -> verbs followed by what each failed with
 *   quit                                               (ends as a program should)
 *   exit                                               (ends without closing anything)
 *
 * and unasked
 *
 *   event NUMBER PORT                                  an asynchronous event
 *   mad TRANSACTION status=S length=L method=M class=C ms=MS after its sending
 */
#include <errno.h>
#include <endian.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/umad.h>
#include <infiniband/verbs.h>

enum { SA_CLASS = 3, PATH_RECORD = 0x35, MAD_SIZE = 256, SENT_MAX = 4096 };

static struct ibv_context *context;
static int port_id, agent;
static double sent_at[SENT_MAX];
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

#define SAY(...) do { \
	pthread_mutex_lock(&output); \
	printf(__VA_ARGS__); \
	fflush(stdout); \
	pthread_mutex_unlock(&output); \
} while (0)

static void die(const char *what)
{
	fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *watch_events(void *unused)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	for (;;) {
		struct ibv_async_event event;
		if (poll(&fd, 1, -1) != 1 || ibv_get_async_event(context, &event))
			die("ibv_get_async_event");
		SAY("event %d %d\n", event.event_type, event.element.port_num);
		ibv_ack_async_event(&event);
	}
	return unused;
}

static void *watch_mads(void *unused)
{
	struct pollfd fd = { .fd = umad_get_fd(port_id), .events = POLLIN };
	for (;;) {
		char buffer[sizeof(struct ib_user_mad) + MAD_SIZE];
		int length = MAD_SIZE;
		if (poll(&fd, 1, -1) != 1 || umad_recv(port_id, buffer, &length, 0) < 0)
			die("umad_recv");
		uint8_t *mad = umad_get_mad(buffer);
		uint32_t transaction;
		memcpy(&transaction, mad + 12, 4);
		transaction = be32toh(transaction);
		SAY("mad %" PRIu32 " status=%d length=%d method=0x%02x class=0x%02x ms=%.0f\n", transaction,
		    umad_status(buffer), length, mad[3], mad[1], now() - sent_at[transaction % SENT_MAX]);
	}
	return unused;
}

static void show_port(int port)
{
	struct ibv_port_attr attr;
	union ibv_gid gid;
	if (ibv_query_port(context, port, &attr) || ibv_query_gid(context, port, 0, &gid)) {
		SAY("port %d unknown\n", port);
		return;
	}
	pthread_mutex_lock(&output);
	printf("port %d state=%d lid=%d sm_lid=%d pkeys=", port, attr.state, attr.lid, attr.sm_lid);
	const char *separator = "";
	for (int i = 0; i < attr.pkey_tbl_len; i++) {
		__be16 pkey;
		if (!ibv_query_pkey(context, port, i, &pkey) && pkey) {
			printf("%s%04x", separator, be16toh(pkey));
			separator = ",";
		}
	}
	printf(" gid=%016" PRIx64 "%016" PRIx64 "\n", be64toh(gid.global.subnet_prefix),
	       be64toh(gid.global.interface_id));
	fflush(stdout);
	pthread_mutex_unlock(&output);
}

static int send_path_query(int port, int from, int timeout, int retries, uint32_t transaction, int sm_lid, int dlid)
{
	char buffer[sizeof(struct ib_user_mad) + MAD_SIZE] = { 0 };
	uint8_t *mad = umad_get_mad(buffer);
	union ibv_gid gid;
	if (ibv_query_gid(context, 1, 0, &gid))
		die("ibv_query_gid");

	mad[0] = 1;
	mad[1] = SA_CLASS;
	mad[2] = 2;
	mad[3] = 1; /* Get */
	uint32_t be_transaction = htobe32(transaction);
	memcpy(mad + 12, &be_transaction, 4);
	mad[17] = PATH_RECORD;
	uint64_t mask = htobe64(1 << 3 | 1 << 4 | 1 << 11 | 1 << 12); /* SGID, DLID, reversible, number of paths */
	memcpy(mad + 48, &mask, 8);
	uint8_t *record = mad + 56;
	memcpy(record + 24, &gid, 16);
	uint16_t be_dlid = htobe16(dlid);
	memcpy(record + 40, &be_dlid, 2);
	record[49] = 0x81; /* reversible, one path */

	umad_set_addr(buffer, sm_lid, 1, 0, 0x80010000);
	sent_at[transaction % SENT_MAX] = now();
	return umad_send(port, from, buffer, MAD_SIZE, timeout, retries);
}

static void ask_for_path(int timeout, int retries, uint32_t transaction, int sm_lid, int dlid)
{
	if (send_path_query(port_id, agent, timeout, retries, transaction, sm_lid, dlid))
		SAY("refused %" PRIu32 " %d\n", transaction, errno);
	else
		SAY("sent %" PRIu32 "\n", transaction);
}

static void reopen(int count, int sm_lid, int dlid)
{
	for (int i = 0; i < count; i++) {
		int port = umad_open_port(NULL, 0);
		int from = port < 0 ? port : umad_register(port, SA_CLASS, 2, 0, NULL);
		if (from < 0 || send_path_query(port, from, 100, 1, 1, sm_lid, dlid)) {
			SAY("reopened %d: %s\n", i, strerror(errno));
			return;
		}
		umad_close_port(port);
	}
	SAY("reopened %d\n", count);
}

static void try_unsimulated_verbs(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	errno = 0;
	int srq_errno = ibv_create_srq(pd, &srq) ? 0 : errno;
	errno = 0;
	int mw_errno = ibv_alloc_mw(pd, IBV_MW_TYPE_1) ? 0 : errno;
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	int resize = ibv_resize_cq(cq, 2);
	int again = ibv_resize_cq(cq, 2);
	struct ibv_qp_init_attr qp = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	errno = 0;
	int qp_errno = ibv_create_qp(pd, &qp) ? 0 : errno;
	SAY("verbs srq=%d mw=%d resize=%d again=%d rc=%d enosys=%d\n", srq_errno, mw_errno, resize, again, qp_errno,
	    ENOSYS);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
}

int main(void)
{
	int count;
	struct ibv_device **devices = ibv_get_device_list(&count);
	if (!devices || !count)
		die("ibv_get_device_list");
	context = ibv_open_device(devices[0]);
	if (!context)
		die("ibv_open_device");
	const char *name = ibv_get_device_name(devices[0]);
	port_id = umad_open_port(name, 1);
	if (port_id < 0)
		die("umad_open_port");
	agent = umad_register(port_id, SA_CLASS, 2, 0, NULL);
	if (agent < 0)
		die("umad_register");
	ibv_free_device_list(devices);

	pthread_t thread;
	if (pthread_create(&thread, NULL, watch_events, NULL) || pthread_create(&thread, NULL, watch_mads, NULL))
		die("pthread_create");
	SAY("ready %s %d\n", name, count);

	char line[256];
	while (fgets(line, sizeof(line), stdin)) {
		int port, timeout, retries, count, sm_lid, dlid;
		uint32_t transaction;
		if (sscanf(line, "port %d", &port) == 1)
			show_port(port);
		else if (sscanf(line, "path %d %d %" SCNu32 " %d %d", &timeout, &retries, &transaction, &sm_lid, &dlid) == 5)
			ask_for_path(timeout, retries, transaction, sm_lid, dlid);
		else if (sscanf(line, "reopen %d %d %d", &count, &sm_lid, &dlid) == 3)
			reopen(count, sm_lid, dlid);
		else if (!strcmp(line, "verbs\n"))
			try_unsimulated_verbs();
		else if (!strcmp(line, "exit\n"))
			exit(0);
		else if (!strcmp(line, "quit\n"))
			break;
		else
			SAY("what? %s", line);
	}
	umad_unregister(port_id, agent);
	return 0;
}
