/* Receive queues by themselves, tables of them, hashes, marks and counters of rules, and what is refused of these. Two contexts
   of one device send each other frames to a group, which come round inside the port. */

#include "device.h"

#include <stdint.h>

/* A call that returns a pointer, and is refused with this errno. */
#define REFUSED(what, why) CHECK((errno = 0, !(what)) && errno == (why))

#define QUEUES 4
#define RECEIVES 64
#define FRAME 100

static const uint8_t group[6] = { 0x01, 0x50, 0x56, 0x19, 0x20, 0xa7 };
static uint8_t key[40] = { 0x2c, 0xc6, 0x81, 0xd1, 0x5b, 0xdb, 0xf4, 0xf7, 0xfc, 0xa2, 0x83, 0x19, 0xdb, 0x1a,
			   0x3e, 0x94, 0x6b, 0x9e, 0x38, 0xd9, 0x2c, 0x9c, 0x03, 0xd1, 0xad, 0x99, 0x44, 0xa7,
			   0xd9, 0x56, 0x3d, 0x59, 0x06, 0x3c, 0x25, 0xf3, 0xfc, 0x1f, 0xdc, 0x2a };

/* One of the two contexts. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t memory[4096];
};

/* The receiver's. */
static struct ibv_wq *queues[QUEUES];

static void open_side(struct side *side)
{
	side->context = open_first();
	CHECK((side->pd = ibv_alloc_pd(side->context)));
	struct ibv_cq_init_attr_ex init = { .cqe = 512, .wc_flags = IBV_WC_STANDARD_FLAGS };
	init.wc_flags |= IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_CVLAN;
	CHECK((side->cq = ibv_create_cq_ex(side->context, &init)));
	CHECK((side->mr = ibv_reg_mr(side->pd, side->memory, sizeof side->memory, IBV_ACCESS_LOCAL_WRITE)));
	struct ibv_cq *cq = ibv_cq_ex_to_cq(side->cq);
	struct ibv_qp_init_attr raw = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = 1,
	};
	CHECK((side->qp = ibv_create_qp(side->pd, &raw)));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE));
}

static void close_side(struct side *side)
{
	CHECK(!ibv_destroy_qp(side->qp));
	CHECK(!ibv_dereg_mr(side->mr));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(side->cq)));
	CHECK(!ibv_dealloc_pd(side->pd));
	CHECK(!ibv_close_device(side->context));
}

/* A completion; which queue it is of. */
struct found {
	uint32_t number, length, tag;
	uint16_t vlan;
	unsigned flags;
};

static int take(struct side *side, struct found *found)
{
	struct ibv_poll_cq_attr none = { 0 };
	int result = ibv_start_poll(side->cq, &none);
	if (result) {
		CHECK(result == ENOENT);
		return 0;
	}
	CHECK(side->cq->status == IBV_WC_SUCCESS);
	found->number = ibv_wc_read_qp_num(side->cq);
	found->length = ibv_wc_read_byte_len(side->cq);
	found->tag = ibv_wc_read_flow_tag(side->cq);
	found->vlan = ibv_wc_read_cvlan(side->cq);
	found->flags = ibv_wc_read_wc_flags(side->cq);
	ibv_end_poll(side->cq);
	return 1;
}

static struct found wait_for(struct side *side)
{
	struct found found;
	while (!take(side, &found))
		;
	return found;
}

/* What the tag of a VLAN says, of the frames that have one. */
#define VLAN 0x6007

/* Sends a frame of UDP to the group, with a tag if it should; the device fills in the checksums. */
static void send_frame(struct side *side, const uint8_t from[4], const uint8_t to[4], int tagged)
{
	uint8_t *frame = side->memory;
	memset(frame, 0, FRAME);
	memcpy(frame, group, 6);
	frame[6] = 0x02;
	uint8_t *type = frame + 12;
	if (tagged) {
		type[0] = 0x81;
		type[2] = VLAN >> 8;
		type[3] = VLAN & 0xff;
		type += 4;
	}
	type[0] = 0x08;
	uint8_t *ip = type + 2;
	ip[0] = 0x45;
	ip[3] = FRAME - 14;
	ip[8] = 64;
	ip[9] = 17;
	memcpy(ip + 12, from, 4);
	memcpy(ip + 16, to, 4);
	uint8_t *udp = ip + 20;
	udp[1] = 9;
	udp[3] = 9;
	udp[5] = FRAME - 34;
	uint32_t length = FRAME + 4 * !!tagged;
	struct ibv_sge sge = { .addr = (uintptr_t)frame, .length = length, .lkey = side->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_IP_CSUM,
	};
	CHECK(!ibv_post_send(side->qp, &wr, &bad));
	CHECK(wait_for(side).number == side->qp->qp_num);
}

/* Receives into the second half of the memory. */
static struct ibv_recv_wr receive(struct side *side, struct ibv_sge *sge)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)side->memory + 2048, .length = 2048, .lkey = side->mr->lkey };
	return (struct ibv_recv_wr){ .sg_list = sge, .num_sge = 1 };
}

static void capabilities(struct ibv_context *context)
{
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(context, NULL, &device));
	CHECK(device.rss_caps.supported_qpts == 1 << IBV_QPT_RAW_PACKET);
	CHECK(device.rss_caps.max_rwq_indirection_table_size >= QUEUES && device.rss_caps.max_rwq_indirection_tables);
	CHECK(device.rss_caps.rx_hash_function == IBV_RX_HASH_FUNC_TOEPLITZ);
	CHECK(device.rss_caps.rx_hash_fields_mask == 0xff);
	CHECK(device.max_wq_type_rq >= QUEUES);
	CHECK(device.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM);
	CHECK(device.raw_packet_caps & IBV_RAW_PACKET_CAP_CVLAN_STRIPPING);
	CHECK(device.device_cap_flags_ex & IBV_DEVICE_RAW_IP_CSUM);
}

static void work_queues(struct side *side)
{
	struct ibv_wq_init_attr init = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = RECEIVES,
		.max_sge = 1,
		.pd = side->pd,
		.cq = ibv_cq_ex_to_cq(side->cq),
	};
	struct ibv_wq_init_attr other = init;
	other.max_wr = 0;
	REFUSED(ibv_create_wq(side->context, &other), EINVAL);
	other = init;
	other.comp_mask = IBV_WQ_INIT_ATTR_RESERVED;
	REFUSED(ibv_create_wq(side->context, &other), EINVAL);
	other.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	other.create_flags = IBV_WQ_FLAGS_SCATTER_FCS;
	REFUSED(ibv_create_wq(side->context, &other), EOPNOTSUPP);
	other = init;
	other.max_wr = 1 << 30;
	CHECK(!ibv_create_wq(side->context, &other));
	for (int i = 0; i < QUEUES; i++) {
		other = init;
		/* Half of them take tags out from the beginning; the others are told to. */
		other.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
		other.create_flags = i % 2 ? IBV_WQ_FLAGS_CVLAN_STRIPPING : 0;
		CHECK((queues[i] = ibv_create_wq(side->context, &other)));
		CHECK(other.max_wr >= RECEIVES && other.max_sge >= 1);
		CHECK(queues[i]->state == IBV_WQS_RESET && queues[i]->wq_num);
		struct ibv_wq_attr attr = { .wq_state = IBV_WQS_RDY };
		CHECK(ibv_modify_wq(queues[i], &attr) == EINVAL);
		attr.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;
		attr.curr_wq_state = IBV_WQS_ERR;
		CHECK(ibv_modify_wq(queues[i], &attr) == EINVAL);
		attr.attr_mask = IBV_WQ_ATTR_FLAGS;
		attr.flags = attr.flags_mask = IBV_WQ_FLAGS_SCATTER_FCS;
		CHECK(ibv_modify_wq(queues[i], &attr) == EOPNOTSUPP);
		/* There and back. */
		attr.attr_mask = IBV_WQ_ATTR_STATE;
		enum ibv_wq_state states[] = { IBV_WQS_RDY, IBV_WQS_ERR, IBV_WQS_RESET, IBV_WQS_RDY };
		for (int j = 0; j < 4; j++) {
			attr.wq_state = states[j];
			CHECK(!ibv_modify_wq(queues[i], &attr));
			CHECK(queues[i]->state == states[j]);
		}
		attr.wq_state = IBV_WQS_UNKNOWN;
		CHECK(ibv_modify_wq(queues[i], &attr) == EINVAL);
		attr.attr_mask = IBV_WQ_ATTR_FLAGS;
		attr.flags = attr.flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING;
		CHECK(i % 2 || !ibv_modify_wq(queues[i], &attr));
		for (int j = 0; j < RECEIVES; j++) {
			struct ibv_sge sge;
			struct ibv_recv_wr *bad, wr = receive(side, &sge);
			CHECK(!ibv_post_wq_recv(queues[i], &wr, &bad));
		}
	}
}

static struct ibv_rwq_ind_table *table(struct side *side, uint32_t log_size)
{
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = log_size, .ind_tbl = queues, .comp_mask = 1 };
	REFUSED(ibv_create_rwq_ind_table(side->context, &init), EINVAL);
	init.comp_mask = 0;
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(side->context, &init);
	CHECK(table);
	return table;
}

static void refusals(struct side *side, const struct ibv_qp_init_attr_ex *good)
{
	struct ibv_qp_init_attr_ex bad = *good;
#define BAD(field, value, why)                                                                               \
	do {                                                                                                 \
		bad.field = value;                                                                           \
		REFUSED(ibv_create_qp_ex(side->context, &bad), why);                                         \
		bad = *good;                                                                                 \
	} while (0)
	BAD(qp_type, IBV_QPT_UD, EOPNOTSUPP);
	BAD(cap.max_send_wr, 1, EINVAL);
	BAD(cap.max_recv_wr, 1, EINVAL);
	BAD(comp_mask, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH, EINVAL);
	BAD(rx_hash_conf.rx_hash_key_len, 39, EINVAL);
	BAD(rx_hash_conf.rx_hash_function, 0, EOPNOTSUPP);
	BAD(rx_hash_conf.rx_hash_fields_mask, 0, EINVAL);
	BAD(rx_hash_conf.rx_hash_fields_mask, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6, EINVAL);
	BAD(rx_hash_conf.rx_hash_fields_mask, IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP, EINVAL);
	BAD(rx_hash_conf.rx_hash_fields_mask, IBV_RX_HASH_IPSEC_SPI, EOPNOTSUPP);
}

/* A rule for the group, with a mark, and counters if there are any. */
static struct ibv_flow *rule(struct ibv_qp *qp, uint32_t tag, struct ibv_counters *counters)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_action_tag tag;
		struct ibv_flow_spec_counter_action count;
	} it = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof it, .num_of_specs = 2 + !!counters, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof it.eth },
		.tag = { .type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof it.tag, .tag_id = tag },
		.count = { .type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof it.count, .counters = counters },
	};
	memcpy(it.eth.val.dst_mac, group, 6);
	memset(it.eth.mask.dst_mac, 0xff, 6);
	return ibv_create_flow(qp, &it.attr);
}

/* Sends from one side to the other, and says which queue a frame came to. */
static int spread(struct side *from, struct side *to, const uint8_t source[4], const uint8_t destination[4], uint32_t tag)
{
	/* All queues take tags out. */
	int tagged = destination[3] & 1;
	send_frame(from, source, destination, tagged);
	struct found found = wait_for(to);
	CHECK(found.length == FRAME && found.tag == tag && found.vlan == (tagged ? VLAN : 0));
	CHECK(found.flags & IBV_WC_IP_CSUM_OK);
	for (int i = 0; i < QUEUES; i++) {
		if (found.number == queues[i]->wq_num) {
			struct ibv_sge sge;
			struct ibv_recv_wr *bad, wr = receive(to, &sge);
			CHECK(!ibv_post_wq_recv(queues[i], &wr, &bad));
			return i;
		}
	}
	CHECK(!"a queue of the table");
	return -1;
}

static void hashed(struct side *from, struct side *to)
{
	struct ibv_rwq_ind_table *four = table(to, 2), *one = table(to, 0);
	CHECK(ibv_destroy_wq(queues[0]) == EBUSY);
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE,
		.pd = to->pd,
		.rwq_ind_tbl = four,
		.rx_hash_conf = {
			.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
			.rx_hash_key_len = sizeof key,
			.rx_hash_key = key,
			.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4,
		},
	};
	refusals(to, &init);
	struct ibv_qp *qp = ibv_create_qp_ex(to->context, &init);
	CHECK(qp);
	CHECK(ibv_destroy_rwq_ind_table(four) == EBUSY);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_init_attr queried;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT) == EOPNOTSUPP);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &queried) == EOPNOTSUPP);
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, wr = receive(to, &sge);
	CHECK(ibv_post_recv(qp, &wr, &bad) == EINVAL);
	struct ibv_send_wr *bad_send, send = { .opcode = IBV_WR_SEND };
	CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL);

	struct ibv_flow *flow = rule(qp, 0xabcdef, NULL);
	CHECK(flow);
	CHECK(ibv_destroy_qp(qp) == EBUSY);
	int seen[QUEUES] = { 0 };
	for (int i = 0; i < 64; i++) {
		uint8_t source[4] = { 10, 1, i, 1 }, destination[4] = { 10, 2, 3, i };
		int queue = spread(from, to, source, destination, 0xabcdef);
		/* The same frame and the answers to it come to the same queue. */
		CHECK(spread(from, to, source, destination, 0xabcdef) == queue);
		CHECK(spread(from, to, destination, source, 0xabcdef) == queue);
		seen[queue]++;
	}
	for (int i = 0; i < QUEUES; i++)
		CHECK(seen[i] > 4);
	CHECK(!ibv_destroy_flow(flow));
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_rwq_ind_table(four));

	/* Without a hash: a table of one queue. */
	init.rwq_ind_tbl = one;
	init.rx_hash_conf.rx_hash_fields_mask = 0;
	CHECK((qp = ibv_create_qp_ex(to->context, &init)));
	CHECK((flow = rule(qp, 5, NULL)));
	for (int i = 0; i < 8; i++) {
		uint8_t source[4] = { 10, 1, i, 1 }, destination[4] = { 10, 2, 3, i };
		CHECK(spread(from, to, source, destination, 5) == 0);
	}
	CHECK(!ibv_destroy_flow(flow));
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_rwq_ind_table(one));
	for (int i = 0; i < QUEUES; i++)
		CHECK(!ibv_destroy_wq(queues[i]));
}

static void counted(struct side *from, struct side *to)
{
	struct ibv_counters_init_attr none = { .comp_mask = 1 };
	REFUSED(ibv_create_counters(to->context, &none), EOPNOTSUPP);
	none.comp_mask = 0;
	struct ibv_counters *counters = ibv_create_counters(to->context, &none);
	CHECK(counters);
	uint64_t values[4];
	CHECK(ibv_read_counters(counters, values, 4, 0) == EINVAL);
	REFUSED(rule(to->qp, 1, counters), EINVAL);
	struct ibv_counter_attach_attr attach = { .counter_desc = IBV_COUNTER_BYTES + 1 };
	CHECK(ibv_attach_counters_point_flow(counters, &attach, NULL) == ENOTSUP);
	attach = (struct ibv_counter_attach_attr){ .counter_desc = IBV_COUNTER_PACKETS, .index = 2, .comp_mask = 1 };
	CHECK(ibv_attach_counters_point_flow(counters, &attach, NULL) == EOPNOTSUPP);
	attach.comp_mask = 0;
	CHECK(!ibv_attach_counters_point_flow(counters, &attach, NULL));
	attach.counter_desc = IBV_COUNTER_BYTES;
	attach.index = 0;
	CHECK(!ibv_attach_counters_point_flow(counters, &attach, NULL));

	struct ibv_flow *flow = rule(to->qp, 7, counters);
	CHECK(flow);
	CHECK(ibv_attach_counters_point_flow(counters, &attach, flow) == ENOTSUP);
	CHECK(ibv_attach_counters_point_flow(counters, &attach, NULL) == EBUSY);
	CHECK(ibv_destroy_counters(counters) == EBUSY);
	CHECK(ibv_read_counters(counters, values, 2, 0) == EINVAL);
	for (uint64_t i = 0; i < 5; i++) {
		memset(values, 0xff, sizeof values);
		CHECK(!ibv_read_counters(counters, values, 4, i & 1 ? IBV_READ_COUNTERS_ATTR_PREFER_CACHED : 0));
		CHECK(values[0] == i * FRAME && values[1] == 0 && values[2] == i && values[3] == 0);
		struct ibv_sge sge;
		struct ibv_recv_wr *bad, wr = receive(to, &sge);
		CHECK(!ibv_post_recv(to->qp, &wr, &bad));
		uint8_t source[4] = { 10, 1, 1, 1 }, destination[4] = { 10, 2, 3, 4 };
		send_frame(from, source, destination, 0);
		struct found found = wait_for(to);
		CHECK(found.number == to->qp->qp_num && found.tag == 7 && found.length == FRAME);
		/* What a context sends does not come to its own queues. It has passed by the rule. */
		if (i == 4) {
			CHECK(!ibv_post_recv(to->qp, &wr, &bad));
			send_frame(to, source, destination, 0);
			send_frame(from, source, destination, 0);
			wait_for(to);
			CHECK(!take(to, &found));
		}
	}
	CHECK(!ibv_destroy_flow(flow));
	CHECK(ibv_read_counters(counters, values, 4, 0) == EINVAL);
	CHECK(!ibv_destroy_counters(counters));
}

/* Of a QP that was created to take tags out, and of one that was not. */
static void tags(struct side *from, struct side *to)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(to->cq);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = to->pd,
		.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING,
	};
	REFUSED(ibv_create_qp_ex(to->context, &init), EINVAL);
	init.qp_type = IBV_QPT_RAW_PACKET;
	init.create_flags |= IBV_QP_CREATE_SCATTER_FCS;
	REFUSED(ibv_create_qp_ex(to->context, &init), EOPNOTSUPP);
	init.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	struct ibv_qp *strips = ibv_create_qp_ex(to->context, &init);
	CHECK(strips);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(strips, &attr, IBV_QP_STATE | IBV_QP_PORT));
	for (int stripped = 0; stripped < 2; stripped++) {
		struct ibv_qp *qp = stripped ? strips : to->qp;
		struct ibv_flow *flow = rule(qp, 9, NULL);
		CHECK(flow);
		for (int tagged = 0; tagged < 2; tagged++) {
			struct ibv_sge sge;
			struct ibv_recv_wr *bad, wr = receive(to, &sge);
			CHECK(!ibv_post_recv(qp, &wr, &bad));
			uint8_t source[4] = { 10, 1, 1, 1 }, destination[4] = { 10, 2, 3, 4 };
			send_frame(from, source, destination, tagged);
			struct found found = wait_for(to);
			CHECK(found.number == qp->qp_num && found.tag == 9);
			CHECK(found.length == (tagged && !stripped ? FRAME + 4 : FRAME));
			CHECK(found.vlan == (tagged && stripped ? VLAN : 0));
			CHECK(to->memory[2048 + 12] == (tagged && !stripped ? 0x81 : 0x08));
		}
		CHECK(!ibv_destroy_flow(flow));
	}
	CHECK(!ibv_destroy_qp(strips));
}

/* A QP's receive queue whose CQ overruns: an event names the QP if it is its own, else the work queue. What it was is known
 * before it is acknowledged. */
static void overrun(struct side *from, struct side *to, struct ibv_qp *qp, struct ibv_wq *wq, struct ibv_cq *cq)
{
	struct ibv_flow *flow = rule(qp, 3, NULL);
	CHECK(flow);
	for (int i = 0; i < 32; i++) {
		struct ibv_sge sge;
		struct ibv_recv_wr *bad, wr = receive(to, &sge);
		CHECK(!(wq ? ibv_post_wq_recv(wq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad)));
	}
	/* More than any size that one entry may be rounded up to. */
	for (int i = 0; i < 32; i++) {
		uint8_t source[4] = { 10, 1, 1, 1 }, destination[4] = { 10, 2, 3, 4 };
		send_frame(from, source, destination, 0);
	}
	int of_cq = 0, of_queue = 0;
	while (!of_cq || !of_queue) {
		struct ibv_async_event event;
		CHECK(!ibv_get_async_event(to->context, &event));
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			CHECK(event.element.cq == cq);
			of_cq++;
		} else if (event.event_type == (wq ? IBV_EVENT_WQ_FATAL : IBV_EVENT_QP_FATAL)) {
			CHECK(wq ? event.element.wq == wq : event.element.qp == qp);
			CHECK(!wq || !strcmp(ibv_event_type_str(event.event_type), "WQ fatal"));
			of_queue++;
		}
		ibv_ack_async_event(&event);
	}
	CHECK(of_cq == 1 && of_queue == 1);
	CHECK(!ibv_destroy_flow(flow));
	CHECK(!ibv_destroy_qp(qp));
}

static void overruns(struct side *from, struct side *to)
{
	struct ibv_cq *cq = ibv_create_cq(to->context, 1, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 64, .max_sge = 1, .pd = to->pd, .cq = cq };
	struct ibv_wq *wq = ibv_create_wq(to->context, &init);
	CHECK(wq);
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	CHECK(!ibv_modify_wq(wq, &ready));
	struct ibv_rwq_ind_table_init_attr one = { .ind_tbl = &wq };
	struct ibv_rwq_ind_table *only = ibv_create_rwq_ind_table(to->context, &one);
	CHECK(only);
	struct ibv_qp_init_attr_ex hash = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE,
		.pd = to->pd,
		.rwq_ind_tbl = only,
		.rx_hash_conf = {
			.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
			.rx_hash_key_len = sizeof key,
			.rx_hash_key = key,
		},
	};
	struct ibv_qp *qp = ibv_create_qp_ex(to->context, &hash);
	CHECK(qp);
	overrun(from, to, qp, wq, cq);
	CHECK(!ibv_destroy_rwq_ind_table(only));
	CHECK(!ibv_destroy_wq(wq));
	CHECK(!ibv_destroy_cq(cq));

	cq = ibv_create_cq(to->context, 1, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_qp_init_attr own = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RAW_PACKET,
	};
	qp = ibv_create_qp(to->pd, &own);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	overrun(from, to, qp, NULL, cq);
	CHECK(!ibv_destroy_cq(cq));
}

int main(void)
{
	static struct side sides[2];
	open_side(&sides[0]);
	open_side(&sides[1]);
	capabilities(sides[0].context);
	work_queues(&sides[1]);
	hashed(&sides[0], &sides[1]);
	tags(&sides[0], &sides[1]);
	counted(&sides[0], &sides[1]);
	overruns(&sides[0], &sides[1]);
	close_side(&sides[1]);
	close_side(&sides[0]);
	printf("queues, hashes, marks, tags and counters work\n");
	return 0;
}
