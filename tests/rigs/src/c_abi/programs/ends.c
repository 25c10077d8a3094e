/* Programs that end without a word to their peer, which has to hear DISCONNECTED all the same: `ends server ADDRESS COUNT MS` and
 * `ends client ADDRESS ROUNDS`. In each round the client runs a program for each way, one after the other on the same device. The
 * server ends each of them by a message, and measures from there on, so that the ends may be on two machines.
 *
 * The median of the times is MS at most on a computer that does nothing else, and on a busy one as much more as it is slower:
 * behind each end the server measures that too. */

#include "check.h"

#include <netdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>

/* The most programs that the server ends. */
#define MOST 64

enum way { EXIT, ABORT, EXEC, TERMINATED, KILLED, IGNORING, WAYS };

/* The name of its way is what a client says of itself. */
static const char *const ways[] = { "_exit", "abort", "exec", "SIGTERM", "SIGKILL", "SIGKILL, SIGCHLD ignored" };

static struct rdma_event_channel *channel;

static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	if (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT && type != event->event) {
		CHECK(!rdma_ack_cm_event(event));
		return expect(type);
	}
	if (event->event != type)
		printf("%s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type);
	return event;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	CHECK(!rdma_create_qp(id, NULL, &attr));
}

static double now(clockid_t clock)
{
	struct timespec time;
	CHECK(!clock_gettime(clock, &time));
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/* The time that 20 ms of a processor's work take here, divided by these. */
static double slowness(void)
{
	double begun = now(CLOCK_MONOTONIC), ends = now(CLOCK_THREAD_CPUTIME_ID) + 20;
	while (now(CLOCK_THREAD_CPUTIME_ID) < ends)
		;
	return (now(CLOCK_MONOTONIC) - begun) / 20;
}

static int in_order(const void *one, const void *two)
{
	return *(const double *)one < *(const double *)two ? -1 : 1;
}

static double median(double *values, int count)
{
	qsort(values, count, sizeof *values, in_order);
	return values[count / 2];
}

/* The peer hears within `limit` milliseconds. */
static void server(struct sockaddr *address, int count, int limit)
{
	struct rdma_cm_id *listener;
	double times[MOST], slower[MOST];
	int ended = 0;
	CHECK(count > 0 && count <= MOST);
	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, address));
	CHECK(!rdma_listen(listener, 1));
	for (; ended < count; ended++) {
		struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = event->id;
		char way[32] = "";
		memcpy(way, event->param.conn.private_data, sizeof way - 1);
		create_qp(id);
		CHECK(!rdma_accept(id, NULL));
		CHECK(!rdma_ack_cm_event(event));
		CHECK(!rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED)));
		double begun = now(CLOCK_MONOTONIC);
		CHECK(!rdma_post_send(id, NULL, NULL, 0, NULL, IBV_SEND_SIGNALED));
		event = expect(RDMA_CM_EVENT_DISCONNECTED);
		times[ended] = now(CLOCK_MONOTONIC) - begun;
		printf("note: %s: heard after %.0f ms\n", way, times[ended]);
		CHECK(!rdma_ack_cm_event(event));
		CHECK(!rdma_disconnect(id));
		rdma_destroy_qp(id);
		CHECK(!rdma_destroy_id(id));
		slower[ended] = slowness();
	}
	CHECK(!rdma_destroy_id(listener));
	double took = median(times, count), busy = median(slower, count);
	int in_time = took <= limit * busy;
	printf("note: median of %d: %.0f ms, here everything takes %.1f times as long: %s\n", count, took, busy,
	       in_time ? "in time" : "late");
	CHECK(in_time);
}

/* Connects, and does not return. */
static void end(enum way way, struct sockaddr *address)
{
	char about[32] = "";
	struct rdma_cm_id *id;
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_wc wc;
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	CHECK(!sigprocmask(SIG_BLOCK, &blocked, NULL));
	if (way == IGNORING)
		CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
	CHECK((channel = rdma_create_event_channel()));
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, address, 2000));
	CHECK(!rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED)));
	CHECK(!rdma_resolve_route(id, 2000));
	CHECK(!rdma_ack_cm_event(expect(RDMA_CM_EVENT_ROUTE_RESOLVED)));
	create_qp(id);
	CHECK(!ibv_post_recv(id->qp, &wr, &bad));
	strcpy(about, ways[way]);
	struct rdma_conn_param param = { .private_data = about, .private_data_len = sizeof about };
	CHECK(!rdma_connect(id, &param));
	CHECK(!rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED)));
	/* The device is up. The program has no child because of it, and had none. */
	CHECK(!sigpending(&blocked) && !sigismember(&blocked, SIGCHLD));
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD);
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	switch (way) {
	case EXIT: _exit(0);
	case ABORT: abort();
	case EXEC: execlp("sleep", "sleep", "0.3", NULL); break;
	case TERMINATED: raise(SIGTERM); break;
	default: raise(SIGKILL);
	}
	abort();
}

static void client(struct sockaddr *address, int rounds)
{
	static const int signals[] = {
		[ABORT] = SIGABRT, [TERMINATED] = SIGTERM, [KILLED] = SIGKILL, [IGNORING] = SIGKILL,
	};
	for (int number = 0; number < rounds * WAYS; number++) {
		enum way way = number % WAYS;
		pid_t pid = fork();
		int status;
		CHECK(pid >= 0);
		if (!pid)
			end(way, address);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(signals[way] ? WIFSIGNALED(status) && WTERMSIG(status) == signals[way] : !status);
	}
}

int main(int argc, char **argv)
{
	int is_server = argc == 5 && !strcmp(argv[1], "server");
	CHECK(is_server || argc == 4);
	struct addrinfo *found, hints = { .ai_family = AF_INET, .ai_flags = AI_NUMERICHOST };
	CHECK(!getaddrinfo(argv[2], "7471", &hints, &found));
	if (is_server) {
		CHECK((channel = rdma_create_event_channel()));
		server(found->ai_addr, atoi(argv[3]), atoi(argv[4]));
		rdma_destroy_event_channel(channel);
	} else {
		client(found->ai_addr, atoi(argv[3]));
	}
	freeaddrinfo(found);
	printf("all ended\n");
	return 0;
}
