/*
 * Functions that rdma-core has since 57, compiled with the headers of the newest release: "newest server" and "newest
 * client", the two ends of a stream.
 */

#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#define FAILS(what, with)                                                                                    \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		CHECK(what);                                                                                 \
		CHECK(errno == (with));                                                                      \
	} while (0)

/* Of a lane in units of 100 Mb/s, as Linux's sysfs counts, by the code of its speed. */
static unsigned lane(uint8_t code)
{
	switch (code) {
	case 1: return 25;
	case 4: return 100;
	case 32: return 250;
	case 64: return 500;
	case 128: return 1000;
	default: return 0;
	}
}

static unsigned lanes(uint8_t width)
{
	switch (width) {
	case 1: return 1;
	case 2: return 4;
	case 4: return 8;
	case 16: return 2;
	default: return 0;
	}
}

static void speed(struct ibv_context *context)
{
	struct ibv_port_attr port;
	uint64_t speed = 0;

	CHECK(!ibv_query_port(context, 1, &port));
	CHECK(!ibv_query_port_speed(context, 1, &speed));
	CHECK(speed && speed == lanes(port.active_width) * lane(port.active_speed));
	CHECK(ibv_query_port_speed(context, 2, &speed) == EINVAL);
}

static void buffers(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	struct ibv_buf *buf = NULL;
	const size_t size = 3 * 4096;
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	char *addr = ibv_alloc_buf(pd, size, &buf);

	CHECK(pd && other && addr && buf && (uintptr_t)addr % 4096 == 0);
	memset(addr, 7, size);
	struct ibv_mr *mr = ibv_reg_buf_mr(pd, buf, addr + 4096, 8192, access);
	CHECK(mr && mr->addr == addr + 4096 && mr->length == 8192 && mr->pd == pd && mr->lkey);
	CHECK(!ibv_dereg_mr(mr));
	FAILS(!ibv_reg_buf_mr(other, buf, addr, size, access), EINVAL);
	FAILS(!ibv_reg_buf_mr(pd, buf, addr - 1, 2, access), EINVAL);
	FAILS(!ibv_reg_buf_mr(pd, buf, addr + 1, size, access), EINVAL);
	FAILS(!ibv_reg_buf_mr(pd, buf, addr + size + 1, 0, access), EINVAL);
	FAILS(ibv_export_buf_dmabuf_fd(buf) == -1, ENODATA);

	struct ibv_mr_init_attr attr = {
		.length = size,
		.access = access,
		.comp_mask = IBV_REG_MR_MASK_ADDR,
		.addr = addr,
		/* Not in the mask: it is not looked at. */
		.iova = 1,
		.fd = 1,
	};
	mr = ibv_reg_mr_ex(pd, &attr);
	CHECK(mr && mr->addr == addr && mr->length == size && mr->context == context && mr->pd == pd);
	CHECK(!ibv_dereg_mr(mr));
	attr.comp_mask |= IBV_REG_MR_MASK_IOVA;
	attr.iova = 0x10000;
	CHECK((mr = ibv_reg_mr_ex(pd, &attr)));
	CHECK(!ibv_dereg_mr(mr));
	attr.comp_mask = IBV_REG_MR_MASK_BUF;
	attr.buf = buf;
	FAILS(!ibv_reg_mr_ex(pd, &attr), EINVAL);
	attr.comp_mask = IBV_REG_MR_MASK_IOVA;
	FAILS(!ibv_reg_mr_ex(pd, &attr), EINVAL);
	attr.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD;
	FAILS(!ibv_reg_mr_ex(pd, &attr), EINVAL);
	attr.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
	FAILS(!ibv_reg_mr_ex(pd, &attr), EOPNOTSUPP);
	attr.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH;
	FAILS(!ibv_reg_mr_ex(pd, &attr), EOPNOTSUPP);
	ibv_free_buf(buf);
	CHECK(!ibv_dealloc_pd(other) && !ibv_dealloc_pd(pd));
}

/* Each in its own way, as rdma-core's functions for drivers that have none of this. */
static void refusals(struct ibv_context *context)
{
	struct ibv_dmah_init_attr dmah = {};
	struct ibv_dmah handle = { .context = context };
	struct ibv_comp_cntr_caps caps;
	struct ibv_comp_cntr_init_attr init = {};
	struct ibv_comp_cntr counter = { .context = context };
	struct ibv_dm dm = { .context = context };
	uint64_t value;

	FAILS(!ibv_alloc_dmah(context, &dmah), EOPNOTSUPP);
	CHECK(ibv_dealloc_dmah(&handle) == EOPNOTSUPP);
	FAILS(ibv_dm_export_dmabuf_fd(&dm) == -1, EOPNOTSUPP);
	CHECK(ibv_query_comp_cntr_caps(context, &caps) == EOPNOTSUPP);
	FAILS(!ibv_create_comp_cntr(context, &init), EOPNOTSUPP);
	CHECK(ibv_read_comp_cntr(&counter, &value) == EOPNOTSUPP);
	CHECK(ibv_read_err_comp_cntr(&counter, &value) == EOPNOTSUPP);
	CHECK(ibv_set_comp_cntr(&counter, 1) == EOPNOTSUPP);
	CHECK(ibv_inc_comp_cntr(&counter, 1) == EOPNOTSUPP);
	CHECK(ibv_destroy_comp_cntr(&counter) == EOPNOTSUPP);
	FAILS(mlx5dv_devx_uar_export_dmabuf_fd(NULL) == -1, EOPNOTSUPP);
	FAILS(!mlx5dv_devx_obj_import(context, &value), EOPNOTSUPP);
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = NULL;

	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK(event->event == type);
	return event;
}

static void written_events(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	FAILS(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0) == -1, EINVAL);
	/* More than an id has events of its connection. */
	for (uint64_t i = 0; i < 100; i++)
		CHECK(!rdma_write_cm_event(id, RDMA_CM_EVENT_USER, -(int)i, i << 32 | 5));
	for (uint64_t i = 0; i < 100; i++) {
		struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_USER);
		CHECK(event->id == id && event->status == -(int)i && event->param.arg == (i << 32 | 5));
		CHECK(!rdma_ack_cm_event(event));
	}
	struct rdma_cm_event *none;
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	FAILS(rdma_get_cm_event(channel, &none) == -1, EAGAIN);
	/* One that is not taken. */
	CHECK(!rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 0));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void addresses(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *found = NULL;
	struct rdma_cm_id *id;

	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	FAILS(rdma_query_addrinfo(id, &found) == -1, ENOENT);
	CHECK(!rdma_resolve_addrinfo(id, "10.0.0.7", "7471", &hints));
	FAILS(rdma_resolve_addrinfo(id, "10.0.0.7", "7471", &hints) == -1, EBUSY);
	struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_ADDRINFO_RESOLVED);
	CHECK(event->id == id && event->status == 0);
	CHECK(!strcmp(rdma_event_str(event->event), "RDMA_CM_EVENT_ADDRINFO_RESOLVED"));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_query_addrinfo(id, &found) && found->ai_port_space == RDMA_PS_TCP);
	struct sockaddr_in *to = (struct sockaddr_in *)found->ai_dst_addr;
	CHECK(to->sin_port == htons(7471) && to->sin_addr.s_addr == htonl(0x0a000007));
	rdma_freeaddrinfo(found);
	FAILS(rdma_query_addrinfo(id, &found) == -1, ENOENT);

	/* What fails can be tried again. */
	CHECK(rdma_resolve_addrinfo(id, "no number", "7471", &hints) == -1);
	hints.ai_flags |= RAI_SA | RAI_DNS;
	FAILS(rdma_resolve_addrinfo(id, NULL, "7471", &hints) == -1, EOPNOTSUPP);
	hints.ai_flags = 0;
	CHECK(!rdma_resolve_addrinfo(id, "10.0.0.7", "7471", &hints));
	/* A result that is not taken goes with the id. */
	CHECK(!rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ADDRINFO_RESOLVED)));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);

	/* Without a channel the call waits for its event. */
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addrinfo(id, "10.0.0.7", "7471", NULL));
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_ADDRINFO_RESOLVED);
	CHECK(!rdma_query_addrinfo(id, &found));
	rdma_freeaddrinfo(found);
	CHECK(!rdma_destroy_id(id));
}

struct waiting {
	int set;
	int found;
	struct epoll_event event;
};

static void *wait_for_one(void *argument)
{
	struct waiting *waiting = argument;

	waiting->found = repoll_wait(waiting->set, &waiting->event, 1, 20000);
	return NULL;
}

/* A set of ordinary descriptors, also changed while a thread waits for it. */
static void sets(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 11 }, found[4];
	int set = repoll_create(O_CLOEXEC), one = eventfd(0, 0), two = eventfd(1, 0);

	CHECK(set >= 0 && one >= 0 && two >= 0);
	CHECK(repoll_wait(set, found, 4, 0) == 0 && repoll_wait(set, found, 4, 10) == 0);
	CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, one, &event));
	CHECK(repoll_ctl(set, EPOLL_CTL_ADD, one, &event) == EEXIST);
	CHECK(repoll_ctl(set, EPOLL_CTL_MOD, two, &event) == ENOENT);
	CHECK(repoll_ctl(set, EPOLL_CTL_DEL, two, NULL) == ENOENT);
	CHECK(repoll_ctl(set, EPOLL_CTL_ADD, -1, &event) == EBADF);
	CHECK(repoll_ctl(set, EPOLL_CTL_ADD, set, &event) == EINVAL);
	CHECK(repoll_ctl(one, EPOLL_CTL_ADD, two, &event) == EINVAL);
	CHECK(repoll_ctl(set, 99, one, &event) == EINVAL);
	CHECK(repoll_wait(set, found, 4, 0) == 0);

	struct waiting waiting = { .set = set };
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, wait_for_one, &waiting));
	event.data.u64 = 22;
	CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, two, &event));
	CHECK(!pthread_join(thread, NULL));
	CHECK(waiting.found == 1 && waiting.event.events == EPOLLIN && waiting.event.data.u64 == 22);

	/* Both, in the order in which they were added, and no more than there is room for. */
	event = (struct epoll_event){ .events = EPOLLOUT, .data.u64 = 33 };
	CHECK(!repoll_ctl(set, EPOLL_CTL_MOD, one, &event));
	CHECK(repoll_wait(set, found, 1, -1) == 1 && found[0].data.u64 == 33);
	CHECK(repoll_wait(set, found, 4, -1) == 2 && found[0].events == EPOLLOUT && found[1].data.u64 == 22);
	CHECK(rclose(set) != 0);
	CHECK(!repoll_ctl(set, EPOLL_CTL_DEL, one, NULL) && !repoll_ctl(set, EPOLL_CTL_DEL, two, NULL));
	CHECK(rclose(set) == 0);
	CHECK(repoll_ctl(set, EPOLL_CTL_ADD, one, &event) == EINVAL);
	close(one);
	close(two);
}

static int stream(void)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK(socket >= 0);
	return socket;
}

static void wait_in(int set, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd }, found = {};

	CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	CHECK(repoll_wait(set, &found, 1, 20000) == 1);
	CHECK(found.data.fd == fd && found.events & events);
	CHECK(!repoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
}

static void serve(struct sockaddr_in address)
{
	int listener = stream(), set = repoll_create(0);
	char text[16] = {};

	CHECK(!rbind(listener, (struct sockaddr *)&address, sizeof(address)) && !rlisten(listener, 1));
	wait_in(set, listener, EPOLLIN);
	int socket = raccept(listener, NULL, NULL);
	CHECK(socket >= 0);
	wait_in(set, socket, EPOLLIN);
	CHECK(rrecv(socket, text, sizeof(text), 0) == 6 && !strcmp(text, "hello"));
	CHECK(rsend(socket, text, 6, 0) == 6);
	/* The other end closes. */
	wait_in(set, socket, EPOLLIN);
	CHECK(rrecv(socket, text, sizeof(text), 0) == 0);
	rclose(socket);
	rclose(listener);
	CHECK(!rclose(set));
}

static void connect_to(struct sockaddr_in address)
{
	int socket = stream(), set = repoll_create(0);
	char text[16] = {};

	CHECK(!rconnect(socket, (struct sockaddr *)&address, sizeof(address)));
	wait_in(set, socket, EPOLLOUT);
	CHECK(rsend(socket, "hello", 6, 0) == 6);
	wait_in(set, socket, EPOLLIN);
	CHECK(rrecv(socket, text, sizeof(text), 0) == 6 && !strcmp(text, "hello"));
	rclose(socket);
	CHECK(!rclose(set));
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(7471), .sin_addr.s_addr = htonl(0x0a000001),
	};
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(argc == 2 && list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	speed(context);
	buffers(context);
	refusals(context);
	written_events();
	addresses();
	sets();
	if (!strcmp(argv[1], "server"))
		serve(address);
	else
		connect_to(address);
	CHECK(!ibv_close_device(context));
	ibv_free_device_list(list);
	printf("newest: all is right\n");
	return 0;
}
