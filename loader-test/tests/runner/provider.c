/* A provider that does one thing at a time: LOAD when it is loaded, QUERY when it is asked for its table, OPEN when a
 * device is opened. It refuses all requests. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/acm.h>
#include <infiniband/acm_prov.h>

#ifndef LOAD
#define LOAD
#endif
#ifndef QUERY
#define QUERY
#endif
#ifndef OPEN
#define OPEN
#endif

static int something;

static void for_ever(void)
{
	for (;;)
		pause();
}

/* Adds this process's id to a file. */
static void say_pid(const char *file)
{
	char line[16];
	int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (fd >= 0) {
		if (write(fd, line, sprintf(line, "%d\n", getpid())) < 0)
			abort();
		close(fd);
	}
}

/* Writes to the file that the runner has named for the result of this check. */
static void write_result(const char *text)
{
	char arguments[4096] = "", *word;
	int fd = open("/proc/self/cmdline", O_RDONLY);
	ssize_t length = read(fd, arguments, sizeof arguments - 1);

	close(fd);
	for (word = arguments; word < arguments + length; word += strlen(word) + 1) {
		if (strcmp(word, "--result"))
			continue;
		fd = open(word + strlen(word) + 1, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (write(fd, text, strlen(text)) < 0)
			abort();
		close(fd);
	}
}

/* What a faulty provider may use, used or not. */
void *const tools[] __attribute__((used)) = { for_ever, say_pid, write_result };

__attribute__((constructor)) static void load(void)
{
	LOAD;
}

static int open_device(const struct acm_device *device, void **context)
{
	(void) device;
	OPEN;
	*context = &something;
	return 0;
}

static int open_port(const struct acm_port *port, void *device_context, void **context)
{
	(void) port;
	(void) device_context;
	*context = &something;
	return 0;
}

static int open_endpoint(const struct acm_endpoint *endpoint, void *port_context, void **context)
{
	(void) endpoint;
	(void) port_context;
	*context = &something;
	return 0;
}

static int add_address(const struct acm_address *address, void *ep_context, void **context)
{
	(void) address;
	(void) ep_context;
	*context = &something;
	return 0;
}

static void end(void *context)
{
	(void) context;
}

static int refuse(void *context, struct acm_msg *msg, uint64_t id)
{
	struct acm_msg answer = { .hdr = msg->hdr };

	(void) context;
	answer.hdr.opcode |= ACM_OP_ACK;
	answer.hdr.status = ACM_STATUS_ENODATA;
	answer.hdr.length = ACM_MSG_HDR_LENGTH;
	memset(answer.hdr.data, 0, sizeof answer.hdr.data);
	return acm_resolve_response(id, &answer);
}

static int handle_event(void *context, enum ibv_event_type type)
{
	(void) context;
	(void) type;
	return 0;
}

static void query_perf(void *context, uint64_t *values, uint8_t *count)
{
	(void) context;
	(void) values;
	*count = 0;
}

static struct acm_provider provider = {
	.size = sizeof(struct acm_provider),
	.version = 1,
	.name = "one-thing",
	.open_device = open_device,
	.close_device = end,
	.open_port = open_port,
	.close_port = end,
	.open_endpoint = open_endpoint,
	.close_endpoint = end,
	.add_address = add_address,
	.remove_address = end,
	.resolve = refuse,
	.query = refuse,
	.handle_event = handle_event,
	.query_perf = query_perf,
};

int provider_query(struct acm_provider **info, uint32_t *version)
{
	QUERY;
	*info = &provider;
	*version = 1;
	return 0;
}
