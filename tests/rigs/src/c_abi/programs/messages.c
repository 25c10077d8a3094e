/* Times of sockets (SO_RCVTIMEO, SO_SNDTIMEO) and several messages in one call (recvmmsg, sendmmsg), by nothing but the C
 * library's calls: `messages server PORT` and `messages client ADDRESS PORT`. By the loopback address Linux itself is what
 * the program is tried on. */

#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES = 4, ROOM = 64 };
static const double SHORT = 0.3, PATIENCE = 10;

static char memory[2 * MESSAGES][ROOM], large[1 << 20];
static struct iovec pieces[2 * MESSAGES][2];
static struct sockaddr_in names[2 * MESSAGES];
static struct mmsghdr messages[2 * MESSAGES];

static double now(void)
{
	struct timespec time;
	CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
	return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void set_time(int fd, int option, double seconds)
{
	struct timeval time = { .tv_sec = seconds, .tv_usec = (seconds - (long) seconds) * 1e6 }, found = {};
	socklen_t length = sizeof found;
	CHECK(!setsockopt(fd, SOL_SOCKET, option, &time, sizeof time));
	CHECK(!getsockopt(fd, SOL_SOCKET, option, &found, &length) && length == sizeof found);
	/* Linux rounds to its ticks. */
	CHECK(found.tv_sec == time.tv_sec && labs(found.tv_usec - time.tv_usec) <= 10000);
	time.tv_usec = 1000000;
	CHECK(setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) == -1 && errno == EDOM);
}

/* Nothing comes before the time is over. */
static void expect_silence(int fd)
{
	double begun = now();
	errno = 0;
	CHECK(recv(fd, memory, sizeof memory, 0) == -1 && (errno == EAGAIN));
	double took = now() - begun;
	CHECK(took > 0.9 * SHORT && took < PATIENCE);
}

/* Room for messages, in two pieces each, of which the first has three bytes. */
static void prepare(int count)
{
	memset(memory, 0, sizeof memory);
	for (int i = 0; i < count; i++) {
		pieces[i][0] = (struct iovec){ memory[i], 3 };
		pieces[i][1] = (struct iovec){ memory[i] + 3, ROOM - 3 };
		messages[i] = (struct mmsghdr){ .msg_hdr = {
			.msg_name = &names[i], .msg_namelen = sizeof names[i],
			.msg_iov = pieces[i], .msg_iovlen = 2,
		} };
	}
}

static void fill(int i, const char *who)
{
	int length = snprintf(memory[i], ROOM, "%s says %d%.*s", who, i, i, "....");
	pieces[i][1].iov_len = length - 3;
}

static void check(int i, const char *who)
{
	char expected[ROOM] = {};
	unsigned length = snprintf(expected, ROOM, "%s says %d%.*s", who, i, i, "....");
	CHECK(messages[i].msg_len == length && !memcmp(memory[i], expected, ROOM));
}

static int listener(int kind, int port)
{
	int fd = socket(AF_INET, kind, 0), on = 1;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	CHECK(!bind(fd, (void *) &any, sizeof any));
	return fd;
}

static void server(int port)
{
	int listening = listener(SOCK_STREAM, port);
	CHECK(!listen(listening, 1));
	int datagrams = listener(SOCK_DGRAM, port);
	set_time(listening, SO_RCVTIMEO, PATIENCE);
	int stream = accept(listening, NULL, NULL);
	CHECK(stream >= 0);
	set_time(stream, SO_RCVTIMEO, SHORT);
	set_time(stream, SO_SNDTIMEO, SHORT);
	expect_silence(stream);
	/* The other end reads nothing: at last nothing goes. */
	double begun = now();
	ssize_t sent, total = 0;
	while ((sent = send(stream, large, sizeof large, 0)) > 0) {
		total += sent;
		CHECK(now() - begun < 3 * PATIENCE);
	}
	CHECK(errno == EAGAIN && total > 0);
	CHECK(!close(stream));
	set_time(listening, SO_RCVTIMEO, SHORT);
	errno = 0;
	CHECK(accept(listening, NULL, NULL) == -1 && errno == EAGAIN);
	printf("streams wait no longer than they should\n");

	set_time(datagrams, SO_RCVTIMEO, PATIENCE);
	int count = 0;
	prepare(2 * MESSAGES);
	while (count < MESSAGES) {
		int got = recvmmsg(datagrams, messages + count, 2 * MESSAGES - count, MSG_WAITFORONE, NULL);
		CHECK(got > 0);
		count += got;
	}
	CHECK(count == MESSAGES);
	for (int i = 0; i < count; i++) {
		CHECK(names[i].sin_family == AF_INET && names[i].sin_port == names[0].sin_port);
		check(i, "client");
	}
	struct sockaddr_in client = names[0];
	prepare(MESSAGES);
	for (int i = 0; i < MESSAGES; i++) {
		names[i] = client;
		fill(i, "server");
	}
	CHECK(sendmmsg(datagrams, messages, MESSAGES, 0) == MESSAGES);
	set_time(datagrams, SO_RCVTIMEO, SHORT);
	prepare(1);
	errno = 0;
	CHECK(recvmmsg(datagrams, messages, 1, 0, NULL) == -1 && errno == EAGAIN);
	printf("several messages at a time\n");
}

static void client(const char *address, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
	int stream = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(stream >= 0);
	set_time(stream, SO_SNDTIMEO, PATIENCE);
	CHECK(!connect(stream, (void *) &to, sizeof to));
	/* Reads nothing until the other end has given up. */
	sleep(6);
	ssize_t got;
	set_time(stream, SO_RCVTIMEO, PATIENCE);
	while ((got = recv(stream, large, sizeof large, 0)) > 0)
		;
	CHECK(got == 0 || errno == ECONNRESET);
	CHECK(!close(stream));

	int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(datagrams >= 0);
	prepare(MESSAGES);
	for (int i = 0; i < MESSAGES; i++) {
		names[i] = to;
		fill(i, "client");
	}
	CHECK(sendmmsg(datagrams, messages, MESSAGES, 0) == MESSAGES);
	for (int i = 0; i < MESSAGES; i++)
		CHECK(messages[i].msg_len == pieces[i][0].iov_len + pieces[i][1].iov_len);
	set_time(datagrams, SO_RCVTIMEO, PATIENCE);
	prepare(MESSAGES);
	struct timespec patience = { .tv_sec = PATIENCE };
	CHECK(recvmmsg(datagrams, messages, MESSAGES, 0, &patience) == MESSAGES);
	for (int i = 0; i < MESSAGES; i++) {
		CHECK(names[i].sin_port == to.sin_port && names[i].sin_addr.s_addr == to.sin_addr.s_addr);
		check(i, "server");
	}
	patience.tv_nsec = 1000000000;
	CHECK(recvmmsg(datagrams, messages, 1, 0, &patience) == -1 && errno == EINVAL);
	set_time(datagrams, SO_RCVTIMEO, SHORT);
	expect_silence(datagrams);
	printf("several messages at a time\n");
}

int main(int argc, char **argv)
{
	CHECK(argc == 3 || argc == 4);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(argv[1], "server"))
		server(atoi(argv[2]));
	else
		client(argv[2], atoi(argv[3]));
	return 0;
}
