/* Checks that addresses and options are refused as Linux's rdma_cm and librdmacm refuse them: in the call, or by an event. */

#include "check.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>

#include <rdma/rdma_cma.h>

#define REFUSED(call, expected) \
	do { \
		errno = 0; \
		CHECK((call) == -1); \
		CHECK(errno == (expected)); \
	} while (0)

static struct sockaddr *address(const char *text)
{
	static struct sockaddr_in found;
	found = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(7471) };
	CHECK(inet_pton(AF_INET, text, &found.sin_addr) == 1);
	return (struct sockaddr *)&found;
}

/* Without a route (core/addr.c, `rdma_resolve_ip`), and from an address of another host (`rdma_find_ndev_for_src_ip_rcu`). */
static void without_a_route(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	REFUSED(rdma_bind_addr(id, address("198.51.100.1")), EADDRNOTAVAIL);
	struct sockaddr_in elsewhere = *(struct sockaddr_in *)address("198.51.100.1");
	REFUSED(rdma_resolve_addr(id, (struct sockaddr *)&elsewhere, address("10.0.0.9"), 1000), EADDRNOTAVAIL);
	REFUSED(rdma_resolve_addr(id, NULL, address("198.51.100.1"), 1000), ENETUNREACH);
	/* It stays bound, so that the call may be repeated. */
	REFUSED(rdma_resolve_addr(id, NULL, address("198.51.100.1"), 1000), ENETUNREACH);
	if (channel) {
		struct pollfd waiting = { .fd = channel->fd, .events = POLLIN };
		CHECK(poll(&waiting, 1, 100) == 0);
	} else {
		CHECK(!id->event);
	}
	CHECK(!rdma_resolve_addr(id, NULL, address("10.0.0.1"), 1000));
	if (channel) {
		struct rdma_cm_event *event;
		CHECK(!rdma_get_cm_event(channel, &event));
		CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && event->id == id && !event->status);
		CHECK(!rdma_ack_cm_event(event));
	} else {
		CHECK(id->event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
	}
	CHECK(!rdma_destroy_id(id));
}

/* `rdma_set_ack_timeout` of core/cma.c: for those that wait for ACKs, and any value. */
static void ack_timeouts(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;
	for (int value = 0; value < 256; value++) {
		uint8_t timeout = value;
		CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
		CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
		REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 2), EINVAL);
		CHECK(!rdma_destroy_id(id));
		CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
		REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), EINVAL);
		CHECK(!rdma_destroy_id(id));
	}
}

/* The two ends of XRC, whose hints have no port space, are in the same (librdmacm's addrinfo.c). */
static void infos(void)
{
	struct rdma_addrinfo *found, hints = { .ai_flags = RAI_NUMERICHOST, .ai_qp_type = IBV_QPT_XRC_SEND };
	CHECK(!rdma_getaddrinfo("10.0.0.1", "7471", &hints, &found));
	CHECK(found->ai_port_space == RDMA_PS_TCP && found->ai_qp_type == IBV_QPT_XRC_SEND);
	CHECK(!found->ai_flags && found->ai_dst_addr && !found->ai_dst_canonname);
	rdma_freeaddrinfo(found);
	hints.ai_flags |= RAI_PASSIVE;
	hints.ai_qp_type = IBV_QPT_XRC_RECV;
	CHECK(!rdma_getaddrinfo(NULL, "7471", &hints, &found));
	CHECK(found->ai_port_space == RDMA_PS_TCP && found->ai_flags == RAI_PASSIVE && found->ai_src_addr);
	rdma_freeaddrinfo(found);
	CHECK(rdma_getaddrinfo("no number", "7471", &hints, &found) == EAI_NONAME);
	REFUSED(rdma_getaddrinfo(NULL, NULL, NULL, &found), EINVAL);
}

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel);
	without_a_route(channel);
	without_a_route(NULL);
	ack_timeouts(channel);
	infos();
	rdma_destroy_event_channel(channel);
	printf("refused as by Linux\n");
	return 0;
}
