/*
 * Memory behind memory windows and indirect keys, read and written from another machine; and what may not be done there, and
 * is refused. Each case has a connection of its own by librdmacm.
 *
 *   keys owner ADDRESS PORT CASE...   has the memory
 *   keys user ADDRESS PORT CASE...    reads and writes it
 *
 * A case is KIND:WHAT. Kinds: type1 (ibv_bind_mw), type2 (IBV_WR_BIND_MW), post (ibv_wr_bind_mw), list (mlx5dv_wr_mr_list:
 * two regions, the second first). What: used (read, written), beyond (read one byte too many), readonly (written without the
 * right), closed (read after the owner closed it), invalidated (read after the user invalidated it; of type2 and post only).
 *
 * Functions of mlx5dv are looked up when they are called, as not every libmlx5 has them.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

#define PIECE 8000
#define SIZE (2 * PIECE)
#define AT 100

struct advert {
	uint64_t address;
	uint32_t rkey, length;
};

struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *words, *pieces[2], *whole;
	struct ibv_mw *window;
	struct mlx5dv_mkey *mkey;
	uint32_t rkey;
	struct ibv_wc wc;
};

static struct advert words[2];
static uint8_t memory[SIZE + 1];

static void *mlx5dv(const char *name)
{
	void *library = dlopen("libmlx5.so.1", RTLD_NOW), *function = library ? dlsym(library, name) : NULL;

	CHECK(function);
	return function;
}

static struct rdma_cm_event *event(struct end *end, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	CHECK(rdma_get_cm_event(end->channel, &event) == 0);
	if (event->event != wanted) {
		fprintf(stderr, "FAIL event %s instead of %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
		exit(1);
	}
	return event;
}

static void move(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	CHECK(rdma_init_qp_attr(end->id, &attr, &mask) == 0);
	CHECK(ibv_modify_qp(end->qp, &attr, mask) == 0);
}

/* Waits for a completion of this work request, or for a status that is not success. */
static enum ibv_wc_status completed(struct end *end, uint64_t wr_id)
{
	do {
		while (ibv_poll_cq(end->cq, 1, &end->wc) == 0)
			;
		if (end->wc.status != IBV_WC_SUCCESS)
			return end->wc.status;
	} while (end->wc.wr_id != wr_id);
	return IBV_WC_SUCCESS;
}

static void expect_word(struct end *end)
{
	struct ibv_sge sge = { (uintptr_t)&words[1], sizeof words[1], end->words->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(end->qp, &wr, &bad) == 0);
}

static enum ibv_wc_status request(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->wr_id = 2;
	wr->send_flags = IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(end->qp, wr, &bad) == 0);
	return completed(end, 2);
}

/* Sends a word, which invalidates a key of the receiver's if it is not 0. */
static void say(struct end *end, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)&words[0], sizeof words[0], end->words->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	if (key) {
		wr.opcode = IBV_WR_SEND_WITH_INV;
		wr.invalidate_rkey = key;
	}
	CHECK(request(end, &wr) == IBV_WC_SUCCESS);
}

/* Objects of a connection. Every word's receive is posted before the other end can send it. */
static void make(struct end *end, int with_lists)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 1, .max_inline_data = 512 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV,
	};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

	end->pd = ibv_alloc_pd(end->id->verbs);
	end->cq = ibv_create_cq(end->id->verbs, 64, NULL, NULL, 0);
	CHECK(end->pd && end->cq);
	init.pd = end->pd;
	init.send_cq = init.recv_cq = end->cq;
	if (with_lists) {
		struct mlx5dv_qp_init_attr more = {
			.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
			.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST,
		};
		struct ibv_qp *(*create)(struct ibv_context *, struct ibv_qp_init_attr_ex *, struct mlx5dv_qp_init_attr *) =
			mlx5dv("mlx5dv_create_qp");

		end->qp = create(end->id->verbs, &init, &more);
	} else {
		end->qp = ibv_create_qp_ex(end->id->verbs, &init);
	}
	CHECK(end->qp);
	end->words = ibv_reg_mr(end->pd, words, sizeof words, IBV_ACCESS_LOCAL_WRITE);
	end->whole = ibv_reg_mr(end->pd, memory, sizeof memory, access);
	end->pieces[0] = ibv_reg_mr(end->pd, memory, PIECE, access);
	end->pieces[1] = ibv_reg_mr(end->pd, memory + PIECE, PIECE, access);
	CHECK(end->words && end->whole && end->pieces[0] && end->pieces[1]);
	move(end, IBV_QPS_INIT);
	for (int count = 0; count < 4; count++)
		expect_word(end);
}

/* What the user finds at an offset: an indirect key has the second piece first. */
static uint8_t *place(const char *kind, int at)
{
	return memory + (strcmp(kind, "list") ? at : (at + PIECE) % SIZE);
}

static uint8_t pattern(int at, int seed)
{
	return (at * 131 + at / 251 + seed) & 0xff;
}

/* Binds, and closes with length 0 or by invalidating. */
static void bind_window(struct end *end, const char *kind, unsigned access, int length)
{
	struct ibv_mw_bind_info info = { end->whole, (uintptr_t)memory, length, access };
	struct ibv_qp_ex *post = ibv_qp_to_qp_ex(end->qp);
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	if (!strcmp(kind, "type1")) {
		struct ibv_mw_bind bind = { .wr_id = 2, .send_flags = IBV_SEND_SIGNALED, .bind_info = info };

		CHECK(ibv_bind_mw(end->qp, end->window, &bind) == 0);
		end->rkey = length ? end->window->rkey : end->rkey;
		CHECK(completed(end, 2) == IBV_WC_SUCCESS);
		CHECK(end->wc.opcode == IBV_WC_BIND_MW);
		return;
	}
	if (!strcmp(kind, "post")) {
		ibv_wr_start(post);
		post->wr_id = 2;
		post->wr_flags = IBV_SEND_SIGNALED;
		if (length)
			ibv_wr_bind_mw(post, end->window, end->rkey = ibv_inc_rkey(end->window->rkey), &info);
		else
			ibv_wr_local_inv(post, end->rkey);
		CHECK(ibv_wr_complete(post) == 0);
		CHECK(completed(end, 2) == IBV_WC_SUCCESS);
		return;
	}
	if (length) {
		wr.bind_mw.mw = end->window;
		wr.bind_mw.rkey = end->rkey = ibv_inc_rkey(end->window->rkey);
		wr.bind_mw.bind_info = info;
	} else {
		wr.opcode = IBV_WR_LOCAL_INV;
		wr.invalidate_rkey = end->rkey;
	}
	CHECK(request(end, &wr) == IBV_WC_SUCCESS);
}

static void lead(struct end *end, unsigned access)
{
	struct mlx5dv_qp_ex *(*of)(struct ibv_qp_ex *) = mlx5dv("mlx5dv_qp_ex_from_ibv_qp_ex");
	struct ibv_qp_ex *post = ibv_qp_to_qp_ex(end->qp);
	struct ibv_sge pieces[2] = {
		{ (uintptr_t)memory + PIECE, PIECE, end->pieces[1]->lkey },
		{ (uintptr_t)memory, PIECE, end->pieces[0]->lkey },
	};

	ibv_wr_start(post);
	post->wr_id = 2;
	post->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mr_list(of(post), end->mkey, access, 2, pieces);
	CHECK(ibv_wr_complete(post) == 0);
	CHECK(completed(end, 2) == IBV_WC_SUCCESS);
	end->rkey = end->mkey->rkey;
}

static void open_key(struct end *end, const char *kind, unsigned access)
{
	if (!strcmp(kind, "list")) {
		struct mlx5dv_mkey *(*create)(struct mlx5dv_mkey_init_attr *) = mlx5dv("mlx5dv_create_mkey");
		struct mlx5dv_mkey_init_attr init = {
			.pd = end->pd,
			.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
			.max_entries = 4,
		};

		end->mkey = create(&init);
		CHECK(end->mkey);
		lead(end, access | IBV_ACCESS_LOCAL_WRITE);
		return;
	}
	end->window = ibv_alloc_mw(end->pd, strcmp(kind, "type1") ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
	CHECK(end->window);
	bind_window(end, kind, access, SIZE);
}

static void close_key(struct end *end, const char *kind)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = end->rkey };

	if (strcmp(kind, "list"))
		bind_window(end, kind, 0, 0);
	else
		CHECK(request(end, &wr) == IBV_WC_SUCCESS);
}

static void own(struct end *end, const char *kind, const char *what)
{
	unsigned access = IBV_ACCESS_REMOTE_READ | (strcmp(what, "readonly") ? IBV_ACCESS_REMOTE_WRITE : 0);

	for (int at = 0; at < SIZE; at++)
		*place(kind, at) = pattern(at, 1);
	open_key(end, kind, access);
	/* A list's addresses begin at 0. */
	words[0].address = strcmp(kind, "list") ? (uintptr_t)memory : 0;
	words[0].rkey = end->rkey;
	words[0].length = SIZE;
	say(end, 0);
	CHECK(completed(end, 1) == IBV_WC_SUCCESS);
	if (!strcmp(what, "closed")) {
		close_key(end, kind);
		say(end, 0);
	} else if (!strcmp(what, "invalidated")) {
		CHECK(end->wc.wc_flags & IBV_WC_WITH_INV && end->wc.invalidated_rkey == end->rkey);
		say(end, 0);
	}
	rdma_ack_cm_event(event(end, RDMA_CM_EVENT_DISCONNECTED));
	for (int at = 0; at < SIZE; at++)
		CHECK(*place(kind, at) == pattern(at, !strcmp(what, "used") && at >= AT && at < SIZE - AT ? 2 : 1));
	if (end->window)
		CHECK(ibv_dealloc_mw(end->window) == 0);
	if (end->mkey)
		CHECK(((int (*)(struct mlx5dv_mkey *))mlx5dv("mlx5dv_destroy_mkey"))(end->mkey) == 0);
}

static enum ibv_wc_status reach(struct end *end, enum ibv_wr_opcode opcode, int at, int length)
{
	struct ibv_sge sge = { (uintptr_t)memory + at, length, end->whole->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode };

	wr.wr.rdma.remote_addr = words[1].address + at;
	wr.wr.rdma.rkey = words[1].rkey;
	return request(end, &wr);
}

static void use(struct end *end, const char *what)
{
	enum ibv_wc_status refused = IBV_WC_SUCCESS;

	memset(memory, 0, sizeof memory);
	CHECK(completed(end, 1) == IBV_WC_SUCCESS);
	CHECK(words[1].length == SIZE);
	CHECK(reach(end, IBV_WR_RDMA_READ, 0, SIZE) == IBV_WC_SUCCESS);
	for (int at = 0; at < SIZE; at++)
		CHECK(memory[at] == pattern(at, 1));
	if (!strcmp(what, "used")) {
		for (int at = 0; at < SIZE; at++)
			memory[at] = pattern(at, 2);
		CHECK(reach(end, IBV_WR_RDMA_WRITE, AT, SIZE - 2 * AT) == IBV_WC_SUCCESS);
		say(end, 0);
	} else {
		say(end, strcmp(what, "invalidated") ? 0 : words[1].rkey);
		if (!strcmp(what, "closed") || !strcmp(what, "invalidated"))
			CHECK(completed(end, 1) == IBV_WC_SUCCESS);
		if (!strcmp(what, "beyond"))
			refused = reach(end, IBV_WR_RDMA_READ, 1, SIZE);
		else if (!strcmp(what, "readonly"))
			refused = reach(end, IBV_WR_RDMA_WRITE, 0, SIZE);
		else
			refused = reach(end, IBV_WR_RDMA_READ, 0, SIZE);
		CHECK(refused == IBV_WC_REM_ACCESS_ERR);
	}
	CHECK(rdma_disconnect(end->id) == 0);
}

static void over(struct end *end)
{
	CHECK(ibv_destroy_qp(end->qp) == 0);
	for (int piece = 0; piece < 2; piece++)
		CHECK(ibv_dereg_mr(end->pieces[piece]) == 0);
	CHECK(ibv_dereg_mr(end->whole) == 0 && ibv_dereg_mr(end->words) == 0);
	CHECK(ibv_destroy_cq(end->cq) == 0 && ibv_dealloc_pd(end->pd) == 0);
	CHECK(rdma_destroy_id(end->id) == 0);
}

static void run(struct end *end, struct rdma_cm_id *listener, struct rdma_addrinfo *to, const char *name)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	const char *what = strchr(name, ':') + 1;
	char kind[16] = { 0 };
	struct rdma_cm_event *came;

	memcpy(kind, name, what - 1 - name);
	end->window = NULL;
	end->mkey = NULL;
	if (listener) {
		came = event(end, RDMA_CM_EVENT_CONNECT_REQUEST);
		end->id = came->id;
		rdma_ack_cm_event(came);
		make(end, !strcmp(kind, "list"));
		move(end, IBV_QPS_RTR);
		move(end, IBV_QPS_RTS);
		param.qp_num = end->qp->qp_num;
		CHECK(rdma_accept(end->id, &param) == 0);
		rdma_ack_cm_event(event(end, RDMA_CM_EVENT_ESTABLISHED));
		own(end, kind, what);
	} else {
		CHECK(rdma_create_id(end->channel, &end->id, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_resolve_addr(end->id, NULL, to->ai_dst_addr, 5000) == 0);
		rdma_ack_cm_event(event(end, RDMA_CM_EVENT_ADDR_RESOLVED));
		CHECK(rdma_resolve_route(end->id, 5000) == 0);
		rdma_ack_cm_event(event(end, RDMA_CM_EVENT_ROUTE_RESOLVED));
		make(end, 0);
		param.qp_num = end->qp->qp_num;
		CHECK(rdma_connect(end->id, &param) == 0);
		rdma_ack_cm_event(event(end, RDMA_CM_EVENT_CONNECT_RESPONSE));
		move(end, IBV_QPS_RTR);
		move(end, IBV_QPS_RTS);
		CHECK(rdma_establish(end->id) == 0);
		use(end, what);
		rdma_ack_cm_event(event(end, RDMA_CM_EVENT_DISCONNECTED));
	}
	over(end);
	printf("PASS %s\n", name);
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *to;
	struct rdma_cm_id *listener = NULL;
	struct end end = { 0 };

	CHECK(argc > 4);
	setvbuf(stdout, NULL, _IOLBF, 0);
	end.channel = rdma_create_event_channel();
	CHECK(end.channel);
	if (!strcmp(argv[1], "owner"))
		hints.ai_flags = RAI_PASSIVE;
	CHECK(rdma_getaddrinfo(argv[2], argv[3], &hints, &to) == 0);
	if (hints.ai_flags) {
		CHECK(rdma_create_id(end.channel, &listener, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_bind_addr(listener, to->ai_src_addr) == 0);
		CHECK(rdma_listen(listener, 4) == 0);
	}
	for (int at = 4; at < argc; at++)
		run(&end, listener, to, argv[at]);
	if (listener)
		CHECK(rdma_destroy_id(listener) == 0);
	rdma_freeaddrinfo(to);
	rdma_destroy_event_channel(end.channel);
	printf("%d passed\n", argc - 4);
	return 0;
}
