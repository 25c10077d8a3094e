/*
 * What work requests may have beside data, from one machine to another over RC, by librdmacm: immediate data, messages inline,
 * atomic operations, and completions that are announced only if the sender asks for it.
 *
 *   operations server ADDRESS PORT
 *   operations client ADDRESS PORT
 */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

#define SIZE 5000
#define INLINE 100
#define IMMEDIATE 0x89abcdef
#define START 0xfffffffffffffff0ull

struct advert {
	uint64_t address, word;
	uint32_t rkey;
};

static struct rdma_cm_id *id;
/* What is sent, and where messages and writes arrive. */
static uint8_t memory[SIZE];
/* What atomic operations change, and what they found. */
static uint64_t word, old;
static struct ibv_mr *region, *word_region, *result;

static uint8_t pattern(int at, int seed)
{
	return (at * 131 + at / 251 + seed) & 0xff;
}

static void fill(int seed)
{
	for (int at = 0; at < SIZE; at++)
		memory[at] = pattern(at, seed);
}

/* The first bytes are of this pattern, and the others are 0. */
static void found(int length, int seed)
{
	for (int at = 0; at < SIZE; at++)
		CHECK(memory[at] == (at < length ? pattern(at, seed) : 0));
}

static void expect(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, SIZE, region->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(id->qp, &wr, &bad) == 0);
}

static struct ibv_wc polled(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	if (wc.status != IBV_WC_SUCCESS)
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void request(struct ibv_send_wr *wr, enum ibv_wc_opcode opcode)
{
	struct ibv_send_wr *bad;

	wr->send_flags |= IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(id->qp, wr, &bad) == 0);
	CHECK(polled(id->send_cq).opcode == opcode);
}

static void say(const void *data, int length, enum ibv_wr_opcode opcode, uint32_t with, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)data, length, region->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = length != 0, .opcode = opcode, .send_flags = flags };

	wr.imm_data = htonl(with);
	request(&wr, IBV_WC_SEND);
}

static void write_with_immediate(struct advert *to, int length, uint32_t with, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, region->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = flags };

	wr.imm_data = htonl(with);
	wr.wr.rdma.remote_addr = to->address;
	wr.wr.rdma.rkey = to->rkey;
	request(&wr, IBV_WC_RDMA_WRITE);
}

static uint64_t atomic(struct advert *to, enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = { (uintptr_t)&old, sizeof old, result->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode };

	old = 0;
	wr.wr.atomic.remote_addr = to->word;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	wr.wr.atomic.rkey = to[1].rkey;
	request(&wr, opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD);
	return old;
}

/* The next message, which is to say nothing; the other end waits for one before it goes on. */
static void told(void)
{
	CHECK(polled(id->recv_cq).byte_len == 0);
	expect();
}

static void tell(void)
{
	say(NULL, 0, IBV_WR_SEND, 0, 0);
}

static void immediate_came(enum ibv_wc_opcode opcode, int length, int seed, uint32_t with)
{
	struct ibv_wc wc = polled(id->recv_cq);

	CHECK(wc.opcode == opcode && wc.wc_flags & IBV_WC_WITH_IMM && ntohl(wc.imm_data) == with);
	CHECK((int)wc.byte_len == length);
	found(length, seed);
	memset(memory, 0, SIZE);
	expect();
	tell();
}

static int announced(void)
{
	struct pollfd file = { .fd = id->recv_cq_channel->fd, .events = POLLIN };

	return poll(&file, 1, 0);
}

static void serve(void)
{
	struct advert words[2] = { { (uintptr_t)memory, (uintptr_t)&word, region->rkey }, { .rkey = word_region->rkey } };
	struct ibv_cq *cq;
	void *context;

	say(words, sizeof words, IBV_WR_SEND, 0, IBV_SEND_INLINE);
	immediate_came(IBV_WC_RECV, SIZE, 1, IMMEDIATE);
	immediate_came(IBV_WC_RECV, INLINE, 2, 1);
	immediate_came(IBV_WC_RECV, 0, 0, 0);
	puts("PASS messages with immediate data");
	immediate_came(IBV_WC_RECV_RDMA_WITH_IMM, SIZE, 3, IMMEDIATE);
	immediate_came(IBV_WC_RECV_RDMA_WITH_IMM, INLINE, 4, 2);
	puts("PASS writes with immediate data");

	/* The client's sums wrap, its third operation finds another value and swaps nothing. */
	told();
	CHECK(word == 0x0123456789abcdefull);
	puts("PASS atomic operations");

	CHECK(ibv_req_notify_cq(id->recv_cq, 1) == 0);
	tell();
	told();
	CHECK(announced() == 0);
	tell();
	CHECK(ibv_get_cq_event(id->recv_cq_channel, &cq, &context) == 0);
	CHECK(cq == id->recv_cq);
	ibv_ack_cq_events(cq, 1);
	told();
	CHECK(announced() == 0);
	puts("PASS solicited events");
}

static void use(void)
{
	struct advert words[2];

	CHECK(polled(id->recv_cq).byte_len == sizeof words);
	memcpy(words, memory, sizeof words);
	expect();
	fill(1);
	say(memory, SIZE, IBV_WR_SEND_WITH_IMM, IMMEDIATE, 0);
	told();
	fill(2);
	say(memory, INLINE, IBV_WR_SEND_WITH_IMM, 1, IBV_SEND_INLINE);
	told();
	say(NULL, 0, IBV_WR_SEND_WITH_IMM, 0, 0);
	told();
	puts("PASS messages with immediate data");
	fill(3);
	write_with_immediate(words, SIZE, IMMEDIATE, 0);
	told();
	fill(4);
	write_with_immediate(words, INLINE, 2, IBV_SEND_INLINE);
	told();
	puts("PASS writes with immediate data");

	CHECK(atomic(words, IBV_WR_ATOMIC_FETCH_AND_ADD, 0x20, 0) == START);
	CHECK(atomic(words, IBV_WR_ATOMIC_CMP_AND_SWP, 0x10, 77) == 0x10);
	CHECK(atomic(words, IBV_WR_ATOMIC_CMP_AND_SWP, 78, 1) == 77);
	CHECK(atomic(words, IBV_WR_ATOMIC_FETCH_AND_ADD, 0x0123456789abcdefull - 77, 0) == 77);
	tell();
	puts("PASS atomic operations");

	told();
	tell();
	told();
	say(NULL, 0, IBV_WR_SEND, 0, IBV_SEND_SOLICITED);
	puts("PASS solicited events");
}

/* Of a QP that does not receive yet. */
static void prepare(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	word = START;
	region = ibv_reg_mr(id->pd, memory, sizeof memory, access);
	word_region = ibv_reg_mr(id->pd, &word, sizeof word, access);
	result = ibv_reg_mr(id->pd, &old, sizeof old, IBV_ACCESS_LOCAL_WRITE);
	CHECK(region && word_region && result);
	expect();
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE },
		.sq_sig_all = 0,
	};
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *to;
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
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
		prepare();
		CHECK(rdma_accept(id, &param) == 0);
		serve();
	} else {
		CHECK(rdma_create_ep(&id, to, NULL, &init) == 0);
		prepare();
		CHECK(rdma_connect(id, &param) == 0);
		use();
	}
	/* Fails if the other end was first. */
	rdma_disconnect(id);
	CHECK(ibv_dereg_mr(region) == 0 && ibv_dereg_mr(word_region) == 0 && ibv_dereg_mr(result) == 0);
	rdma_destroy_ep(id);
	if (listener)
		rdma_destroy_ep(listener);
	rdma_freeaddrinfo(to);
	puts("4 passed");
	return 0;
}
