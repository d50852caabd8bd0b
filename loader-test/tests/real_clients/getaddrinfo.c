/* Asks librdmacm for the way from an IPv4 address to another, and prints the path that it got from ibacm. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>

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
	struct rdma_addrinfo *found;
	const struct ibv_path_data *path;
	const unsigned char *bytes;
	size_t i;

	if (argc < 3 || inet_pton(AF_INET, argv[1], &source.sin_addr) != 1) {
		fprintf(stderr, "usage: getaddrinfo SOURCE DESTINATION [numeric]\n");
		return 2;
	}
	if (argc > 3)
		hints.ai_flags = RAI_NUMERICHOST;
	if (rdma_getaddrinfo(argv[2], NULL, &hints, &found)) {
		perror("rdma_getaddrinfo");
		return 1;
	}
	if (!found->ai_route_len) {
		printf("no route\n");
		return 0;
	}
	path = found->ai_route;
	printf("%u route of %u bytes, flags %#x: ", (unsigned int) (found->ai_route_len / sizeof *path),
	       (unsigned int) found->ai_route_len, path->flags);
	bytes = (const unsigned char *) &path->path;
	for (i = 0; i < sizeof path->path; i++)
		printf("%02x", bytes[i]);
	printf("\n");
	rdma_freeaddrinfo(found);
	return 0;
}
