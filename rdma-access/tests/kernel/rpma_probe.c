/* Prints what librpma finds for an address: rpma_probe local|remote ADDRESS. */
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <librpma.h>

int main(int argc, char **argv)
{
	struct ibv_context *context = NULL;
	enum rpma_util_ibv_context_type type;
	int error;

	if (argc != 3)
		return 2;
	type = strcmp(argv[1], "local") ? RPMA_UTIL_IBV_CONTEXT_REMOTE : RPMA_UTIL_IBV_CONTEXT_LOCAL;
	error = rpma_utils_get_ibv_context(argv[2], type, &context);
	if (error)
		printf("error %d\n", error);
	else
		printf("device %s\n", context ? ibv_get_device_name(context->device) : "none");
	return 0;
}
