/* Programs that end without a word to their peer, which has to hear DISCONNECTED all the same: `ends server` and `ends client`. The
 * client runs a program for each way, one after the other on the same device. The server ends each of them and measures. */

#include "check.h"

#include <netdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

/* The time within which the peer hears. */
enum { LIMIT = 1000 };

enum way { EXIT, ABORT, EXEC, TERMINATED, KILLED, IGNORING, WAYS };

static const char *const ways[] = { "_exit", "abort", "exec", "SIGTERM", "SIGKILL", "SIGKILL, SIGCHLD ignored" };

/* What the client says of itself. */
struct about {
	pid_t pid;
	enum way way;
};

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

static long now(void)
{
	struct timespec time;
	CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void server(struct rdma_cm_id *listener, struct sockaddr *address)
{
	CHECK(!rdma_bind_addr(listener, address));
	CHECK(!rdma_listen(listener, 1));
	for (int count = 0; count < WAYS; count++) {
		struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = event->id;
		struct about about;
		memcpy(&about, event->param.conn.private_data, sizeof about);
		create_qp(id);
		CHECK(!rdma_accept(id, NULL));
		CHECK(!rdma_ack_cm_event(event));
		CHECK(!rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED)));
		long begun = now();
		const int sent[] = { [TERMINATED] = SIGTERM, [KILLED] = SIGKILL, [IGNORING] = SIGKILL };
		CHECK(!kill(about.pid, about.way < TERMINATED ? SIGUSR1 : sent[about.way]));
		event = expect(RDMA_CM_EVENT_DISCONNECTED);
		long took = now() - begun;
		printf("%s: heard after %ld ms, %s\n", ways[about.way], took, took <= LIMIT ? "in time" : "late");
		CHECK(!rdma_ack_cm_event(event));
		CHECK(!rdma_disconnect(id));
		rdma_destroy_qp(id);
		CHECK(!rdma_destroy_id(id));
	}
}

/* Connects, and does not return. */
static void end(enum way way, struct sockaddr *address)
{
	struct about about = { .pid = getpid(), .way = way };
	struct rdma_cm_id *id;
	sigset_t awaited, blocked;
	int caught;

	sigemptyset(&awaited);
	sigaddset(&awaited, SIGUSR1);
	blocked = awaited;
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
	struct rdma_conn_param param = { .private_data = &about, .private_data_len = sizeof about };
	CHECK(!rdma_connect(id, &param));
	CHECK(!rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED)));
	/* The device is up. The program has no child because of it, and had none. */
	CHECK(!sigpending(&blocked) && !sigismember(&blocked, SIGCHLD));
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD);
	CHECK(!sigwait(&awaited, &caught));
	switch (way) {
	case EXIT: _exit(0);
	case ABORT: abort();
	case EXEC: execl("/bin/sleep", "sleep", "0.3", NULL); break;
	default: pause();
	}
	abort();
}

static void client(struct sockaddr *address)
{
	static const int signals[] = {
		[ABORT] = SIGABRT, [TERMINATED] = SIGTERM, [KILLED] = SIGKILL, [IGNORING] = SIGKILL,
	};
	for (enum way way = 0; way < WAYS; way++) {
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
	CHECK(argc == 2);
	struct addrinfo *found, hints = { .ai_family = AF_INET, .ai_flags = AI_NUMERICHOST };
	CHECK(!getaddrinfo("10.0.0.1", "7471", &hints, &found));
	if (!strcmp(argv[1], "server")) {
		struct rdma_cm_id *id;
		CHECK((channel = rdma_create_event_channel()));
		CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
		server(id, found->ai_addr);
		CHECK(!rdma_destroy_id(id));
		rdma_destroy_event_channel(channel);
	} else {
		client(found->ai_addr);
	}
	freeaddrinfo(found);
	printf("all ended\n");
	return 0;
}
