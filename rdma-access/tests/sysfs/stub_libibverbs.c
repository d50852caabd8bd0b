/*
 * Replaces libibverbs' functions that open and close a device. STUB_FAILURE is the error number of opening; without
 * it a device opens. STUB_GONE is a folder that is removed by then.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <infiniband/verbs.h>

static struct ibv_context opened;

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	const char *failure = getenv("STUB_FAILURE");
	const char *folder = getenv("STUB_GONE");

	if (folder && rename(folder, "/sys/gone"))
		perror(folder);
	if (failure) {
		errno = atoi(failure);
		return NULL;
	}
	opened.device = device;
	return &opened;
}

int ibv_close_device(struct ibv_context *context)
{
	return context != &opened;
}
