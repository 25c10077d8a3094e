/* Memory that was registered, and is taken away while the device may reach it: a peer's access is an error completion, and the
 * process goes on. Linux pins the pages of a card's memory, so that the peer reaches what the process no longer does. */

#define _GNU_SOURCE
#include "device.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 8192, HALF = BYTES / 2 };

enum way { UNMAPPED, PROTECTED, READ_ONLY, TRUNCATED, DISCARDED, UNMAPPED_ONCE, WAYS };
enum operation { WRITE, READ, ADD, RECEIVE, GATHER, OPERATIONS };

static const char *const ways[] = { "unmapped", "protected", "read-only", "truncated", "discarded",
				     "once unmapped" };
static const char *const operations[] = { "WRITE to", "READ of", "FETCH_ADD to", "SEND into", "SEND of" };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static void connect_qp(struct ibv_qp *qp, struct ibv_qp *to)
{
	const int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = to->qp_num;
	attr.max_dest_rd_atomic = 1;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.hop_limit = 1;
	CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.max_rd_atomic = 1;
	attr.timeout = 14;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
}

static char *map(int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static struct ibv_mr *reg(void *memory)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, access);
	CHECK(mr);
	return mr;
}

/* Takes the second half of the memory away; or its contents only, or another mapping of it. */
static void take(char *memory, int fd, enum way way)
{
	switch (way) {
	case DISCARDED: CHECK(!madvise(memory + HALF, HALF, MADV_DONTNEED)); break;
	case UNMAPPED_ONCE: CHECK(!munmap(map(fd), BYTES)); break;
	case UNMAPPED: CHECK(!munmap(memory + HALF, HALF)); break;
	case PROTECTED: CHECK(!mprotect(memory + HALF, HALF, PROT_NONE)); break;
	case READ_ONLY: CHECK(!mprotect(memory + HALF, HALF, PROT_READ)); break;
	default: CHECK(!ftruncate(fd, HALF));
	}
}

/* The statuses of a request that crosses from what is there to what is not, and of the receive, if there is one. */
static void request(enum operation operation, struct ibv_mr *whole, struct ibv_mr *gone, enum ibv_wc_status status[2])
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_SEND, IBV_WR_SEND };
	struct ibv_qp *qp = make_qp(), *peer = make_qp();
	const unsigned int length = operation == ADD ? 8 : 3000;
	uint64_t there = (uintptr_t)gone->addr + HALF - (operation == ADD ? 0 : 1500);
	struct ibv_sge here = { .addr = (uintptr_t)whole->addr, .length = length, .lkey = whole->lkey };
	struct ibv_sge far = { .addr = there, .length = length, .lkey = gone->lkey };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = operation == RECEIVE ? &far : &here, .num_sge = 1 }, *bad;
	struct ibv_send_wr send = { .sg_list = operation == GATHER ? &far : &here, .num_sge = 1,
				    .opcode = opcodes[operation] }, *bad_send;
	int left = 1;

	connect_qp(qp, peer);
	connect_qp(peer, qp);
	if (operation == ADD) {
		send.wr.atomic.remote_addr = there;
		send.wr.atomic.rkey = gone->rkey;
	} else {
		send.wr.rdma.remote_addr = there;
		send.wr.rdma.rkey = gone->rkey;
	}
	if (send.opcode == IBV_WR_SEND) {
		CHECK(!ibv_post_recv(peer, &receive, &bad));
		left++;
	}
	CHECK(!ibv_post_send(qp, &send, &bad_send));
	status[1] = IBV_WC_SUCCESS;
	while (left) {
		struct ibv_wc wc;
		int found = ibv_poll_cq(cq, 1, &wc);
		CHECK(found >= 0);
		if (found) {
			status[wc.wr_id] = wc.status;
			left--;
		}
		/* The peer's receive waits for what was not sent. */
		if (found && wc.wr_id == 0 && left && wc.status != IBV_WC_SUCCESS) {
			struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
			CHECK(!ibv_modify_qp(peer, &attr, IBV_QP_STATE));
		}
	}
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_qp(peer));
}

/* The program's own handler, and its own fault. */
static void on_fault(int signal)
{
	static const char text[] = "its own faults are the program's\n";

	(void)signal;
	_exit(write(STDOUT_FILENO, text, sizeof text - 1) < 0);
}

/* All of it, in a thread that has no signals. */
static void *requests(void *nothing)
{
	char *memory = map(-1);
	struct ibv_mr *whole = reg(memory);
	for (enum way way = 0; way < WAYS; way++)
		for (enum operation operation = 0; operation < OPERATIONS; operation++) {
			enum ibv_wc_status status[2];
			int fd = way == TRUNCATED || way == UNMAPPED_ONCE ? memfd_create("gone", 0) : -1;
			CHECK(fd < 0 || !ftruncate(fd, BYTES));
			char *taken = map(fd);
			struct ibv_mr *mr = reg(taken);
			take(taken, fd, way);
			request(operation, whole, mr, status);
			printf("%s %s memory: %s", operations[operation], ways[way], ibv_wc_status_str(status[0]));
			if (operation >= RECEIVE)
				printf(", received: %s", ibv_wc_status_str(status[1]));
			printf("\n");
			/* Other memory is as good as before. */
			CHECK(!ibv_dereg_mr(mr));
			CHECK(!munmap(taken, BYTES));
			CHECK(fd < 0 || !close(fd));
			request(WRITE, whole, whole, status);
			CHECK(status[0] == IBV_WC_SUCCESS);
		}
	CHECK(!ibv_dereg_mr(whole));
	CHECK(!munmap(memory, BYTES));
	return nothing;
}

/* A child that ends by the signal of an access that is its own: nothing of the library handles it. */
static void child(void)
{
	int fd = memfd_create("short", 0), status;
	char *memory = map(fd);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		*(volatile char *)memory = 1;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	CHECK(!munmap(memory, BYTES) && !close(fd));
}

int main(void)
{
	sigset_t all, before;
	pthread_t thread;

	CHECK(signal(SIGSEGV, on_fault) != SIG_ERR);
	context = open_first();
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
	sigfillset(&all);
	CHECK(!pthread_sigmask(SIG_SETMASK, &all, &before));
	CHECK(!pthread_create(&thread, NULL, requests, NULL));
	CHECK(!pthread_sigmask(SIG_SETMASK, &before, NULL));
	CHECK(!pthread_join(thread, NULL));
	child();
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd));
	printf("a child ends by SIGBUS\n");
	CHECK(!fflush(stdout));
	*(volatile char *)NULL = 1;
	return 1;
}
