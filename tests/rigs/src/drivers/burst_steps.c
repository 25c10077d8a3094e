/*
 * Counts the instructions that a forwarding thread of testpmd takes for full bursts: executes it one instruction after the
 * other (ptrace), and divides what it executes between the driver's receive function, its send function, and the rest, which is
 * testpmd's loop with ethdev's inline functions. A turn begins where the receive function is called. It counts if as many
 * frames as a full burst has were received, given to the send function, and taken by it. Other turns are only told.
 *
 * Usage: burst_steps PROCESS TURNS
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

/* Where ethdev's exported `struct rte_eth_fp_ops` (ABI 25) has these two: in each cache line behind the queues' addresses. */
enum { RX_PKT_BURST = 16, TX_PKT_BURST = 64 + 16, BURST = 32 };
/* The thread of testpmd's second processor, which `-l 0-1` has forward, and that processor. */
#define THREAD "dpdk-worker1"
enum { PROCESSOR = 1 };

enum part { RECEIVE, SEND, REST, PARTS };

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	exit(1);
}

static FILE *of_process(int process, const char *what)
{
	char path[128];
	snprintf(path, sizeof path, "/proc/%d/%s", process, what);
	FILE *file = fopen(path, "r");
	if (!file)
		fail("%s: %m", path);
	return file;
}

static int find_thread(int process)
{
	char path[64], name[32];
	snprintf(path, sizeof path, "/proc/%d/task", process);
	DIR *threads = opendir(path);
	if (!threads)
		fail("%s: %m", path);
	for (struct dirent *entry; (entry = readdir(threads));) {
		int thread = atoi(entry->d_name);
		if (!thread)
			continue;
		snprintf(path, sizeof path, "task/%d/comm", thread);
		FILE *file = of_process(process, path);
		char *line = fgets(name, sizeof name, file);
		fclose(file);
		if (line && !strcmp(name, THREAD "\n")) {
			closedir(threads);
			return thread;
		}
	}
	fail("no thread " THREAD);
}

/* Where a process has a library: its first mapping, or the one of this address. */
static uint64_t mapped(int process, const char *library, uint64_t address)
{
	char line[512], path[256], rights[8];
	FILE *file = of_process(process, "maps");
	while (fgets(line, sizeof line, file)) {
		uint64_t begin, end;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %*s %255s", &begin, &end, rights, path) != 4 ||
		    !strstr(path, library))
			continue;
		if (!address || (address >= begin && address < end && rights[2] == 'x')) {
			fclose(file);
			return begin;
		}
	}
	fail("%s is not at %" PRIx64, library, address);
}

static uint64_t word(int thread, uint64_t address)
{
	uint64_t value;
	FILE *memory = of_process(thread, "mem");
	if (fseeko(memory, (off_t)address, SEEK_SET) || fread(&value, sizeof value, 1, memory) != 1)
		fail("no memory at %" PRIx64, address);
	fclose(memory);
	return value;
}

static uint64_t part_of_user(int thread, size_t at)
{
	return (uint64_t)ptrace(PTRACE_PEEKUSER, thread, at, 0);
}
#define REGISTER(thread, name) part_of_user(thread, offsetof(struct user_regs_struct, name))

static void wait_for_stop(int thread)
{
	int status;
	if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
		fail("the thread did not stop: %x", status);
}

int main(int count, char **arguments)
{
	if (count != 3)
		fail("usage: burst_steps PROCESS TURNS");
	int process = atoi(arguments[1]);
	unsigned turns = (unsigned)atoi(arguments[2]);
	setvbuf(stdout, NULL, _IOLBF, 0);

	/* The same file, so at the same place of the library. */
	void *library = dlopen("librte_ethdev.so.25", RTLD_NOW);
	char *table = library ? dlsym(library, "rte_eth_fp_ops") : NULL;
	Dl_info about;
	if (!table || !dladdr(table, &about))
		fail("%s", dlerror());
	uint64_t theirs = mapped(process, "/librte_ethdev.so", 0) + (uint64_t)(table - (char *)about.dli_fbase);

	/* On the thread's processor a step wakes no other one. */
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(PROCESSOR, &only);
	if (sched_setaffinity(0, sizeof only, &only))
		fail("processor: %m");
	int thread = find_thread(process);
	if (ptrace(PTRACE_SEIZE, thread, 0, 0) || ptrace(PTRACE_INTERRUPT, thread, 0, 0))
		fail("ptrace: %m");
	wait_for_stop(thread);
	uint64_t receive = word(process, theirs + RX_PKT_BURST), send = word(process, theirs + TX_PKT_BURST);
	mapped(process, "/librte_net_mlx5.so", receive);
	mapped(process, "/librte_net_mlx5.so", send);

	uint64_t sum[PARTS] = { 0 }, turn[PARTS] = { 0 }, least = UINT64_MAX, most = 0, steps = 0;
	unsigned full = 0, sizes[2 * BURST + 1] = { 0 }, unlike = 0;
	unsigned asked = 0, received = 0, given = 0, sent = 0;
	uint64_t receive_return = 0, send_return = 0;
	enum part part = REST;
	bool begun = false;
	while (full < turns) {
		uint64_t at = REGISTER(thread, rip);
		if (part == REST && at == receive) {
			if (begun) {
				if (received > 2 * BURST)
					fail("%u frames were received", received);
				sizes[received]++;
				unlike += received != given || given != sent;
				if (asked == BURST && received == BURST && given == BURST && sent == BURST) {
					uint64_t all = 0;
					for (int of = 0; of < PARTS; of++) {
						sum[of] += turn[of];
						all += turn[of];
					}
					least = all < least ? all : least;
					most = all > most ? all : most;
					full++;
				}
			}
			begun = true;
			memset(turn, 0, sizeof turn);
			received = given = sent = 0;
			asked = (uint16_t)REGISTER(thread, rdx);
			receive_return = word(process, REGISTER(thread, rsp));
			part = RECEIVE;
		} else if (part == RECEIVE && at == receive_return) {
			received = (uint16_t)REGISTER(thread, rax);
			part = REST;
		} else if (part == REST && at == send) {
			given += (uint16_t)REGISTER(thread, rdx);
			send_return = word(process, REGISTER(thread, rsp));
			part = SEND;
		} else if (part == SEND && at == send_return) {
			sent += (uint16_t)REGISTER(thread, rax);
			part = REST;
		}
		turn[part]++;
		steps++;
		if (ptrace(PTRACE_SINGLESTEP, thread, 0, 0))
			fail("ptrace: %m");
		wait_for_stop(thread);
	}
	if (ptrace(PTRACE_DETACH, thread, 0, 0))
		fail("ptrace: %m");

	printf("note: frames received by a turn, and such turns:");
	for (unsigned size = 0; size <= 2 * BURST; size++)
		if (sizes[size])
			printf(" %u: %u", size, sizes[size]);
	printf("; not all sent: %u; %" PRIu64 " instructions in all\n", unlike, steps);
	double frames = (double)full * BURST;
	printf("note: instructions a frame of full bursts: %.1f: receive %.1f, send %.1f, testpmd's loop %.1f; a turn at least %" PRIu64
	       ", at most %" PRIu64 "\n",
	       (double)(sum[RECEIVE] + sum[SEND] + sum[REST]) / frames, (double)sum[RECEIVE] / frames, (double)sum[SEND] / frames,
	       (double)sum[REST] / frames, least, most);
	return 0;
}
