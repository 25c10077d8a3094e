/*
 * The data path of rdma-core's mlx5 provider in functions whose instructions are counted, in the shapes of this project's own
 * benchmark (tests/bench/benches/data_path): batches of 256 operations, each element with a scatter/gather entry of its own.
 * What a function costs less what `counted_nothing` does is the cost of its operations.
 *
 * Arguments: `locks` or `no-locks`, `doorbell` or `blue-flame`.
 */
#include "plain.h"

#include <infiniband/verbs.h>

#define BATCH 256
#define ROUNDS 4
#define LIST 16
#define DEPTH 1024

/* With -flto the provider's functions can be called as such, where a program that is linked to a library goes through a table. */
#ifdef DIRECT
#define POST_SEND mlx5_post_send
#define POST_RECV mlx5_post_recv
#define POLL_CQ mlx5_poll_cq_v1
#else
#define POST_SEND ibv_post_send
#define POST_RECV ibv_post_recv
#define POLL_CQ ibv_poll_cq
#endif

/* The mark keeps functions that do the same apart. */
#define COUNTED(name) __attribute__((noipa)) static uint64_t counted_##name
#define MARK(name) __asm__ volatile("# " #name)

static struct mlx5_context *context;
static struct mlx5_cq *send_cq, *recv_cq;
static struct mlx5_qp *rc, *ud;
static struct ibv_ah *ah;
static uint8_t data[64];
static uint32_t sent, received;

static struct ibv_sge sges[BATCH], shorts[BATCH], lines[BATCH];
static struct ibv_send_wr sends[BATCH], inlines[BATCH], write_inlines[BATCH], writes[BATCH], reads[BATCH], datagrams[BATCH],
    lists[BATCH];
static struct ibv_recv_wr receives[BATCH], receive_lists[BATCH];

COUNTED(nothing)(void *unused, int count)
{
	for (int i = 0; i < count; i++)
		__asm__ volatile("" ::"r"(unused));
	return 0;
}

/* ibv_post_send and ibv_post_recv. */

#define LISTED(name, kind, post, step)                                                                                 \
	COUNTED(name)(struct ibv_qp * qp, struct kind *wrs, int count)                                                 \
	{                                                                                                              \
		struct kind *bad;                                                                                      \
                                                                                                                       \
		MARK(name);                                                                                            \
		for (int i = 0; i < count; i += (step))                                                                \
			if (post(qp, wrs + i, &bad))                                                                   \
				abort();                                                                               \
		return 0;                                                                                              \
	}
LISTED(send__post_send, ibv_send_wr, POST_SEND, 1)
LISTED(send_inline__post_send, ibv_send_wr, POST_SEND, 1)
LISTED(write_inline__post_send, ibv_send_wr, POST_SEND, 1)
LISTED(write__post_send, ibv_send_wr, POST_SEND, 1)
LISTED(read__post_send, ibv_send_wr, POST_SEND, 1)
LISTED(send_ud__post_send, ibv_send_wr, POST_SEND, 1)
LISTED(send_16__post_send, ibv_send_wr, POST_SEND, LIST)
LISTED(recv__post_recv, ibv_recv_wr, POST_RECV, 1)
LISTED(recv_16__post_recv, ibv_recv_wr, POST_RECV, LIST)

/* ibv_wr_*. */

#define BUILT(name, ...)                                                                                               \
	COUNTED(name)(struct ibv_qp_ex * qp, const struct ibv_sge *entries, int count)                                 \
	{                                                                                                              \
		MARK(name);                                                                                            \
		for (int i = 0; i < count; i++) {                                                                      \
			const struct ibv_sge *sge = &entries[i];                                                       \
                                                                                                                       \
			ibv_wr_start(qp);                                                                              \
			qp->wr_id = i;                                                                                 \
			qp->wr_flags = IBV_SEND_SIGNALED;                                                              \
			__VA_ARGS__;                                                                                   \
			if (ibv_wr_complete(qp))                                                                       \
				abort();                                                                               \
		}                                                                                                      \
		return 0;                                                                                              \
	}
#define RKEY 0xaabbcc01
#define REMOTE 0x1122334455667788
#define QKEY 0x11111111
#define REMOTE_QPN 0x42
#define SET_SGE ibv_wr_set_sge(qp, sge->lkey, sge->addr, sge->length)
#define SET_INLINE ibv_wr_set_inline_data(qp, (void *)(uintptr_t)sge->addr, sge->length)
BUILT(send__wr, ibv_wr_send(qp); SET_SGE)
BUILT(send_inline__wr, ibv_wr_send(qp); SET_INLINE)
BUILT(write_inline__wr, ibv_wr_rdma_write(qp, RKEY, REMOTE); SET_INLINE)
BUILT(write__wr, ibv_wr_rdma_write(qp, RKEY, REMOTE); SET_SGE)
BUILT(read__wr, ibv_wr_rdma_read(qp, RKEY, REMOTE); SET_SGE)
BUILT(send_ud__wr, ibv_wr_send(qp); ibv_wr_set_ud_addr(qp, ah, REMOTE_QPN, QKEY); SET_SGE)

COUNTED(send_16__wr)(struct ibv_qp_ex *qp, const struct ibv_sge *entries, int count)
{
	for (int i = 0; i < count; i += LIST) {
		ibv_wr_start(qp);
		for (int j = i; j < i + LIST; j++) {
			const struct ibv_sge *sge = &entries[j];

			qp->wr_id = j;
			qp->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_send(qp);
			SET_SGE;
		}
		if (ibv_wr_complete(qp))
			abort();
	}
	return 0;
}

/* ibv_poll_cq. */

COUNTED(poll__poll_cq)(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;
	uint64_t sum = 0;

	for (int i = 0; i < count; i++)
		if (POLL_CQ(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
			sum += wc.wr_id;
	return sum;
}

#define POLLED(name, ...)                                                                                              \
	COUNTED(name)(struct ibv_cq * cq, int count)                                                                   \
	{                                                                                                              \
		struct ibv_wc wcs[LIST];                                                                               \
		uint64_t sum = 0;                                                                                      \
		uint32_t other = 0;                                                                                    \
                                                                                                                       \
		MARK(name);                                                                                            \
		for (int i = 0; i < count; i += LIST) {                                                                \
			int found = POLL_CQ(cq, LIST, wcs);                                                            \
                                                                                                                       \
			for (int j = 0; j < found; j++) {                                                              \
				const struct ibv_wc *wc = &wcs[j];                                                     \
                                                                                                                       \
				if (wc->status == IBV_WC_SUCCESS) {                                                    \
					sum += wc->wr_id;                                                              \
					__VA_ARGS__;                                                                   \
				}                                                                                      \
			}                                                                                              \
		}                                                                                                      \
		__asm__ volatile("" ::"r"(other));                                                                     \
		return sum;                                                                                            \
	}
#define ALL_OF_WC other ^= wc->opcode ^ wc->qp_num ^ wc->byte_len ^ wc->wc_flags
POLLED(poll_16_req__poll_cq, )
POLLED(poll_16_resp__poll_cq, )
POLLED(poll_16_req_full__poll_cq, ALL_OF_WC)
POLLED(poll_16_resp_full__poll_cq, ALL_OF_WC)

/* What is in them is read elsewhere. */
#define TAKEN(name)                                                                                                    \
	COUNTED(name)(struct ibv_cq * cq, int count)                                                                   \
	{                                                                                                              \
		struct ibv_wc wcs[LIST];                                                                               \
		uint64_t sum = 0;                                                                                      \
                                                                                                                       \
		MARK(name);                                                                                            \
		for (int i = 0; i < count; i += LIST) {                                                                \
			sum += (uint64_t)POLL_CQ(cq, LIST, wcs);                                                       \
			__asm__ volatile("" ::"r"(wcs) : "memory");                                                    \
		}                                                                                                      \
		return sum;                                                                                            \
	}
TAKEN(poll_wcs_req__poll_cq)
TAKEN(poll_wcs_resp__poll_cq)

COUNTED(poll_empty__poll_cq)(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;
	uint64_t sum = 0;

	for (int i = 0; i < count; i++)
		sum += (uint64_t)POLL_CQ(cq, 1, &wc);
	return sum;
}

/* ibv_start_poll. */

COUNTED(poll__start_poll)(struct ibv_cq_ex *cq, int count)
{
	struct ibv_poll_cq_attr attributes = {0};
	uint64_t sum = 0;

	for (int i = 0; i < count; i++) {
		if (ibv_start_poll(cq, &attributes))
			continue;
		if (cq->status == IBV_WC_SUCCESS)
			sum += cq->wr_id;
		ibv_end_poll(cq);
	}
	return sum;
}

#define STARTED(name, ...)                                                                                             \
	COUNTED(name)(struct ibv_cq_ex * cq, int count)                                                                \
	{                                                                                                              \
		struct ibv_poll_cq_attr attributes = {0};                                                              \
		uint64_t sum = 0;                                                                                      \
		uint32_t other = 0;                                                                                    \
                                                                                                                       \
		MARK(name);                                                                                            \
		for (int i = 0; i < count; i += LIST) {                                                                \
			if (ibv_start_poll(cq, &attributes))                                                           \
				continue;                                                                              \
			for (int j = 0;;) {                                                                            \
				if (cq->status == IBV_WC_SUCCESS) {                                                    \
					sum += cq->wr_id;                                                              \
					__VA_ARGS__;                                                                   \
				}                                                                                      \
				if (++j == LIST || ibv_next_poll(cq))                                                  \
					break;                                                                         \
			}                                                                                              \
			ibv_end_poll(cq);                                                                              \
		}                                                                                                      \
		__asm__ volatile("" ::"r"(other));                                                                     \
		return sum;                                                                                            \
	}
#define ALL_OF_CQE                                                                                                     \
	other ^= ibv_wc_read_opcode(cq) ^ ibv_wc_read_qp_num(cq) ^ ibv_wc_read_byte_len(cq) ^ ibv_wc_read_wc_flags(cq)
STARTED(poll_16_req__start_poll, )
STARTED(poll_16_resp__start_poll, )
STARTED(poll_16_req_full__start_poll, ALL_OF_CQE)
STARTED(poll_16_resp_full__start_poll, ALL_OF_CQE)

COUNTED(poll_empty__start_poll)(struct ibv_cq_ex *cq, int count)
{
	struct ibv_poll_cq_attr attributes = {0};
	uint64_t sum = 0;

	for (int i = 0; i < count; i++)
		sum += ibv_start_poll(cq, &attributes) == 0;
	return sum;
}

/* What is not counted. */

/* All receives in one list. */
static struct ibv_recv_wr *linked_receives(void)
{
	static struct ibv_recv_wr linked[BATCH];

	for (int i = 0; i < BATCH; i++) {
		linked[i] = receives[i];
		linked[i].next = i + 1 < BATCH ? &linked[i + 1] : NULL;
	}
	return linked;
}

#define IDENTIFIERS ((uint64_t)BATCH * (BATCH - 1) / 2)

/* Completes a batch of sends, and takes its completions. `blocks` of 64 bytes each. */
static void complete_sends(const struct mlx5_qp *qp, uint8_t opcode, unsigned blocks)
{
	unsigned first = qp->sq.cur_post - BATCH * blocks;

	for (unsigned i = 0; i < BATCH; i++)
		plain_complete(send_cq, &sent, qp, MLX5_CQE_REQ, opcode, (uint16_t)(first + i * blocks), 4096);
}

static void complete_receives(void)
{
	for (unsigned i = 0; i < BATCH; i++)
		plain_complete(recv_cq, &received, rc, MLX5_CQE_RESP_SEND, 0, (uint16_t)(rc->rq.head - BATCH + i), 4096);
}

static void drain(struct mlx5_cq *cq)
{
	struct ibv_wc wc;
	uint64_t sum = 0;

	for (int i = 0; i < BATCH; i++) {
		CHECK(mlx5_poll_cq_v1(&cq->verbs_cq.cq, 1, &wc) == 1);
		CHECK(wc.status == IBV_WC_SUCCESS);
		sum += wc.wr_id;
	}
	CHECK(sum == IDENTIFIERS);
	CHECK(mlx5_poll_cq_v1(&cq->verbs_cq.cq, 1, &wc) == 0);
}

/* Word `n` of what was written last, of `blocks` blocks. */
static uint32_t word(const struct mlx5_qp *qp, unsigned blocks, unsigned n)
{
	unsigned block = (qp->sq.cur_post - blocks + n / 16) & (qp->sq.wqe_cnt - 1);

	return be32toh(((const uint32_t *)qp->sq_start)[block * 16 + n % 16]);
}

/* A request of this many 16 bytes, whose last element has `at` words before its data. */
struct shape {
	uint8_t opcode;
	unsigned blocks, units, at;
	/* Bytes of data in the request itself. */
	unsigned inlined;
	bool single;
};

static const struct shape send = {.opcode = MLX5_OPCODE_SEND, .blocks = 1, .units = 2, .at = 4, .single = true};
static const struct shape send_inline = {
    .opcode = MLX5_OPCODE_SEND, .blocks = 1, .units = 4, .at = 4, .inlined = 32, .single = true};
static const struct shape write_inline = {
    .opcode = MLX5_OPCODE_RDMA_WRITE, .blocks = 2, .units = 7, .at = 8, .inlined = 64, .single = true};
static const struct shape write = {.opcode = MLX5_OPCODE_RDMA_WRITE, .blocks = 1, .units = 3, .at = 8, .single = true};
static const struct shape read = {.opcode = MLX5_OPCODE_RDMA_READ, .blocks = 1, .units = 3, .at = 8, .single = true};
static const struct shape send_ud = {.opcode = MLX5_OPCODE_SEND, .blocks = 2, .units = 5, .at = 16, .single = true};
static const struct shape send_16 = {.opcode = MLX5_OPCODE_SEND, .blocks = 1, .units = 2, .at = 4};

/* That the provider wrote what the device has to read: the words that this project's benchmark checks of its own. */
static void check_sent(const struct mlx5_qp *qp, const struct shape *shape, bool blue_flame)
{
	unsigned blocks = shape->blocks;
	const struct ibv_sge *last = &sges[BATCH - 1];

	CHECK(word(qp, blocks, 0) == (((qp->sq.cur_post - blocks) & 0xffff) << 8 | shape->opcode));
	CHECK(word(qp, blocks, 1) == (qp->verbs_qp.qp.qp_num << 8 | shape->units));
	CHECK(word(qp, blocks, 2) == MLX5_WQE_CTRL_CQ_UPDATE);
	if (shape->at == 8) {
		CHECK(word(qp, blocks, 4) == REMOTE >> 32 && word(qp, blocks, 5) == (uint32_t)REMOTE);
		CHECK(word(qp, blocks, 6) == RKEY);
	}
	if (shape->inlined) {
		CHECK(word(qp, blocks, shape->at) == (MLX5_INLINE_SEG | shape->inlined));
		for (unsigned i = 0; i < shape->inlined / 4; i++)
			CHECK(word(qp, blocks, shape->at + 1 + i) == be32toh(((uint32_t *)data)[i]));
	} else {
		CHECK(word(qp, blocks, shape->at) == last->length && word(qp, blocks, shape->at + 1) == last->lkey);
		CHECK(word(qp, blocks, shape->at + 2) == last->addr >> 32);
		CHECK(word(qp, blocks, shape->at + 3) == (uint32_t)last->addr);
	}
	CHECK(be32toh(qp->db[MLX5_SND_DBR]) == (qp->sq.cur_post & 0xffff));
	const uint32_t *written = (uint32_t *)((char *)qp->bf->reg + (qp->bf->offset ^ qp->bf->buf_size));
	unsigned copied = blue_flame && shape->single ? blocks * 16 : 2;
	/* A list's doorbell is of its last request. */
	for (unsigned i = 0; i < copied; i++)
		CHECK(be32toh(written[i]) == word(qp, blocks, i));
}

static struct ibv_send_wr request(int i, struct ibv_sge *sge, enum ibv_wr_opcode opcode, unsigned flags)
{
	struct ibv_send_wr wr = {.wr_id = i,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED | flags};

	wr.wr.rdma.remote_addr = REMOTE;
	wr.wr.rdma.rkey = RKEY;
	return wr;
}

static void prepare(void)
{
	for (int i = 0; i < 64; i++)
		data[i] = (uint8_t)i;
	ah = plain_ah(context);
	for (int i = 0; i < BATCH; i++) {
		bool is_last = i % LIST == LIST - 1;

		sges[i] = (struct ibv_sge){.addr = 0x7f0000001000 + i * 0x1000, .length = 0x1000, .lkey = 0x00112201 + i};
		shorts[i] = lines[i] = (struct ibv_sge){.addr = (uintptr_t)data, .length = 32, .lkey = 0};
		lines[i].length = 64;
		sends[i] = lists[i] = datagrams[i] = request(i, &sges[i], IBV_WR_SEND, 0);
		inlines[i] = request(i, &shorts[i], IBV_WR_SEND, IBV_SEND_INLINE);
		write_inlines[i] = request(i, &lines[i], IBV_WR_RDMA_WRITE, IBV_SEND_INLINE);
		writes[i] = request(i, &sges[i], IBV_WR_RDMA_WRITE, 0);
		reads[i] = request(i, &sges[i], IBV_WR_RDMA_READ, 0);
		datagrams[i].wr.ud.ah = ah;
		datagrams[i].wr.ud.remote_qpn = REMOTE_QPN;
		datagrams[i].wr.ud.remote_qkey = QKEY;
		lists[i].next = is_last ? NULL : &lists[i + 1];
		receives[i] = receive_lists[i] =
		    (struct ibv_recv_wr){.wr_id = i, .sg_list = &sges[i], .num_sge = 1};
		receive_lists[i].next = is_last ? NULL : &receive_lists[i + 1];
	}
}

/* A batch of sends, and its completions, which `poll` takes. */
#define SENT(call, queue, shape, poll)                                                                                 \
	do {                                                                                                           \
		call;                                                                                                  \
		check_sent(queue, shape, how->blue_flame);                                                             \
		complete_sends(queue, (shape)->opcode, (shape)->blocks);                                               \
		poll;                                                                                                  \
	} while (0)
#define RECEIVED(call, poll)                                                                                           \
	do {                                                                                                           \
		call;                                                                                                  \
		CHECK(be32toh(rc->db[MLX5_RCV_DBR]) == (rc->rq.head & 0xffff));                                        \
		complete_receives();                                                                                   \
		poll;                                                                                                  \
	} while (0)
#define ALL(call) CHECK((call) == IDENTIFIERS)

/* One batch of everything. */
static void round_of(const struct plain *how)
{
	struct ibv_qp *qp = &rc->verbs_qp.qp, *datagram_qp = &ud->verbs_qp.qp;
	struct ibv_qp_ex *qpx = &rc->verbs_qp.qp_ex, *datagram_qpx = &ud->verbs_qp.qp_ex;
	struct ibv_cq *scq = &send_cq->verbs_cq.cq, *rcq = &recv_cq->verbs_cq.cq;
	struct ibv_cq_ex *scqx = &send_cq->verbs_cq.cq_ex, *rcqx = &recv_cq->verbs_cq.cq_ex;

	counted_nothing(NULL, BATCH);

	SENT(counted_send__post_send(qp, sends, BATCH), rc, &send, ALL(counted_poll__poll_cq(scq, BATCH)));
	SENT(counted_send_inline__post_send(qp, inlines, BATCH), rc, &send_inline,
	     CHECK(counted_poll_wcs_req__poll_cq(scq, BATCH) == BATCH));
	SENT(counted_write_inline__post_send(qp, write_inlines, BATCH), rc, &write_inline, drain(send_cq));
	SENT(counted_write__post_send(qp, writes, BATCH), rc, &write, drain(send_cq));
	SENT(counted_read__post_send(qp, reads, BATCH), rc, &read, drain(send_cq));
	SENT(counted_send_ud__post_send(datagram_qp, datagrams, BATCH), ud, &send_ud, drain(send_cq));
	SENT(counted_send_16__post_send(qp, lists, BATCH), rc, &send_16, drain(send_cq));

	SENT(counted_send__wr(qpx, sges, BATCH), rc, &send, ALL(counted_poll_16_req__poll_cq(scq, BATCH)));
	SENT(counted_send_inline__wr(qpx, shorts, BATCH), rc, &send_inline,
	     ALL(counted_poll_16_req_full__poll_cq(scq, BATCH)));
	SENT(counted_write_inline__wr(qpx, lines, BATCH), rc, &write_inline, drain(send_cq));
	SENT(counted_write__wr(qpx, sges, BATCH), rc, &write, ALL(counted_poll__start_poll(scqx, BATCH)));
	SENT(counted_read__wr(qpx, sges, BATCH), rc, &read, drain(send_cq));
	SENT(counted_send_ud__wr(datagram_qpx, sges, BATCH), ud, &send_ud,
	     ALL(counted_poll_16_req__start_poll(scqx, BATCH)));
	SENT(counted_send_16__wr(qpx, sges, BATCH), rc, &send_16, ALL(counted_poll_16_req_full__start_poll(scqx, BATCH)));

	RECEIVED(counted_recv__post_recv(qp, receives, BATCH), ALL(counted_poll_16_resp__poll_cq(rcq, BATCH)));
	RECEIVED(counted_recv_16__post_recv(qp, receive_lists, BATCH), ALL(counted_poll_16_resp_full__poll_cq(rcq, BATCH)));
	/* The same requests again, for what else takes receives. */
	struct ibv_recv_wr *bad;
	RECEIVED(CHECK(mlx5_post_recv(qp, linked_receives(), &bad) == 0),
		 CHECK(counted_poll_wcs_resp__poll_cq(rcq, BATCH) == BATCH));
	RECEIVED(CHECK(mlx5_post_recv(qp, linked_receives(), &bad) == 0), ALL(counted_poll_16_resp__start_poll(rcqx, BATCH)));
	RECEIVED(CHECK(mlx5_post_recv(qp, linked_receives(), &bad) == 0),
		 ALL(counted_poll_16_resp_full__start_poll(rcqx, BATCH)));

	CHECK(counted_poll_empty__poll_cq(scq, BATCH) == 0);
	CHECK(counted_poll_empty__start_poll(scqx, BATCH) == 0);
}

int main(int count, char **arguments)
{
	CHECK(count == 3);
	struct plain how = {.locks = strcmp(arguments[1], "locks") == 0,
			    .blue_flame = strcmp(arguments[2], "blue-flame") == 0};

	CHECK(how.locks || strcmp(arguments[1], "no-locks") == 0);
	CHECK(how.blue_flame || strcmp(arguments[2], "doorbell") == 0);
	context = plain_context(&how);
	send_cq = plain_cq(context, BATCH, &how);
	recv_cq = plain_cq(context, BATCH, &how);
	rc = plain_qp(context, IBV_QPT_RC, send_cq, recv_cq, DEPTH, DEPTH, plain_register(&how), &how);
	ud = plain_qp(context, IBV_QPT_UD, send_cq, recv_cq, DEPTH, DEPTH, plain_register(&how), &how);
	prepare();
	for (int i = 0; i < ROUNDS; i++)
		round_of(&how);
	return 0;
}
