/* What umad_open_smi_port(3) makes of a device and a port: prints the file that it opened, or the error number. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	void *library = dlopen("libibumad.so.3", RTLD_NOW);
	int (*open_smi_port)(const char *, int) = library ? dlsym(library, "umad_open_smi_port") : NULL;
	char link[32], file[256];
	ssize_t length;
	int fd;

	if (!open_smi_port || argc != 3) {
		fprintf(stderr, "no umad_open_smi_port: %s\n", dlerror());
		return 2;
	}
	fd = open_smi_port(strcmp(argv[1], "-") ? argv[1] : NULL, atoi(argv[2]));
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
