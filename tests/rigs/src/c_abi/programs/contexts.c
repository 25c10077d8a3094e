/* Objects of two contexts of one device do not go together, and static rates of paths. */

#include "device.h"

#define REFUSED(call)                                                                                        \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		CHECK(!(call) && errno == EINVAL);                                                           \
	} while (0)

/* One of each, of a context. */
struct objects {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
};

static struct objects open_objects(void)
{
	struct objects made = { .context = open_first() };
	CHECK((made.pd = ibv_alloc_pd(made.context)));
	CHECK((made.cq = ibv_create_cq(made.context, 16, NULL, NULL, 0)));
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	CHECK((made.srq = ibv_create_srq(made.pd, &init)));
	return made;
}

static void close_device(struct objects *made)
{
	CHECK(!ibv_destroy_srq(made->srq));
	CHECK(!ibv_destroy_cq(made->cq));
	CHECK(!ibv_dealloc_pd(made->pd));
	CHECK(!ibv_close_device(made->context));
}

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *send, struct ibv_cq *receive, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send,
		.recv_cq = receive,
		.srq = srq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	return ibv_create_qp(pd, &init);
}

static void contexts(struct objects *here, struct objects *there)
{
	struct ibv_qp *qp = create(here->pd, here->cq, here->cq, here->srq);
	CHECK(qp);
	CHECK(!ibv_destroy_qp(qp));
	REFUSED(create(here->pd, there->cq, here->cq, NULL));
	REFUSED(create(here->pd, here->cq, there->cq, NULL));
	REFUSED(create(here->pd, here->cq, here->cq, there->srq));
	struct ibv_qp_init_attr_ex init = {
		.send_cq = here->cq,
		.recv_cq = here->cq,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = there->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	REFUSED(ibv_create_qp_ex(here->context, &init));
	/* XRC: domains, and the queues of SRQs. */
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(there->context, &domain);
	CHECK(xrcd);
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	REFUSED(ibv_create_qp_ex(here->context, &target));
	struct ibv_srq_init_attr_ex srq = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = there->pd,
		.xrcd = xrcd,
		.cq = here->cq,
	};
	REFUSED(ibv_create_srq_ex(there->context, &srq));
	CHECK(!ibv_close_xrcd(xrcd));
	struct ibv_wq_init_attr queue = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = 4,
		.max_sge = 1,
		.pd = here->pd,
		.cq = there->cq,
	};
	REFUSED(ibv_create_wq(here->context, &queue));
}

/* The answer to a path with this rate. */
static int with_rate(struct objects *here, uint8_t rate)
{
	struct ibv_qp *qp = create(here->pd, here->cq, here->cq, NULL);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = qp->qp_num;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.static_rate = rate;
	CHECK(!ibv_query_gid(here->context, 1, 0, &attr.ah_attr.grh.dgid));
	int answer = ibv_modify_qp(qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	CHECK(!ibv_destroy_qp(qp));
	/* The same of an address handle, which Linux has as well on Ethernet. */
	struct ibv_ah *ah = ibv_create_ah(here->pd, &attr.ah_attr);
	CHECK(ah ? !answer : errno == answer);
	CHECK(!ah || !ibv_destroy_ah(ah));
	return answer;
}

int main(void)
{
	struct objects here = open_objects(), there = open_objects();
	contexts(&here, &there);
	/* Up to Linux's IB_RATE_1600_GBPS, and beyond. */
	for (int rate = 0; rate <= 255; rate++)
		CHECK(with_rate(&here, rate) == (rate == 1 || rate > 25 ? EINVAL : 0));
	close_device(&there);
	close_device(&here);
	printf("contexts and rates are kept apart\n");
	return 0;
}
