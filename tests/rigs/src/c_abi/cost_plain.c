
/* Behind cost.c: pairs of rdma-core's provider in plain memory, by the program's argument with locks or without. */

static struct mlx5_context *context;

static void pair_open(struct pair *pair, bool newer, char **arguments)
{
	struct plain how = {.locks = arguments[1] && strcmp(arguments[1], "locks") == 0};
	struct mlx5_cq *sends, *receives;
	struct mlx5_qp *a, *b;

	CHECK(how.locks || (arguments[1] && strcmp(arguments[1], "no-locks") == 0));
	if (context == NULL)
		context = plain_context(&how);
	sends = plain_cq(context, 4 * DEPTH, &how);
	receives = plain_cq(context, 4 * DEPTH, &how);
	a = plain_qp(context, IBV_QPT_RC, sends, receives, 2 * DEPTH, 2 * DEPTH, plain_register(&how), &how);
	b = plain_qp(context, IBV_QPT_RC, sends, receives, 2 * DEPTH, 2 * DEPTH, plain_register(&how), &how);
	pair->a = &a->verbs_qp.qp;
	pair->b = &b->verbs_qp.qp;
	pair->sends = &sends->verbs_cq.cq;
	if (newer) {
		pair->ax = &a->verbs_qp.qp_ex;
		pair->sends_ex = &sends->verbs_cq.cq_ex;
	}
}

static void pair_settle(struct pair *pair, bool is_send)
{
	struct mlx5_qp *a = to_mqp(pair->a), *b = to_mqp(pair->b);
	uint8_t opcode = is_send ? MLX5_OPCODE_SEND : MLX5_OPCODE_RDMA_WRITE;

	/* Each request is one block. */
	for (unsigned i = 0; i < DEPTH; i++)
		plain_complete(to_mcq(pair->sends), &pair->completed, a, MLX5_CQE_REQ, opcode,
			       (uint16_t)(a->sq.cur_post - DEPTH + i), SIZE);
	CHECK(be32toh(a->db[MLX5_SND_DBR]) == (a->sq.cur_post & 0xffff));
	/* B's receives are taken, and what would be their completions with them. */
	CHECK(b->rq.head - b->rq.tail == (is_send ? DEPTH : 0));
	b->rq.tail = b->rq.head;
}

static void pair_finish(struct pair *pair, bool is_send)
{
	(void)is_send;
	/* The provider took the completions as those of A's requests. */
	CHECK(to_mqp(pair->a)->sq.tail == to_mqp(pair->a)->sq.head);
}
