/* A server that refuses a connection and says why, and the client that hears it: `reject server` and `reject client`. */

#include "check.h"

#include <netdb.h>

#include <rdma/rdma_cma.h>

static const char QUESTION[] = "may I?", ANSWER[] = "no, thanks";
/* `IB_CM_REJ_CONSUMER_DEFINED` of the InfiniBand specification. */
static const int CONSUMER = 28;

static struct rdma_event_channel *channel;

static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	printf("%s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type);
	return event;
}

static void server(struct rdma_cm_id *id, struct sockaddr *address)
{
	CHECK(!rdma_bind_addr(id, address));
	CHECK(!rdma_listen(id, 1));
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *asking = event->id;
	CHECK(event->param.conn.private_data_len >= sizeof QUESTION);
	CHECK(!memcmp(event->param.conn.private_data, QUESTION, sizeof QUESTION));
	CHECK(!rdma_reject(asking, ANSWER, sizeof ANSWER));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(asking));
}

static void client(struct rdma_cm_id *id, struct sockaddr *address)
{
	CHECK(!rdma_resolve_addr(id, NULL, address, 2000));
	CHECK(!rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED)));
	CHECK(!rdma_resolve_route(id, 2000));
	CHECK(!rdma_ack_cm_event(expect(RDMA_CM_EVENT_ROUTE_RESOLVED)));
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	CHECK(!rdma_create_qp(id, NULL, &attr));
	struct rdma_conn_param param = { .private_data = QUESTION, .private_data_len = sizeof QUESTION };
	CHECK(!rdma_connect(id, &param));
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == CONSUMER);
	CHECK(event->param.conn.private_data_len >= sizeof ANSWER);
	CHECK(!memcmp(event->param.conn.private_data, ANSWER, sizeof ANSWER));
	CHECK(!rdma_ack_cm_event(event));
	rdma_destroy_qp(id);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	struct addrinfo *found, hints = { .ai_family = AF_INET, .ai_flags = AI_NUMERICHOST };
	CHECK(!getaddrinfo("10.0.0.1", "7471", &hints, &found));
	struct rdma_cm_id *id;
	channel = rdma_create_event_channel();
	CHECK(channel);
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	if (!strcmp(argv[1], "server"))
		server(id, found->ai_addr);
	else
		client(id, found->ai_addr);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	freeaddrinfo(found);
	printf("refused as it should be\n");
	return 0;
}
