/* Prints every table of names and numbers that the headers declare as functions, one value a line. The functions are looked
 * up in the library that has them: of ours, one file is both. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* The names of all numbers that a table may have, and some more at both sides. */
enum { BELOW = -3, ABOVE = 300 };
/* More than any rate has. */
enum { MBPS = 2000000, MULT = 2000 };

static void *find(const char *library, const char *function)
{
	void *handle = dlopen(library, RTLD_NOW);
	if (!handle) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return dlsym(handle, function);
}

static void names(const char *library, const char *function)
{
	const char *(*call)(int) = find(library, function);
	for (long n = BELOW; n <= ABOVE + 2; n++) {
		int argument = n <= ABOVE ? (int)n : n == ABOVE + 1 ? INT_MAX : INT_MIN;
		const char *text = call ? call(argument) : "missing";
		printf("%s(%d)\t%s\n", function, argument, text ? text : "NULL");
	}
}

static void numbers(const char *function, long above)
{
	int (*call)(int) = find("libibverbs.so.1", function);
	for (long n = BELOW; n <= above + 2; n++) {
		int argument = n <= above ? (int)n : n == above + 1 ? INT_MAX : INT_MIN;
		int result = call(argument);
		/* Of the long tables those that are in them. */
		if (result || above <= ABOVE)
			printf("%s(%d)\t%d\n", function, argument, result);
	}
}

int main(void)
{
	names("libibverbs.so.1", "ibv_wc_status_str");
	names("libibverbs.so.1", "ibv_event_type_str");
	names("libibverbs.so.1", "ibv_node_type_str");
	names("libibverbs.so.1", "ibv_port_state_str");
	names("libibverbs.so.1", "ibv_wr_opcode_str");
	names("librdmacm.so.1", "rdma_event_str");
	numbers("ibv_rate_to_mbps", ABOVE);
	numbers("ibv_rate_to_mult", ABOVE);
	numbers("mbps_to_ibv_rate", MBPS);
	numbers("mult_to_ibv_rate", MULT);
	return 0;
}
