/* A stub of libmana for tests: stores the allocators and calls them as the driver does. */
#include <infiniband/verbs.h>

#ifndef TOO_OLD

struct allocators {
	void *(*alloc)(size_t size, void *data);
	void (*free)(void *memory, void *data);
	void *data;
};

static struct context {
	struct ibv_context ibv;
	struct allocators allocators;
} context;

int manadv_set_context_attr(struct ibv_context *ibv, int type, void *attribute)
{
	if (type != 0)
		return EOPNOTSUPP;
	((struct context *)ibv)->allocators = *(struct allocators *)attribute;
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return ENOSYS;
}

struct ibv_context *stub_context(void)
{
	context.ibv.ops.post_send = post_send;
	return &context.ibv;
}

void *stub_make_queue(struct ibv_context *ibv, size_t size)
{
	struct allocators *use = &((struct context *)ibv)->allocators;
	unsigned char *memory = use->alloc(size, use->data);

	/* The adapter writes all bytes. */
	for (size_t at = 0; memory && at < size; at++)
		memory[at] = 0xa5;
	return memory;
}

void stub_end_queue(struct ibv_context *ibv, void *memory)
{
	struct allocators *use = &((struct context *)ibv)->allocators;

	use->free(memory, use->data);
}

#endif
