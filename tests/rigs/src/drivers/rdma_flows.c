/*
 * Rules in the flow tables of RDMA's packets by rdma-core's mlx5dv on Linux's driver: headers of sent packets that are changed,
 * and tables that drop what is received or sent. Two UD queue pairs of one function send to each other, and see in the GRH of
 * what comes (the IP header, for RoCE v2) what the packets have become.
 *
 * The structures are those of Linux's mlx5_ifc.h; the steps with tables by DevX are those of rdma-core's test
 * test_mlx5_flow.Mlx5MatcherTest.test_flow_table_drop, with traffic.
 *
 * Usage: rdma_flows DEVICE GID-INDEX
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint8_t u8;
#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))
#include <mlx5_ifc.h>

#define CHECK(what)                                                                                                            \
	do {                                                                                                                   \
		if (!(what)) {                                                                                                 \
			printf("FAIL line %d: %s: %s\n", __LINE__, #what, strerror(errno));                                    \
			exit(1);                                                                                               \
		}                                                                                                              \
	} while (0)

enum {
	CREATE_TABLE = 0x930, CREATE_GROUP = 0x933, SET_ENTRY = 0x936,
	RDMA_RX = 7, RDMA_TX = 8, DROP = 2,
	/* Above those of Linux's own tables. */
	LEVEL = 200,
	SET = 1, DSCP = 6, TTL = 0xa,
	QKEY = 0x1234, GRH = 40, SLOT = 64, SLOTS = 8,
};

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	u8 memory[SLOTS * SLOT];
	unsigned posted;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_ah *ah;
static unsigned passed;

static void pass(const char *what)
{
	printf("PASS %s\n", what);
	passed++;
}

/* Writes a field that lies in one word, by its first bit and width as in mlx5_ifc.h. */
static void put(void *structure, size_t bit, unsigned width, uint32_t value)
{
	uint32_t *word = (uint32_t *)structure + bit / 32, old = be32toh(*word);
	unsigned shift = 32 - bit % 32 - width;
	uint32_t mask = (width == 32 ? ~0U : BIT(width) - 1) << shift;

	*word = htobe32((old & ~mask) | (value << shift & mask));
}

#define PUT(structure, type, field, value)                                                                                     \
	put(structure, offsetof(struct mlx5_ifc_##type##_bits, field), sizeof(((struct mlx5_ifc_##type##_bits *)0)->field), value)

static void expect(struct end *end)
{
	u8 *slot = end->memory + end->posted % SLOTS * SLOT;
	struct ibv_sge sge = { (uintptr_t)slot, SLOT, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(end->qp, &wr, &bad) == 0);
	end->posted++;
}

static void open_end(struct end *end)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { SLOTS, SLOTS, 1, 1, 64 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	CHECK(end->cq = ibv_create_cq(context, 2 * SLOTS, NULL, NULL, 0));
	CHECK(end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, IBV_ACCESS_LOCAL_WRITE));
	init.send_cq = init.recv_cq = end->cq;
	CHECK(end->qp = ibv_create_qp(pd, &init));
	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	for (int i = 0; i < SLOTS / 2; i++)
		expect(end);
}

static struct ibv_wc wait_for(struct end *end)
{
	struct timespec start, now;
	struct ibv_wc wc;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (ibv_poll_cq(end->cq, 1, &wc) == 0) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - start.tv_sec > 20) {
			printf("FAIL a completion is missing\n");
			exit(1);
		}
	}
	if (wc.status != IBV_WC_SUCCESS) {
		printf("FAIL completion: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

static void send_number(struct end *from, struct end *to, uint32_t number)
{
	struct ibv_sge sge = { (uintptr_t)&number, sizeof number, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to->qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	CHECK(ibv_post_send(from->qp, &wr, &bad) == 0);
	CHECK(wait_for(from).opcode == IBV_WC_SEND);
}

/* The next message that comes is this one, with this in its IP header. */
static void receive_number(struct end *end, uint32_t number, u8 tos, u8 ttl)
{
	struct ibv_wc wc = wait_for(end);
	u8 *slot = (u8 *)(uintptr_t)wc.wr_id, *ip = slot + GRH - 20;
	uint32_t is;

	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == GRH + sizeof is);
	memcpy(&is, slot + GRH, sizeof is);
	if (is != number || ip[0] != 0x45 || ip[1] != tos || ip[8] != ttl) {
		printf("FAIL message %u with version %#x, TOS %#x and TTL %u instead of message %u with TOS %#x and TTL %u\n", is,
		       ip[0], ip[1], ip[8], number, tos, ttl);
		exit(1);
	}
	expect(end);
}

struct params {
	size_t match_sz;
	uint32_t match_buf[64];
};

static struct mlx5dv_flow_matcher *matcher(enum mlx5dv_flow_table_type type, const struct params *mask)
{
	struct mlx5dv_flow_matcher_attr attr = {
		.type = IBV_FLOW_ATTR_NORMAL,
		.match_criteria_enable = mask->match_buf[16] ? 2 : 0,
		.match_mask = (struct mlx5dv_flow_match_parameters *)mask,
		.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE,
		.ft_type = type,
	};
	struct mlx5dv_flow_matcher *matcher;

	CHECK(matcher = mlx5dv_create_flow_matcher(context, &attr));
	return matcher;
}

/* Packets that one of two queue pairs sends get another DSCP and TTL. */
static void changes(struct end *a, struct end *b)
{
	struct params mask = { .match_sz = sizeof mask.match_buf }, value = mask;
	uint32_t actions[4] = { 0 };
	struct ibv_flow_action *action;
	struct mlx5dv_flow_matcher *by_sender;
	struct mlx5dv_flow_action_attr attr = { .type = MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION };
	struct ibv_flow *flow;

	send_number(a, b, 1);
	receive_number(b, 1, 0x20, 9);
	for (int i = 0; i < 2; i++) {
		PUT(actions + 2 * i, set_action_in, action_type, SET);
		PUT(actions + 2 * i, set_action_in, field, i ? TTL : DSCP);
		PUT(actions + 2 * i, set_action_in, length, i ? 8 : 6);
		PUT(actions + 2 * i, set_action_in, data, i ? 77 : 46);
	}
	CHECK(action = mlx5dv_create_flow_action_modify_header(context, sizeof actions, (uint64_t *)actions,
							       MLX5DV_FLOW_TABLE_TYPE_RDMA_TX));
	PUT(mask.match_buf + 16, fte_match_set_misc, source_sqn, 0xffffff);
	PUT(value.match_buf + 16, fte_match_set_misc, source_sqn, a->qp->qp_num);
	by_sender = matcher(MLX5DV_FLOW_TABLE_TYPE_RDMA_TX, &mask);
	attr.action = action;
	CHECK(flow = mlx5dv_create_flow(by_sender, (struct mlx5dv_flow_match_parameters *)&value, 1, &attr));
	for (uint32_t i = 2; i < 20; i++) {
		send_number(a, b, i);
		receive_number(b, i, 46 << 2, 77);
		send_number(b, a, i);
		receive_number(a, i, 0x20, 9);
	}
	pass("changed headers of one sender's packets");
	CHECK(ibv_destroy_flow(flow) == 0);
	send_number(a, b, 20);
	receive_number(b, 20, 0x20, 9);
	CHECK(mlx5dv_destroy_flow_matcher(by_sender) == 0);
	CHECK(ibv_destroy_flow_action(action) == 0);
	pass("as before without the rule");
}

/* Linux has no changes to what is received. */
static void refused(void)
{
	uint32_t actions[2] = { 0 };

	PUT(actions, set_action_in, action_type, SET);
	PUT(actions, set_action_in, field, DSCP);
	PUT(actions, set_action_in, length, 6);
	CHECK(!mlx5dv_create_flow_action_modify_header(context, sizeof actions, (uint64_t *)actions,
						       MLX5DV_FLOW_TABLE_TYPE_RDMA_RX) &&
	      errno == EOPNOTSUPP);
	pass("no changes of what is received");
}

static struct mlx5dv_devx_obj *object(const void *in, size_t length, uint32_t *number)
{
	u8 out[16] = { 0 };
	struct mlx5dv_devx_obj *object = mlx5dv_devx_obj_create(context, in, length, out, sizeof out);

	if (!object) {
		printf("FAIL %#x: status %#x, syndrome %#x: %s\n", be32toh(*(uint32_t *)in) >> 16, out[0],
		       be32toh(*(uint32_t *)(out + 4)), strerror(errno));
		exit(1);
	}
	*number = be32toh(*(uint32_t *)(out + 8));
	return object;
}

/* A table by DevX that drops everything; rules send packets there. */
static void drops(struct end *a, struct end *b, u8 kind)
{
	uint32_t table_in[16] = { 0 }, group_in[256] = { 0 }, entry_in[208] = { 0 }, table, group, entry, *flow_context = entry_in + 16;
	struct mlx5dv_devx_obj *objects[3];
	struct params all = { .match_sz = sizeof all.match_buf };
	enum mlx5dv_flow_table_type type = kind == RDMA_RX ? MLX5DV_FLOW_TABLE_TYPE_RDMA_RX : MLX5DV_FLOW_TABLE_TYPE_RDMA_TX;
	struct mlx5dv_flow_action_attr attr = { .type = MLX5DV_FLOW_ACTION_DEST_DEVX };
	struct mlx5dv_flow_matcher *every;
	struct ibv_flow *flow;

	PUT(table_in, create_flow_table_in, opcode, CREATE_TABLE);
	PUT(table_in, create_flow_table_in, table_type, kind);
	PUT(table_in, create_flow_table_in, flow_table_context.level, LEVEL);
	attr.obj = objects[0] = object(table_in, sizeof table_in, &table);
	PUT(group_in, create_flow_group_in, opcode, CREATE_GROUP);
	PUT(group_in, create_flow_group_in, table_type, kind);
	PUT(group_in, create_flow_group_in, table_id, table);
	objects[1] = object(group_in, sizeof group_in, &group);
	PUT(entry_in, set_fte_in, opcode, SET_ENTRY);
	PUT(entry_in, set_fte_in, table_type, kind);
	PUT(entry_in, set_fte_in, table_id, table);
	PUT(flow_context, flow_context, group_id, group);
	PUT(flow_context, flow_context, action, DROP);
	objects[2] = object(entry_in, sizeof entry_in, &entry);
	every = matcher(type, &all);
	CHECK(flow = mlx5dv_create_flow(every, (struct mlx5dv_flow_match_parameters *)&all, 1, &attr));
	for (uint32_t i = 100; i < 110; i++)
		send_number(a, b, i);
	CHECK(ibv_destroy_flow(flow) == 0);
	/* Datagrams keep their order: had one of the others come through, it would be here first. */
	send_number(a, b, 110);
	receive_number(b, 110, 0x20, 9);
	CHECK(mlx5dv_destroy_flow_matcher(every) == 0);
	for (int i = 2; i >= 0; i--)
		CHECK(mlx5dv_devx_obj_destroy(objects[i]) == 0);
	pass(kind == RDMA_RX ? "what is received is dropped" : "what is sent is dropped");
}

int main(int count, char **arguments)
{
	static struct end a, b;
	struct mlx5dv_context_attr open = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
	int devices;
	struct ibv_device **list = ibv_get_device_list(&devices);

	CHECK(count == 3 && list);
	for (int i = 0; i < devices && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), arguments[1]))
			CHECK(context = mlx5dv_open_device(list[i], &open));
	CHECK(context);
	CHECK(pd = ibv_alloc_pd(context));
	to.grh.sgid_index = atoi(arguments[2]);
	to.grh.hop_limit = 9;
	to.grh.traffic_class = 0x20;
	CHECK(ibv_query_gid(context, 1, to.grh.sgid_index, &to.grh.dgid) == 0);
	CHECK(ah = ibv_create_ah(pd, &to));
	open_end(&a);
	open_end(&b);
	for (int time = 0; time < 3; time++) {
		changes(&a, &b);
		refused();
		drops(&a, &b, RDMA_RX);
		drops(&a, &b, RDMA_TX);
	}
	printf("%u passed\n", passed);
	return 0;
}
