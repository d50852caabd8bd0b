/* A stub of librdmacm for tests: fails on demand, and counts living objects. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>

enum call { NONE, CREATE, BIND, RESOLVE, DESTROY };

#ifdef FAILING
static enum call failing = FAILING;
static int failure = FAILURE;
#else
static enum call failing;
static int failure;
#endif
static int alive;
static int timeout;
static int without_device;
static struct ibv_device device = { .name = "stub0" };
static struct ibv_context context = { .device = &device };

void stub_fail(int call, int error)
{
	failing = call;
	failure = error;
}

void stub_without_device(void)
{
	without_device = 1;
}

int stub_alive(void)
{
	return alive;
}

int stub_timeout(void)
{
	return timeout;
}

static int fails(enum call call)
{
	if (failing != call)
		return 0;
	errno = failure;
	return -1;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	/* The caller must not use a failed call's result. */
	*id = (void *)8;
	if (channel || ps != RDMA_PS_TCP) {
		errno = EINVAL;
		return -1;
	}
	if (fails(CREATE))
		return -1;
	*id = calloc(1, sizeof(**id));
	alive++;
	return 0;
}

static void found(struct rdma_cm_id *id, struct sockaddr *address)
{
	size_t length = address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

	memcpy(&id->route.addr.src_storage, address, length);
	id->verbs = without_device ? NULL : &context;
	id->port_num = 2;
	memset(&id->route.addr.addr.ibaddr.sgid, 0x11, 16);
	id->route.addr.addr.ibaddr.pkey = htobe16(0x8001);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	if (fails(BIND))
		return -1;
	found(id, address);
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *destination, int timeout_ms)
{
	timeout = timeout_ms;
	if (fails(RESOLVE))
		return -1;
	found(id, destination);
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	if (fails(DESTROY))
		return -1;
	free(id);
	alive--;
	return 0;
}
