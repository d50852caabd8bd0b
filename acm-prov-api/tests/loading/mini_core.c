/*
 * mini_core LIBRARY OPTIONS_FILE: loads a provider as ibacm does, with stub services, and says what is left behind.
 * Build with -rdynamic; -DHIDE_NAME leaves the service NAME out.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct acm_provider {
	size_t size;
	uint32_t version;
	const char *name;
	void *callbacks[12];
};

static const char *options_file;

void acm_write(int level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("log %d: ", level);
	vprintf(format, args);
	va_end(args);
}

const char *acm_get_opts_file(void)
{
	return options_file;
}

/* Called by nobody here: it is enough that they exist. */
#define SERVICE(name) void name(void) { }
SERVICE(acm_increment_counter)
#ifndef HIDE_acm_gid_index
SERVICE(acm_gid_index)
#endif
SERVICE(acm_get_gid)
SERVICE(acm_path_comp_mask)
SERVICE(acm_resolve_response)
SERVICE(acm_query_response)
SERVICE(acm_get_rate)
SERVICE(acm_convert_mtu)
SERVICE(acm_convert_rate)
SERVICE(acm_alloc_sa_mad)
SERVICE(acm_free_sa_mad)
#ifndef HIDE_acm_send_sa_mad
SERVICE(acm_send_sa_mad)
#endif
SERVICE(ibv_query_port)
SERVICE(ibv_query_pkey)

static int threads(void)
{
	int count = 0;
	struct dirent *entry;
	DIR *tasks = opendir("/proc/self/task");

	while (tasks && (entry = readdir(tasks)))
		count += entry->d_name[0] != '.';
	if (tasks)
		closedir(tasks);
	return count;
}

static int is_mapped(const char *library)
{
	char line[4096];
	int mapped = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof line, maps))
		mapped |= strstr(line, library) != NULL;
	if (maps)
		fclose(maps);
	return mapped;
}

int main(int argc, char **argv)
{
	int (*query)(struct acm_provider **, uint32_t *);
	struct acm_provider *provider = NULL, *again = NULL;
	uint32_t version = 0;
	void *library;
	int refused, second;

	if (argc != 3)
		return 2;
	options_file = argv[2];
	setvbuf(stdout, NULL, _IOLBF, 0);
	library = dlopen(argv[1], RTLD_LAZY);
	if (!library) {
		printf("dlopen: %s\n", dlerror());
		return 2;
	}
	query = (int (*)(struct acm_provider **, uint32_t *))dlsym(library, "provider_query");
	if (!query)
		return 2;
	refused = query(&provider, &version);
	printf("provider_query: %d\n", refused);
	if (!refused) {
		printf("name %s version %u size %zu\n", provider->name, version, provider->size);
		second = query(&again, &version);
		printf("again: %d, same table: %d\n", second, provider == again);
	}
	printf("null: %d\n", query(NULL, NULL));
	printf("threads: %d\n", threads());
	dlclose(library);
	printf("mapped after dlclose: %d\n", is_mapped(argv[1]));
	return 0;
}
