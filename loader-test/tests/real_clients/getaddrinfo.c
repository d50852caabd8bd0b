/* Asks librdmacm for the way from an IPv4 address to another, and prints the path that it got from ibacm;
 * "again" asks a second time, with that path for hints. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>

static void print(const struct rdma_addrinfo *found)
{
	const struct ibv_path_data *path = found->ai_route;
	const unsigned char *bytes = (const unsigned char *) &path->path;
	size_t i;

	if (!found->ai_route_len) {
		printf("no route\n");
		return;
	}
	printf("%u route of %u bytes, flags %#x: ", (unsigned int) (found->ai_route_len / sizeof *path),
	       (unsigned int) found->ai_route_len, path->flags);
	for (i = 0; i < sizeof path->path; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

int main(int argc, char **argv)
{
	struct ibv_path_record route = { .pkey = htons(0xffff) };
	struct sockaddr_in source = { .sin_family = AF_INET };
	struct rdma_addrinfo hints = {
		.ai_port_space = RDMA_PS_TCP,
		.ai_src_addr = (struct sockaddr *) &source,
		.ai_src_len = sizeof source,
		.ai_route = &route,
		.ai_route_len = sizeof route,
	};
	struct rdma_addrinfo *first, *second;
	int again;

	if (argc < 3 || inet_pton(AF_INET, argv[1], &source.sin_addr) != 1) {
		fprintf(stderr, "usage: getaddrinfo SOURCE DESTINATION [numeric|again]\n");
		return 2;
	}
	again = argc > 3 && !strcmp(argv[3], "again");
	if (argc > 3 && !again)
		hints.ai_flags = RAI_NUMERICHOST;
	if (rdma_getaddrinfo(argv[2], NULL, &hints, &first)) {
		perror("rdma_getaddrinfo");
		return 1;
	}
	print(first);
	if (again) {
		/* What it found, for hints. */
		hints.ai_route = first->ai_route;
		hints.ai_route_len = first->ai_route_len;
		if (rdma_getaddrinfo(argv[2], NULL, &hints, &second)) {
			perror("rdma_getaddrinfo");
			return 1;
		}
		print(second);
		rdma_freeaddrinfo(second);
	}
	rdma_freeaddrinfo(first);
	return 0;
}
