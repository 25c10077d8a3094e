/* Functions of libibverbs that none of the other programs calls, with an RDMA WRITE from the device to itself. */

#include "device.h"

#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

#include <infiniband/mlx5dv.h>

/* Not in the headers' public part. */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[6], uint16_t *vid);

static char memory[3][4096] __attribute__((aligned(4096)));

/* Connects a queue pair to itself. */
static struct ibv_qp *loopback(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = qp->qp_num;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.hop_limit = 1;
	CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 0);
	return qp;
}

/* The status of an RDMA WRITE of a page. */
static enum ibv_wc_status write_page(struct ibv_qp *qp, struct ibv_mr *from, uint64_t to, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)from->addr, .length = 4096, .lkey = from->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = to, .rkey = rkey },
	};
	CHECK(!ibv_post_send(qp, &wr, &bad));
	struct ibv_wc wc;
	int found;
	while ((found = ibv_poll_cq(qp->send_cq, 1, &wc)) == 0)
		;
	CHECK(found == 1);
	return wc.status;
}

/* Changes a region in a way that is refused. */
static int stays(struct ibv_mr *mr, int flags, int access, int error)
{
	errno = 0;
	return ibv_rereg_mr(mr, flags, NULL, memory[2], 4096, access) == IBV_REREG_MR_ERR_INPUT && errno == error;
}

static void registration(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp *qp = loopback(context, pd, cq);
	struct ibv_mr *from = ibv_reg_mr(pd, memory[0], 4096, 0);
	struct ibv_mr *to = ibv_reg_mr(pd, memory[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(from && to);

	/* What is refused changes nothing. */
	struct ibv_mr before = *to;
	CHECK(ibv_rereg_mr(to, 1 << 7, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 4096, 0) == IBV_REREG_MR_ERR_INPUT);
	/* `ib_check_mr_access` of the kernel, in its order, and rdma-core for rights that are not to change. */
	CHECK(stays(to, IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_REMOTE_WRITE, EINVAL));
	CHECK(stays(to, IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_REMOTE_WRITE | 1 << 8, EINVAL));
	CHECK(stays(to, IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_LOCAL_WRITE | 1 << 10, EINVAL));
	CHECK(stays(to, IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_LOCAL_WRITE | 1 << 8, EOPNOTSUPP));
	CHECK(stays(to, IBV_REREG_MR_CHANGE_TRANSLATION, IBV_ACCESS_LOCAL_WRITE, EINVAL));
	CHECK(!memcmp(&before, to, sizeof before));

	/* The null region, of which rdma-core looks at nothing else. */
	struct ibv_mr *null = ibv_alloc_null_mr(pd);
	CHECK(null);
	CHECK(stays(null, IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_LOCAL_WRITE | 1 << 8, EINVAL));
	CHECK(!ibv_dereg_mr(null));

	/* Another access: the peer may write now. */
	CHECK(!ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	CHECK(before.lkey == to->lkey && before.rkey == to->rkey);
	memset(memory[0], 'a', 4096);
	CHECK(write_page(qp, from, (uintptr_t)memory[1], to->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(memory[0], memory[1], 4096));

	/* Other memory: with the access that it had. */
	CHECK(!ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory[2], 4096, 0));
	CHECK(to->addr == memory[2] && to->length == 4096);
	memset(memory[0], 'b', 4096);
	CHECK(write_page(qp, from, (uintptr_t)memory[2], to->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(memory[0], memory[2], 4096));
	CHECK(memory[1][0] == 'a');

	/* Another domain: the queue pair is not in it. */
	struct ibv_pd *other = ibv_alloc_pd(context);
	CHECK(other);
	CHECK(!ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK(to->pd == other);
	CHECK(ibv_dealloc_pd(other) == EBUSY);
	memset(memory[0], 'c', 4096);
	CHECK(write_page(qp, from, (uintptr_t)memory[2], to->rkey) != IBV_WC_SUCCESS);
	CHECK(memory[2][0] == 'b');

	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_dereg_mr(to));
	CHECK(!ibv_dealloc_pd(other));
	CHECK(!ibv_dereg_mr(from));
}

/* Registers memory that the kernel could not pin for this access (core/umem.c of Linux, `ib_umem_get`). */
static int refuses(struct ibv_pd *pd, void *start, size_t length, int access, int error)
{
	errno = 0;
	if (ibv_reg_mr(pd, start, length, access) || errno != error)
		return 0;
	errno = 0;
	return !ibv_reg_mr_iova2(pd, start, length, (uintptr_t)start, access) && errno == error;
}

static void unusable_memory(struct ibv_pd *pd)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *usable = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
	char *readable = mmap(NULL, 4096, PROT_READ, flags, -1, 0);
	CHECK(usable != MAP_FAILED && readable != MAP_FAILED);
	/* A hole. */
	CHECK(!munmap(usable + 4096, 4096));
	CHECK(refuses(pd, usable, 2 * 4096, 0, EFAULT));
	CHECK(refuses(pd, usable + 4095, 2, IBV_ACCESS_LOCAL_WRITE, EFAULT));
	CHECK(refuses(pd, usable, 3 * 4096, IBV_ACCESS_REMOTE_READ, EFAULT));
	/* What is wrong without any memory is said first. */
	CHECK(refuses(pd, usable, 3 * 4096, IBV_ACCESS_REMOTE_WRITE, EINVAL));
	/* Beyond the last address. */
	CHECK(refuses(pd, usable, SIZE_MAX - 4096, 0, EINVAL));
	/* For reading only. */
	CHECK(refuses(pd, readable, 4096, IBV_ACCESS_LOCAL_WRITE, EFAULT));
	CHECK(refuses(pd, readable, 4096, IBV_ACCESS_MW_BIND, EFAULT));
	struct ibv_mr *mr = ibv_reg_mr(pd, readable, 4096, IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	errno = 0;
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_INPUT);
	CHECK(errno == EACCES);
	errno = 0;
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, usable + 4096, 4096, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(errno == EFAULT && mr->addr == readable);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!munmap(usable, 4096) && !munmap(usable + 2 * 4096, 4096) && !munmap(readable, 4096));
}

static void domains(struct ibv_context *context, struct ibv_cq *cq)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_td_init_attr none = { 0 };
	struct ibv_td *td = ibv_alloc_td(context, &none);
	CHECK(pd && td);
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent);
	attr.pd = parent;
	CHECK(!ibv_alloc_parent_domain(context, &attr));
	CHECK(ibv_dealloc_td(td) == EBUSY);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	/* Everything can be made of it. */
	registration(context, parent, cq);
	/* A CQ names a parent domain and no other, as with mlx5's library, and keeps it. */
	struct ibv_cq_init_attr_ex with = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent };
	struct ibv_cq_ex *of_parent = ibv_create_cq_ex(context, &with);
	CHECK(of_parent);
	CHECK(ibv_dealloc_pd(parent) == EBUSY);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(of_parent)));
	with.parent_domain = pd;
	CHECK(!ibv_create_cq_ex(context, &with) && errno == EINVAL);
	unusable_memory(pd);
	CHECK(!ibv_dealloc_pd(parent));
	CHECK(!ibv_dealloc_td(td));
	CHECK(!ibv_dealloc_pd(pd));
}

static void moderation(struct ibv_context *context, struct ibv_cq *cq)
{
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(context, NULL, &device));
	CHECK(device.cq_mod_caps.max_cq_count && device.cq_mod_caps.max_cq_period);
	struct ibv_modify_cq_attr attr = { .moderate = { .cq_count = 1, .cq_period = 0 } };
	CHECK(ibv_modify_cq(cq, &attr) == EINVAL);
	attr.attr_mask = IBV_CQ_ATTR_MODERATE;
	CHECK(!ibv_modify_cq(cq, &attr));
	attr.moderate.cq_period = device.cq_mod_caps.max_cq_period + 1;
	CHECK(ibv_modify_cq(cq, &attr));
}

static void ethernet(struct ibv_context *context)
{
	/* `mlx5_query_port_roce` of Linux. */
	struct ibv_port_attr port;
	CHECK(!ibv_query_port(context, 1, &port));
	CHECK(port.port_cap_flags == (IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS));
	CHECK(port.flags == IBV_QPF_GRH_REQUIRED);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	uint8_t mac[6];
	uint16_t vlan = 0;
	CHECK(!ibv_query_gid(context, 1, 0, &attr.grh.dgid));
	CHECK(!ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vlan));
	CHECK(vlan == 0xffff);
	printf("MAC %02x:%02x:%02x:%02x:%02x:%02x\n", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
	/* An address handle is an object of the domain in the kernel of RoCE. */
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_destroy_ah(ah));
	CHECK(!ibv_dealloc_pd(pd));
	/* No address of the port. */
	attr.grh.sgid_index = 200;
	CHECK(ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vlan) == -1);
}

static uint64_t raw_clock(struct ibv_context *context)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(!ibv_query_rt_values_ex(context, &values));
	CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && !values.raw_clock.tv_sec);
	/* Nothing that was not asked for, and nothing unknown (`mlx5_query_rt_values` of rdma-core). */
	struct ibv_values_ex others = { .comp_mask = 0, .raw_clock.tv_nsec = -1 };
	CHECK(!ibv_query_rt_values_ex(context, &others));
	CHECK(others.comp_mask == 0 && others.raw_clock.tv_nsec == -1);
	others.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | IBV_VALUES_MASK_RESERVED;
	CHECK(ibv_query_rt_values_ex(context, &others) == EINVAL);
	return values.raw_clock.tv_nsec;
}

static uint64_t system_time(void)
{
	struct timespec now;
	CHECK(!clock_gettime(CLOCK_REALTIME, &now));
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Completions have the device's time, between two readings of its clock, and the system's. */
static void clocks(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(context, NULL, &device));
	CHECK(device.hca_core_clock && device.completion_timestamp_mask);
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
	CHECK(cq);
	struct ibv_qp *qp = loopback(context, pd, ibv_cq_ex_to_cq(cq));
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	for (int i = 0; i < 4; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory[0], .length = 64, .lkey = mr->lkey };
		struct ibv_send_wr *bad, wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = { .remote_addr = (uintptr_t)memory[1], .rkey = mr->rkey },
		};
		uint64_t system_before = system_time(), before = raw_clock(context);
		CHECK(!ibv_post_send(qp, &wr, &bad));
		struct ibv_poll_cq_attr none = { 0 };
		int found;
		while ((found = ibv_start_poll(cq, &none)) == ENOENT)
			;
		uint64_t after = raw_clock(context), system_after = system_time();
		CHECK(!found && cq->status == IBV_WC_SUCCESS);
		uint64_t at = ibv_wc_read_completion_ts(cq);
		CHECK(before <= at && at <= after);
		/* The two clocks are not read at once. */
		uint64_t wallclock = ibv_wc_read_completion_wallclock_ns(cq);
		CHECK(system_before < wallclock + 10000000 && wallclock < system_after + 10000000);
		ibv_end_poll(cq);
	}
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	/* What belongs to matching of tags, which there is not. */
	init.wc_flags = IBV_WC_EX_WITH_TM_INFO;
	CHECK(!ibv_create_cq_ex(context, &init) && errno == EOPNOTSUPP);
}

/* Of operations that datagrams do not have, the place of the address handle is not looked at: it has other things. */
static void datagrams(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	for (int opcode = IBV_WR_RDMA_WRITE; opcode <= IBV_WR_TSO; opcode++) {
		struct ibv_sge sge = { .length = 8 };
		struct ibv_send_wr *bad = NULL, wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.wr.rdma.remote_addr = 1,
		};
		if (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM)
			continue;
		CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	}
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

/* What the device says as mlx5: all of `comp_mask` may be asked for, and what is not answered is left alone. */
static void provider(struct ibv_context *context)
{
	struct mlx5dv_context found, before;
	memset(&before, 0xa5, sizeof before);
	found = before;
	CHECK(!mlx5dv_query_device(context, &found));
	CHECK(!found.version && !found.comp_mask);
	CHECK(found.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1);
	/* MLX5DV_CONTEXT_FLAGS_BLUEFLAME of later headers. */
	uint64_t blueflame = 1 << 8;
	CHECK(!(found.flags & ~(MLX5DV_CONTEXT_FLAGS_CQE_V1 | blueflame)));
	size_t rest = offsetof(struct mlx5dv_context, cqe_comp_caps);
	CHECK(!memcmp((char *)&found + rest, (char *)&before + rest, sizeof found - rest));
}

int main(void)
{
	CHECK(!ibv_fork_init());
	CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	CHECK(!ibv_dontfork_range(memory, sizeof memory));
	CHECK(!ibv_dofork_range(memory, sizeof memory));
	struct ibv_context *context = open_first();
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq);
	moderation(context, cq);
	domains(context, cq);
	ethernet(context);
	provider(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	clocks(context, pd);
	datagrams(context, pd);
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_close_device(context));
	printf("all functions work\n");
	return 0;
}
