/*
 * Posts and polls through libibverbs' inline functions, in functions of its own whose instructions are counted: two RC QPs
 * of one device, A and B, joined to each other.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define DEPTH 64
#define ROUNDS 4
#define BATCH 16
#define SIZE 32

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "line %d: %s failed\n", __LINE__, #condition);                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define COUNTED __attribute__((noipa)) static int

static char memory[DEPTH * SIZE];
static struct ibv_mr *mr;
static struct ibv_cq *sends, *replies, *receives;
static struct ibv_qp *a, *b;

/* One function for each row, so that each has its own count. The bodies must not be the same, or they would be merged. */
COUNTED counted_nothing(struct ibv_qp *qp, void *wr)
{
	__asm__ volatile("" ::"r"(qp), "r"(wr));
	return 0;
}

#define POST(name, kind, post)                                                                                         \
	COUNTED name(struct ibv_qp *qp, struct kind *wr)                                                               \
	{                                                                                                              \
		struct kind *bad;                                                                                      \
                                                                                                                       \
		__asm__ volatile("# " #name);                                                                          \
		return post(qp, wr, &bad);                                                                             \
	}
POST(counted_send, ibv_send_wr, ibv_post_send)
POST(counted_inline, ibv_send_wr, ibv_post_send)
POST(counted_write, ibv_send_wr, ibv_post_send)
POST(counted_send_16, ibv_send_wr, ibv_post_send)
POST(counted_recv, ibv_recv_wr, ibv_post_recv)
POST(counted_recv_16, ibv_recv_wr, ibv_post_recv)
POST(plain_send, ibv_send_wr, ibv_post_send)

#define POLL(name)                                                                                                     \
	COUNTED name(struct ibv_cq *cq, int count, struct ibv_wc *wc)                                                  \
	{                                                                                                              \
		__asm__ volatile("# " #name);                                                                          \
		return ibv_poll_cq(cq, count, wc);                                                                     \
	}
POLL(counted_poll)
POLL(counted_poll_16)
POLL(counted_poll_empty)
POLL(plain_poll)

static void wait_for(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	while (count > 0) {
		int found = plain_poll(cq, 1, &wc);

		CHECK(found >= 0 && (found == 0 || wc.status == IBV_WC_SUCCESS));
		count -= found;
	}
}

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *send_cq, struct ibv_cq *recv_cq)
{
	struct ibv_qp_init_attr attributes = {
	    .send_cq = send_cq,
	    .recv_cq = recv_cq,
	    .cap = {.max_send_wr = 2 * DEPTH,
		    .max_recv_wr = 2 * DEPTH,
		    .max_send_sge = 1,
		    .max_recv_sge = 1,
		    .max_inline_data = SIZE},
	    .qp_type = IBV_QPT_RC,
	    .sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attributes);

	CHECK(qp != NULL);
	return qp;
}

static void join(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attributes = {
	    .qp_state = IBV_QPS_INIT,
	    .port_num = 1,
	    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	    .path_mtu = IBV_MTU_1024,
	    .dest_qp_num = peer,
	    .max_dest_rd_atomic = 1,
	    .max_rd_atomic = 1,
	    .min_rnr_timer = 12,
	    .timeout = 14,
	    .retry_cnt = 7,
	    .rnr_retry = 7,
	    .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 1}},
	};

	CHECK(ibv_modify_qp(qp, &attributes,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	attributes.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attributes,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attributes.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attributes,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* What A has posted is done when B's reply, which is sent after it was received, is there. */
static void settle(int received)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 1, .lkey = mr->lkey};
	struct ibv_send_wr reply = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_recv;

	wait_for(receives, received);
	CHECK(ibv_post_recv(a, &receive, &bad_recv) == 0);
	CHECK(plain_send(b, &reply) == 0);
	wait_for(replies, 1);
	wait_for(receives, 1);
	(void)bad_send;
}

static void round_of(int (*post)(struct ibv_qp *, struct ibv_send_wr *), struct ibv_send_wr *wr, int step, int receive_step)
{
	static struct ibv_sge sges[DEPTH];
	static struct ibv_recv_wr wrs[DEPTH];
	struct ibv_wc wc[BATCH];

	for (int i = 0; i < DEPTH; i++) {
		sges[i] = (struct ibv_sge){.addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey};
		wrs[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &sges[i], .num_sge = 1};
		if ((i + 1) % receive_step)
			wrs[i].next = &wrs[i + 1];
	}
	int is_send = wr->opcode == IBV_WR_SEND;
	for (int i = 0; is_send && i < DEPTH; i += receive_step)
		CHECK((receive_step == 1 ? counted_recv : counted_recv_16)(b, &wrs[i]) == 0);
	for (int i = 0; i < DEPTH; i += step)
		CHECK(post(a, &wr[i]) == 0);
	if (!is_send) {
		/* Nothing is received of a write: a send that follows it is. */
		struct ibv_send_wr last = {.sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND};
		struct ibv_recv_wr *bad;
		wrs[0].next = NULL;
		CHECK(ibv_post_recv(b, &wrs[0], &bad) == 0);
		CHECK(plain_send(a, &last) == 0);
	}
	settle(is_send ? DEPTH : 1);
	if (step == 1) {
		for (int i = 0; i < DEPTH; i++)
			CHECK(counted_poll(sends, 1, wc) == 1 && wc->status == IBV_WC_SUCCESS);
	} else {
		for (int i = 0; i < DEPTH; i += BATCH)
			CHECK(counted_poll_16(sends, BATCH, wc) == BATCH);
	}
	wait_for(sends, is_send ? 0 : 1);
	for (int i = 0; i < DEPTH; i++)
		CHECK(counted_poll_empty(sends, 1, wc) == 0);
}

int main(void)
{
	static struct ibv_sge sges[DEPTH];
	static struct ibv_send_wr single[DEPTH], list[DEPTH], inlined[DEPTH], writes[DEPTH];
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices != NULL && devices[0] != NULL);
	struct ibv_context *context = ibv_open_device(devices[0]);
	CHECK(context != NULL);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd != NULL);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr != NULL);
	sends = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	receives = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	replies = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(sends != NULL && receives != NULL && replies != NULL);
	a = create(pd, sends, receives);
	b = create(pd, replies, receives);
	union ibv_gid gid;
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	join(a, b->qp_num, &gid);
	join(b, a->qp_num, &gid);

	for (int i = 0; i < DEPTH; i++) {
		sges[i] = (struct ibv_sge){.addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey};
		single[i] = (struct ibv_send_wr){.wr_id = i, .sg_list = &sges[i], .num_sge = 1, .opcode = IBV_WR_SEND};
		inlined[i] = list[i] = writes[i] = single[i];
		inlined[i].send_flags = IBV_SEND_INLINE;
		list[i].next = (i + 1) % BATCH ? &list[i + 1] : NULL;
		writes[i].opcode = IBV_WR_RDMA_WRITE;
		writes[i].wr.rdma.remote_addr = (uintptr_t)memory;
		writes[i].wr.rdma.rkey = mr->rkey;
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < DEPTH; i++)
			counted_nothing(a, &single[i]);
		round_of(counted_send, single, 1, 1);
		round_of(counted_inline, inlined, 1, 1);
		round_of(counted_write, writes, 1, 1);
		round_of(counted_send_16, list, BATCH, BATCH);
	}
	printf("rounds done\n");
	return 0;
}
