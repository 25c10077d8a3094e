#include "plain.h"

#define PAGE 4096

static void *zeroed(size_t bytes, size_t alignment)
{
	void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);

	CHECK(memory != NULL);
	memset(memory, 0, bytes);
	return memory;
}

struct mlx5_context *plain_context(const struct plain *how)
{
	struct mlx5_context *context = zeroed(sizeof(*context), 64);
	struct ibv_context *verbs = &context->ibv_ctx.context;

	verbs->ops.post_send = mlx5_post_send;
	verbs->ops.post_recv = mlx5_post_recv;
	verbs->ops.poll_cq = mlx5_poll_cq_v1;
	context->cqe_version = 1;
	context->prefer_bf = 1;
	context->shut_up_bf = !how->blue_flame;
	context->dbg_fp = stderr;
	pthread_mutex_init(&context->uidx_table_mutex, NULL);
	return context;
}

static void lock_init(struct mlx5_spinlock *lock, const struct plain *how)
{
	mlx5_spinlock_init(lock, how->locks);
}

struct mlx5_cq *plain_cq(struct mlx5_context *context, int entries, const struct plain *how)
{
	static uint32_t number = 0x10;
	struct mlx5_cq *cq = zeroed(sizeof(*cq), 64);
	struct ibv_cq_init_attr_ex attributes = {.wc_flags = IBV_WC_STANDARD_FLAGS};

	cq->verbs_cq.cq.context = &context->ibv_ctx.context;
	cq->verbs_cq.cq.cqe = entries - 1;
	cq->cqn = number++;
	cq->cqe_sz = 64;
	cq->buf_a.buf = zeroed((size_t)entries * 64, PAGE);
	cq->buf_a.length = (size_t)entries * 64;
	cq->active_buf = &cq->buf_a;
	cq->dbrec = zeroed(64, 64);
	cq->flags = MLX5_CQ_FLAGS_EXTENDED | (how->locks ? 0 : MLX5_CQ_FLAGS_SINGLE_THREADED);
	lock_init(&cq->lock, how);
	for (int i = 0; i < entries; i++)
		((struct mlx5_cqe64 *)cq->buf_a.buf)[i].op_own = MLX5_CQE_INVALID << 4 | MLX5_CQE_OWNER_MASK;
	CHECK(mlx5_cq_fill_pfns(cq, &attributes, context) == 0);
	return cq;
}

struct mlx5_bf *plain_register(const struct plain *how)
{
	struct mlx5_bf *bf = zeroed(sizeof(*bf), 64);

	bf->reg = zeroed(PAGE, PAGE);
	bf->offset = 0x800;
	bf->buf_size = 0x100;
	bf->uuarn = 1;
	/* A dedicated register: its queue's lock is enough. */
	bf->need_lock = 0;
	lock_init(&bf->lock, how);
	return bf;
}

static void ring_init(struct mlx5_wq *ring, unsigned count, int shift, size_t offset, const struct plain *how)
{
	ring->wqe_cnt = count;
	ring->max_post = count;
	ring->max_gs = 1;
	ring->qp_state_max_gs = 1;
	ring->wqe_shift = shift;
	ring->offset = (int)offset;
	/* Zeroed as the provider's are. */
	ring->wrid = zeroed(count * sizeof(*ring->wrid), 16);
	ring->wqe_head = zeroed(count * sizeof(*ring->wqe_head), 16);
	ring->wr_data = zeroed(count * sizeof(*ring->wr_data), 16);
	lock_init(&ring->lock, how);
}

struct mlx5_qp *plain_qp(struct mlx5_context *context, enum ibv_qp_type type, struct mlx5_cq *send_cq,
			 struct mlx5_cq *recv_cq, unsigned sends, unsigned receives, struct mlx5_bf *bf,
			 const struct plain *how)
{
	static uint32_t number = 0x100;
	struct mlx5_qp *qp = zeroed(sizeof(*qp), 64);
	struct ibv_qp *verbs = &qp->verbs_qp.qp;
	struct ibv_qp_init_attr_ex attributes = {.qp_type = type};
	/* A receive has room for one SGE; the sends begin at a block of their own. */
	size_t receive_bytes = ((size_t)receives * 16 + 63) / 64 * 64;
	size_t bytes = receive_bytes + (size_t)sends * 64;

	verbs->context = &context->ibv_ctx.context;
	verbs->send_cq = &send_cq->verbs_cq.cq;
	verbs->recv_cq = &recv_cq->verbs_cq.cq;
	verbs->qp_num = number++;
	verbs->qp_type = type;
	verbs->state = IBV_QPS_RTS;
	qp->ibv_qp = verbs;
	qp->rsc.type = MLX5_RSC_TYPE_QP;
	qp->rsc.rsn = mlx5_store_uidx(context, qp);
	qp->max_inline_data = 220;
	qp->buf.buf = zeroed(bytes, PAGE);
	qp->buf.length = bytes;
	qp->buf_size = (int)bytes;
	qp->bf = bf;
	qp->db = zeroed(64, 64);
	ring_init(&qp->rq, receives, 4, 0, how);
	ring_init(&qp->sq, sends, 6, receive_bytes, how);
	qp->sq_start = (char *)qp->buf.buf + receive_bytes;
	qp->sq.qend = (char *)qp->sq_start + (size_t)sends * 64;
	CHECK(mlx5_qp_fill_wr_pfns(qp, &attributes, NULL) == 0);
	return qp;
}

struct ibv_ah *plain_ah(struct mlx5_context *context)
{
	struct mlx5_ah *ah = zeroed(sizeof(*ah), 64);

	ah->ibv_ah.context = &context->ibv_ctx.context;
	ah->av.hop_limit = 64;
	memcpy(ah->av.rmac, "\x02\0\0\0\0\x09", 6);
	return &ah->ibv_ah;
}

void plain_completion(struct mlx5_cq *cq, uint32_t *produced, uint32_t user_index, uint32_t qp_number,
		      uint8_t cqe_opcode, uint8_t wqe_opcode, uint16_t wqe_counter, uint32_t bytes)
{
	uint32_t entries = (uint32_t)cq->verbs_cq.cq.cqe + 1;
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)cq->buf_a.buf + (*produced & (entries - 1));

	memset(cqe, 0, sizeof(*cqe));
	cqe->srqn_uidx = htobe32(user_index);
	cqe->byte_cnt = htobe32(bytes);
	cqe->sop_drop_qpn = htobe32((uint32_t)wqe_opcode << 24 | qp_number);
	cqe->wqe_counter = htobe16(wqe_counter);
	cqe->op_own = (uint8_t)(cqe_opcode << 4 | (*produced & entries ? 1 : 0));
	++*produced;
}

void plain_complete(struct mlx5_cq *cq, uint32_t *produced, const struct mlx5_qp *qp, uint8_t cqe_opcode,
		    uint8_t wqe_opcode, uint16_t wqe_counter, uint32_t bytes)
{
	plain_completion(cq, produced, qp->rsc.rsn, qp->verbs_qp.qp.qp_num, cqe_opcode, wqe_opcode, wqe_counter, bytes);
}

/* The provider says at its start that it is there. Here nothing looks for devices. */
void verbs_register_driver(const struct verbs_device_ops *operations)
{
	(void)operations;
}
