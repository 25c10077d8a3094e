/* A server on all addresses of two devices, and two clients, each on one device with the server on the other: in one process. */

#include "check.h"

#include <netdb.h>

#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

static struct sockaddr *address(const char *text)
{
	struct addrinfo *found, hints = { .ai_family = AF_INET, .ai_flags = AI_NUMERICHOST };
	CHECK(!getaddrinfo(text, "7471", &hints, &found));
	static struct sockaddr_storage storage[2];
	static int turn;
	struct sockaddr *copy = (struct sockaddr *)&storage[turn++ % 2];
	memcpy(copy, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return copy;
}

static struct sockaddr *without_port(struct sockaddr *address)
{
	((struct sockaddr_in *)address)->sin_port = 0;
	return address;
}

/* The next event, which has to be of this kind; acknowledged. Its id. */
static struct rdma_cm_id *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	printf("%s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type && event->status == 0);
	struct rdma_cm_id *id = event->id;
	CHECK(!rdma_ack_cm_event(event));
	return id;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	CHECK(!rdma_create_qp(id, NULL, &attr));
}

static void destroy(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

static void connect_to(const char *from, const char *to, const char *device)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	struct sockaddr *source = without_port(address(from));
	CHECK(!rdma_resolve_addr(id, source, address(to), 2000));
	CHECK(expect(RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	CHECK(!rdma_resolve_route(id, 2000));
	CHECK(expect(RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
	create_qp(id);
	struct rdma_conn_param param = { .retry_count = 7 };
	CHECK(!rdma_connect(id, &param));
	struct rdma_cm_id *request = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!strcmp(ibv_get_device_name(request->verbs->device), device));
	CHECK(strcmp(ibv_get_device_name(id->verbs->device), device));
	create_qp(request);
	CHECK(!rdma_accept(request, &param));
	expect(RDMA_CM_EVENT_ESTABLISHED);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(id));
	expect(RDMA_CM_EVENT_DISCONNECTED);
	expect(RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(request));
	destroy(request);
	destroy(id);
	printf("from %s to %s on %s\n", from, to, device);
}

int main(void)
{
	struct rdma_cm_id *listener;
	channel = rdma_create_event_channel();
	CHECK(channel);
	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, address("0.0.0.0")));
	CHECK(!rdma_listen(listener, 4));
	connect_to("10.0.0.1", "10.0.0.2", "mlx5_1");
	connect_to("10.0.0.2", "10.0.0.1", "mlx5_0");
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	return 0;
}
