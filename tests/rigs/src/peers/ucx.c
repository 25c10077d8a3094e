/*
 * The data path of UCX's uct_rc_mlx5 in functions whose instructions are counted, on an interface and an endpoint in plain
 * memory: batches of 256 operations, each element with data of its own. What a function costs less what
 * `counted_nothing` does is the cost of its operations.
 *
 * Argument: `doorbell` or `blue-flame`.
 */
/* Its polling functions have no other name than in its own file. */
#include <uct/ib/rc/accel/rc_mlx5_iface.c>

#include "check.h"

#define BATCH 256
#define ROUNDS 4
#define BLOCKS 1024
#define ENTRIES 1024
#define QP_NUM 0x123
#define RKEY 0xaabbcc01
#define REMOTE 0x1122334455667788

/* The mark keeps functions that do the same apart. */
#define COUNTED(name) __attribute__((noipa)) static unsigned counted_##name
#define MARK(name) __asm__ volatile("# " #name)

static uct_rc_mlx5_iface_common_t *iface;
static uct_rc_mlx5_ep_t *endpoint;
static uct_ib_mlx5_mmio_reg_t *page;
static uct_ib_mem_t keys[BATCH];
static uct_iov_t vectors[BATCH];
static uct_completion_t completion;
static unsigned completed;
static uint8_t data[64];
static uint32_t produced;

COUNTED(nothing)(void *unused, int count)
{
	for (int i = 0; i < count; i++)
		__asm__ volatile("" ::"r"(unused));
	return 0;
}

/* A post that succeeds says one of two things. */
#define POSTED(name, result, ...)                                                                                      \
	COUNTED(name)(uct_ep_h ep, int count)                                                                          \
	{                                                                                                              \
		MARK(name);                                                                                            \
		for (int i = 0; i < count; i++)                                                                        \
			if ((__VA_ARGS__) != (result))                                                                 \
				abort();                                                                               \
		return 0;                                                                                              \
	}
/* A header of 8 bytes and 24 of data; UCX puts 4 of its own before them. */
POSTED(send_inline__am_short, UCS_OK, uct_rc_mlx5_ep_am_short(ep, 5, i, data, 24))
POSTED(write_inline__put_short, UCS_OK, uct_rc_mlx5_ep_put_short(ep, data, 64, REMOTE, RKEY))
POSTED(write__put_zcopy, UCS_INPROGRESS, uct_rc_mlx5_ep_put_zcopy(ep, &vectors[i], 1, REMOTE, RKEY, &completion))
POSTED(read__get_zcopy, UCS_INPROGRESS, uct_rc_mlx5_ep_get_zcopy(ep, &vectors[i], 1, REMOTE, RKEY, &completion))

/* As UCX has it, behind a pointer: the compiler must not see that nothing changes between calls. */
__attribute__((noipa)) static unsigned poll_tx(uct_rc_mlx5_iface_common_t *from)
{
	return uct_rc_mlx5_iface_poll_tx(from);
}

/* Each call takes one completion. */
#define POLLED(name)                                                                                                   \
	COUNTED(name)(uct_rc_mlx5_iface_common_t * from, int count)                                                    \
	{                                                                                                              \
		unsigned sum = 0;                                                                                      \
                                                                                                                       \
		MARK(name);                                                                                            \
		for (int i = 0; i < count; i++)                                                                        \
			sum += poll_tx(from);                                                        \
		return sum;                                                                                            \
	}
POLLED(poll__poll_tx)
POLLED(poll_user__poll_tx)
POLLED(poll_empty__poll_tx)

/* What is not counted. */

static void *zeroed(size_t bytes, size_t alignment)
{
	void *memory = NULL;

	CHECK(posix_memalign(&memory, alignment, bytes) == 0);
	memset(memory, 0, bytes);
	return memory;
}

static void finished(uct_completion_t *self)
{
	self->count = 1;
	completed++;
}

static void prepare(int blue_flame)
{
	iface = zeroed(sizeof(*iface), 64);
	endpoint = zeroed(sizeof(*endpoint), 64);
	page = zeroed(sizeof(*page), 64);
	page->addr.ptr = UCS_PTR_BYTE_OFFSET(zeroed(4096, 4096), 0x800);
	page->mode = blue_flame ? UCT_IB_MLX5_MMIO_MODE_BF_POST : UCT_IB_MLX5_MMIO_MODE_DB;

	uct_rc_iface_t *rc = &iface->super;
	rc->tx.cq_available = ENTRIES;
	rc->tx.reads_available = SSIZE_MAX / 2;
	rc->config.tx_moderation = 0;
	rc->config.fc_enabled = 0;
	rc->config.max_get_zcopy = 1 << 30;
	ucs_arbiter_init(&rc->tx.arbiter);
	rc->tx.ops_buffer = zeroed(ENTRIES * sizeof(*rc->tx.ops_buffer), 64);
	for (int i = 0; i < ENTRIES; i++) {
		rc->tx.ops_buffer[i].handler = uct_rc_ep_send_op_completion_handler;
		rc->tx.ops_buffer[i].flags = UCT_RC_IFACE_SEND_OP_FLAG_IFACE;
		rc->tx.ops_buffer[i].iface = rc;
		rc->tx.ops_buffer[i].next = i + 1 < ENTRIES ? &rc->tx.ops_buffer[i + 1] : NULL;
	}
	rc->tx.free_ops = rc->tx.ops_buffer;
	rc->eps[QP_NUM >> UCT_RC_QP_TABLE_ORDER] =
	    zeroed(UCS_BIT(UCT_RC_QP_TABLE_MEMB_ORDER) * sizeof(uct_rc_ep_t *), 64);
	rc->eps[QP_NUM >> UCT_RC_QP_TABLE_ORDER][QP_NUM & UCS_MASK(UCT_RC_QP_TABLE_MEMB_ORDER)] = &endpoint->super;

	uct_ib_mlx5_cq_t *cq = &iface->cq[UCT_IB_DIR_TX];
	cq->cq_length = ENTRIES;
	cq->cqe_size_log = 6;
	cq->cq_buf = zeroed(ENTRIES * 64, 4096);
	cq->dbrec = zeroed(64, 64);
	for (int i = 0; i < ENTRIES; i++)
		((struct mlx5_cqe64 *)cq->cq_buf)[i].op_own = MLX5_CQE_INVALID << 4 | MLX5_CQE_OWNER_MASK;

	uct_rc_ep_t *ep = &endpoint->super;
	ep->super.super.iface = &rc->super.super.super;
	ucs_queue_head_init(&ep->txqp.outstanding);
	ucs_arbiter_group_init(&ep->arb_group);
	ep->fc.fc_wnd = INT16_MAX;
	uct_ib_mlx5_txwq_t *wq = &endpoint->tx.wq;
	wq->super.qp_num = QP_NUM;
	wq->sw_pi = 0;
	wq->prev_sw_pi = UINT16_MAX;
	wq->reg = page;
	wq->dbrec = zeroed(64, 64);
	wq->qstart = zeroed(BLOCKS * 64, 4096);
	wq->qend = UCS_PTR_BYTE_OFFSET(wq->qstart, BLOCKS * 64);
	wq->curr = wq->qstart;
	wq->bb_max = BLOCKS - 2 * UCT_IB_MLX5_MAX_BB;
	ep->txqp.available = wq->bb_max;

	completion.func = finished;
	completion.count = 1;
	for (int i = 0; i < 64; i++)
		data[i] = (uint8_t)i;
	for (int i = 0; i < BATCH; i++) {
		keys[i].lkey = 0x00112201 + i;
		vectors[i] = (uct_iov_t){.buffer = (void *)(0x7f0000001000 + i * 0x1000ul),
					 .length = 0x1000,
					 .memh = &keys[i],
					 .count = 1};
	}
}

/* That the last request is what the device has to read, of `blocks` blocks and `units` of 16 bytes. */
static void check_sent(uint8_t opcode, unsigned blocks, unsigned units, int blue_flame)
{
	const uct_ib_mlx5_txwq_t *wq = &endpoint->tx.wq;
	uint16_t first = (uint16_t)(wq->sw_pi - blocks);
	const uint32_t *wqe = (const uint32_t *)wq->qstart + first % BLOCKS * 16;
	const uint32_t *written = (const uint32_t *)(page->addr.uint ^ UCT_IB_MLX5_BF_REG_SIZE);

	CHECK(be32toh(wqe[0]) == ((uint32_t)first << 8 | opcode));
	CHECK(be32toh(wqe[1]) == (QP_NUM << 8 | units));
	CHECK((be32toh(wqe[2]) & MLX5_WQE_CTRL_CQ_UPDATE) != 0);
	if (opcode != MLX5_OPCODE_SEND) {
		CHECK(be32toh(wqe[4]) == REMOTE >> 32 && be32toh(wqe[5]) == (uint32_t)REMOTE);
		CHECK(be32toh(wqe[6]) == RKEY);
	}
	if (units == 3) {
		CHECK(be32toh(wqe[8]) == 0x1000 && be32toh(wqe[9]) == keys[BATCH - 1].lkey);
		CHECK(be32toh(wqe[11]) == (uint32_t)(uintptr_t)vectors[BATCH - 1].buffer);
	}
	CHECK(be32toh(*wq->dbrec) == wq->sw_pi);
	CHECK(memcmp(written, wqe, blue_flame ? blocks * 64 : 8) == 0);
}

/* Writes completions of a batch as the device does. */
static void complete(uint8_t opcode, unsigned blocks)
{
	struct mlx5_cqe64 *cqes = iface->cq[UCT_IB_DIR_TX].cq_buf;

	for (unsigned i = 0; i < BATCH; i++, produced++) {
		struct mlx5_cqe64 *cqe = &cqes[produced % ENTRIES];

		memset(cqe, 0, sizeof(*cqe));
		cqe->sop_drop_qpn = htobe32((uint32_t)opcode << 24 | QP_NUM);
		cqe->wqe_counter = htobe16((uint16_t)(endpoint->tx.wq.sw_pi - (BATCH - i) * blocks));
		cqe->op_own = (uint8_t)(MLX5_CQE_REQ << 4 | (produced / ENTRIES & 1));
	}
}

static void round_of(int blue_flame)
{
	uct_ep_h ep = &endpoint->super.super.super;

	counted_nothing(NULL, BATCH);
	counted_send_inline__am_short(ep, BATCH);
	check_sent(MLX5_OPCODE_SEND, 1, 4, blue_flame);
	complete(MLX5_OPCODE_SEND, 1);
	CHECK(counted_poll__poll_tx(iface, BATCH) == BATCH);
	counted_write_inline__put_short(ep, BATCH);
	check_sent(MLX5_OPCODE_RDMA_WRITE, 2, 7, blue_flame);
	complete(MLX5_OPCODE_RDMA_WRITE, 2);
	for (int i = 0; i < BATCH; i++)
		CHECK(poll_tx(iface) == 1);
	counted_write__put_zcopy(ep, BATCH);
	check_sent(MLX5_OPCODE_RDMA_WRITE, 1, 3, blue_flame);
	complete(MLX5_OPCODE_RDMA_WRITE, 1);
	completed = 0;
	CHECK(counted_poll_user__poll_tx(iface, BATCH) == BATCH && completed == BATCH);
	counted_read__get_zcopy(ep, BATCH);
	check_sent(MLX5_OPCODE_RDMA_READ, 1, 3, blue_flame);
	complete(MLX5_OPCODE_RDMA_READ, 1);
	completed = 0;
	for (int i = 0; i < BATCH; i++)
		CHECK(poll_tx(iface) == 1);
	CHECK(completed == BATCH);
	CHECK(counted_poll_empty__poll_tx(iface, BATCH) == 0);
}

int main(int count, char **arguments)
{
	CHECK(count == 2);
	int blue_flame = strcmp(arguments[1], "blue-flame") == 0;

	CHECK(blue_flame || strcmp(arguments[1], "doorbell") == 0);
	prepare(blue_flame);
	for (int i = 0; i < ROUNDS; i++)
		round_of(blue_flame);
	return 0;
}
