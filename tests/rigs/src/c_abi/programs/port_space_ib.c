/* Endpoints of RDMA_PS_IB with the QP type of the hints: `port_space_ib server rc|uc|ud PORT` and
 * `port_space_ib client rc|uc|ud ADDRESS PORT`. The client first asks with the other types, which are refused; then
 * messages go both ways, and over connections bytes into the server's memory. */

#include "check.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>

enum { MESSAGES = 8, ROOM = 512, GRH = 40 };

static const struct {
	const char *name;
	enum ibv_qp_type type;
} TYPES[] = { { "rc", IBV_QPT_RC }, { "uc", IBV_QPT_UC }, { "ud", IBV_QPT_UD } };

/* Where the client writes to. */
struct place {
	uint64_t addr;
	uint32_t rkey;
} __attribute__((packed));

static char inbox[MESSAGES][ROOM], outbox[ROOM], target[ROOM];

static enum ibv_qp_type type_of(const char *name)
{
	for (unsigned i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
		if (!strcmp(TYPES[i].name, name))
			return TYPES[i].type;
	CHECK(!"a type");
	return 0;
}

static struct rdma_addrinfo *info_of(const char *address, const char *port, enum ibv_qp_type type)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_IB, .ai_qp_type = type }, *info;
	if (!address)
		hints.ai_flags = RAI_PASSIVE;
	CHECK(!rdma_getaddrinfo(address, port, &hints, &info));
	CHECK(info->ai_port_space == RDMA_PS_IB && info->ai_qp_type == (int) type);
	return info;
}

static struct ibv_qp_init_attr queues(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = MESSAGES, .max_recv_wr = MESSAGES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type, .sq_sig_all = 1,
	};
}

/* What the QP is, and that it works. */
static void check_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(id->qp_type == type && id->qp->qp_type == type);
	CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
}

static struct ibv_mr *post_receives(struct rdma_cm_id *id)
{
	struct ibv_mr *mr = rdma_reg_msgs(id, inbox, sizeof inbox);
	CHECK(mr);
	for (uintptr_t i = 0; i < MESSAGES; i++)
		CHECK(!rdma_post_recv(id, (void *) i, inbox[i], ROOM, mr));
	return mr;
}

static struct ibv_wc sent(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	return wc;
}

/* The next message is this end's counterpart's. */
static struct ibv_wc received(struct rdma_cm_id *id, const char *who, int number)
{
	struct ibv_wc wc;
	char expected[ROOM];
	int header = id->qp_type == IBV_QPT_UD ? GRH : 0;
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	unsigned length = snprintf(expected, sizeof expected, "%s says %d", who, number) + 1;
	CHECK(wc.byte_len == header + length && !memcmp(inbox[wc.wr_id] + header, expected, length));
	return wc;
}

static void say(struct rdma_cm_id *id, struct ibv_mr *mr, struct ibv_ah *ah, uint32_t qpn, const char *who, int number)
{
	int length = snprintf(outbox, sizeof outbox, "%s says %d", who, number) + 1;
	if (ah)
		CHECK(!rdma_post_ud_send(id, NULL, outbox, length, mr, 0, ah, qpn));
	else
		CHECK(!rdma_post_send(id, NULL, outbox, length, mr, 0));
	sent(id);
}

static void server(enum ibv_qp_type type, const char *port)
{
	struct rdma_addrinfo *info = info_of(NULL, port, type);
	struct ibv_qp_init_attr attr = queues(type);
	struct rdma_cm_id *listener, *id;
	CHECK(!rdma_create_ep(&listener, info, NULL, &attr) && !rdma_listen(listener, 4));
	printf("listening\n");
	CHECK(!rdma_get_request(listener, &id));
	struct ibv_mr *in = post_receives(id), *out = rdma_reg_msgs(id, outbox, sizeof outbox);
	struct ibv_mr *written = rdma_reg_write(id, target, sizeof target);
	CHECK(out && written);
	struct place place = { (uintptr_t) target, written->rkey };
	struct rdma_conn_param param = { .private_data = &place, .private_data_len = sizeof place,
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	CHECK(!rdma_accept(id, &param));
	check_qp(id, type);
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_wc wc = received(id, "client", i);
		struct ibv_ah *ah = NULL;
		if (type == IBV_QPT_UD) {
			ah = ibv_create_ah_from_wc(id->pd, &wc, (void *) inbox[wc.wr_id], id->port_num);
			CHECK(ah);
		}
		say(id, out, ah, wc.src_qp, "server", i);
		CHECK(!ah || !ibv_destroy_ah(ah));
	}
	if (type != IBV_QPT_UD) {
		CHECK(!memcmp(target, "by RDMA WRITE", 14));
		CHECK(!rdma_disconnect(id));
	}
	CHECK(!rdma_dereg_mr(in) && !rdma_dereg_mr(out) && !rdma_dereg_mr(written));
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(info);
	printf("%d messages each way\n", MESSAGES);
}

static void client(enum ibv_qp_type type, const char *address, const char *port)
{
	struct rdma_cm_id *id;
	/* A request of another type finds no listener, or is refused by this one. */
	for (unsigned i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
		if (TYPES[i].type == type)
			continue;
		struct rdma_addrinfo *other = info_of(address, port, TYPES[i].type);
		struct ibv_qp_init_attr attr = queues(TYPES[i].type);
		CHECK(!rdma_create_ep(&id, other, NULL, &attr));
		CHECK(rdma_connect(id, NULL) == -1 && id->event && id->event->status);
		printf("%s: event %d, status %d\n", TYPES[i].name, id->event->event, id->event->status);
		rdma_destroy_ep(id);
		rdma_freeaddrinfo(other);
	}
	struct rdma_addrinfo *info = info_of(address, port, type);
	struct ibv_qp_init_attr attr = queues(type);
	CHECK(!rdma_create_ep(&id, info, NULL, &attr));
	struct ibv_mr *in = post_receives(id), *out = rdma_reg_msgs(id, outbox, sizeof outbox);
	CHECK(out && !rdma_connect(id, NULL));
	check_qp(id, type);
	struct ibv_ah *ah = NULL;
	uint32_t qpn = 0;
	struct place place;
	if (type == IBV_QPT_UD) {
		struct rdma_ud_param *to = &id->event->param.ud;
		CHECK(to->qkey == RDMA_UDP_QKEY);
		ah = ibv_create_ah(id->pd, &to->ah_attr);
		CHECK(ah);
		qpn = to->qp_num;
	} else {
		CHECK(id->event->param.conn.private_data_len >= sizeof place);
		memcpy(&place, id->event->param.conn.private_data, sizeof place);
		strcpy(outbox, "by RDMA WRITE");
		CHECK(!rdma_post_write(id, NULL, outbox, 14, out, 0, place.addr, place.rkey));
		sent(id);
	}
	for (int i = 0; i < MESSAGES; i++) {
		say(id, out, ah, qpn, "client", i);
		received(id, "server", i);
	}
	CHECK(!ah || !ibv_destroy_ah(ah));
	if (type != IBV_QPT_UD)
		CHECK(!rdma_disconnect(id));
	CHECK(!rdma_dereg_mr(in) && !rdma_dereg_mr(out));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(info);
	printf("%d messages each way\n", MESSAGES);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4 || argc == 5);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(argv[1], "server"))
		server(type_of(argv[2]), argv[3]);
	else
		client(type_of(argv[2]), argv[3], argv[4]);
	return 0;
}
