
/* Behind cost.c: pairs of queue pairs of the first device, joined to each other. */

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;

static void wait_for(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	while (count > 0) {
		int found = ibv_poll_cq(cq, 1, &wc);

		CHECK(found >= 0 && (found == 0 || wc.status == IBV_WC_SUCCESS));
		count -= found;
	}
}

static void device_open(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices != NULL && devices[0] != NULL);
	context = ibv_open_device(devices[0]);
	CHECK(context != NULL);
	pd = ibv_alloc_pd(context);
	CHECK(pd != NULL);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr != NULL);
	lkey = mr->lkey;
	rkey = mr->rkey;
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
}

static struct ibv_qp *create(struct ibv_cq *send_cq, struct ibv_cq *recv_cq, bool newer)
{
	struct ibv_qp_cap cap = {.max_send_wr = 2 * DEPTH,
				 .max_recv_wr = 2 * DEPTH,
				 .max_send_sge = 1,
				 .max_recv_sge = 1,
				 .max_inline_data = SIZE};
	struct ibv_qp_init_attr attributes = {.send_cq = send_cq, .recv_cq = recv_cq, .cap = cap, .qp_type = IBV_QPT_RC};
	struct ibv_qp_init_attr_ex more = {.send_cq = send_cq,
					   .recv_cq = recv_cq,
					   .cap = cap,
					   .qp_type = IBV_QPT_RC,
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .pd = pd,
					   .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};
	struct ibv_qp *qp = newer ? ibv_create_qp_ex(context, &more) : ibv_create_qp(pd, &attributes);

	CHECK(qp != NULL);
	return qp;
}

static void join(struct ibv_qp *qp, uint32_t peer)
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
	    .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 1}},
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

static void pair_open(struct pair *pair, bool newer, char **arguments)
{
	struct ibv_cq_init_attr_ex attributes = {.cqe = 4 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS};

	(void)arguments;
	if (context == NULL)
		device_open();
	if (newer) {
		pair->sends_ex = ibv_create_cq_ex(context, &attributes);
		CHECK(pair->sends_ex != NULL);
		pair->sends = ibv_cq_ex_to_cq(pair->sends_ex);
	} else {
		pair->sends = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	}
	pair->receives = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	pair->replies = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(pair->sends != NULL && pair->receives != NULL && pair->replies != NULL);
	pair->a = create(pair->sends, pair->receives, newer);
	pair->b = create(pair->replies, pair->receives, false);
	if (newer)
		pair->ax = ibv_qp_to_qp_ex(pair->a);
	join(pair->a, pair->b->qp_num);
	join(pair->b, pair->a->qp_num);
}

static void pair_settle(struct pair *pair, bool is_send)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 1, .lkey = lkey};
	struct ibv_send_wr send = {
	    .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr *bad;

	if (!is_send) {
		/* Nothing is received of a write: a send that follows it is. */
		CHECK(ibv_post_recv(pair->b, &receive, &bad_recv) == 0);
		if (pair->ax) {
			ibv_wr_start(pair->ax);
			pair->ax->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_send(pair->ax);
			ibv_wr_set_sge(pair->ax, sge.lkey, sge.addr, sge.length);
			CHECK(ibv_wr_complete(pair->ax) == 0);
		} else {
			CHECK(ibv_post_send(pair->a, &send, &bad) == 0);
		}
	}
	wait_for(pair->receives, is_send ? DEPTH : 1);
	/* What A posted is done when B's reply, which is sent after it was received, is there. */
	CHECK(ibv_post_recv(pair->a, &receive, &bad_recv) == 0);
	CHECK(ibv_post_send(pair->b, &send, &bad) == 0);
	wait_for(pair->replies, 1);
	wait_for(pair->receives, 1);
}

static void pair_finish(struct pair *pair, bool is_send)
{
	struct ibv_poll_cq_attr attributes = {0};

	if (is_send)
		return;
	if (!pair->sends_ex) {
		wait_for(pair->sends, 1);
		return;
	}
	while (ibv_start_poll(pair->sends_ex, &attributes))
		continue;
	CHECK(pair->sends_ex->status == IBV_WC_SUCCESS);
	ibv_end_poll(pair->sends_ex);
}
