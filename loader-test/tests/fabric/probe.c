/*
 * A program like any that uses libibverbs and libibumad, to be run with the simulated adapter preloaded.
 *
 * It reads commands from standard input, one a line, and prints a line for each thing that it learns:
 *
 *   port PORT                                          -> port PORT state=S lid=L sm_lid=L pkeys=P,... gid=GID
 *   path TIMEOUT_MS RETRIES TRANSACTION SM_LID DLID    -> sent TRANSACTION or refused TRANSACTION ERRNO
 *   reopen COUNT SM_LID DLID                           -> reopened COUNT, having left a request in each port it closed
 *   verbs                                              -> verbs followed by what each failed with
 *   qp PORT                                            -> qp NUMBER, which receives from then on
 *   attach MGID MLID                                   -> attached ERRNO
 *   send LID QPN MGID TEXT                             -> posted ERRNO; MGID or "-" for none
 *   member METHOD TRANSACTION SM_LID MGID JOINSTATE QKEY -> sent TRANSACTION or refused TRANSACTION ERRNO
 *   quit                                               (ends as a program should)
 *   exit                                               (ends without closing anything)
 *
 * and unasked
 *
 *   event NUMBER PORT                                  an asynchronous event
 *   mad TRANSACTION status=S length=L method=M class=C ms=MS after its sending
 *   member TRANSACTION status=S mlid=L                 behind the former, if it is about membership in a group
 *   datagram LID QPN GRH LENGTH TEXT                   GRH: whether there is one; TEXT: from byte 24 of the payload
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

enum { SA_CLASS = 3, PATH_RECORD = 0x35, MC_MEMBER_RECORD = 0x38, MAD_SIZE = 256, SENT_MAX = 4096 };
enum { QKEY = 0x80010000, RECEIVES = 16, GRH = 40, BUFFER = GRH + 2048, TEXT_AT = 24 };

static struct ibv_context *context;
static int port_id, agent;
static double sent_at[SENT_MAX];
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_pd *pd;
static struct ibv_qp *qp;
static struct ibv_mr *buffers;
static char memory[RECEIVES][BUFFER];

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
		if (length == MAD_SIZE && mad[17] == MC_MEMBER_RECORD)
			SAY("member %" PRIu32 " status=0x%02x%02x mlid=0x%02x%02x\n", transaction, mad[4], mad[5],
			    mad[56 + 36], mad[56 + 37]);
	}
	return unused;
}

static void read_gid(const char *hex, union ibv_gid *gid)
{
	for (int i = 0; i < 16; i++)
		sscanf(hex + 2 * i, "%2hhx", &gid->raw[i]);
}

static void post_receive(uint64_t number)
{
	struct ibv_sge sge = { .addr = (uintptr_t) memory[number], .length = BUFFER, .lkey = buffers->lkey };
	struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;
	if (ibv_post_recv(qp, &wr, &bad))
		die("ibv_post_recv");
}

static void *watch_datagrams(void *channel)
{
	for (;;) {
		struct ibv_cq *cq;
		void *unused;
		struct ibv_wc wc;
		if (ibv_get_cq_event(channel, &cq, &unused) || ibv_req_notify_cq(cq, 0))
			die("ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
		while (ibv_poll_cq(cq, 1, &wc) == 1) {
			if (!(wc.opcode & IBV_WC_RECV))
				continue;
			char *payload = memory[wc.wr_id] + GRH;
			int length = wc.byte_len - GRH;
			int text = length > TEXT_AT ? length - TEXT_AT : 0;
			SAY("datagram %d %u %d %d %.*s\n", wc.slid, wc.src_qp, !!(wc.wc_flags & IBV_WC_GRH), length,
			    text < 64 ? text : 64, payload + TEXT_AT);
			post_receive(wc.wr_id);
		}
	}
	return NULL;
}

static void make_queue_pair(int port)
{
	pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = channel ? ibv_create_cq(context, 4 * RECEIVES, NULL, channel, 0) : NULL;
	buffers = pd ? ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!cq || !buffers || ibv_req_notify_cq(cq, 0))
		die("a queue");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 8, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = 256 },
	};
	qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = port, .qkey = QKEY };
	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		die("ibv_create_qp");
	for (int i = 0; i < RECEIVES; i++)
		post_receive(i);
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		die("RTS");
	pthread_t thread;
	if (pthread_create(&thread, NULL, watch_datagrams, channel))
		die("pthread_create");
	SAY("qp %u\n", qp->qp_num);
}

static void attach(const char *mgid, int mlid)
{
	union ibv_gid gid;
	read_gid(mgid, &gid);
	SAY("attached %d\n", ibv_attach_mcast(qp, &gid, mlid));
}

static void send_datagram(int lid, unsigned qpn, const char *mgid, const char *text)
{
	char payload[TEXT_AT + 64] = { 0 };
	strncpy(payload + TEXT_AT, text, 63);
	struct ibv_ah_attr attr = { .dlid = lid, .port_num = 1, .is_global = strlen(mgid) == 32 };
	if (attr.is_global)
		read_gid(mgid, &attr.grh.dgid);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	if (!ah)
		die("ibv_create_ah");
	struct ibv_sge sge = { .addr = (uintptr_t) payload, .length = sizeof(payload) };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = &sge, .num_sge = 1,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	}, *bad;
	SAY("posted %d\n", ibv_post_send(qp, &wr, &bad));
	ibv_destroy_ah(ah);
}

static void change_membership(int method, uint32_t transaction, int sm_lid, const char *mgid, int state, uint32_t qkey)
{
	char buffer[sizeof(struct ib_user_mad) + MAD_SIZE] = { 0 };
	uint8_t *mad = umad_get_mad(buffer);
	union ibv_gid group, own;
	read_gid(mgid, &group);
	if (ibv_query_gid(context, 1, 0, &own))
		die("ibv_query_gid");
	mad[0] = 1;
	mad[1] = SA_CLASS;
	mad[2] = 2;
	mad[3] = method;
	uint32_t be_transaction = htobe32(transaction);
	memcpy(mad + 12, &be_transaction, 4);
	mad[17] = MC_MEMBER_RECORD;
	uint64_t mask = htobe64(1 << 0 | 1 << 1 | 1 << 2 | 1 << 16); /* MGID, PortGID, Q_Key, JoinState */
	memcpy(mad + 48, &mask, 8);
	uint8_t *record = mad + 56;
	memcpy(record, &group, 16);
	memcpy(record + 16, &own, 16);
	uint32_t be_qkey = htobe32(qkey);
	memcpy(record + 32, &be_qkey, 4);
	record[48] = state;
	umad_set_addr(buffer, sm_lid, 1, 0, 0x80010000);
	sent_at[transaction % SENT_MAX] = now();
	if (umad_send(port_id, agent, buffer, MAD_SIZE, 5000, 3))
		SAY("refused %" PRIu32 " %d\n", transaction, errno);
	else
		SAY("sent %" PRIu32 "\n", transaction);
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
		int port, timeout, retries, count, sm_lid, dlid, method, state;
		unsigned qpn;
		uint32_t transaction, qkey;
		char gid[64], text[64];
		if (sscanf(line, "port %d", &port) == 1)
			show_port(port);
		else if (sscanf(line, "path %d %d %" SCNu32 " %d %d", &timeout, &retries, &transaction, &sm_lid, &dlid) == 5)
			ask_for_path(timeout, retries, transaction, sm_lid, dlid);
		else if (sscanf(line, "reopen %d %d %d", &count, &sm_lid, &dlid) == 3)
			reopen(count, sm_lid, dlid);
		else if (sscanf(line, "qp %d", &port) == 1)
			make_queue_pair(port);
		else if (sscanf(line, "attach %63s %i", gid, &dlid) == 2)
			attach(gid, dlid);
		else if (sscanf(line, "send %d %u %63s %63s", &dlid, &qpn, gid, text) == 4)
			send_datagram(dlid, qpn, gid, text);
		else if (sscanf(line, "member %i %" SCNu32 " %d %63s %d %" SCNx32, &method, &transaction, &sm_lid, gid,
				&state, &qkey) == 6)
			change_membership(method, transaction, sm_lid, gid, state, qkey);
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
