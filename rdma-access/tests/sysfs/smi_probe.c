/*
 * Calls umad_open_port(3) or umad_open_smi_port(3): FUNCTION DEVICE PORT prints the file that it opened, or the error
 * number.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	void *library = dlopen("libibumad.so.3", RTLD_NOW);
	int (*open_port)(const char *, int) = library && argc == 4 ? dlsym(library, argv[1]) : NULL;
	char link[32], file[256];
	ssize_t length;
	int fd;

	if (!open_port) {
		fprintf(stderr, "no such function: %s\n", dlerror());
		return 2;
	}
	fd = open_port(strcmp(argv[2], "-") ? argv[2] : NULL, atoi(argv[3]));
	if (fd < 0) {
		printf("%d\n", -fd);
		return 0;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, file, sizeof(file) - 1);
	if (length < 0)
		return 2;
	file[length] = '\0';
	printf("%s\n", strrchr(file, '/') + 1);
	return 0;
}
