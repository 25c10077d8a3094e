/* Connections whose queue pairs are the program's own: `external_qp server PORT` and `external_qp client ADDRESS PORT`.
 * The ids have none: its number is in rdma_conn_param, what takes it to a state comes from rdma_init_qp_attr, and the
 * client confirms the response with rdma_establish. Messages go both ways, and bytes into the server's memory. */

#include "check.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

enum { MESSAGES = 8, ROOM = 512, WAIT = 5000 };

/* Where the client writes to. */
struct place {
	uint64_t addr;
	uint32_t rkey;
} __attribute__((packed));

/* What an end has of its own beside its id. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	int received, sent;
};

static struct memory {
	char in[MESSAGES][ROOM], out[ROOM], target[ROOM];
} memory;

/* The next event is this one. */
static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	if (event->event != type || event->status)
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type && !event->status);
	return event;
}

static void skip(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	CHECK(!rdma_ack_cm_event(next(channel, type)));
}

/* Takes the QP to a state, as the connection manager says. */
static void take_to(struct end *end, enum ibv_qp_state state, uint32_t remote)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;
	CHECK(!rdma_init_qp_attr(end->id, &attr, &mask) && (mask & IBV_QP_STATE) && attr.qp_state == state);
	if (state == IBV_QPS_RTR)
		CHECK((mask & IBV_QP_DEST_QPN) && attr.dest_qp_num == remote);
	CHECK(!ibv_modify_qp(end->qp, &attr, mask));
}

/* The queue pair and what it needs; of one whose kind only a provider's own functions create there is none. */
static struct end begin(struct rdma_cm_id *id)
{
	struct end end = { .id = id };
	CHECK((end.pd = ibv_alloc_pd(id->verbs)) && (end.cq = ibv_create_cq(id->verbs, 4 * MESSAGES, NULL, NULL, 0)));
	struct ibv_qp_init_attr init = {
		.send_cq = end.cq, .recv_cq = end.cq, .qp_type = IBV_QPT_DRIVER, .sq_sig_all = 1,
		.cap = { .max_send_wr = MESSAGES, .max_recv_wr = MESSAGES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	errno = 0;
	CHECK(!ibv_create_qp(end.pd, &init));
	printf("IBV_QPT_DRIVER: errno %d\n", errno);
	CHECK(errno == EOPNOTSUPP);
	init.qp_type = IBV_QPT_RC;
	CHECK((end.qp = ibv_create_qp(end.pd, &init)) && !id->qp);
	end.mr = ibv_reg_mr(end.pd, &memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(end.mr);
	take_to(&end, IBV_QPS_INIT, 0);
	for (uintptr_t i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = { (uintptr_t) memory.in[i], ROOM, end.mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		CHECK(!ibv_post_recv(end.qp, &wr, &bad));
	}
	return end;
}

static void finish(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp) && !ibv_dereg_mr(end->mr) && !ibv_destroy_cq(end->cq) && !ibv_dealloc_pd(end->pd));
	CHECK(!rdma_destroy_id(end->id));
	printf("%d messages each way\n", MESSAGES);
}

/* Takes completions until there were so many of each direction. */
static void complete(struct end *end, int sent, int received)
{
	struct ibv_wc wc;
	while (end->sent < sent || end->received < received) {
		int found = ibv_poll_cq(end->cq, 1, &wc);
		CHECK(found >= 0);
		if (!found)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == end->qp->qp_num);
		if (wc.opcode & IBV_WC_RECV) {
			CHECK(wc.wr_id == (uint64_t) end->received);
			end->received++;
		} else {
			end->sent++;
		}
	}
}

static void hear(struct end *end, const char *who, int number)
{
	char expected[ROOM];
	complete(end, 0, number + 1);
	snprintf(expected, sizeof expected, "%s says %d", who, number);
	CHECK(!strcmp(memory.in[number], expected));
}

/* Sends what is in the buffer, or writes it to a place. */
static void post(struct end *end, unsigned length, const struct place *place)
{
	struct ibv_sge sge = { (uintptr_t) memory.out, length, end->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	if (place) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = place->addr;
		wr.wr.rdma.rkey = place->rkey;
	}
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
	complete(end, end->sent + 1, 0);
}

static void say(struct end *end, const char *who, int number)
{
	post(end, snprintf(memory.out, ROOM, "%s says %d", who, number) + 1, NULL);
}

static struct rdma_conn_param param(const struct end *end)
{
	return (struct rdma_conn_param){ .qp_num = end->qp->qp_num, .responder_resources = 1, .initiator_depth = 1,
		.retry_count = 7, .rnr_retry_count = 7 };
}

static void server(const char *port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	struct rdma_cm_id *listener;
	CHECK(channel && !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *) &any) && !rdma_listen(listener, 4));
	printf("listening\n");
	struct rdma_cm_event *request = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	uint32_t remote = request->param.conn.qp_num;
	struct end end = begin(request->id);
	CHECK(!rdma_ack_cm_event(request));
	take_to(&end, IBV_QPS_RTR, remote);
	take_to(&end, IBV_QPS_RTS, remote);
	struct place place = { (uintptr_t) memory.target, end.mr->rkey };
	struct rdma_conn_param answer = param(&end);
	answer.private_data = &place;
	answer.private_data_len = sizeof place;
	CHECK(!rdma_accept(end.id, &answer));
	skip(channel, RDMA_CM_EVENT_ESTABLISHED);
	for (int i = 0; i < MESSAGES; i++) {
		hear(&end, "client", i);
		say(&end, "server", i);
	}
	CHECK(!strcmp(memory.target, "by RDMA WRITE"));
	skip(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(end.id));
	finish(&end);
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
}

static void client(const char *address, const char *port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	struct rdma_cm_id *id;
	CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *) &to, WAIT));
	skip(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, WAIT));
	skip(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	struct end end = begin(id);
	struct rdma_conn_param ask = param(&end);
	CHECK(!rdma_connect(id, &ask));
	/* With a QP of its own the id would be connected by now. */
	struct rdma_cm_event *response = next(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	uint32_t remote = response->param.conn.qp_num;
	struct place place;
	CHECK(response->param.conn.private_data_len >= sizeof place);
	memcpy(&place, response->param.conn.private_data, sizeof place);
	CHECK(!rdma_ack_cm_event(response));
	take_to(&end, IBV_QPS_RTR, remote);
	take_to(&end, IBV_QPS_RTS, remote);
	CHECK(!rdma_establish(id));
	strcpy(memory.out, "by RDMA WRITE");
	post(&end, 14, &place);
	for (int i = 0; i < MESSAGES; i++) {
		say(&end, "client", i);
		hear(&end, "server", i);
	}
	CHECK(!rdma_disconnect(id));
	skip(channel, RDMA_CM_EVENT_DISCONNECTED);
	finish(&end);
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3 || argc == 4);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3)
		server(argv[2]);
	else
		client(argv[2], argv[3]);
	return 0;
}
