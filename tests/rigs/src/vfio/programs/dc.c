/*
 * Dynamic connections by mlx5dv: what `examples/dc` does, at the other end of it.
 *
 *   dc server ADDRESS PORT
 *   dc client ADDRESS PORT
 */
#define _GNU_SOURCE
#include "check.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>

#define LEN 20000
#define ROOM 4096
#define MESSAGES 4
#define KEY 0x0123456789abcdefULL

static const int messages[MESSAGES] = { 1, 64, 1000, 4096 };

/* All zeros: what was announced is done. */
struct word {
	uint32_t dctn, rkey;
	uint64_t access_key, address;
};

static struct rdma_cm_id *id;
static struct ibv_mr *words_mr, *open_mr, *inbox_mr, *data_mr;
static struct word words[5];
static uint8_t opened[LEN], inbox[MESSAGES][ROOM], data[2 * LEN];
static struct ibv_cq *came;
static struct ibv_srq *srq;
static struct ibv_qp *dct;
static struct ibv_qp_attr path;
static struct word there;

static uint8_t pattern(int seed, int at)
{
	return (at * 131 + at / 251) ^ seed;
}

static void say(struct word word)
{
	struct ibv_wc wc;

	words[4] = word;
	CHECK(rdma_post_send(id, NULL, &words[4], sizeof word, words_mr, IBV_SEND_SIGNALED) == 0);
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static struct word hear(void)
{
	struct ibv_wc wc;

	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.byte_len == sizeof(struct word));
	return words[wc.wr_id];
}

static struct ibv_wc completed(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	CHECK(ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE) == 0);
}

static void make_target(void)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_DRIVER, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = id->pd };
	struct mlx5dv_qp_init_attr more = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = KEY },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	struct word here;
	int mask;

	path.qp_state = IBV_QPS_RTR;
	CHECK(rdma_init_qp_attr(id, &path, &mask) == 0);
	came = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	srq = ibv_create_srq(id->pd, &srq_init);
	CHECK(came && srq);
	inbox_mr = ibv_reg_mr(id->pd, inbox, sizeof inbox, IBV_ACCESS_LOCAL_WRITE);
	data_mr = ibv_reg_mr(id->pd, data, sizeof data, IBV_ACCESS_LOCAL_WRITE);
	open_mr = ibv_reg_mr(id->pd, opened, LEN, IBV_ACCESS_LOCAL_WRITE | attr.qp_access_flags);
	CHECK(inbox_mr && data_mr && open_mr);
	for (int at = 0; at < MESSAGES; at++) {
		struct ibv_sge sge = { (uintptr_t)inbox[at], ROOM, inbox_mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1 }, *bad;

		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	}
	init.send_cq = init.recv_cq = came;
	init.srq = srq;
	dct = mlx5dv_create_qp(id->verbs, &init, &more);
	CHECK(dct);
	modify(dct, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.min_rnr_timer = 12;
	attr.ah_attr = path.ah_attr;
	modify(dct, attr, IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV);
	here.dctn = htobe32(dct->qp_num);
	here.rkey = htobe32(open_mr->rkey);
	here.access_key = htobe64(KEY);
	here.address = htobe64((uintptr_t)opened);
	say(here);
	there = hear();
}

static struct ibv_qp *initiator(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_DRIVER,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 8, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE,
		.pd = id->pd,
	};
	struct mlx5dv_qp_init_attr more = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.ah_attr = path.ah_attr,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	struct ibv_qp *qp = mlx5dv_create_qp(id->verbs, &init, &more);

	CHECK(qp);
	modify(qp, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	attr.qp_state = IBV_QPS_RTR;
	modify(qp, attr, IBV_QP_PATH_MTU | IBV_QP_AV);
	attr.qp_state = IBV_QPS_RTS;
	modify(qp, attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return qp;
}

/* One request, of data from `at` on, or to it. */
static struct ibv_wc request(struct ibv_qp *qp, struct ibv_ah *ah, enum ibv_wr_opcode what, uint64_t key, int at, int len)
{
	struct ibv_qp_ex *post = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(post);
	post->wr_id = 7;
	post->wr_flags = IBV_SEND_SIGNALED;
	if (what == IBV_WR_SEND)
		ibv_wr_send(post);
	else if (what == IBV_WR_RDMA_READ)
		ibv_wr_rdma_read(post, be32toh(there.rkey), be64toh(there.address));
	else
		ibv_wr_rdma_write(post, be32toh(there.rkey), be64toh(there.address));
	mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(post), ah, be32toh(there.dctn), key);
	ibv_wr_set_sge(post, data_mr->lkey, (uintptr_t)data + at, len);
	CHECK(ibv_wr_complete(post) == 0);
	return completed(qp->send_cq);
}

static void active(int seed)
{
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	struct ibv_ah *ah = ibv_create_ah(id->pd, &path.ah_attr);
	struct ibv_qp *from, *other;
	uint64_t key = be64toh(there.access_key);

	CHECK(cq && ah);
	for (int at = 0; at < LEN; at++)
		data[at] = pattern(seed, at);
	from = initiator(cq);
	CHECK(request(from, ah, IBV_WR_RDMA_WRITE, key, 0, LEN).status == IBV_WC_SUCCESS);
	CHECK(request(from, ah, IBV_WR_RDMA_READ, key, LEN, LEN).status == IBV_WC_SUCCESS);
	CHECK(!memcmp(data, data + LEN, LEN));
	for (int at = 0; at < MESSAGES; at++)
		CHECK(request(from, ah, IBV_WR_SEND, key, at, messages[at]).status == IBV_WC_SUCCESS);
	other = initiator(cq);
	CHECK(request(other, ah, IBV_WR_RDMA_WRITE, ~key, LEN, 1).status == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(other) == 0 && ibv_destroy_ah(ah) == 0 && ibv_destroy_cq(cq) == 0);
	printf("initiator: %d bytes written and read, %d messages, and a wrong key is refused\n", LEN, MESSAGES);
	say((struct word){ 0 });
	hear();
}

static void passive(int seed)
{
	hear();
	for (int at = 0; at < LEN; at++)
		CHECK(opened[at] == pattern(seed, at));
	for (int number = 0; number < MESSAGES; number++) {
		struct ibv_wc wc = completed(came);

		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
		CHECK(wc.qp_num == dct->qp_num && (int)wc.byte_len == messages[number]);
		for (int at = 0; at < messages[number]; at++)
			CHECK(inbox[wc.wr_id][at] == pattern(seed, number + at));
	}
	printf("target: %d bytes, %d messages\n", LEN, MESSAGES);
	say((struct word){ 0 });
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *to;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_cm_id *listener = NULL;

	CHECK(argc == 4);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(argv[1], "server"))
		hints.ai_flags = RAI_PASSIVE;
	CHECK(rdma_getaddrinfo(argv[2], argv[3], &hints, &to) == 0);
	if (hints.ai_flags) {
		CHECK(rdma_create_ep(&listener, to, NULL, &init) == 0);
		CHECK(rdma_listen(listener, 1) == 0);
		CHECK(rdma_get_request(listener, &id) == 0);
	} else {
		CHECK(rdma_create_ep(&id, to, NULL, &init) == 0);
	}
	words_mr = ibv_reg_mr(id->pd, words, sizeof words, IBV_ACCESS_LOCAL_WRITE);
	CHECK(words_mr);
	for (uintptr_t at = 0; at < 4; at++)
		CHECK(rdma_post_recv(id, (void *)at, &words[at], sizeof words[at], words_mr) == 0);
	CHECK((listener ? rdma_accept(id, NULL) : rdma_connect(id, NULL)) == 0);
	make_target();
	if (listener) {
		passive(1);
		active(2);
	} else {
		active(1);
		passive(2);
	}
	CHECK(ibv_destroy_qp(dct) == 0 && ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(came) == 0);
	CHECK(ibv_dereg_mr(open_mr) == 0 && ibv_dereg_mr(inbox_mr) == 0 && ibv_dereg_mr(data_mr) == 0);
	CHECK(ibv_dereg_mr(words_mr) == 0);
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	if (listener)
		rdma_destroy_ep(listener);
	rdma_freeaddrinfo(to);
	printf("all is right\n");
	return 0;
}
