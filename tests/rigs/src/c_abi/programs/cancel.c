/* For `cargo rig c-abi`: threads are cancelled in calls that wait, before they wait and while they do. Each ends as POSIX has it, with
 * its handlers run, and what it waited for works afterwards as before. With an argument, the same in ordinary sockets, for
 * `bareverbs-run --sockets`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

static int failures;
static int ordinary;

#define CHECK(condition)                                                                                                       \
	do {                                                                                                                       \
		if (!(condition)) {                                                                                                    \
			printf("line %d: %s, errno %d\n", __LINE__, #condition, errno);                                                    \
			failures++;                                                                                                        \
		}                                                                                                                      \
	} while (0)

static struct sockaddr_in address(int port)
{
	struct sockaddr_in found = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, "10.0.0.1", &found.sin_addr);
	return found;
}

/* The calls are about these objects. */
static struct ibv_context *context;
static struct ibv_comp_channel *completions;
static struct rdma_event_channel *events;
static struct rdma_cm_id *listener;
static int streams[2], listening, datagrams;
static char *fifo;

static void in_get_cm_event(void)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(events, &event);
}

static void in_get_cq_event(void)
{
	struct ibv_cq *cq;
	void *of;

	ibv_get_cq_event(completions, &cq, &of);
}

static void in_get_async_event(void)
{
	struct ibv_async_event event;

	ibv_get_async_event(context, &event);
}

static void in_get_request(void)
{
	struct rdma_cm_id *id;

	rdma_get_request(listener, &id);
}

/* There is no such host: it is asked for until the time is over. */
static void in_resolve_addr(void)
{
	struct sockaddr_in to = address(7);
	struct rdma_cm_id *id;

	to.sin_addr.s_addr = htonl(0x0a00004d);
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		return;
	rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 30000);
}

static void in_accept(void)
{
	ordinary ? accept(listening, NULL, NULL) : raccept(listening, NULL, NULL);
}

static void in_recv(void)
{
	char byte;

	ordinary ? recv(streams[0], &byte, 1, 0) : rrecv(streams[0], &byte, 1, 0);
}

static void in_read(void)
{
	char byte;
	ssize_t got = ordinary ? read(streams[0], &byte, 1) : rread(streams[0], &byte, 1);

	(void)got;
}

static void in_recvfrom(void)
{
	char byte;

	ordinary ? recvfrom(datagrams, &byte, 1, 0, NULL, NULL) : rrecvfrom(datagrams, &byte, 1, 0, NULL, NULL);
}

/* More than there is room for. */
static void in_send(void)
{
	static char bytes[64 << 20];

	ordinary ? send(streams[0], bytes, sizeof(bytes), 0) : rsend(streams[0], bytes, sizeof(bytes), 0);
}

static void in_poll(void)
{
	struct pollfd entry = {.fd = streams[0], .events = POLLIN};

	ordinary ? poll(&entry, 1, -1) : rpoll(&entry, 1, -1);
}

static void in_select(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(streams[0], &set);
	ordinary ? select(streams[0] + 1, &set, NULL, NULL, NULL) : rselect(streams[0] + 1, &set, NULL, NULL, NULL);
}

static void in_epoll_wait(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(0);

	epoll_ctl(epoll, EPOLL_CTL_ADD, streams[0], &event);
	epoll_wait(epoll, &event, 1, -1);
}

static void in_read_of_a_pipe(void)
{
	int ends[2];
	char byte;

	if (pipe(ends) || read(ends[0], &byte, 1) != 1)
		return;
}

/* No one opens the other end. */
static void in_open(void)
{
	char folder[] = "/tmp/bareverbs-cancel-XXXXXX", path[64];

	if (!mkdtemp(folder))
		return;
	snprintf(path, sizeof(path), "%s/fifo", folder);
	if (mkfifo(path, 0600))
		return;
	fifo = strdup(path);
	open(path, O_RDONLY);
}

/* Of a thread that has ended. */
static void remove_fifo(void)
{
	if (!fifo)
		return;
	unlink(fifo);
	*strrchr(fifo, '/') = 0;
	rmdir(fifo);
	free(fifo);
	fifo = NULL;
}

struct call {
	const char *name;
	void (*work)(void);
};

struct thread {
	void (*work)(void);
	pthread_barrier_t begins;
	pid_t number;
	int handled;
};

static void handle(void *of)
{
	((struct thread *)of)->handled = 1;
}

static void *run(void *of)
{
	struct thread *thread = of;

	thread->number = gettid();
	pthread_cleanup_push(handle, thread);
	pthread_barrier_wait(&thread->begins);
	thread->work();
	pthread_cleanup_pop(0);
	return NULL;
}

/* Waits until a thread sleeps. */
static void until_asleep(pid_t number)
{
	char path[64], text[256], state = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", number);
	while (state != 'S') {
		FILE *file = fopen(path, "r");

		if (!file)
			return;
		if (fgets(text, sizeof(text), file) && strrchr(text, ')'))
			sscanf(strrchr(text, ')') + 1, " %c", &state);
		fclose(file);
		sched_yield();
	}
}

static void cancel_in(const struct call *call, int asleep)
{
	struct thread thread = {.work = call->work};
	void *result = NULL;
	pthread_t id;

	pthread_barrier_init(&thread.begins, NULL, 2);
	pthread_create(&id, NULL, run, &thread);
	pthread_barrier_wait(&thread.begins);
	if (asleep)
		until_asleep(thread.number);
	pthread_cancel(id);
	pthread_join(id, &result);
	if (result != PTHREAD_CANCELED || !thread.handled) {
		printf("%s: not cancelled\n", call->name);
		failures++;
	}
	printf("%s: cancelled\n", call->name);
	fflush(stdout);
}

static void stream_works(void)
{
	char got[4] = "";

	if (ordinary) {
		CHECK(send(streams[1], "abc", 4, 0) == 4);
		CHECK(recv(streams[0], got, 4, MSG_WAITALL) == 4);
	} else {
		CHECK(rsend(streams[1], "abc", 4, 0) == 4);
		CHECK(rrecv(streams[0], got, 4, MSG_WAITALL) == 4);
	}
	CHECK(!strcmp(got, "abc"));
}

static void make_sockets(void)
{
	struct sockaddr_in at = address(7100);
	socklen_t length = sizeof(at);

	if (ordinary) {
		CHECK((listening = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
		CHECK(!bind(listening, (struct sockaddr *)&at, length) && !listen(listening, 4));
		CHECK((streams[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
		CHECK(!connect(streams[0], (struct sockaddr *)&at, length));
		CHECK((streams[1] = accept(listening, NULL, NULL)) >= 0);
		CHECK((datagrams = socket(AF_INET, SOCK_DGRAM, 0)) >= 0);
		CHECK(!bind(datagrams, (struct sockaddr *)&at, length));
	} else {
		CHECK((listening = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
		CHECK(!rbind(listening, (struct sockaddr *)&at, length) && !rlisten(listening, 4));
		CHECK((streams[0] = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
		CHECK(!rconnect(streams[0], (struct sockaddr *)&at, length));
		CHECK((streams[1] = raccept(listening, NULL, NULL)) >= 0);
		CHECK((datagrams = rsocket(AF_INET, SOCK_DGRAM, 0)) >= 0);
		CHECK(!rbind(datagrams, (struct sockaddr *)&at, length));
	}
}

/* An event comes to the channel, and is there for the next thread. */
static void channel_works(void)
{
	struct sockaddr_in to = address(7200);
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(events, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	CHECK(!rdma_get_cm_event(events, &event));
	CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(id));
}

int main(int count, char **arguments)
{
	static const struct call of_verbs[] = {
		{"rdma_get_cm_event", in_get_cm_event},
		{"ibv_get_cq_event", in_get_cq_event},
		{"ibv_get_async_event", in_get_async_event},
		{"rdma_get_request", in_get_request},
		{"rdma_resolve_addr", in_resolve_addr},
	};
	static const struct call of_sockets[] = {
		{"accept", in_accept},	 {"recv", in_recv},	{"read", in_read},
		{"recvfrom", in_recvfrom}, {"poll", in_poll}, {"select", in_select},
	};
	static const struct call of_the_system[] = {
		{"epoll_wait", in_epoll_wait},
		{"read of a pipe", in_read_of_a_pipe},
		{"open", in_open},
	};
	static const struct call last = {"send", in_send};
	size_t call;
	int asleep;

	(void)arguments;
	ordinary = count > 1;
	if (!ordinary) {
		struct sockaddr_in at = address(7300);
		struct ibv_device **devices = ibv_get_device_list(NULL);

		CHECK((context = ibv_open_device(devices[0])) != NULL);
		CHECK((completions = ibv_create_comp_channel(context)) != NULL);
		CHECK((events = rdma_create_event_channel()) != NULL);
		CHECK(!rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP));
		CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&at) && !rdma_listen(listener, 4));
	}
	make_sockets();
	for (asleep = 0; asleep < 2; asleep++) {
		for (call = 0; call < sizeof(of_sockets) / sizeof(*of_sockets); call++)
			cancel_in(&of_sockets[call], asleep);
		stream_works();
		if (ordinary) {
			for (call = 0; call < sizeof(of_the_system) / sizeof(*of_the_system); call++)
				cancel_in(&of_the_system[call], asleep);
			remove_fifo();
			continue;
		}
		for (call = 0; call < sizeof(of_verbs) / sizeof(*of_verbs); call++)
			cancel_in(&of_verbs[call], asleep);
		channel_works();
	}
	cancel_in(&last, 1);
	if (!failures)
		printf("all threads were cancelled\n");
	return !!failures;
}
