// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * sa-example: an ibacm provider in C that asks the subnet administrator (SA). To build, check and install it:
 *
 *	cc -std=gnu11 -O2 -Wall -Wextra -fPIC -fvisibility=hidden -shared -Wl,-z,now \
 *		sa_provider.c -o libsa_example.so -libverbs -lpthread
 *	loader-test check --strict libsa_example.so
 *	install -m 644 libsa_example.so /usr/lib/x86_64-linux-gnu/ibacm/
 *	echo 'provider sa-example default' >> /etc/rdma/ibacm_opts.cfg
 *
 * It is meant to be read, and as a starting point. The SA resolves GIDs, LIDs and path records. An acm_hosts
 * file maps names and IP addresses to GIDs, and the port resolves its own addresses itself.
 *
 * Each field that a client sets in its record is sent to the SA or compared with the SA's response. The
 * exception is what the SA declares as reserved: most SAs ignore service id and QoS class.
 *
 * Threads: the core calls SA handlers on its SA thread, and everything else on its single server thread. Each
 * open port adds a thread, which keeps the clients' deadlines. One mutex guards all state. It is held while a
 * MAD is passed to the core, so that the endpoint cannot be closed meanwhile. It is not held while clients are
 * answered: the answers are first collected in a list.
 *
 * Options in ibacm_opts.cfg: timeout, retries, sa_depth, route_timeout, addr_preload and addr_data_file have
 * the same meaning as for ibacm and its stock provider. A hosts file that changed is read again when a client
 * next requests an address. With "sa_example_join yes" each endpoint joins a multicast group.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <time.h>

#include <infiniband/acm_prov.h>
#include <infiniband/umad_sa_mcm.h>

/* Clients may send these two although acm.h does not define them. */
#define EP_INFO_GID		0x0004
#define EP_INFO_LID		0x0005

#define BUCKETS			1024	/* of each hash table */
#define MAX_PATHS		65536	/* maximum per endpoint */
#define NONE_FOR_MS		1000	/* how long "no such path" is cached */
#define FIRST_PAUSE_MS		20	/* before a query is repeated; doubled each time */
#define MAX_PAUSE_MS		5000
#define LOOK_AGAIN_MS		1000	/* interval of checks whether the hosts file changed */
#define MULTICAST_LIDS		0xc000	/* the first one */
#define QOS_SUPPORTED		(1 << 1)	/* in the CapabilityMask2 of the SA's ClassPortInfo */
#define QOS_FOR_MS		600000	/* how long the SA's statement is cached */
#define QOS_AGAIN_MS		60000	/* when to query again if the SA does not state it */
#define FOR_EVER		UINT64_MAX

/* The path in an answer is valid in both directions. */
#define ANSWER_FLAGS		(IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL)

struct options {
	long timeout, retries, sa_depth, route_timeout;
	bool preload, join;
	char *hosts_file;
};

/* A line of the acm_hosts file. */
struct host {
	SLIST_ENTRY(host) entry;
	uint16_t type;
	uint8_t addr[ACM_MAX_ADDRESS];
	union ibv_gid gid;
};

struct hosts {
	SLIST_HEAD(, host) buckets[BUCKETS];
};

struct device {
	LIST_ENTRY(device) entry;
	const struct acm_device *acm;
	unsigned int open_ports;
	uint64_t patience;		/* maximum time that a client waits, in ms */
	uint64_t route_timeout;		/* how long a path is cached, in ms */
	unsigned int depth;		/* maximum number of MADs in the core per port */
	bool join;

	/* The acm_hosts file. */
	char *hosts_file;		/* NULL: no file */
	struct hosts *hosts;		/* NULL: not read yet */
	struct stat hosts_state;	/* of the file when it was last read */
	uint64_t look_at;
	int hosts_error;		/* the last one that was logged */
};

TAILQ_HEAD(requests, request);

struct port {
	struct device *dev;
	struct ibv_port_attr attr;
	LIST_HEAD(, endpoint) endpoints;
	TAILQ_HEAD(, path) busy;	/* those with a query in flight or due, oldest first */
	LIST_HEAD(, query) queries;	/* MADs in the core */
	unsigned int out;		/* how many */
	enum { UNTOLD, RESERVED, CHOOSING } qos;	/* whether the SA ignores service ids and QoS classes */
	uint64_t qos_until;		/* when that expires */
	struct query *qos_query;	/* in flight */
	struct requests undecided;	/* requests that wait for it */
	pthread_t thread;
	pthread_cond_t wake;
	bool stop;
};

struct endpoint {
	LIST_ENTRY(endpoint) entry;
	struct port *port;
	const struct acm_endpoint *acm;	/* the core's; invalid after close_endpoint */
	union ibv_gid gid;
	LIST_HEAD(, address) addresses;
	LIST_HEAD(, path) paths[BUCKETS];
	LIST_HEAD(, path) records[BUCKETS];	/* answered ones, by DLID */
	unsigned int path_count;
	uint64_t counters[ACM_MAX_COUNTER];

	/* The multicast group. */
	void (*send_join)(struct endpoint *ep);	/* NULL: no group */
	bool (*enter)(struct endpoint *ep, const struct umad_sa_mcmember_record *record);	/* NULL: nothing to do */
	bool joined;
	struct query *join;		/* in flight */
	uint64_t join_at, join_pause;
};

/* A local address: a copy, because the core's array of them moves when it grows. */
struct address {
	LIST_ENTRY(address) entry;
	struct endpoint *ep;
	uint16_t type;
	uint8_t addr[ACM_MAX_ADDRESS];
};

/* A client's request until its answer. It is a copy: the message is the core's, and invalid after the call. */
struct request {
	TAILQ_ENTRY(request) entry;
	uint64_t id;
	struct acm_hdr hdr;
	bool is_query;			/* whether it came by query() instead of resolve() */
	bool has_second;
	struct acm_ep_addr_data second;	/* resolve: the source, if the answer must contain it; query: the entry itself */
	struct endpoint *ep;
	struct ibv_path_record question;	/* while the request is undecided */
	bool fresh;
	uint64_t deadline;
	uint8_t status;			/* the answer */
	struct ibv_path_record path;
};

/*
 * The cached result of a query. The key is the record that is sent to the SA: two requests share a result only
 * if they name the same destination, partition, service id, traffic class and so on.
 */
struct path {
	LIST_ENTRY(path) entry, record_entry;
	TAILQ_ENTRY(path) busy_entry;
	struct endpoint *ep;
	struct ibv_path_record question, record;
	enum { UNKNOWN, KNOWN, NONE } state;
	uint64_t until;			/* when it expires */
	bool busy;
	bool has_record;		/* whether it has a record from an answer */
	bool outdated;			/* queried before a re-registration: answers waiting requests, but is not cached */
	bool owed;			/* must be queried even if no request waits */
	struct query *query;		/* in flight */
	uint64_t ask_at, pause;
	struct requests waiters;
};

/*
 * A MAD in the core. Its context in the core is its transaction id, not its address: if the core returns it
 * after the port was closed, or never, nothing is found here and nothing leaks.
 */
struct query {
	LIST_ENTRY(query) entry, port_entry;
	uint32_t tid;
	uint64_t lost_at;		/* if the core has not returned it by then, it is lost */
	struct port *port;
	struct query **owner;		/* NULL: the result is not needed, but the core still has the MAD */
	struct endpoint *ep;
	struct path *path;		/* NULL: it is the endpoint's join, or the port's QoS query */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, device) devices = LIST_HEAD_INITIALIZER(devices);
static LIST_HEAD(, query) queries[BUCKETS];
static uint32_t last_tid;

static void from_sa(struct acm_sa_mad *mad);
static void look_up(struct endpoint *ep, const struct ibv_path_record *wanted, struct request *request, bool nodelay,
		    bool fresh, struct requests *done);

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint64_t longer(uint64_t pause)
{
	return pause * 2 < MAX_PAUSE_MS ? pause * 2 : MAX_PAUSE_MS;
}

/* Counts in the endpoint's own set and in the core's. The core itself counts errors, missing data and resolves. */
static void count_both(struct endpoint *ep, int counter)
{
	ep->counters[counter]++;
	acm_increment_counter(counter);
}

/* ---- Addresses ---- */

/* Returns how many of an address's 64 bytes count; the sender leaves garbage in the rest. */
static size_t addr_length(uint16_t type, const uint8_t *addr)
{
	if (type == ACM_EP_INFO_ADDRESS_IP)
		return 4;
	if (type == ACM_EP_INFO_ADDRESS_IP6)
		return 16;
	/* A name may fill all 64 bytes and then has no NUL. */
	return strnlen((const char *) addr, ACM_MAX_ADDRESS);
}

static bool same_addr(uint16_t type, const uint8_t *addr, uint16_t other_type, const uint8_t *other)
{
	size_t length = addr_length(type, addr);

	if (type != other_type || length != addr_length(type, other))
		return false;
	if (type == ACM_EP_INFO_NAME)
		return !strncasecmp((const char *) addr, (const char *) other, length);
	return !memcmp(addr, other, length);
}

static unsigned int hash(const void *data, size_t length)
{
	const uint8_t *bytes = data;
	uint32_t sum = 2166136261u;

	/* Ignores the bit that distinguishes upper and lower case. */
	while (length--)
		sum = (sum ^ (*bytes++ & ~0x20)) * 16777619u;
	return (sum ^ sum >> 16) % BUCKETS;
}

static bool is_zero(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return !memcmp(gid, &zero, sizeof zero);
}

static bool is_port_gid(const union ibv_gid *gid)
{
	return !is_zero(gid) && gid->raw[0] != 0xff;
}

static bool is_port_lid(__be16 lid)
{
	return lid && be16toh(lid) < MULTICAST_LIDS;
}

static bool same_gid(const union ibv_gid *gid, const union ibv_gid *other)
{
	return !memcmp(gid, other, sizeof *gid);
}

/* A link-local GID in a file or request is on the port's own subnet, whatever the subnet's prefix. */
static union ibv_gid local_gid(const struct endpoint *ep, union ibv_gid gid)
{
	if (gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80)
		gid.global.subnet_prefix = ep->gid.global.subnet_prefix;
	return gid;
}

/* Full and limited members, 0xffff and 0x7fff, belong to the same partition. */
static bool same_partition(__be16 pkey, __be16 other)
{
	return !((pkey ^ other) & htobe16(0x7fff));
}

static bool is_own_gid(struct endpoint *ep, const union ibv_gid *wanted)
{
	union ibv_gid gid;
	int i;

	for (i = 0; !acm_get_gid(ep->acm->port, i, &gid); i++)
		if (same_gid(&gid, wanted))
			return true;
	return false;
}

static bool is_own_addr(struct endpoint *ep, uint16_t type, const uint8_t *addr)
{
	struct address *own;

	LIST_FOREACH(own, &ep->addresses, entry)
		if (same_addr(own->type, own->addr, type, addr))
			return true;
	return false;
}

/* ---- Options and hosts ---- */

/* Calls `take` with the first two words of each line of a file; returns 0, or the errno of a failed read. */
static int take_pairs(const char *file, void (*take)(void *context, char *first, char *second), void *context)
{
	char *line = NULL, *first, *second, *rest;
	size_t size = 0;
	FILE *stream;
	int error;

	stream = fopen(file, "re");
	if (!stream)
		return errno;
	while (getline(&line, &size, stream) >= 0) {
		first = strtok_r(line, " \t\r\n", &rest);
		second = first ? strtok_r(NULL, " \t\r\n", &rest) : NULL;
		if (second && first[0] != '#')
			take(context, first, second);
	}
	error = ferror(stream) ? EIO : 0;
	free(line);
	fclose(stream);
	return error;
}

/* Like read_lines(), and logs a failure. */
static void read_pairs(const char *file, void (*take)(void *context, char *first, char *second), void *context)
{
	int error = take_pairs(file, take, context);

	if (error)
		acm_log(0, "%s: %s\n", file, strerror(error));
}

static void take_number(const char *name, const char *value, long least, long *number)
{
	char *end;
	long parsed;

	errno = 0;
	parsed = strtol(value, &end, 10);
	if (errno || *end || parsed < least || parsed > INT32_MAX)
		acm_log(0, "%s %.32s: not a number from %ld; using %ld\n", name, value, least, *number);
	else
		*number = parsed;
}

/* Parses one of two words. */
static void take_word(const char *name, const char *value, const char *off, const char *on, bool *is_on)
{
	if (strcmp(value, off) && strcmp(value, on))
		acm_log(0, "%s %.32s: neither %s nor %s; using %s\n", name, value, off, on, *is_on ? on : off);
	else
		*is_on = !strcmp(value, on);
}

static void take_option(void *context, char *name, char *value)
{
	struct options *options = context;

	if (!strcmp(name, "timeout")) {
		take_number(name, value, 1, &options->timeout);
	} else if (!strcmp(name, "retries")) {
		take_number(name, value, 0, &options->retries);
	} else if (!strcmp(name, "sa_depth")) {
		take_number(name, value, 1, &options->sa_depth);
	} else if (!strcmp(name, "route_timeout")) {
		take_number(name, value, -1, &options->route_timeout);
	} else if (!strcmp(name, "addr_preload")) {
		take_word(name, value, "none", "acm_hosts", &options->preload);
	} else if (!strcmp(name, "addr_data_file")) {
		free(options->hosts_file);
		options->hosts_file = strdup(value);
	} else if (!strcmp(name, "sa_example_join")) {
		take_word(name, value, "no", "yes", &options->join);
	}
	/* All providers read this file, so ignore other lines. */
}

static void take_host(void *context, char *name, char *gid)
{
	struct hosts *hosts = context;
	struct host *host;

	host = calloc(1, sizeof *host);
	if (!host)
		return;
	if (inet_pton(AF_INET, name, host->addr) == 1) {
		host->type = ACM_EP_INFO_ADDRESS_IP;
	} else if (inet_pton(AF_INET6, name, host->addr) == 1) {
		host->type = ACM_EP_INFO_ADDRESS_IP6;
	} else {
		host->type = ACM_EP_INFO_NAME;
		memcpy(host->addr, name, strnlen(name, ACM_MAX_ADDRESS));
	}
	if (strlen(name) > ACM_MAX_ADDRESS || inet_pton(AF_INET6, gid, &host->gid) != 1 || !is_port_gid(&host->gid)) {
		acm_log(0, "hosts file: not an address and a port's GID: %.64s %.64s\n", name, gid);
		free(host);
		return;
	}
	/* Insert at the front: of several lines for an address the last one counts. */
	SLIST_INSERT_HEAD(&hosts->buckets[hash(host->addr, addr_length(host->type, host->addr))], host, entry);
}

static void free_hosts(struct hosts *hosts)
{
	struct host *host;
	int i;

	for (i = 0; hosts && i < BUCKETS; i++) {
		while ((host = SLIST_FIRST(&hosts->buckets[i]))) {
			SLIST_REMOVE_HEAD(&hosts->buckets[i], entry);
			free(host);
		}
	}
	free(hosts);
}

static bool same_state(const struct stat *state, const struct stat *other)
{
	return state->st_dev == other->st_dev && state->st_ino == other->st_ino && state->st_size == other->st_size &&
	       state->st_ctim.tv_sec == other->st_ctim.tv_sec && state->st_ctim.tv_nsec == other->st_ctim.tv_nsec;
}

/*
 * Reads the hosts file if it has changed. The old content is replaced as a whole, or kept if the file cannot be
 * read (no free descriptor, for example); then it is read again the next time.
 */
static void follow_hosts(struct device *dev)
{
	struct stat state, after;
	struct hosts *fresh;
	uint64_t now = now_ms();
	int error = 0;

	if (!dev->hosts_file || now < dev->look_at)
		return;
	dev->look_at = now + LOOK_AGAIN_MS;
	if (stat(dev->hosts_file, &state))
		error = errno;
	else if (dev->hosts && same_state(&state, &dev->hosts_state))
		return;
	else if (!S_ISREG(state.st_mode))
		error = ENOTSUP;	/* a pipe or a device may never end */
	fresh = calloc(1, sizeof *fresh);
	if (!error)
		error = fresh ? take_pairs(dev->hosts_file, take_host, fresh) : ENOMEM;
	/* It may be half written: many editors truncate a file first. */
	if (!error && (!state.st_size || stat(dev->hosts_file, &after) || !same_state(&state, &after)))
		error = EAGAIN;
	if (error) {
		if (error != dev->hosts_error)
			acm_log(0, "%s: %s; going on with what is known\n", dev->hosts_file, strerror(error));
		free_hosts(fresh);
	} else {
		if (dev->hosts_error)
			acm_log(0, "%s: can be read again\n", dev->hosts_file);
		free_hosts(dev->hosts);
		dev->hosts = fresh;
		dev->hosts_state = state;
	}
	dev->hosts_error = error;
}

static const struct host *find_host(struct device *dev, uint16_t type, const uint8_t *addr)
{
	const struct host *host;

	follow_hosts(dev);
	if (!dev->hosts)
		return NULL;
	SLIST_FOREACH(host, &dev->hosts->buckets[hash(addr, addr_length(type, addr))], entry)
		if (same_addr(host->type, host->addr, type, addr))
			return host;
	return NULL;
}

static void read_options(struct device *dev)
{
	struct options options = { .timeout = 2000, .retries = 2, .sa_depth = 1, .route_timeout = -1 };

	read_pairs(acm_get_opts_file(), take_option, &options);
	dev->patience = (uint64_t) options.timeout * (options.retries + 1);
	dev->route_timeout = options.route_timeout < 0 ? FOR_EVER : (uint64_t) options.route_timeout * 60000;
	/* One more than the core sends at a time, so that the core never waits for us. */
	dev->depth = options.sa_depth + 1;
	dev->join = options.join;
	if (options.preload)
		dev->hosts_file = options.hosts_file ? options.hosts_file : strdup("/etc/rdma/ibacm_hosts.data");
	else
		free(options.hosts_file);
	follow_hosts(dev);
}

/* ---- Answers ---- */

/* Sets a request's answer; send_answers() sends it after the lock is released. */
static void finish(struct endpoint *ep, struct request *request, uint8_t status, const struct ibv_path_record *path,
		   struct requests *done)
{
	if (status == ACM_STATUS_ENODATA)
		ep->counters[ACM_CNTR_NODATA]++;
	else if (status != ACM_STATUS_SUCCESS)
		ep->counters[ACM_CNTR_ERROR]++;
	request->status = status;
	if (path)
		request->path = *path;
	TAILQ_INSERT_TAIL(done, request, entry);
}

static void add_entry(struct acm_msg *msg, const struct acm_ep_addr_data *entry)
{
	memcpy((uint8_t *) msg + msg->hdr.length, entry, ACM_MSG_EP_LENGTH);
	msg->hdr.length += ACM_MSG_EP_LENGTH;
}

/* In host byte order, except inside path records and addresses. */
static void send_answer(const struct request *request)
{
	struct acm_ep_addr_data path = { .flags = ANSWER_FLAGS, .type = ACM_EP_INFO_PATH };
	struct acm_msg msg;

	memset(&msg, 0, sizeof msg);
	msg.hdr.version = request->hdr.version;
	msg.hdr.opcode = request->hdr.opcode | ACM_OP_ACK;
	msg.hdr.status = request->status;
	msg.hdr.tid = request->hdr.tid;
	msg.hdr.length = ACM_MSG_HDR_LENGTH;
	path.info.path = request->path;
	/* The result says whether the client is still connected, which does not matter here. */
	if (request->is_query) {
		path.flags = request->second.flags;
		if (request->status != ACM_STATUS_SUCCESS)
			path = request->second;
		if (request->has_second)
			add_entry(&msg, &path);
		acm_query_response(request->id, &msg);
	} else {
		if (request->status == ACM_STATUS_SUCCESS)
			add_entry(&msg, &path);
		if (request->status == ACM_STATUS_SUCCESS && request->has_second)
			add_entry(&msg, &request->second);
		acm_resolve_response(request->id, &msg);
	}
}

static void send_answers(struct requests *done)
{
	struct request *request;

	while ((request = TAILQ_FIRST(done))) {
		TAILQ_REMOVE(done, request, entry);
		send_answer(request);
		free(request);
	}
}

/* ---- MADs to the SA ---- */

static struct query *find_query(uintptr_t tid)
{
	struct query *query;

	LIST_FOREACH(query, &queries[tid % BUCKETS], entry)
		if (query->tid == tid)
			return query;
	return NULL;
}

/* The result is no longer needed. The MAD still counts until the core returns it. */
static void forget(struct query **query)
{
	if (*query)
		(*query)->owner = NULL;
	*query = NULL;
}

/* The core has returned it, or lost it. */
static void end_query(struct query *query)
{
	if (query->owner)
		*query->owner = NULL;
	query->port->out--;
	LIST_REMOVE(query, entry);
	LIST_REMOVE(query, port_entry);
	free(query);
}

/* Returns whether to pass the core one more MAD. Those in the core cannot be withdrawn or overtaken. */
static bool has_room(const struct port *port)
{
	return port->out < port->dev->depth;
}

/* Unique among the MADs in flight. The core and the kernel leave us 32 bits of it. */
static uint32_t new_tid(void)
{
	do
		last_tid++;
	while (!last_tid || find_query(last_tid));
	return last_tid;
}

/* Sends a query. If the core accepts the MAD, `owner` points to it until it returns; NULL: the result is not needed. */
static void send_mad(struct endpoint *ep, struct query **owner, struct path *path, uint8_t method, uint16_t attribute,
		     __be64 mask, const void *record, size_t length)
{
	struct acm_sa_mad *mad;
	struct query *query;

	query = calloc(1, sizeof *query);
	if (!query)
		return;
	query->tid = new_tid();
	query->port = ep->port;
	query->owner = owner;
	query->ep = ep;
	query->path = path;
	/* In the core it may have to wait until another MAD times out. */
	query->lost_at = now_ms() + 2 * ep->port->dev->patience + 1000;
	mad = acm_alloc_sa_mad(ep->acm, (void *) (uintptr_t) query->tid, from_sa);
	if (!mad) {
		free(query);
		return;
	}
	memset(&mad->sa_mad, 0, sizeof mad->sa_mad);
	mad->sa_mad.mad_hdr.base_version = UMAD_BASE_VERSION;
	mad->sa_mad.mad_hdr.mgmt_class = UMAD_CLASS_SUBN_ADM;
	mad->sa_mad.mad_hdr.class_version = UMAD_SA_CLASS_VERSION;
	mad->sa_mad.mad_hdr.method = method;
	mad->sa_mad.mad_hdr.tid = htobe64(query->tid);
	mad->sa_mad.mad_hdr.attr_id = htobe16(attribute);
	mad->sa_mad.comp_mask = mask;
	memcpy(mad->sa_mad.data, record, length);
	LIST_INSERT_HEAD(&queries[query->tid % BUCKETS], query, entry);
	LIST_INSERT_HEAD(&ep->port->queries, query, port_entry);
	ep->port->out++;
	if (owner)
		*owner = query;
	if (acm_send_sa_mad(mad)) {
		/* A MAD that was not taken is still ours. */
		acm_free_sa_mad(mad);
		end_query(query);
	}
}

/* Translates a response into the client's status. Sets `again` for temporary failures. */
static uint8_t sa_status(const struct acm_sa_mad *mad, uint16_t attribute, bool *again)
{
	const struct umad_hdr *hdr = &mad->sa_mad.mad_hdr;
	uint8_t class_status = be16toh(hdr->status) >> 8;

	/* The MAD timed out, or could not be sent. */
	*again = mad->umad.status;
	if (mad->umad.status)
		return ACM_STATUS_ETIMEDOUT;
	/* Either byte means failure, not only the SA's own code in the high byte. */
	if (!hdr->status)
		return (hdr->method & UMAD_METHOD_RESP_MASK) && hdr->attr_id == htobe16(attribute) ?
			ACM_STATUS_SUCCESS : ACM_STATUS_ENODATA;
	*again = hdr->status == htobe16(UMAD_STATUS_BUSY) || class_status == UMAD_SA_STATUS_NO_RESOURCES;
	if (*again)
		return ACM_STATUS_ETIMEDOUT;
	return class_status == UMAD_SA_STATUS_REQ_INVALID ? ACM_STATUS_EINVAL : ACM_STATUS_ENODATA;
}

/* ---- Questions and records ---- */

static unsigned int qos_class(const struct ibv_path_record *path)
{
	return be16toh(path->qosclass_sl) >> 4;
}

static unsigned int service_level(const struct ibv_path_record *path)
{
	return be16toh(path->qosclass_sl) & 0xf;
}

/* The client cannot choose the hop limit next to it. */
static __be32 flow_label(const struct ibv_path_record *path)
{
	return path->flowlabel_hoplimit & htobe32(0x0fffff00);
}

/* An MTU, rate or lifetime with selector 0 ("greater than") is no constraint, since clients leave it so. */
static uint8_t demand(uint8_t wanted)
{
	return wanted >> UMAD_SA_SELECTOR_SHIFT == UMAD_SA_SELECTOR_GREATER_THAN ? 0 : wanted;
}

static bool meets(uint8_t demand, int wanted, int has)
{
	switch (demand >> UMAD_SA_SELECTOR_SHIFT) {
	case UMAD_SA_SELECTOR_LESS_THAN:
		return has < wanted;
	case UMAD_SA_SELECTOR_EXACTLY:
		return has == wanted;
	default:
		return true;
	}
}

static bool meets_code(uint8_t demand, uint8_t has)
{
	return meets(demand, umad_sa_get_rate_mtu_or_life(demand), umad_sa_get_rate_mtu_or_life(has));
}

/* The codes of rates are not in order of the rates. */
static bool meets_rate(uint8_t demand, uint8_t has)
{
	return meets(demand, ibv_rate_to_mbps(umad_sa_get_rate_mtu_or_life(demand)),
		     ibv_rate_to_mbps(umad_sa_get_rate_mtu_or_life(has)));
}

/* OpenSM returns zeros for these, whatever the query. */
static bool is_asked_or_zero(uint64_t has, uint64_t asked)
{
	return !has || has == asked;
}

static bool leads_there(const struct ibv_path_record *record, const struct ibv_path_record *question)
{
	if (question->dlid && record->dlid != question->dlid)
		return false;
	return is_zero(&question->dgid) || same_gid(&record->dgid, &question->dgid);
}

/* The response must match the query in each component, and lead to a port. */
static bool fits(const struct ibv_path_record *record, const struct ibv_path_record *question)
{
	return leads_there(record, question) && is_port_lid(record->dlid) && is_port_gid(&record->dgid) &&
	       same_gid(&record->sgid, &question->sgid) &&
	       (!question->slid || record->slid == question->slid) &&
	       same_partition(record->pkey, question->pkey) &&
	       (!service_level(question) || service_level(record) == service_level(question)) &&
	       meets_code(question->mtu, record->mtu) && meets_rate(question->rate, record->rate) &&
	       meets_code(question->packetlifetime, record->packetlifetime) &&
	       is_asked_or_zero(record->service_id, question->service_id) &&
	       is_asked_or_zero(qos_class(record), qos_class(question)) &&
	       is_asked_or_zero(record->tclass, question->tclass) &&
	       is_asked_or_zero(flow_label(record), flow_label(question));
}

/*
 * A client may request the very record that it was given, as rdma_getaddrinfo does. The SA may refuse it the
 * second time, because it chooses the SL for each query, or adjusted the rate.
 */
static bool repeats(const struct ibv_path_record *question, const struct path *path)
{
	const struct ibv_path_record *record = &path->record, *earlier = &path->question;

	return question->dlid == record->dlid && same_gid(&question->dgid, &record->dgid) &&
	       same_gid(&question->sgid, &record->sgid) && is_asked_or_zero(question->slid, record->slid) &&
	       same_partition(question->pkey, record->pkey) && service_level(question) == service_level(record) &&
	       question->mtu == record->mtu && question->rate == record->rate &&
	       question->packetlifetime == record->packetlifetime &&
	       is_asked_or_zero(question->service_id, earlier->service_id) &&
	       is_asked_or_zero(qos_class(question), qos_class(earlier)) &&
	       is_asked_or_zero(question->tclass, earlier->tclass) &&
	       is_asked_or_zero(flow_label(question), flow_label(earlier));
}

/* ---- Paths ---- */

static bool is_believed(const struct path *path, uint64_t now)
{
	return path->state != UNKNOWN && now < path->until;
}

static void free_path(struct path *path)
{
	forget(&path->query);
	if (path->busy)
		TAILQ_REMOVE(&path->ep->port->busy, path, busy_entry);
	if (path->has_record)
		LIST_REMOVE(path, record_entry);
	LIST_REMOVE(path, entry);
	path->ep->path_count--;
	free(path);
}

/* Drops what is cached. Queries in flight still answer their clients, but no new request joins them. */
static void drop_paths(struct endpoint *ep)
{
	struct path *path, *next;
	int i;

	for (i = 0; i < BUCKETS; i++) {
		for (path = LIST_FIRST(&ep->paths[i]); path; path = next) {
			next = LIST_NEXT(path, entry);
			if (path->busy)
				path->outdated = true;
			else
				free_path(path);
		}
	}
}

/* Returns the path for a query, a new one if needed; NULL if out of memory. */
static struct path *get_path(struct endpoint *ep, const struct ibv_path_record *question)
{
	unsigned int bucket = hash(question, sizeof *question);
	struct path *path;

	LIST_FOREACH(path, &ep->paths[bucket], entry)
		if (!path->outdated && !memcmp(&path->question, question, sizeof *question))
			return path;
	/* Clients can request anything, so a full cache starts over. */
	if (ep->path_count >= MAX_PATHS)
		drop_paths(ep);
	path = ep->path_count < MAX_PATHS ? calloc(1, sizeof *path) : NULL;
	if (!path)
		return NULL;
	path->ep = ep;
	path->question = *question;
	path->pause = FIRST_PAUSE_MS;
	TAILQ_INIT(&path->waiters);
	LIST_INSERT_HEAD(&ep->paths[bucket], path, entry);
	ep->path_count++;
	return path;
}

/* Returns the path that gave exactly the requested record. */
static struct path *find_repeated(struct endpoint *ep, const struct ibv_path_record *question, uint64_t now)
{
	struct path *path;

	LIST_FOREACH(path, &ep->records[be16toh(question->dlid) % BUCKETS], record_entry)
		if (!path->outdated && path->state == KNOWN && is_believed(path, now) && repeats(question, path))
			return path;
	return NULL;
}

static void keep_record(struct path *path, const struct ibv_path_record *record)
{
	if (path->has_record)
		LIST_REMOVE(path, record_entry);
	path->has_record = true;
	path->record = *record;
	LIST_INSERT_HEAD(&path->ep->records[be16toh(record->dlid) % BUCKETS], path, record_entry);
}

/* All requests that wait for the path get the same answer. */
static void answer_waiters(struct path *path, uint8_t status, const struct ibv_path_record *record,
			   struct requests *done)
{
	struct request *request;

	while ((request = TAILQ_FIRST(&path->waiters))) {
		TAILQ_REMOVE(&path->waiters, request, entry);
		finish(path->ep, request, status, record, done);
	}
}

/* No request waits for it any more. */
static void rest(struct path *path)
{
	TAILQ_REMOVE(&path->ep->port->busy, path, busy_entry);
	path->busy = false;
	path->pause = FIRST_PAUSE_MS;
	path->ask_at = 0;
	if (path->outdated || path->state == UNKNOWN)
		free_path(path);
}

static void ask(struct path *path, uint64_t now)
{
	path->owed = false;
	send_mad(path->ep, &path->query, path, UMAD_METHOD_GET, UMAD_SA_ATTR_PATH_REC,
		 acm_path_comp_mask(&path->question), &path->question, sizeof path->question);
	if (path->query) {
		count_both(path->ep, ACM_CNTR_ROUTE_QUERY);
	} else {
		path->ask_at = now + path->pause;
		path->pause = longer(path->pause);
	}
}

/* Handles what is due for a path with a query in flight or due. The path may be freed afterwards. */
static void tend_path(struct path *path, uint64_t now, struct requests *done)
{
	struct request *request;

	while ((request = TAILQ_FIRST(&path->waiters)) && request->deadline <= now) {
		TAILQ_REMOVE(&path->waiters, request, entry);
		finish(path->ep, request, ACM_STATUS_ETIMEDOUT, NULL, done);
	}
	if (path->query)
		return;
	if (TAILQ_EMPTY(&path->waiters) && !path->owed)
		rest(path);
	else if (path->ask_at <= now && has_room(path->ep->port))
		ask(path, now);
}

static void path_answered(struct path *path, const struct acm_sa_mad *mad, struct requests *done)
{
	struct ibv_path_record record;
	uint64_t now = now_ms();
	uint8_t status;
	bool again;

	forget(&path->query);
	memcpy(&record, mad->sa_mad.data, sizeof record);
	status = sa_status(mad, UMAD_SA_ATTR_PATH_REC, &again);
	if (again) {
		/* tend_path() answers requests whose deadline passed. */
		path->ask_at = now + path->pause;
		path->pause = longer(path->pause);
		return;
	}
	if (status == ACM_STATUS_SUCCESS && !fits(&record, &path->question)) {
		acm_log(1, "the SA's path to LID %u is not what it was asked for\n", be16toh(record.dlid));
		status = ACM_STATUS_ENODATA;
	} else if (status == ACM_STATUS_SUCCESS) {
		path->state = KNOWN;
		keep_record(path, &record);
		path->until = path->ep->port->dev->route_timeout;
		if (path->until != FOR_EVER)
			path->until += now;
	} else if (mad->sa_mad.mad_hdr.status == htobe16(UMAD_SA_STATUS_NO_RECORDS << 8)) {
		path->state = NONE;
		path->until = now + NONE_FOR_MS;
	}
	answer_waiters(path, status, &record, done);
}

/* The path from the port to itself, if the core knows the port's rate. */
static bool own_path(struct endpoint *ep, struct ibv_path_record *path)
{
	const struct ibv_port_attr *attr = &ep->port->attr;
	uint8_t rate = acm_get_rate(attr->active_width, attr->active_speed);

	memset(path, 0, sizeof *path);
	path->sgid = path->dgid = ep->gid;
	path->slid = path->dlid = htobe16(attr->lid);
	path->reversible_numpath = IBV_PATH_RECORD_REVERSIBLE;
	path->pkey = htobe16(ep->acm->pkey);
	path->mtu = umad_sa_set_rate_mtu_or_life(UMAD_SA_SELECTOR_EXACTLY, attr->active_mtu);
	path->rate = umad_sa_set_rate_mtu_or_life(UMAD_SA_SELECTOR_EXACTLY, rate);
	path->packetlifetime = umad_sa_set_rate_mtu_or_life(UMAD_SA_SELECTOR_EXACTLY, 0);
	return rate;
}

/* ---- The multicast group ---- */

static void send_join(struct endpoint *ep)
{
	const uint64_t mask = UMAD_SA_MCM_COMP_MASK_MGID | UMAD_SA_MCM_COMP_MASK_PORT_GID | UMAD_SA_MCM_COMP_MASK_QKEY |
		UMAD_SA_MCM_COMP_MASK_MTU_SEL | UMAD_SA_MCM_COMP_MASK_MTU | UMAD_SA_MCM_COMP_MASK_TCLASS |
		UMAD_SA_MCM_COMP_MASK_PKEY | UMAD_SA_MCM_COMP_MASK_RATE_SEL | UMAD_SA_MCM_COMP_MASK_RATE |
		UMAD_SA_MCM_COMP_MASK_SL | UMAD_SA_MCM_COMP_MASK_FLOW_LABEL | UMAD_SA_MCM_COMP_MASK_SCOPE |
		UMAD_SA_MCM_COMP_MASK_JOIN_STATE;
	/* Site-local and transient; contains a signature and the partition (written the same way by every member). */
	struct umad_sa_mcmember_record record = {
		.mgid = { 0xff, 0x15, 0x5a, 0xe0, (ep->acm->pkey >> 8) | 0x80, ep->acm->pkey & 0xff },
		.qkey = htobe32(UMAD_QKEY),
		.mtu = umad_sa_set_rate_mtu_or_life(UMAD_SA_SELECTOR_EXACTLY, IBV_MTU_2048),
		.pkey = htobe16(ep->acm->pkey),
		.rate = umad_sa_set_rate_mtu_or_life(UMAD_SA_SELECTOR_EXACTLY, IBV_RATE_10_GBPS),
		.scope_state = umad_sa_mcm_set_scope_state(UMAD_SA_MCM_ADDR_SCOPE_SITE_LOCAL,
							   UMAD_SA_MCM_JOIN_STATE_FULL_MEMBER),
	};

	memcpy(record.portgid, &ep->gid, sizeof record.portgid);
	send_mad(ep, &ep->join, NULL, UMAD_METHOD_SET, UMAD_SA_ATTR_MCMEMBER_REC, htobe64(mask), &record, sizeof record);
}

static bool wants_to_join(const struct endpoint *ep)
{
	return ep->send_join && !ep->joined && !ep->join;
}

/* Joins if that is configured and due. Nothing waits for it: paths do not need the group. */
static void tend_join(struct endpoint *ep, uint64_t now)
{
	if (!wants_to_join(ep) || ep->join_at > now || !has_room(ep->port))
		return;
	ep->send_join(ep);
	ep->join_at = now + ep->join_pause;
	ep->join_pause = longer(ep->join_pause);
}

/* Joins again: the subnet manager has lost its members. A response still to come belongs to an earlier join. */
static void join_anew(struct endpoint *ep, uint64_t now)
{
	forget(&ep->join);
	ep->joined = false;
	ep->join_at = 0;
	ep->join_pause = FIRST_PAUSE_MS;
	tend_join(ep, now);
}

/* A refused join is retried after a pause. */
static void join_answered(struct endpoint *ep, const struct acm_sa_mad *mad)
{
	struct umad_sa_mcmember_record record;
	bool again;

	forget(&ep->join);
	memcpy(&record, mad->sa_mad.data, sizeof record);
	ep->joined = sa_status(mad, UMAD_SA_ATTR_MCMEMBER_REC, &again) == ACM_STATUS_SUCCESS &&
		     (!ep->enter || ep->enter(ep, &record));
	ep->join_at = now_ms() + ep->join_pause;
	acm_log(1, "multicast group %s\n", ep->joined ? "joined" : "not joined");
}

/* ---- Service ids and QoS classes: does the SA choose paths by them? ---- */

static bool names_service(const struct ibv_path_record *question)
{
	return question->service_id || qos_class(question);
}

static bool is_qos_told(const struct port *port, uint64_t now)
{
	return port->qos != UNTOLD && now < port->qos_until;
}

/* Continues the requests that waited for it. */
static void decide_qos(struct port *port, bool is_told, bool is_choosing, struct requests *done)
{
	struct request *request;

	/* If the SA does not state it, it may choose paths by them. */
	port->qos = is_told && !is_choosing ? RESERVED : CHOOSING;
	port->qos_until = now_ms() + (is_told ? QOS_FOR_MS : QOS_AGAIN_MS);
	while ((request = TAILQ_FIRST(&port->undecided))) {
		TAILQ_REMOVE(&port->undecided, request, entry);
		look_up(request->ep, &request->question, request, false, request->fresh, done);
	}
}

static void ask_qos(struct endpoint *ep, struct requests *done)
{
	static const struct umad_class_port_info nothing;
	struct port *port = ep->port;

	/* If the core has no room for a MAD, the query follows when one returns. */
	if (port->qos_query || !has_room(port))
		return;
	send_mad(ep, &port->qos_query, NULL, UMAD_METHOD_GET, UMAD_ATTR_CLASS_PORT_INFO, 0, &nothing, sizeof nothing);
	if (!port->qos_query)
		decide_qos(port, false, false, done);
}

static void qos_answered(struct port *port, const struct acm_sa_mad *mad, struct requests *done)
{
	struct umad_class_port_info info;
	bool again, is_told;

	forget(&port->qos_query);
	memcpy(&info, mad->sa_mad.data, sizeof info);
	is_told = sa_status(mad, UMAD_ATTR_CLASS_PORT_INFO, &again) == ACM_STATUS_SUCCESS &&
		  info.base_ver == UMAD_BASE_VERSION && info.class_ver == UMAD_SA_CLASS_VERSION;
	if (!is_told)
		acm_log(0, "the SA does not say whether service ids choose paths: assuming that they do\n");
	decide_qos(port, is_told, umad_class_cap_mask2(&info) & QOS_SUPPORTED, done);
}

/* A request that names a service waits, within its deadline, until this is known. */
static void wait_for_qos(struct endpoint *ep, const struct ibv_path_record *question, struct request *request,
			 bool nodelay, bool fresh, struct requests *done)
{
	if (nodelay) {
		finish(ep, request, ACM_STATUS_ENODATA, NULL, done);
	} else {
		request->question = *question;
		request->fresh = fresh;
		TAILQ_INSERT_TAIL(&ep->port->undecided, request, entry);
	}
	ask_qos(ep, done);
	pthread_cond_signal(&ep->port->wake);
}

static void tend_undecided(struct port *port, uint64_t now, struct requests *done)
{
	struct request *request;

	while ((request = TAILQ_FIRST(&port->undecided)) && request->deadline <= now) {
		TAILQ_REMOVE(&port->undecided, request, entry);
		finish(request->ep, request, ACM_STATUS_ETIMEDOUT, NULL, done);
	}
	if (request)
		ask_qos(request->ep, done);
}

/* The endpoint closes: refuses its requests. */
static void leave_undecided(struct endpoint *ep, struct requests *done)
{
	struct request *request, *next;

	for (request = TAILQ_FIRST(&ep->port->undecided); request; request = next) {
		next = TAILQ_NEXT(request, entry);
		if (request->ep != ep)
			continue;
		TAILQ_REMOVE(&ep->port->undecided, request, entry);
		finish(ep, request, ACM_STATUS_ENOTCONN, NULL, done);
	}
}

/* ---- Background work: SA responses and deadlines ---- */

static void tend_port(struct port *port, struct requests *done)
{
	struct query *query, *next_query;
	struct path *path, *next_path;
	uint64_t now = now_ms();
	struct endpoint *ep;

	for (query = LIST_FIRST(&port->queries); query; query = next_query) {
		next_query = LIST_NEXT(query, port_entry);
		if (query->lost_at <= now)
			end_query(query);
	}
	tend_undecided(port, now, done);
	LIST_FOREACH(ep, &port->endpoints, entry)
		tend_join(ep, now);
	for (path = TAILQ_FIRST(&port->busy); path; path = next_path) {
		next_path = TAILQ_NEXT(path, busy_entry);
		tend_path(path, now, done);
	}
}

/* The core's SA handler. */
static void from_sa(struct acm_sa_mad *mad)
{
	struct requests done = TAILQ_HEAD_INITIALIZER(done);
	struct query *query;
	struct port *port;

	pthread_mutex_lock(&lock);
	query = find_query((uintptr_t) mad->context);
	if (query) {
		port = query->port;
		if (query->owner && query->path)
			path_answered(query->path, mad, &done);
		else if (query == port->qos_query)
			qos_answered(port, mad, &done);
		else if (query->owner)
			join_answered(query->ep, mad);
		end_query(query);
		tend_port(port, &done);
		pthread_cond_signal(&port->wake);
	}
	pthread_mutex_unlock(&lock);
	acm_free_sa_mad(mad);
	send_answers(&done);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Returns when something is due next. */
static uint64_t next_due(const struct port *port)
{
	const struct endpoint *ep;
	const struct query *query;
	const struct path *path;
	uint64_t due = FOR_EVER;

	if (!TAILQ_EMPTY(&port->undecided))
		due = TAILQ_FIRST(&port->undecided)->deadline;
	LIST_FOREACH(query, &port->queries, port_entry)
		due = earlier(due, query->lost_at);
	LIST_FOREACH(ep, &port->endpoints, entry)
		if (wants_to_join(ep) && has_room(port))
			due = earlier(due, ep->join_at);
	TAILQ_FOREACH(path, &port->busy, busy_entry) {
		if (!TAILQ_EMPTY(&path->waiters))
			due = earlier(due, TAILQ_FIRST(&path->waiters)->deadline);
		if (!path->query && has_room(port))
			due = earlier(due, path->ask_at);
	}
	return due;
}

static void *keep_deadlines(void *context)
{
	struct requests done = TAILQ_HEAD_INITIALIZER(done);
	struct port *port = context;
	struct timespec until;
	uint64_t due;

	pthread_mutex_lock(&lock);
	while (!port->stop) {
		tend_port(port, &done);
		if (!TAILQ_EMPTY(&done)) {
			pthread_mutex_unlock(&lock);
			send_answers(&done);
			pthread_mutex_lock(&lock);
			continue;
		}
		due = next_due(port);
		until.tv_sec = due / 1000;
		until.tv_nsec = due % 1000 * 1000000;
		if (due == FOR_EVER)
			pthread_cond_wait(&port->wake, &lock);
		else
			pthread_cond_timedwait(&port->wake, &lock, &until);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- Requests ---- */

/* Returns how many entries the client filled, at most eight. The rest are garbage. */
static unsigned int entry_count(const struct acm_msg *msg)
{
	size_t length = earlier(msg->hdr.length, sizeof *msg);

	return length < ACM_MSG_HDR_LENGTH ? 0 : (length - ACM_MSG_HDR_LENGTH) / ACM_MSG_EP_LENGTH;
}

static void copy_entry(struct acm_ep_addr_data *entry, const struct acm_msg *msg, unsigned int index)
{
	memcpy(entry, msg->data + index * ACM_MSG_EP_LENGTH, ACM_MSG_EP_LENGTH);
}

/* Translates a request into the record to query. Nothing in it comes from an earlier response. */
static uint8_t make_question(struct endpoint *ep, const struct ibv_path_record *wanted,
			     struct ibv_path_record *question)
{
	memset(question, 0, sizeof *question);
	if (wanted->dlid ? !is_port_lid(wanted->dlid) : is_zero(&wanted->dgid))
		return ACM_STATUS_EDESTADDR;
	if (!is_zero(&wanted->dgid) && !is_port_gid(&wanted->dgid))
		return ACM_STATUS_EDESTADDR;
	/* Both, if the client names both: they may belong to two ports, and then the SA refuses. */
	question->dlid = wanted->dlid;
	question->dgid = local_gid(ep, wanted->dgid);
	/* Some SAs require a source GID even from the port itself. */
	question->sgid = is_zero(&wanted->sgid) ? ep->gid : local_gid(ep, wanted->sgid);
	if (!is_own_gid(ep, &question->sgid))
		return ACM_STATUS_ESRCADDR;
	/* Only if the client names it; else the SA chooses: it knows of a new LID before the port does. */
	question->slid = wanted->slid;
	question->pkey = htobe16(ep->acm->pkey);
	if (wanted->pkey && !same_partition(wanted->pkey, question->pkey))
		question->pkey = wanted->pkey | htobe16(0x8000);
	question->reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1;
	question->service_id = wanted->service_id;
	question->tclass = wanted->tclass;
	question->qosclass_sl = wanted->qosclass_sl;
	question->flowlabel_hoplimit = flow_label(wanted);
	question->mtu = demand(wanted->mtu);
	question->rate = demand(wanted->rate);
	question->packetlifetime = demand(wanted->packetlifetime);
	return ACM_STATUS_SUCCESS;
}

/* Parses a resolve message. Trust nothing in it: not the indices, not the lengths, not the types. */
static uint8_t read_resolve(struct endpoint *ep, const struct acm_msg *msg, struct request *request,
			    struct ibv_path_record *wanted, bool *by_address, bool *nodelay)
{
	unsigned int entries = entry_count(msg), i;
	struct acm_ep_addr_data dest, hint;
	const struct host *host;

	if (!entries)
		return ACM_STATUS_EINVAL;
	copy_entry(&dest, msg, 0);
	if (dest.type == ACM_EP_INFO_PATH) {
		/* Here the header's data bytes are the client's own and mean nothing. */
		*nodelay = dest.flags & ACM_FLAGS_NODELAY;
		*wanted = dest.info.path;
		return ACM_STATUS_SUCCESS;
	}
	if (msg->hdr.dst_index >= entries)
		return ACM_STATUS_EINVAL;
	copy_entry(&dest, msg, msg->hdr.dst_index);
	*nodelay = dest.flags & ACM_FLAGS_NODELAY;
	if (msg->hdr.src_out) {
		/* The core chose the source and put it after the client's entries: after eight, beyond the message's end. */
		if (msg->hdr.src_index > entries || msg->hdr.src_index >= ACM_MSG_DATA_LENGTH / ACM_MSG_EP_LENGTH)
			return ACM_STATUS_EINVAL;
		copy_entry(&request->second, msg, msg->hdr.src_index);
		request->has_second = true;
	}
	/* A path record beside the addresses (librdmacm) has constraints on the path. */
	for (i = 0; i < entries; i++) {
		copy_entry(&hint, msg, i);
		if (hint.type == ACM_EP_INFO_PATH && i != msg->hdr.dst_index && i != msg->hdr.src_index)
			*wanted = hint.info.path;
	}
	memset(&wanted->dgid, 0, sizeof wanted->dgid);
	wanted->dlid = 0;
	switch (dest.type) {
	case EP_INFO_LID:
		memcpy(&wanted->dlid, dest.info.addr, sizeof wanted->dlid);
		return ACM_STATUS_SUCCESS;
	case EP_INFO_GID:
		memcpy(&wanted->dgid, dest.info.addr, sizeof wanted->dgid);
		return ACM_STATUS_SUCCESS;
	case ACM_EP_INFO_NAME:
	case ACM_EP_INFO_ADDRESS_IP:
	case ACM_EP_INFO_ADDRESS_IP6:
		*by_address = true;
		host = find_host(ep->port->dev, dest.type, dest.info.addr);
		if (is_own_addr(ep, dest.type, dest.info.addr))
			wanted->dgid = ep->gid;
		else if (host)
			wanted->dgid = host->gid;
		else
			return ACM_STATUS_ENODATA;
		return ACM_STATUS_SUCCESS;
	default:
		return ACM_STATUS_EDESTTYPE;
	}
}

/* Client 0 is the kernel. */
static bool is_kernels(const struct request *request)
{
	return !request->id && !request->is_query;
}

/* Answers from the cache, or makes the client wait for the SA. `fresh`: ignores the cache. */
static void look_up(struct endpoint *ep, const struct ibv_path_record *wanted, struct request *request, bool nodelay,
		    bool fresh, struct requests *done)
{
	struct ibv_path_record question = *wanted;
	struct path *path = NULL;
	uint64_t now = now_ms();

	if (names_service(&question) && !is_qos_told(ep->port, now)) {
		wait_for_qos(ep, wanted, request, nodelay, fresh, done);
		return;
	}
	if (ep->port->qos == RESERVED) {
		question.service_id = 0;
		question.qosclass_sl &= htobe16(0xf);
	} else if (is_kernels(request) && qos_class(&question)) {
		/* The core corrupts the kernel's QoS class. If refused, the kernel asks the SA itself. */
		finish(ep, request, ACM_STATUS_ENODATA, NULL, done);
		return;
	}
	if (!fresh)
		path = find_repeated(ep, &question, now);
	if (!path)
		path = get_path(ep, &question);
	if (!path) {
		finish(ep, request, ACM_STATUS_ENOMEM, NULL, done);
		return;
	}
	if (!fresh && is_believed(path, now)) {
		if (path->state == KNOWN) {
			count_both(ep, ACM_CNTR_ROUTE_CACHE);
			finish(ep, request, ACM_STATUS_SUCCESS, &path->record, done);
		} else {
			finish(ep, request, ACM_STATUS_ENODATA, NULL, done);
		}
		return;
	}
	if (!path->busy) {
		path->state = UNKNOWN;
		TAILQ_INSERT_TAIL(&ep->port->busy, path, busy_entry);
		path->busy = true;
	}
	if (nodelay) {
		/* This client does not wait, but the next one may find the answer cached. */
		path->owed = !path->query;
		finish(ep, request, ACM_STATUS_ENODATA, NULL, done);
	} else {
		TAILQ_INSERT_TAIL(&path->waiters, request, entry);
	}
	tend_path(path, now, done);
	pthread_cond_signal(&ep->port->wake);
}

/* The path to the port itself needs no SA, if the request has no constraints on it. */
static bool is_own_path(const struct endpoint *ep, const struct ibv_path_record *question)
{
	return same_gid(&question->dgid, &ep->gid) && question->pkey == htobe16(ep->acm->pkey) &&
	       !question->slid && !question->service_id && !question->qosclass_sl && !question->tclass &&
	       !question->flowlabel_hoplimit && !question->mtu && !question->rate && !question->packetlifetime;
}

static struct request *new_request(const struct acm_msg *msg, uint64_t id)
{
	struct request *request;

	request = calloc(1, sizeof *request);
	if (request) {
		request->id = id;
		request->hdr = msg->hdr;
	}
	return request;
}

/* From here on, the request waits. */
static void take_up(struct endpoint *ep, struct request *request)
{
	request->ep = ep;
	request->deadline = now_ms() + ep->port->dev->patience;
}

static int resolve(void *addr_context, struct acm_msg *msg, uint64_t id)
{
	struct requests done = TAILQ_HEAD_INITIALIZER(done);
	struct endpoint *ep = ((struct address *) addr_context)->ep;
	struct ibv_path_record wanted, question, own;
	bool by_address = false, nodelay = false;
	struct request *request;
	uint8_t status;

	request = new_request(msg, id);
	if (!request)
		return ENOMEM;
	memset(&wanted, 0, sizeof wanted);
	take_up(ep, request);
	pthread_mutex_lock(&lock);
	ep->counters[ACM_CNTR_RESOLVE]++;
	status = read_resolve(ep, msg, request, &wanted, &by_address, &nodelay);
	if (status == ACM_STATUS_SUCCESS)
		status = make_question(ep, &wanted, &question);
	if (status != ACM_STATUS_SUCCESS) {
		finish(ep, request, status, NULL, &done);
	} else if (by_address && is_own_path(ep, &question) && own_path(ep, &own)) {
		count_both(ep, ACM_CNTR_ADDR_CACHE);
		finish(ep, request, ACM_STATUS_SUCCESS, &own, &done);
	} else {
		if (by_address)
			count_both(ep, ACM_CNTR_ADDR_CACHE);
		look_up(ep, &question, request, nodelay, false, &done);
	}
	pthread_mutex_unlock(&lock);
	send_answers(&done);
	return 0;
}

/* The SA is asked, whatever is known. */
static int query(void *addr_context, struct acm_msg *msg, uint64_t id)
{
	struct requests done = TAILQ_HEAD_INITIALIZER(done);
	struct endpoint *ep = ((struct address *) addr_context)->ep;
	struct ibv_path_record question;
	struct request *request;
	uint8_t status = ACM_STATUS_EINVAL;

	request = new_request(msg, id);
	if (!request)
		return ENOMEM;
	request->is_query = true;
	request->has_second = entry_count(msg) > 0;
	copy_entry(&request->second, msg, 0);
	take_up(ep, request);
	pthread_mutex_lock(&lock);
	if (request->has_second && request->second.type == ACM_EP_INFO_PATH)
		status = make_question(ep, &request->second.info.path, &question);
	if (status == ACM_STATUS_SUCCESS)
		look_up(ep, &question, request, false, true, &done);
	else
		finish(ep, request, status, NULL, &done);
	pthread_mutex_unlock(&lock);
	send_answers(&done);
	return 0;
}

/* ---- Opening and closing. An open that fails must not write the context: the core reads it later. ---- */

static void free_device(struct device *dev)
{
	free_hosts(dev->hosts);
	free(dev->hosts_file);
	LIST_REMOVE(dev, entry);
	free(dev);
}

static int open_device(const struct acm_device *acm, void **dev_context)
{
	struct device *dev, *next;

	/* If the first port of a device does not open, the core does not close the device, but opens it again. */
	for (dev = LIST_FIRST(&devices); dev; dev = next) {
		next = LIST_NEXT(dev, entry);
		if (dev->acm == acm && !dev->open_ports)
			free_device(dev);
	}
	dev = calloc(1, sizeof *dev);
	if (!dev)
		return ENOMEM;
	dev->acm = acm;
	read_options(dev);
	LIST_INSERT_HEAD(&devices, dev, entry);
	*dev_context = dev;
	return 0;
}

static void close_device(void *dev_context)
{
	free_device(dev_context);
}

static int start_thread(struct port *port)
{
	pthread_condattr_t attr;
	int ret;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&port->wake, &attr);
	pthread_condattr_destroy(&attr);
	ret = pthread_create(&port->thread, NULL, keep_deadlines, port);
	if (ret)
		pthread_cond_destroy(&port->wake);
	return ret;
}

static int open_port(const struct acm_port *acm, void *dev_context, void **port_context)
{
	struct device *dev = dev_context;
	struct port *port;
	int ret;

	port = calloc(1, sizeof *port);
	if (!port)
		return ENOMEM;
	port->dev = dev;
	TAILQ_INIT(&port->busy);
	TAILQ_INIT(&port->undecided);
	ret = ibv_query_port(acm->dev->verbs, acm->port_num, &port->attr);
	if (!ret && port->attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
		acm_log(1, "port %u is an Ethernet port: it has no SA\n", acm->port_num);
		ret = ENOTSUP;
	}
	if (!ret)
		ret = start_thread(port);
	if (ret) {
		free(port);
		return ret;
	}
	dev->open_ports++;
	*port_context = port;
	return 0;
}

static void close_port(void *port_context)
{
	struct port *port = port_context;

	pthread_mutex_lock(&lock);
	port->stop = true;
	while (!LIST_EMPTY(&port->queries))
		end_query(LIST_FIRST(&port->queries));
	pthread_cond_signal(&port->wake);
	pthread_mutex_unlock(&lock);
	pthread_join(port->thread, NULL);
	pthread_cond_destroy(&port->wake);
	port->dev->open_ports--;
	free(port);
}

static int open_endpoint(const struct acm_endpoint *acm, void *port_context, void **ep_context)
{
	struct endpoint *ep;

	ep = calloc(1, sizeof *ep);
	if (!ep)
		return ENOMEM;
	ep->port = port_context;
	ep->acm = acm;
	ep->send_join = ep->port->dev->join ? send_join : NULL;
	if (acm_get_gid(acm->port, 0, &ep->gid)) {
		free(ep);
		return ENODEV;
	}
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(&ep->port->endpoints, ep, entry);
	join_anew(ep, now_ms());
	pthread_cond_signal(&ep->port->wake);
	pthread_mutex_unlock(&lock);
	*ep_context = ep;
	return 0;
}

static void remove_address(void *addr_context)
{
	struct address *address = addr_context;

	pthread_mutex_lock(&lock);
	LIST_REMOVE(address, entry);
	pthread_mutex_unlock(&lock);
	free(address);
}

/* Refuses waiting requests. Does not leave the group: the subnet manager removes members whose port goes down. */
static void close_endpoint(void *ep_context)
{
	struct requests done = TAILQ_HEAD_INITIALIZER(done);
	struct endpoint *ep = ep_context;
	struct path *path;
	int i;

	/* The core may not have removed every address. */
	while (!LIST_EMPTY(&ep->addresses))
		remove_address(LIST_FIRST(&ep->addresses));
	pthread_mutex_lock(&lock);
	forget(&ep->join);
	for (i = 0; i < BUCKETS; i++) {
		while ((path = LIST_FIRST(&ep->paths[i]))) {
			answer_waiters(path, ACM_STATUS_ENOTCONN, NULL, &done);
			free_path(path);
		}
	}
	leave_undecided(ep, &done);
	LIST_REMOVE(ep, entry);
	pthread_mutex_unlock(&lock);
	free(ep);
	send_answers(&done);
}

static int add_address(const struct acm_address *acm, void *ep_context, void **addr_context)
{
	struct address *address, *lost;

	address = calloc(1, sizeof *address);
	if (!address)
		return ENOMEM;
	address->ep = ep_context;
	address->type = acm->type;
	memcpy(address->addr, acm->info.addr, sizeof address->addr);
	lost = LIST_FIRST(&address->ep->addresses);
	while (lost && !same_addr(lost->type, lost->addr, address->type, address->addr))
		lost = LIST_NEXT(lost, entry);
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(&address->ep->addresses, address, entry);
	pthread_mutex_unlock(&lock);
	/* The core lost track of the address and adds it again: it will not remove the earlier one. */
	if (lost)
		remove_address(lost);
	*addr_context = address;
	return 0;
}

static int handle_event(void *port_context, enum ibv_event_type type)
{
	struct port *port = port_context;
	struct endpoint *ep;

	/* The core passes on only this event; on other changes it closes and opens the port. */
	if (type != IBV_EVENT_CLIENT_REREGISTER)
		return 0;
	pthread_mutex_lock(&lock);
	/* It may be another SA. */
	forget(&port->qos_query);
	port->qos = UNTOLD;
	LIST_FOREACH(ep, &port->endpoints, entry) {
		drop_paths(ep);
		join_anew(ep, now_ms());
	}
	pthread_cond_signal(&port->wake);
	pthread_mutex_unlock(&lock);
	return 0;
}

static void query_perf(void *ep_context, uint64_t *values, uint8_t *cnt)
{
	struct endpoint *ep = ep_context;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ACM_MAX_COUNTER; i++)
		values[i] = htobe64(ep->counters[i]);
	pthread_mutex_unlock(&lock);
	*cnt = ACM_MAX_COUNTER;
}

static struct acm_provider provider = {
	.size = sizeof(struct acm_provider),
	.version = 1,	/* the version that this file was written for, not the installed header's */
	.name = "sa-example",
	.open_device = open_device,
	.close_device = close_device,
	.open_port = open_port,
	.close_port = close_port,
	.open_endpoint = open_endpoint,
	.close_endpoint = close_endpoint,
	.add_address = add_address,
	.remove_address = remove_address,
	.resolve = resolve,
	.query = query,
	.handle_event = handle_event,
	.query_perf = query_perf,
};

__attribute__((visibility("default")))
int provider_query(struct acm_provider **info, uint32_t *version)
{
	*info = &provider;
	*version = provider.version;
	return 0;
}
