/*
 * Posts and polls through libibverbs' inline functions, in functions of its own whose instructions are counted. What the queues
 * are is said behind this file: queue pairs of a device, or of rdma-core's provider in plain memory.
 */
#include "check.h"

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define DEPTH 64
#define ROUNDS 4
#define BATCH 16
#define SIZE 32

#define COUNTED __attribute__((noipa)) static int

static char memory[DEPTH * SIZE];
static uint32_t lkey, rkey;

/* A queue pair A, whose requests B takes, with the completions of A's. */
struct pair {
	struct ibv_qp *a, *b;
	struct ibv_cq *sends;
	/* Of a pair for the newer calls. */
	struct ibv_qp_ex *ax;
	struct ibv_cq_ex *sends_ex;
	/* What only those who made the pair know. */
	struct ibv_cq *replies, *receives;
	uint32_t completed;
};

/* Makes a pair for one kind of calls, in the way that the program's arguments ask for. */
static void pair_open(struct pair *pair, bool newer, char **arguments);
/* Waits until DEPTH requests that A posted, SENDs or others, are done and their completions are there. */
static void pair_settle(struct pair *pair, bool is_send);
/* After those completions were taken. */
static void pair_finish(struct pair *pair, bool is_send);

/* One function for each row, so that each has its own count. The bodies must not be the same, or they would be merged. */
COUNTED counted_nothing(struct ibv_qp *qp, void *wr)
{
	__asm__ volatile("" ::"r"(qp), "r"(wr));
	return 0;
}

#define POST(name, kind, post)                                                                                         \
	COUNTED name(struct ibv_qp *qp, struct kind *wr)                                                               \
	{                                                                                                              \
		struct kind *bad;                                                                                      \
                                                                                                                       \
		__asm__ volatile("# " #name);                                                                          \
		return post(qp, wr, &bad);                                                                             \
	}
POST(counted_send, ibv_send_wr, ibv_post_send)
POST(counted_inline, ibv_send_wr, ibv_post_send)
POST(counted_write, ibv_send_wr, ibv_post_send)
POST(counted_send_16, ibv_send_wr, ibv_post_send)
POST(counted_recv, ibv_recv_wr, ibv_post_recv)
POST(counted_recv_16, ibv_recv_wr, ibv_post_recv)

#define POLL(name)                                                                                                     \
	COUNTED name(struct ibv_cq *cq, int count, struct ibv_wc *wc)                                                  \
	{                                                                                                              \
		__asm__ volatile("# " #name);                                                                          \
		return ibv_poll_cq(cq, count, wc);                                                                     \
	}
POLL(counted_poll)
POLL(counted_poll_16)
POLL(counted_poll_empty)

/* The newer calls, one request after the other out of the same lists. */
#define BUILD(name, ...)                                                                                               \
	COUNTED name(struct ibv_qp_ex *qp, struct ibv_send_wr *wr)                                                     \
	{                                                                                                              \
		__asm__ volatile("# " #name);                                                                          \
		ibv_wr_start(qp);                                                                                      \
		for (; wr; wr = wr->next) {                                                                            \
			const struct ibv_sge *sge = wr->sg_list;                                                       \
                                                                                                                       \
			qp->wr_id = wr->wr_id;                                                                         \
			qp->wr_flags = IBV_SEND_SIGNALED;                                                              \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
		return ibv_wr_complete(qp);                                                                            \
	}
#define SET_SGE ibv_wr_set_sge(qp, sge->lkey, sge->addr, sge->length)
BUILD(counted_wr_send, ibv_wr_send(qp); SET_SGE)
BUILD(counted_wr_inline, ibv_wr_send(qp); ibv_wr_set_inline_data(qp, (void *)(uintptr_t)sge->addr, sge->length))
BUILD(counted_wr_write, ibv_wr_rdma_write(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr); SET_SGE)
BUILD(counted_wr_send_16, ibv_wr_send(qp); SET_SGE)

/* Takes up to `count` completions; the sum of their identifiers. */
#define START(name)                                                                                                    \
	COUNTED name(struct ibv_cq_ex *cq, int count, uint64_t *sum)                                                   \
	{                                                                                                              \
		struct ibv_poll_cq_attr attributes = {0};                                                              \
		int found = 0;                                                                                         \
                                                                                                                       \
		__asm__ volatile("# " #name);                                                                          \
		if (ibv_start_poll(cq, &attributes))                                                                   \
			return 0;                                                                                      \
		do {                                                                                                   \
			if (cq->status == IBV_WC_SUCCESS)                                                              \
				*sum += cq->wr_id;                                                                     \
			found++;                                                                                       \
		} while (found < count && ibv_next_poll(cq) == 0);                                                     \
		ibv_end_poll(cq);                                                                                      \
		return found;                                                                                          \
	}
START(counted_start_poll)
START(counted_start_poll_16)
START(counted_start_poll_empty)

/* Receives for what A is going to send. */
static void receive(struct pair *pair, int step)
{
	static struct ibv_sge sges[DEPTH];
	static struct ibv_recv_wr wrs[DEPTH];

	for (int i = 0; i < DEPTH; i++) {
		sges[i] = (struct ibv_sge){.addr = (uintptr_t)memory, .length = SIZE, .lkey = lkey};
		wrs[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &sges[i], .num_sge = 1};
		if ((i + 1) % step)
			wrs[i].next = &wrs[i + 1];
	}
	for (int i = 0; i < DEPTH; i += step)
		CHECK((step == 1 ? counted_recv : counted_recv_16)(pair->b, &wrs[i]) == 0);
}

/* `step` requests at once. */
static void round_of(struct pair *pair, int (*post)(struct ibv_qp *, struct ibv_send_wr *), struct ibv_send_wr *wr,
		     int step)
{
	bool is_send = wr->opcode == IBV_WR_SEND;
	struct ibv_wc wc[BATCH];

	if (is_send)
		receive(pair, step);
	for (int i = 0; i < DEPTH; i += step)
		CHECK(post(pair->a, &wr[i]) == 0);
	pair_settle(pair, is_send);
	if (step == 1) {
		for (int i = 0; i < DEPTH; i++)
			CHECK(counted_poll(pair->sends, 1, wc) == 1 && wc->status == IBV_WC_SUCCESS);
	} else {
		for (int i = 0; i < DEPTH; i += BATCH)
			CHECK(counted_poll_16(pair->sends, BATCH, wc) == BATCH);
	}
	pair_finish(pair, is_send);
	for (int i = 0; i < DEPTH; i++)
		CHECK(counted_poll_empty(pair->sends, 1, wc) == 0);
}

/* The same by the newer calls. */
static void newer_round_of(struct pair *pair, int (*post)(struct ibv_qp_ex *, struct ibv_send_wr *),
			   struct ibv_send_wr *wr, int step)
{
	bool is_send = wr->opcode == IBV_WR_SEND;
	uint64_t sum = 0;

	if (is_send)
		receive(pair, step);
	for (int i = 0; i < DEPTH; i += step)
		CHECK(post(pair->ax, &wr[i]) == 0);
	pair_settle(pair, is_send);
	if (step == 1) {
		for (int i = 0; i < DEPTH; i++)
			CHECK(counted_start_poll(pair->sends_ex, 1, &sum) == 1);
	} else {
		for (int i = 0; i < DEPTH; i += BATCH)
			CHECK(counted_start_poll_16(pair->sends_ex, BATCH, &sum) == BATCH);
	}
	CHECK(sum == DEPTH * (DEPTH - 1) / 2);
	pair_finish(pair, is_send);
	for (int i = 0; i < DEPTH; i++)
		CHECK(counted_start_poll_empty(pair->sends_ex, 1, &sum) == 0);
}

int main(int count, char **arguments)
{
	static struct ibv_sge sges[DEPTH];
	static struct ibv_send_wr single[DEPTH], list[DEPTH], inlined[DEPTH], writes[DEPTH];
	struct pair pair = {0}, newer = {0};

	(void)count;
	pair_open(&pair, false, arguments);
	pair_open(&newer, true, arguments);
	for (int i = 0; i < DEPTH; i++) {
		sges[i] = (struct ibv_sge){.addr = (uintptr_t)memory, .length = SIZE, .lkey = lkey};
		single[i] = (struct ibv_send_wr){.wr_id = i, .sg_list = &sges[i], .num_sge = 1, .opcode = IBV_WR_SEND};
		single[i].send_flags = IBV_SEND_SIGNALED;
		inlined[i] = list[i] = writes[i] = single[i];
		inlined[i].send_flags |= IBV_SEND_INLINE;
		list[i].next = (i + 1) % BATCH ? &list[i + 1] : NULL;
		writes[i].opcode = IBV_WR_RDMA_WRITE;
		writes[i].wr.rdma.remote_addr = (uintptr_t)memory;
		writes[i].wr.rdma.rkey = rkey;
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < DEPTH; i++)
			counted_nothing(pair.a, &single[i]);
		round_of(&pair, counted_send, single, 1);
		round_of(&pair, counted_inline, inlined, 1);
		round_of(&pair, counted_write, writes, 1);
		round_of(&pair, counted_send_16, list, BATCH);
		newer_round_of(&newer, counted_wr_send, single, 1);
		newer_round_of(&newer, counted_wr_inline, inlined, 1);
		newer_round_of(&newer, counted_wr_write, writes, 1);
		newer_round_of(&newer, counted_wr_send_16, list, BATCH);
	}
	return 0;
}
