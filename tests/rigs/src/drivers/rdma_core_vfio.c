/*
 * rdma-core's VFIO driver on two functions with a cable between them: queues by DevX over user memory, and data by SEND,
 * RDMA WRITE and RDMA READ. The driver is Debian's libmlx5; the structures are those of Linux's mlx5_ifc.h, and, where that
 * header has nothing, of rdma-core's tests (tests/mlx5_prm_structs.py), from which the numbers in `put` are.
 *
 * Usage: rdma_core_vfio PCI-ADDRESS PCI-ADDRESS
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
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

enum {
	QUERY_HCA_CAP = 0x100, CREATE_CQ = 0x400, QUERY_CQ = 0x402, CREATE_QP = 0x500, RST2INIT = 0x502, INIT2RTR = 0x503, RTR2RTS = 0x504,
	TO_ERR = 0x507, QUERY_QP = 0x50b, QUERY_NIC_VPORT = 0x754, SET_ROCE_ADDRESS = 0x761, ALLOC_PD = 0x800, DEALLOC_PD = 0x801,
	CREATE_UCTX = 0xa04, DESTROY_UCTX = 0xa06, CREATE_UMEM = 0xa08,
	/* Status of an answer. */
	BAD_PARAM = 3, BAD_RESOURCE = 5, RESOURCE_BUSY = 6,
	LOG_CQ = 5, LOG_RQ = 4, LOG_SQ = 4, STRIDE = 64,
	CQ_BYTES = 64 << LOG_CQ, RQ_BYTES = STRIDE << LOG_RQ, SQ_BYTES = 64 << LOG_SQ,
	DATA = 96 * 1024, ROUNDS = 40,
	UAR_NC = 1, /* MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC */
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	uint32_t pdn, eqn, cqn, qpn;
	struct mlx5dv_devx_uar *uar;
	struct mlx5dv_devx_umem *umem, *cq_umem;
	struct mlx5dv_devx_obj *cq, *qp;
	/* Where the QP's ring and the records of both are, and the CQ's ring. */
	u8 *queues, *cqes, *data;
	struct ibv_mr *mr;
	u8 mac[6], gid[16];
	uint32_t polled;
	uint16_t sent, received;
};

static unsigned passed;

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	printf("FAIL ");
	vprintf(format, list);
	printf(" (errno %d: %s)\n", errno, strerror(errno));
	exit(1);
}

static void pass(const char *what)
{
	printf("PASS %s\n", what);
	passed++;
}

/* Sets `width` bits from bit `at` on, counted from the most significant one of the first byte. */
static void put(void *to, unsigned at, unsigned width, uint64_t value)
{
	for (unsigned bit = 0; bit < width; bit++)
		if (value >> (width - 1 - bit) & 1)
			((u8 *)to)[(at + bit) / 8] |= 0x80 >> (at + bit) % 8;
}

static void general(struct end *end, void *in, size_t inlen, void *out, size_t outlen, const char *what)
{
	memset(out, 0, outlen);
	if (mlx5dv_devx_general_cmd(end->ctx, in, inlen, out, outlen))
		fail("%s: status %#x, syndrome %#x", what, ((u8 *)out)[0], be32toh(((uint32_t *)out)[1]));
}

/* The command has to be refused with this status. */
static void refused(struct end *end, void *in, size_t inlen, unsigned status, const char *what)
{
	u8 out[0x400] = {};
	int error = mlx5dv_devx_general_cmd(end->ctx, in, inlen, out, 16);
	if (!error || out[0] != status)
		fail("%s: returned %d, status %#x", what, error, out[0]);
	pass(what);
}

static void open_end(struct end *end, const char *pci)
{
	struct mlx5dv_vfio_context_attr attr = { .pci_name = pci };
	struct ibv_device **list = mlx5dv_get_vfio_device_list(&attr);
	if (!list || !list[0])
		fail("mlx5dv_get_vfio_device_list(%s)", pci);
	end->ctx = ibv_open_device(list[0]);
	if (!end->ctx)
		fail("ibv_open_device(%s)", pci);
	ibv_free_device_list(list);
	end->pd = ibv_alloc_pd(end->ctx);
	struct mlx5dv_pd pd = {};
	struct mlx5dv_obj obj = { .pd = { .in = end->pd, .out = &pd } };
	if (!end->pd || mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD))
		fail("protection domain");
	end->pdn = pd.pdn;
	end->uar = mlx5dv_devx_alloc_uar(end->ctx, UAR_NC);
	if (!end->uar || mlx5dv_devx_query_eqn(end->ctx, 0, &end->eqn))
		fail("UAR and EQ");
	if (posix_memalign((void **)&end->data, 4096, DATA + 4096))
		fail("memory");
	memset(end->data, 0, DATA + 4096);
	/* The region does not begin where a page does. */
	end->data += 0x128;
	end->mr = ibv_reg_mr(end->pd, end->data, DATA,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!end->mr)
		fail("ibv_reg_mr");
}

/* RoCE is on already; the address ::ffff:10.0.0.`unit` at index 0, from the function's MAC. */
static void address(struct end *end, u8 unit)
{
	uint32_t in[DEVX_ST_SZ_DW(query_nic_vport_context_in)] = {};
	uint32_t out[DEVX_ST_SZ_DW(query_nic_vport_context_out)];
	DEVX_SET(query_nic_vport_context_in, in, opcode, QUERY_NIC_VPORT);
	general(end, in, sizeof(in), out, sizeof(out), "QUERY_NIC_VPORT_CONTEXT");
	memcpy(end->mac, (u8 *)DEVX_ADDR_OF(query_nic_vport_context_out, out, nic_vport_context.permanent_address) + 2, 6);
	end->gid[10] = end->gid[11] = 0xff;
	end->gid[12] = 10;
	end->gid[15] = unit;
	/* Which port, where the function can have several. */
	uint32_t ask[DEVX_ST_SZ_DW(query_hca_cap_in)] = {};
	uint32_t caps[DEVX_ST_SZ_DW(query_hca_cap_out)];
	DEVX_SET(query_hca_cap_in, ask, opcode, QUERY_HCA_CAP);
	DEVX_SET(query_hca_cap_in, ask, op_mod, 1);
	general(end, ask, sizeof(ask), caps, sizeof(caps), "QUERY_HCA_CAP");
	uint32_t set[DEVX_ST_SZ_DW(set_roce_address_in)] = {};
	uint32_t done[DEVX_ST_SZ_DW(set_roce_address_out)];
	DEVX_SET(set_roce_address_in, set, opcode, SET_ROCE_ADDRESS);
	DEVX_SET(set_roce_address_in, set, vhca_port_num,
		 DEVX_GET(query_hca_cap_out, caps, capability.cmd_hca_cap.num_vhca_ports) > 0);
	memcpy(DEVX_ADDR_OF(set_roce_address_in, set, roce_address.source_l3_address), end->gid, 16);
	DEVX_SET(set_roce_address_in, set, roce_address.source_mac_47_32, end->mac[0] << 8 | end->mac[1]);
	DEVX_SET(set_roce_address_in, set, roce_address.source_mac_31_0,
		 (uint32_t)end->mac[2] << 24 | end->mac[3] << 16 | end->mac[4] << 8 | end->mac[5]);
	DEVX_SET(set_roce_address_in, set, roce_address.roce_version, 2);
	general(end, set, sizeof(set), done, sizeof(done), "SET_ROCE_ADDRESS");
}

static struct mlx5dv_devx_umem *user_memory(struct end *end, u8 **at, size_t size, size_t align)
{
	if (posix_memalign((void **)at, align, size))
		fail("memory");
	memset(*at, 0, size);
	struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(end->ctx, *at, size, IBV_ACCESS_LOCAL_WRITE);
	if (!umem)
		fail("mlx5dv_devx_umem_reg of %zu bytes", size);
	return umem;
}

/* The records lie behind the QP's ring. */
enum { QP_RECORD = RQ_BYTES + SQ_BYTES, CQ_RECORD = QP_RECORD + 64, QUEUES = CQ_RECORD + 64, CQ_AT = 0x1000 };

static void cq_command(struct end *end, uint32_t *in)
{
	memset(in, 0, DEVX_ST_SZ_BYTES(create_cq_in));
	DEVX_SET(create_cq_in, in, opcode, CREATE_CQ);
	DEVX_SET(create_cq_in, in, cq_umem_valid, 1);
	put(in, 0x280, 64, CQ_AT);
	put(in, 0x2c0, 32, end->cq_umem->umem_id);
	void *cqc = DEVX_ADDR_OF(create_cq_in, in, cq_context);
	DEVX_SET(cqc, cqc, log_cq_size, LOG_CQ);
	DEVX_SET(cqc, cqc, uar_page, end->uar->page_id);
	DEVX_SET(cqc, cqc, c_eqn_or_apu_element, end->eqn);
	DEVX_SET(cqc, cqc, dbr_umem_valid, 1);
	put(cqc, 0x20, 32, end->umem->umem_id);
	DEVX_SET64(cqc, cqc, dbr_addr, CQ_RECORD);
}

static void queues(struct end *end)
{
	end->umem = user_memory(end, &end->queues, QUEUES, 64);
	end->cq_umem = user_memory(end, &end->cqes, CQ_AT + CQ_BYTES, 4096);
	for (int n = 0; n < 1 << LOG_CQ; n++)
		end->cqes[CQ_AT + n * 64 + 63] = 0xf1;
	uint32_t cq_in[DEVX_ST_SZ_DW(create_cq_in)], cq_out[DEVX_ST_SZ_DW(create_cq_out)] = {};
	cq_command(end, cq_in);
	end->cq = mlx5dv_devx_obj_create(end->ctx, cq_in, sizeof(cq_in), cq_out, sizeof(cq_out));
	if (!end->cq)
		fail("CREATE_CQ: syndrome %#x", be32toh(cq_out[1]));
	end->cqn = DEVX_GET(create_cq_out, cq_out, cqn);

	uint32_t in[DEVX_ST_SZ_DW(create_qp_in)] = {}, out[DEVX_ST_SZ_DW(create_qp_out)] = {};
	DEVX_SET(create_qp_in, in, opcode, CREATE_QP);
	DEVX_SET(create_qp_in, in, wq_umem_valid, 1);
	put(in, 0x840, 32, end->umem->umem_id);
	void *qpc = DEVX_ADDR_OF(create_qp_in, in, qpc);
	DEVX_SET(qpc, qpc, pm_state, 3);
	DEVX_SET(qpc, qpc, pd, end->pdn);
	DEVX_SET(qpc, qpc, log_rq_size, LOG_RQ);
	DEVX_SET(qpc, qpc, log_rq_stride, 2);
	DEVX_SET(qpc, qpc, log_sq_size, LOG_SQ);
	DEVX_SET(qpc, qpc, uar_page, end->uar->page_id);
	DEVX_SET(qpc, qpc, cqn_snd, end->cqn);
	DEVX_SET(qpc, qpc, cqn_rcv, end->cqn);
	DEVX_SET(qpc, qpc, dbr_umem_valid, 1);
	put(qpc, 0x720, 32, end->umem->umem_id);
	DEVX_SET64(qpc, qpc, dbr_addr, QP_RECORD);
	end->qp = mlx5dv_devx_obj_create(end->ctx, in, sizeof(in), out, sizeof(out));
	if (!end->qp)
		fail("CREATE_QP: syndrome %#x", be32toh(out[1]));
	end->qpn = DEVX_GET(create_qp_out, out, qpn);
}

static void modify(struct end *end, void *in, size_t inlen, const char *what)
{
	uint32_t out[DEVX_ST_SZ_DW(rst2init_qp_out)] = {};
	if (mlx5dv_devx_obj_modify(end->qp, in, inlen, out, sizeof(out)))
		fail("%s: syndrome %#x", what, be32toh(out[1]));
}

static void connect_to(struct end *end, struct end *peer)
{
	uint32_t init[DEVX_ST_SZ_DW(rst2init_qp_in)] = {};
	DEVX_SET(rst2init_qp_in, init, opcode, RST2INIT);
	DEVX_SET(rst2init_qp_in, init, qpn, end->qpn);
	void *qpc = DEVX_ADDR_OF(rst2init_qp_in, init, qpc);
	DEVX_SET(qpc, qpc, pm_state, 3);
	DEVX_SET(qpc, qpc, pd, end->pdn);
	DEVX_SET(qpc, qpc, rre, 1);
	DEVX_SET(qpc, qpc, rwe, 1);
	DEVX_SET(qpc, qpc, primary_address_path.vhca_port_num, 1);
	modify(end, init, sizeof(init), "RST2INIT");

	uint32_t rtr[DEVX_ST_SZ_DW(init2rtr_qp_in)] = {};
	DEVX_SET(init2rtr_qp_in, rtr, opcode, INIT2RTR);
	DEVX_SET(init2rtr_qp_in, rtr, qpn, end->qpn);
	qpc = DEVX_ADDR_OF(init2rtr_qp_in, rtr, qpc);
	DEVX_SET(qpc, qpc, pm_state, 3);
	DEVX_SET(qpc, qpc, pd, end->pdn);
	DEVX_SET(qpc, qpc, mtu, IBV_MTU_1024);
	DEVX_SET(qpc, qpc, log_msg_max, 30);
	DEVX_SET(qpc, qpc, remote_qpn, peer->qpn);
	DEVX_SET(qpc, qpc, next_rcv_psn, peer->qpn);
	DEVX_SET(qpc, qpc, log_rra_max, 2);
	DEVX_SET(qpc, qpc, min_rnr_nak, 1);
	DEVX_SET(qpc, qpc, primary_address_path.vhca_port_num, 1);
	DEVX_SET(qpc, qpc, primary_address_path.hop_limit, 64);
	DEVX_SET(qpc, qpc, primary_address_path.udp_sport, 0xc0de);
	DEVX_SET(qpc, qpc, primary_address_path.rmac_47_32, peer->mac[0] << 8 | peer->mac[1]);
	DEVX_SET(qpc, qpc, primary_address_path.rmac_31_0,
		 (uint32_t)peer->mac[2] << 24 | peer->mac[3] << 16 | peer->mac[4] << 8 | peer->mac[5]);
	memcpy(DEVX_ADDR_OF(qpc, qpc, primary_address_path.rgid_rip), peer->gid, 16);
	modify(end, rtr, sizeof(rtr), "INIT2RTR");

	uint32_t rts[DEVX_ST_SZ_DW(rtr2rts_qp_in)] = {};
	DEVX_SET(rtr2rts_qp_in, rts, opcode, RTR2RTS);
	DEVX_SET(rtr2rts_qp_in, rts, qpn, end->qpn);
	qpc = DEVX_ADDR_OF(rtr2rts_qp_in, rts, qpc);
	DEVX_SET(qpc, qpc, pm_state, 3);
	DEVX_SET(qpc, qpc, pd, end->pdn);
	DEVX_SET(qpc, qpc, next_send_psn, end->qpn);
	DEVX_SET(qpc, qpc, log_sra_max, 2);
	DEVX_SET(qpc, qpc, retry_count, 7);
	DEVX_SET(qpc, qpc, rnr_retry, 7);
	DEVX_SET(qpc, qpc, primary_address_path.ack_timeout, 14);
	modify(end, rts, sizeof(rts), "RTR2RTS");
}

static void barrier(void)
{
	__asm__ volatile("sfence" ::: "memory");
}

static void receive(struct end *end, uint32_t at, uint32_t len)
{
	struct mlx5_wqe_data_seg *segment = (void *)(end->queues + end->received % (1 << LOG_RQ) * STRIDE);
	mlx5dv_set_data_seg(segment, len, end->mr->lkey, (uintptr_t)(end->data + at));
	mlx5dv_set_data_seg(segment + 1, 0, MLX5_INVALID_LKEY, 0);
	end->received++;
	barrier();
	*(volatile uint32_t *)(end->queues + QP_RECORD) = htobe32(end->received);
}

static void post(struct end *end, u8 opcode, uint32_t at, uint32_t len, struct end *peer)
{
	u8 *wqe = end->queues + RQ_BYTES + end->sent % (1 << LOG_SQ) * 64;
	bool remote = opcode != MLX5_OPCODE_SEND;
	mlx5dv_set_ctrl_seg((void *)wqe, end->sent, opcode, 0, end->qpn, MLX5_WQE_CTRL_CQ_UPDATE, remote ? 3 : 2, 0, 0);
	u8 *segment = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
	if (remote) {
		struct mlx5_wqe_raddr_seg raddr = { .raddr = htobe64((uintptr_t)(peer->data + at)),
						    .rkey = htobe32(peer->mr->rkey) };
		memcpy(segment, &raddr, sizeof(raddr));
		segment += sizeof(raddr);
	}
	mlx5dv_set_data_seg((void *)segment, len, end->mr->lkey, (uintptr_t)(end->data + at));
	end->sent++;
	barrier();
	((volatile uint32_t *)(end->queues + QP_RECORD))[1] = htobe32(end->sent);
	barrier();
	*(volatile uint64_t *)end->uar->reg_addr = *(uint64_t *)wqe;
	barrier();
}

/* Waits for a completion with this opcode of this end's QP. */
static void complete(struct end *end, unsigned opcode, uint32_t bytes, const char *what)
{
	time_t limit = time(NULL) + 30;
	volatile struct mlx5_cqe64 *cqe = (void *)(end->cqes + CQ_AT + end->polled % (1 << LOG_CQ) * 64);
	while (cqe->op_own >> 4 == MLX5_CQE_INVALID || (cqe->op_own & 1) != (end->polled >> LOG_CQ & 1))
		if (time(NULL) > limit)
			fail("%s: no completion", what);
	barrier();
	unsigned found = cqe->op_own >> 4;
	if (found != opcode || (be32toh(cqe->sop_drop_qpn) & 0xffffff) != end->qpn)
		fail("%s: completion with opcode %#x, syndrome %#x", what, found,
		     ((volatile struct mlx5_err_cqe *)cqe)->syndrome);
	if (bytes && be32toh(cqe->byte_cnt) != bytes)
		fail("%s: %u bytes instead of %u", what, be32toh(cqe->byte_cnt), bytes);
	end->polled++;
	*(volatile uint32_t *)(end->queues + CQ_RECORD) = htobe32(end->polled & 0xffffff);
}

static void fill(struct end *end, uint32_t at, uint32_t len, uint32_t seed)
{
	for (uint32_t n = 0; n < len; n++)
		end->data[at + n] = (u8)((n * 2654435761u + seed * 40503u) >> 13);
}

static void same(struct end *one, struct end *two, uint32_t at, uint32_t len, const char *what)
{
	if (memcmp(one->data + at, two->data + at, len))
		fail("%s: the bytes differ", what);
}

static void move(struct end *from, struct end *to)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint32_t len = 1 + round * 1733 % 5000, at = round * 77;
		fill(from, at, len, round);
		receive(to, at, len);
		post(from, MLX5_OPCODE_SEND, at, len, to);
		complete(to, MLX5_CQE_RESP_SEND, len, "SEND, receiver");
		complete(from, MLX5_CQE_REQ, 0, "SEND, sender");
		same(from, to, at, len, "SEND");
	}
	pass("SEND");
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint32_t len = DATA - round * 1999;
		fill(from, 0, len, 1000 + round);
		post(from, MLX5_OPCODE_RDMA_WRITE, 0, len, to);
		complete(from, MLX5_CQE_REQ, 0, "RDMA WRITE");
		same(from, to, 0, len, "RDMA WRITE");
	}
	pass("RDMA WRITE");
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint32_t len = DATA - round * 2111;
		fill(to, 0, len, 2000 + round);
		post(from, MLX5_OPCODE_RDMA_READ, 0, len, to);
		complete(from, MLX5_CQE_REQ, 0, "RDMA READ");
		same(from, to, 0, len, "RDMA READ");
	}
	pass("RDMA READ");
}

static void query(struct end *end, unsigned state)
{
	uint32_t in[DEVX_ST_SZ_DW(query_qp_in)] = {}, out[DEVX_ST_SZ_DW(query_qp_out)] = {};
	DEVX_SET(query_qp_in, in, opcode, QUERY_QP);
	DEVX_SET(query_qp_in, in, qpn, end->qpn);
	if (mlx5dv_devx_obj_query(end->qp, in, sizeof(in), out, sizeof(out)))
		fail("QUERY_QP: syndrome %#x", be32toh(out[1]));
	if (DEVX_GET(query_qp_out, out, qpc.state) != state)
		fail("QUERY_QP: state %u", DEVX_GET(query_qp_out, out, qpc.state));
	uint32_t cq_in[DEVX_ST_SZ_DW(query_cq_in)] = {}, cq_out[DEVX_ST_SZ_DW(query_cq_out)] = {};
	DEVX_SET(query_cq_in, cq_in, opcode, QUERY_CQ);
	DEVX_SET(query_cq_in, cq_in, cqn, end->cqn);
	if (mlx5dv_devx_obj_query(end->cq, cq_in, sizeof(cq_in), cq_out, sizeof(cq_out)))
		fail("QUERY_CQ: syndrome %#x", be32toh(cq_out[1]));
	if (DEVX_GET(query_cq_out, cq_out, cq_context.consumer_counter) != end->polled)
		fail("QUERY_CQ: consumer %u", DEVX_GET(query_cq_out, cq_out, cq_context.consumer_counter));
	pass("QUERY_QP and QUERY_CQ");
}

static void refusals(struct end *end)
{
	uint32_t in[DEVX_ST_SZ_DW(create_cq_in)];
	cq_command(end, in);
	DEVX_SET(create_cq_in, in, uid, 77);
	refused(end, in, sizeof(in), BAD_PARAM, "a user that there is not");
	cq_command(end, in);
	put(in, 0x280, 64, CQ_AT | 0x10000000);
	refused(end, in, sizeof(in), BAD_PARAM, "a CQ beyond the end of its user memory");
	cq_command(end, in);
	put(in, 0x2c0, 32, 0xffff);
	refused(end, in, sizeof(in), BAD_RESOURCE, "a CQ in user memory that there is not");
	if (!mlx5dv_devx_umem_dereg(end->cq_umem))
		fail("user memory with a CQ in it goes away");
	pass("user memory with a CQ in it stays");

	/* Two users, and what one of them may do with the other's. */
	uint16_t uid[2];
	for (int n = 0; n < 2; n++) {
		uint32_t create[DEVX_ST_SZ_DW(create_uctx_in)] = {}, out[DEVX_ST_SZ_DW(create_uctx_out)];
		DEVX_SET(create_uctx_in, create, opcode, CREATE_UCTX);
		general(end, create, sizeof(create), out, sizeof(out), "CREATE_UCTX");
		uid[n] = DEVX_GET(create_uctx_out, out, uid);
	}
	uint32_t alloc[DEVX_ST_SZ_DW(alloc_pd_in)] = {}, pd[DEVX_ST_SZ_DW(alloc_pd_out)];
	DEVX_SET(alloc_pd_in, alloc, opcode, ALLOC_PD);
	DEVX_SET(alloc_pd_in, alloc, uid, uid[0]);
	general(end, alloc, sizeof(alloc), pd, sizeof(pd), "ALLOC_PD of a user");
	uint32_t dealloc[DEVX_ST_SZ_DW(dealloc_pd_in)] = {};
	DEVX_SET(dealloc_pd_in, dealloc, opcode, DEALLOC_PD);
	DEVX_SET(dealloc_pd_in, dealloc, pd, DEVX_GET(alloc_pd_out, pd, pd));
	DEVX_SET(dealloc_pd_in, dealloc, uid, uid[1]);
	refused(end, dealloc, sizeof(dealloc), BAD_RESOURCE, "a user's domain freed by another user");
	cq_command(end, in);
	DEVX_SET(create_cq_in, in, uid, uid[0]);
	refused(end, in, sizeof(in), BAD_RESOURCE, "a user's CQ in memory of the driver");
	uint32_t destroy[DEVX_ST_SZ_DW(destroy_uctx_in)] = {}, out[4];
	DEVX_SET(destroy_uctx_in, destroy, opcode, DESTROY_UCTX);
	DEVX_SET(destroy_uctx_in, destroy, uid, uid[0]);
	refused(end, destroy, sizeof(destroy), RESOURCE_BUSY, "a user that has a domain destroyed");
	DEVX_SET(dealloc_pd_in, dealloc, uid, uid[0]);
	general(end, dealloc, sizeof(dealloc), out, sizeof(out), "DEALLOC_PD");
	for (int n = 0; n < 2; n++) {
		DEVX_SET(destroy_uctx_in, destroy, uid, uid[n]);
		general(end, destroy, sizeof(destroy), out, sizeof(out), "DESTROY_UCTX");
	}
	pass("two users");
}

static void close_end(struct end *end)
{
	if (mlx5dv_devx_obj_destroy(end->qp) || mlx5dv_devx_obj_destroy(end->cq))
		fail("QP and CQ");
	if (mlx5dv_devx_umem_dereg(end->umem) || mlx5dv_devx_umem_dereg(end->cq_umem))
		fail("mlx5dv_devx_umem_dereg");
	mlx5dv_devx_free_uar(end->uar);
	if (ibv_dereg_mr(end->mr) || ibv_dealloc_pd(end->pd) || ibv_close_device(end->ctx))
		fail("close");
}

int main(int count, char **arguments)
{
	struct end ends[2] = {};
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count != 3)
		fail("two functions");
	for (int n = 0; n < 2; n++)
		open_end(&ends[n], arguments[1 + n]);
	pass("two functions opened, memory registered");
	for (int n = 0; n < 2; n++) {
		address(&ends[n], 1 + n);
		queues(&ends[n]);
	}
	pass("CQ and QP over user memory");
	for (int n = 0; n < 2; n++)
		connect_to(&ends[n], &ends[!n]);
	for (int n = 0; n < 2; n++)
		move(&ends[n], &ends[!n]);
	query(&ends[0], 3);
	refusals(&ends[0]);
	move(&ends[0], &ends[1]);
	for (int n = 0; n < 2; n++)
		close_end(&ends[n]);
	pass("everything destroyed");
	printf("%u passed\n", passed);
	return 0;
}
