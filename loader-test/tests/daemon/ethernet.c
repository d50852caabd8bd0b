/* A preload that shows every port as one of an Ethernet adapter. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>

#undef ibv_query_port

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	int (*next)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *) = dlsym(RTLD_NEXT, "ibv_query_port");
	int result = next(context, port, attr);

	((struct ibv_port_attr *) attr)->link_layer = IBV_LINK_LAYER_ETHERNET;
	return result;
}
