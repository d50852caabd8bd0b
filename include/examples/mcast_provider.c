// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * mcast-example: the provider of sa_provider.c plus the multicast protocol of ibacm's stock provider: it asks
 * other nodes for names and IP addresses that it does not know, and answers their requests. Build and install
 * it like sa_provider.c:
 *
 *	cc -std=gnu11 -O2 -Wall -Wextra -fPIC -fvisibility=hidden -shared -Wl,-z,now \
 *		mcast_provider.c -o libmcast_example.so -libverbs -lpthread
 *
 * Each endpoint has a queue pair in the multicast group of its partition. A request goes to the group; the
 * owner of the address answers by unicast. The answer's sender is the result: the GID in its GRH, for which the
 * provider then queries the SA. Requests are no source of addresses, because anybody may claim one there.
 *
 * Threads: each endpoint adds one, which waits for completions and keeps its deadlines. It uses the same mutex.
 *
 * Options: timeout, retries and recv_depth have the same meaning as for the stock provider.
 */
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <infiniband/acm_prov.h>

/* Its table and entry point are not used here. */
#define provider		sa_provider
#define provider_query		sa_provider_query
#include "sa_provider.c"
#undef provider
#undef provider_query

#define ACM_CLASS		0x2c
#define ACM_QKEY		0x80010000
#define ACM_RESOLVE		htobe16(1)
#define GRH_LENGTH		sizeof(struct ibv_grh)
#define BUFFER_LENGTH		(GRH_LENGTH + sizeof(struct acm_mad))
#define WIRE_GROUPS		6	/* the format has ten, but six fit */
#define SEND_DEPTH		32
#define MAX_LOOKUPS		1024	/* maximum number of lookups per endpoint */
#define MAX_KNOWN		4096	/* maximum number of cached addresses */

/* The datagram after the GRH. */
struct acm_mad {
	uint8_t base_version, mgmt_class, class_version, method;
	__be16 status, control;
	__be64 tid;
	uint8_t dest_type, dest_length, src_type, src_length, gid_cnt, unused[3];
	uint8_t dest[ACM_MAX_ADDRESS], src[ACM_MAX_ADDRESS];
	union ibv_gid gid[WIRE_GROUPS];
	uint8_t rest[8];
};

_Static_assert(sizeof(struct acm_mad) == 256, "a MAD has 256 bytes");

/* A client that waits for the owner of an address. */
struct waiting {
	TAILQ_ENTRY(waiting) entry;
	struct acm_msg msg;
	struct request *request;	/* to refuse it if there is no answer */
	union ibv_gid gid;		/* what came of it */
};

TAILQ_HEAD(waitings, waiting);

/* An address requested from other nodes. */
struct lookup {
	LIST_ENTRY(lookup) entry;
	uint16_t type, src_type;
	uint8_t addr[ACM_MAX_ADDRESS], src[ACM_MAX_ADDRESS];
	__be64 tid;			/* unpredictable */
	long tries;			/* that are left */
	uint64_t next_at, deadline;
	struct waitings waiting;
};

struct slot {
	struct ibv_ah *ah;
	bool busy, owns_ah;
};

/* An endpoint's part of the protocol. */
struct group {
	LIST_ENTRY(group) entry;
	struct endpoint *ep;
	struct ibv_context *verbs;
	uint8_t port_num;
	uint16_t pkey_index;
	long timeout, retries, recv_depth;

	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t (*buffers)[BUFFER_LENGTH];	/* SEND_DEPTH for sending, the rest for receiving */
	struct slot slots[SEND_DEPTH];

	union ibv_gid mgid;
	__be16 mlid;			/* 0: not joined yet */
	struct ibv_ah *ah;		/* to the group */

	LIST_HEAD(, lookup) lookups;
	unsigned int lookup_count, known_count;
	SLIST_HEAD(, host) known[BUCKETS];

	pthread_t thread;
	int wake;
	bool stop;
};

static LIST_HEAD(, group) groups = LIST_HEAD_INITIALIZER(groups);

static struct group *group_of(const struct endpoint *ep)
{
	struct group *group;

	LIST_FOREACH(group, &groups, entry)
		if (group->ep == ep)
			return group;
	return NULL;
}

static void wake_up(struct group *group)
{
	uint64_t one = 1;

	/* If the pipe is full, the thread is awake as well. */
	if (write(group->wake, &one, sizeof one) < 0)
		return;
}

/* ---- Sending and receiving ---- */

static void post_receive(struct group *group, unsigned int index)
{
	struct ibv_sge sge = { (uintptr_t) group->buffers[index], BUFFER_LENGTH, group->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(group->qp, &wr, &bad))
		acm_log(0, "a receive cannot be posted\n");
}

static int start_pair(struct group *group)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .pkey_index = group->pkey_index,
		.port_num = group->port_num, .qkey = ACM_QKEY };
	long i;
	int ret;

	ret = ibv_modify_qp(group->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	if (ret)
		return ret;
	for (i = 0; i < group->recv_depth; i++)
		post_receive(group, SEND_DEPTH + i);
	attr.qp_state = IBV_QPS_RTR;
	ret = ibv_modify_qp(group->qp, &attr, IBV_QP_STATE);
	if (ret)
		return ret;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(group->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

static void free_slot(struct slot *slot)
{
	if (slot->owns_ah)
		ibv_destroy_ah(slot->ah);
	memset(slot, 0, sizeof *slot);
}

/* A failed work request may break the queue pair. */
static void revive(struct group *group)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int i;

	if (ibv_query_qp(group->qp, &attr, IBV_QP_STATE, &init) || attr.qp_state != IBV_QPS_ERR)
		return;
	attr.qp_state = IBV_QPS_RESET;
	if (ibv_modify_qp(group->qp, &attr, IBV_QP_STATE) || start_pair(group))
		acm_log(0, "a queue pair failed and cannot be used again\n");
	for (i = 0; i < SEND_DEPTH; i++)
		free_slot(&group->slots[i]);
}

/* Sends the datagram that the functions below filled. If sending fails, it counts as lost. */
static void post_send(struct group *group, const struct acm_mad *mad, struct ibv_ah *ah, bool owns_ah, uint32_t qpn)
{
	struct ibv_sge sge = { .length = sizeof *mad, .lkey = group->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = ACM_QKEY } }, *bad;
	unsigned int i;

	for (i = 0; i < SEND_DEPTH && group->slots[i].busy; i++)
		;
	if (i == SEND_DEPTH) {
		if (owns_ah)
			ibv_destroy_ah(ah);
		return;
	}
	group->slots[i] = (struct slot) { ah, true, owns_ah };
	memcpy(group->buffers[i], mad, sizeof *mad);
	sge.addr = (uintptr_t) group->buffers[i];
	wr.wr_id = i;
	if (ibv_post_send(group->qp, &wr, &bad))
		free_slot(&group->slots[i]);
}

static void init_mad(struct group *group, struct acm_mad *mad, uint8_t method, __be64 tid)
{
	memset(mad, 0, sizeof *mad);
	mad->base_version = 1;
	mad->mgmt_class = ACM_CLASS;
	mad->class_version = 1;
	mad->method = method;
	mad->control = ACM_RESOLVE;
	mad->tid = tid;
	mad->gid_cnt = 1;
	mad->gid[0] = group->mgid;
}

static void send_request(struct group *group, const struct lookup *lookup)
{
	struct acm_mad mad;

	init_mad(group, &mad, UMAD_METHOD_GET, lookup->tid);
	/* Lengths are those of the field, whatever it holds: the stock provider compares all of it. */
	mad.dest_type = lookup->type;
	mad.dest_length = ACM_MAX_ADDRESS;
	memcpy(mad.dest, lookup->addr, addr_length(lookup->type, lookup->addr));
	mad.src_type = lookup->src_type;
	mad.src_length = ACM_MAX_ADDRESS;
	memcpy(mad.src, lookup->src, addr_length(lookup->src_type, lookup->src));
	count_both(group->ep, ACM_CNTR_ADDR_QUERY);
	post_send(group, &mad, group->ah, false, 0xffffff);
}

/* ---- Membership ---- */

/* Joins, or leaves without waiting for the response. */
static void send_membership(struct group *group, uint8_t method)
{
	const uint64_t mask = UMAD_SA_MCM_COMP_MASK_MGID | UMAD_SA_MCM_COMP_MASK_PORT_GID | UMAD_SA_MCM_COMP_MASK_JOIN_STATE;
	const uint64_t group_mask = UMAD_SA_MCM_COMP_MASK_QKEY | UMAD_SA_MCM_COMP_MASK_MTU_SEL | UMAD_SA_MCM_COMP_MASK_MTU |
		UMAD_SA_MCM_COMP_MASK_TCLASS | UMAD_SA_MCM_COMP_MASK_PKEY | UMAD_SA_MCM_COMP_MASK_RATE_SEL |
		UMAD_SA_MCM_COMP_MASK_RATE | UMAD_SA_MCM_COMP_MASK_SL | UMAD_SA_MCM_COMP_MASK_FLOW_LABEL |
		UMAD_SA_MCM_COMP_MASK_SCOPE;
	struct umad_sa_mcmember_record record = {
		.qkey = htobe32(ACM_QKEY),
		.mtu = umad_sa_set_rate_mtu_or_life(UMAD_SA_SELECTOR_EXACTLY, IBV_MTU_2048),
		.pkey = htobe16(group->ep->acm->pkey),
		.rate = umad_sa_set_rate_mtu_or_life(UMAD_SA_SELECTOR_EXACTLY, IBV_RATE_10_GBPS),
		.scope_state = umad_sa_mcm_set_scope_state(UMAD_SA_MCM_ADDR_SCOPE_SITE_LOCAL,
							   UMAD_SA_MCM_JOIN_STATE_FULL_MEMBER),
	};
	struct endpoint *ep = group->ep;

	memcpy(record.mgid, &group->mgid, sizeof record.mgid);
	memcpy(record.portgid, &ep->gid, sizeof record.portgid);
	send_mad(ep, method == UMAD_METHOD_SET ? &ep->join : NULL, NULL, method, UMAD_SA_ATTR_MCMEMBER_REC,
		 htobe64(method == UMAD_METHOD_SET ? mask | group_mask : mask), &record, sizeof record);
}

static void join_group(struct endpoint *ep)
{
	send_membership(group_of(ep), UMAD_METHOD_SET);
}

static void leave_attachment(struct group *group)
{
	if (!group->mlid)
		return;
	ibv_detach_mcast(group->qp, &group->mgid, be16toh(group->mlid));
	ibv_destroy_ah(group->ah);
	group->mlid = 0;
}

static void enter_group(struct group *group, __be16 mlid)
{
	struct ibv_ah_attr attr = { .dlid = be16toh(mlid), .port_num = group->port_num, .is_global = 1,
		.grh = { .dgid = group->mgid } };

	if (mlid == group->mlid)
		return;
	leave_attachment(group);
	if (ibv_attach_mcast(group->qp, &group->mgid, be16toh(mlid)))
		return;
	group->ah = ibv_create_ah(group->pd, &attr);
	if (group->ah)
		group->mlid = mlid;
	else
		ibv_detach_mcast(group->qp, &group->mgid, be16toh(mlid));
}

/* The SA has made the port a member; returns false if the membership is not usable. */
static bool is_member(struct endpoint *ep, const struct umad_sa_mcmember_record *record)
{
	struct group *group = group_of(ep);

	enter_group(group, record->mlid);
	wake_up(group);
	return group->mlid;
}

/* ---- Addresses learnt from answers ---- */

static void forget_known(struct group *group)
{
	struct host *host;
	int i;

	for (i = 0; i < BUCKETS; i++) {
		while ((host = SLIST_FIRST(&group->known[i]))) {
			SLIST_REMOVE_HEAD(&group->known[i], entry);
			free(host);
		}
	}
	group->known_count = 0;
}

static const struct host *find_known(struct group *group, uint16_t type, const uint8_t *addr)
{
	const struct host *host;

	SLIST_FOREACH(host, &group->known[hash(addr, addr_length(type, addr))], entry)
		if (same_addr(host->type, host->addr, type, addr))
			return host;
	return NULL;
}

static void remember(struct group *group, const struct lookup *lookup, const union ibv_gid *gid)
{
	struct host *host;

	/* A full table starts over. */
	if (group->known_count >= MAX_KNOWN)
		forget_known(group);
	host = calloc(1, sizeof *host);
	if (!host)
		return;
	host->type = lookup->type;
	memcpy(host->addr, lookup->addr, sizeof host->addr);
	host->gid = *gid;
	SLIST_INSERT_HEAD(&group->known[hash(host->addr, addr_length(host->type, host->addr))], host, entry);
	group->known_count++;
}

/* ---- Datagrams from other nodes. Trust nothing in them. ---- */

static bool is_well_formed(const struct acm_mad *mad)
{
	return mad->base_version == 1 && mad->mgmt_class == ACM_CLASS && mad->class_version == 1 &&
	       (mad->method == UMAD_METHOD_GET || mad->method == UMAD_METHOD_GET_RESP) &&
	       mad->control == ACM_RESOLVE && mad->gid_cnt <= WIRE_GROUPS;
}

static bool names_group(const struct group *group, const struct acm_mad *mad)
{
	unsigned int i;

	for (i = 0; i < mad->gid_cnt; i++)
		if (same_gid(&mad->gid[i], &group->mgid))
			return true;
	return false;
}

static bool is_address_type(uint8_t type)
{
	return type >= ACM_EP_INFO_NAME && type <= EP_INFO_LID;
}

static void take_request(struct group *group, const struct ibv_wc *wc, const struct ibv_grh *grh,
			 const struct acm_mad *mad)
{
	struct ibv_ah_attr attr = { .dlid = wc->slid, .sl = wc->sl, .src_path_bits = wc->dlid_path_bits,
		.port_num = group->port_num, .is_global = 1, .grh = { .dgid = grh->sgid } };
	struct acm_mad answer;
	struct ibv_ah *ah;

	if (!is_address_type(mad->src_type) || !is_address_type(mad->dest_type))
		return;
	if (!is_own_addr(group->ep, mad->dest_type, mad->dest))
		return;
	ah = ibv_create_ah(group->pd, &attr);
	if (!ah)
		return;
	init_mad(group, &answer, UMAD_METHOD_GET_RESP, mad->tid);
	post_send(group, &answer, ah, true, wc->src_qp);
}

static void end_lookup(struct group *group, struct lookup *lookup, struct waitings *to)
{
	TAILQ_CONCAT(to, &lookup->waiting, entry);
	LIST_REMOVE(lookup, entry);
	group->lookup_count--;
	free(lookup);
}

static void take_answer(struct group *group, const struct ibv_grh *grh, const struct acm_mad *mad,
			struct waitings *found)
{
	struct waiting *waiting;
	struct lookup *lookup;

	LIST_FOREACH(lookup, &group->lookups, entry)
		if (lookup->tid == mad->tid)
			break;
	/* By unicast, from a port, and about what was asked. The stock provider leaves the addresses out. */
	if (!lookup || !same_gid(&grh->dgid, &group->ep->gid) || mad->status)
		return;
	if (mad->dest_type && !same_addr(mad->dest_type, mad->dest, lookup->type, lookup->addr))
		return;
	remember(group, lookup, &grh->sgid);
	TAILQ_FOREACH(waiting, &lookup->waiting, entry)
		waiting->gid = grh->sgid;
	end_lookup(group, lookup, found);
}

static void take_datagram(struct group *group, const struct ibv_wc *wc, struct waitings *found)
{
	const struct ibv_grh *grh = (void *) group->buffers[wc->wr_id];
	const struct acm_mad *mad = (void *) (group->buffers[wc->wr_id] + GRH_LENGTH);

	/* A shorter datagram, or one without a GRH, leaves old bytes in the buffer. */
	if (wc->byte_len != BUFFER_LENGTH || !(wc->wc_flags & IBV_WC_GRH))
		return;
	if (!is_well_formed(mad) || !names_group(group, mad) || !is_port_gid(&grh->sgid))
		return;
	if (mad->method == UMAD_METHOD_GET)
		take_request(group, wc, grh, mad);
	else
		take_answer(group, grh, mad, found);
}

static void take_completions(struct group *group, struct waitings *found)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(group->cq, 1, &wc) > 0) {
		if (wc.wr_id < SEND_DEPTH) {
			free_slot(&group->slots[wc.wr_id]);
		} else {
			if (wc.status == IBV_WC_SUCCESS)
				take_datagram(group, &wc, found);
			if (wc.status != IBV_WC_WR_FLUSH_ERR)
				post_receive(group, wc.wr_id);
		}
		if (wc.status != IBV_WC_SUCCESS)
			revive(group);
	}
}

/* ---- Background work ---- */

/* Handles what is due; returns when something is due next. */
static uint64_t tend_group(struct group *group, uint64_t now, struct waitings *failed)
{
	struct lookup *lookup, *next;
	uint64_t due = FOR_EVER;

	for (lookup = LIST_FIRST(&group->lookups); lookup; lookup = next) {
		next = LIST_NEXT(lookup, entry);
		if (lookup->deadline <= now) {
			end_lookup(group, lookup, failed);
			continue;
		}
		/* Before the group is joined, requests reach nobody. */
		if (group->mlid && lookup->tries && lookup->next_at <= now) {
			send_request(group, lookup);
			lookup->tries--;
			lookup->next_at = now + group->timeout;
		}
		due = earlier(due, lookup->deadline);
		if (group->mlid && lookup->tries)
			due = earlier(due, lookup->next_at);
	}
	return due;
}

static void free_waiting(struct waiting *waiting)
{
	free(waiting->request);
	free(waiting);
}

/* From here on it is a request for a GID. */
static void resolve_gid(struct endpoint *ep, struct acm_msg *msg, const union ibv_gid *gid, uint64_t id)
{
	struct acm_ep_addr_data *dest = &msg->resolve_data[msg->hdr.dst_index];
	struct address source = { .ep = ep };

	dest->type = EP_INFO_GID;
	memset(&dest->info, 0, sizeof dest->info);
	memcpy(dest->info.addr, gid, sizeof *gid);
	resolve(&source, msg, id);
}

static void go_on(struct endpoint *ep, struct waitings *found)
{
	struct waiting *waiting;

	while ((waiting = TAILQ_FIRST(found))) {
		TAILQ_REMOVE(found, waiting, entry);
		resolve_gid(ep, &waiting->msg, &waiting->gid, waiting->request->id);
		free_waiting(waiting);
	}
}

static void give_up(struct endpoint *ep, struct waitings *failed, uint8_t status)
{
	struct requests done = TAILQ_HEAD_INITIALIZER(done);
	struct waiting *waiting;

	pthread_mutex_lock(&lock);
	while ((waiting = TAILQ_FIRST(failed))) {
		TAILQ_REMOVE(failed, waiting, entry);
		ep->counters[ACM_CNTR_RESOLVE]++;
		finish(ep, waiting->request, status, NULL, &done);
		free(waiting);
	}
	pthread_mutex_unlock(&lock);
	send_answers(&done);
}

static void *serve(void *context)
{
	struct waitings found = TAILQ_HEAD_INITIALIZER(found), failed = TAILQ_HEAD_INITIALIZER(failed);
	struct group *group = context;
	struct pollfd fds[] = { { .fd = group->wake, .events = POLLIN }, { .fd = group->channel->fd, .events = POLLIN } };
	uint64_t now, due, woken;
	struct ibv_cq *cq;
	void *cq_context;

	pthread_mutex_lock(&lock);
	while (!group->stop) {
		take_completions(group, &found);
		now = now_ms();
		due = tend_group(group, now, &failed);
		pthread_mutex_unlock(&lock);
		go_on(group->ep, &found);
		give_up(group->ep, &failed, ACM_STATUS_ETIMEDOUT);
		poll(fds, 2, due == FOR_EVER ? -1 : (int) earlier(due - now, MAX_PAUSE_MS));
		if (fds[0].revents && read(group->wake, &woken, sizeof woken) < 0)
			acm_log(2, "woken by nobody\n");
		if (fds[1].revents && !ibv_get_cq_event(group->channel, &cq, &cq_context)) {
			ibv_ack_cq_events(cq, 1);
			/* Before polling the queue, so that no completion is missed. */
			ibv_req_notify_cq(cq, 0);
		}
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- Requests of clients ---- */

/* Makes a client wait for other nodes' answers; returns false if there is no room. */
static bool ask_group(struct group *group, const struct address *source, const struct acm_ep_addr_data *dest,
		      struct waiting *waiting)
{
	uint64_t now = now_ms();
	struct lookup *lookup;

	LIST_FOREACH(lookup, &group->lookups, entry)
		if (same_addr(lookup->type, lookup->addr, dest->type, dest->info.addr))
			break;
	if (!lookup) {
		lookup = group->lookup_count < MAX_LOOKUPS ? calloc(1, sizeof *lookup) : NULL;
		if (!lookup || getrandom(&lookup->tid, sizeof lookup->tid, 0) != sizeof lookup->tid) {
			free(lookup);
			return false;
		}
		lookup->type = dest->type;
		memcpy(lookup->addr, dest->info.addr, addr_length(dest->type, dest->info.addr));
		lookup->src_type = source->type;
		memcpy(lookup->src, source->addr, sizeof lookup->src);
		lookup->tries = group->retries + 1;
		lookup->deadline = now + group->timeout * lookup->tries;
		TAILQ_INIT(&lookup->waiting);
		LIST_INSERT_HEAD(&group->lookups, lookup, entry);
		group->lookup_count++;
		wake_up(group);
	}
	if (waiting)
		TAILQ_INSERT_TAIL(&lookup->waiting, waiting, entry);
	return true;
}

static struct waiting *new_waiting(const struct acm_msg *msg, uint64_t id)
{
	struct waiting *waiting;

	waiting = calloc(1, sizeof *waiting);
	if (!waiting)
		return NULL;
	waiting->msg = *msg;
	waiting->request = new_request(msg, id);
	if (!waiting->request) {
		free(waiting);
		return NULL;
	}
	return waiting;
}

/* Returns whether other nodes may know the destination. */
static bool is_for_others(struct endpoint *ep, const struct acm_msg *msg, struct acm_ep_addr_data *dest)
{
	unsigned int entries = entry_count(msg);
	struct acm_ep_addr_data first;

	if (!entries || msg->hdr.dst_index >= entries)
		return false;
	copy_entry(&first, msg, 0);
	copy_entry(dest, msg, msg->hdr.dst_index);
	if (first.type == ACM_EP_INFO_PATH && !msg->hdr.dst_index)
		return false;
	if (dest->type != ACM_EP_INFO_NAME && dest->type != ACM_EP_INFO_ADDRESS_IP && dest->type != ACM_EP_INFO_ADDRESS_IP6)
		return false;
	return addr_length(dest->type, dest->info.addr) && !is_own_addr(ep, dest->type, dest->info.addr) &&
	       !find_host(ep->port->dev, dest->type, dest->info.addr);
}

static int mcast_resolve(void *addr_context, struct acm_msg *msg, uint64_t id)
{
	struct waitings failed = TAILQ_HEAD_INITIALIZER(failed);
	const struct address *source = addr_context;
	const struct host *known = NULL;
	struct acm_ep_addr_data dest;
	struct waiting *waiting;
	union ibv_gid gid;
	bool is_asked;

	pthread_mutex_lock(&lock);
	if (!is_for_others(source->ep, msg, &dest)) {
		pthread_mutex_unlock(&lock);
		return resolve(addr_context, msg, id);
	}
	known = find_known(group_of(source->ep), dest.type, dest.info.addr);
	if (known) {
		gid = known->gid;
		count_both(source->ep, ACM_CNTR_ADDR_CACHE);
		pthread_mutex_unlock(&lock);
		resolve_gid(source->ep, msg, &gid, id);
		return 0;
	}
	waiting = new_waiting(msg, id);
	if (!waiting) {
		pthread_mutex_unlock(&lock);
		return ENOMEM;
	}
	if (dest.flags & ACM_FLAGS_NODELAY) {
		/* This client does not wait, but the next one may find the answer cached. */
		ask_group(group_of(source->ep), source, &dest, NULL);
		is_asked = false;
	} else {
		is_asked = ask_group(group_of(source->ep), source, &dest, waiting);
	}
	pthread_mutex_unlock(&lock);
	if (!is_asked) {
		TAILQ_INSERT_TAIL(&failed, waiting, entry);
		give_up(source->ep, &failed, dest.flags & ACM_FLAGS_NODELAY ? ACM_STATUS_ENODATA : ACM_STATUS_ENOMEM);
	}
	return 0;
}

/* ---- Opening and closing ---- */

static void take_group_option(void *context, char *name, char *value)
{
	struct group *group = context;

	if (!strcmp(name, "timeout"))
		take_number(name, value, 1, &group->timeout);
	else if (!strcmp(name, "retries"))
		take_number(name, value, 0, &group->retries);
	else if (!strcmp(name, "recv_depth"))
		take_number(name, value, 1, &group->recv_depth);
}

static int find_pkey(struct group *group, uint16_t wanted)
{
	uint16_t i;
	__be16 pkey;

	for (i = 0; i < group->ep->port->attr.pkey_tbl_len; i++) {
		if (!ibv_query_pkey(group->verbs, group->port_num, i, &pkey) && pkey == htobe16(wanted)) {
			group->pkey_index = i;
			return 0;
		}
	}
	return ENOENT;
}

static void free_group(struct group *group)
{
	int i;

	forget_known(group);
	leave_attachment(group);
	for (i = 0; i < SEND_DEPTH; i++)
		free_slot(&group->slots[i]);
	if (group->qp)
		ibv_destroy_qp(group->qp);
	if (group->cq)
		ibv_destroy_cq(group->cq);
	if (group->channel)
		ibv_destroy_comp_channel(group->channel);
	if (group->mr)
		ibv_dereg_mr(group->mr);
	if (group->pd)
		ibv_dealloc_pd(group->pd);
	if (group->wake >= 0)
		close(group->wake);
	free(group->buffers);
	free(group);
}

static int open_pair(struct group *group)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { .max_send_wr = SEND_DEPTH,
		.max_recv_wr = group->recv_depth, .max_send_sge = 1, .max_recv_sge = 1 } };
	size_t count = SEND_DEPTH + group->recv_depth;

	group->buffers = calloc(count, BUFFER_LENGTH);
	group->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!group->buffers || group->wake < 0)
		return ENOMEM;
	group->pd = ibv_alloc_pd(group->verbs);
	if (!group->pd)
		return ENOMEM;
	group->mr = ibv_reg_mr(group->pd, group->buffers, count * BUFFER_LENGTH, IBV_ACCESS_LOCAL_WRITE);
	group->channel = ibv_create_comp_channel(group->verbs);
	if (!group->mr || !group->channel)
		return ENOMEM;
	group->cq = ibv_create_cq(group->verbs, count, NULL, group->channel, 0);
	if (!group->cq || ibv_req_notify_cq(group->cq, 0))
		return ENOMEM;
	init.send_cq = init.recv_cq = group->cq;
	group->qp = ibv_create_qp(group->pd, &init);
	return group->qp ? start_pair(group) : ENOMEM;
}

static int open_group(struct endpoint *ep)
{
	const union ibv_gid mgid = { .raw = { 0xff, 0x15, 0x40, 0x01, (ep->acm->pkey >> 8) | 0x80, ep->acm->pkey & 0xff,
		0, IBV_RATE_10_GBPS, IBV_MTU_2048 } };
	struct group *group;
	int ret;

	group = calloc(1, sizeof *group);
	if (!group)
		return ENOMEM;
	group->ep = ep;
	group->wake = -1;
	group->verbs = ep->acm->port->dev->verbs;
	group->port_num = ep->acm->port->port_num;
	group->mgid = mgid;
	group->timeout = 2000;
	group->retries = 2;
	group->recv_depth = 64;
	read_pairs(acm_get_opts_file(), take_group_option, group);
	ret = find_pkey(group, ep->acm->pkey);
	if (!ret)
		ret = open_pair(group);
	pthread_mutex_lock(&lock);
	if (!ret)
		ret = pthread_create(&group->thread, NULL, serve, group);
	if (!ret) {
		LIST_INSERT_HEAD(&groups, group, entry);
		ep->send_join = join_group;
		ep->enter = is_member;
		join_anew(ep, now_ms());
	}
	pthread_mutex_unlock(&lock);
	if (ret)
		free_group(group);
	return ret;
}

static int mcast_open_endpoint(const struct acm_endpoint *acm, void *port_context, void **ep_context)
{
	struct port *port = port_context;
	void *ep;
	int ret;

	/* There is only one group to join. */
	port->dev->join = false;
	ret = open_endpoint(acm, port_context, &ep);
	if (ret)
		return ret;
	ret = open_group(ep);
	if (ret)
		close_endpoint(ep);
	else
		*ep_context = ep;
	return ret;
}

static void mcast_close_endpoint(void *ep_context)
{
	struct waitings failed = TAILQ_HEAD_INITIALIZER(failed);
	struct group *group;

	pthread_mutex_lock(&lock);
	group = group_of(ep_context);
	group->stop = true;
	wake_up(group);
	pthread_mutex_unlock(&lock);
	pthread_join(group->thread, NULL);
	pthread_mutex_lock(&lock);
	LIST_REMOVE(group, entry);
	group->ep->send_join = NULL;
	forget(&group->ep->join);
	while (!LIST_EMPTY(&group->lookups))
		end_lookup(group, LIST_FIRST(&group->lookups), &failed);
	/* The subnet manager removes members whose port goes down, so do not wait for this. */
	if (group->mlid && has_room(group->ep->port))
		send_membership(group, UMAD_SA_METHOD_DELETE);
	pthread_mutex_unlock(&lock);
	give_up(ep_context, &failed, ACM_STATUS_ENOTCONN);
	free_group(group);
	close_endpoint(ep_context);
}

static int mcast_handle_event(void *port_context, enum ibv_event_type type)
{
	struct group *group;

	if (type == IBV_EVENT_CLIENT_REREGISTER) {
		pthread_mutex_lock(&lock);
		LIST_FOREACH(group, &groups, entry)
			if (group->ep->port == port_context)
				forget_known(group);
		pthread_mutex_unlock(&lock);
	}
	return handle_event(port_context, type);
}

static struct acm_provider provider = {
	.size = sizeof(struct acm_provider),
	.version = 1,
	.name = "mcast-example",
	.open_device = open_device,
	.close_device = close_device,
	.open_port = open_port,
	.close_port = close_port,
	.open_endpoint = mcast_open_endpoint,
	.close_endpoint = mcast_close_endpoint,
	.add_address = add_address,
	.remove_address = remove_address,
	.resolve = mcast_resolve,
	.query = query,
	.handle_event = mcast_handle_event,
	.query_perf = query_perf,
};

__attribute__((visibility("default")))
int provider_query(struct acm_provider **info, uint32_t *version)
{
	*info = &provider;
	*version = provider.version;
	return 0;
}
