/* For `cargo rig c-abi`: there is no more memory (`ulimit -v`). What makes something fails with ENOMEM, what there is works on, and
 * when there is memory again, all does. With an argument: there is too little for the device itself. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define MOST 20000

static int failures;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static void *made[MOST];

/* So many bytes more than the process has, or as many as it likes. */
static void limit(long more)
{
	struct rlimit limits;
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%ld", &pages) != 1)
		exit(2);
	fclose(file);
	getrlimit(RLIMIT_AS, &limits);
	limits.rlim_cur = more < 0 ? limits.rlim_max : (rlim_t)(pages * sysconf(_SC_PAGESIZE) + more);
	if (setrlimit(RLIMIT_AS, &limits))
		exit(2);
}

static void *make_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1000, .max_recv_wr = 1000, .max_send_sge = 2, .max_recv_sge = 2},
	};
	return ibv_create_qp(pd, &attr);
}

static int end_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static void *make_cq(void)
{
	return ibv_create_cq(context, 4000, NULL, NULL, 0);
}

static int end_cq(void *of)
{
	return ibv_destroy_cq(of);
}

static void *make_small_cq(void)
{
	return ibv_create_cq(context, 1, NULL, NULL, 0);
}

static void *make_srq(void)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4000, .max_sge = 4}};
	return ibv_create_srq(pd, &attr);
}

static int end_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *make_id(void)
{
	struct rdma_cm_id *id;

	return rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) ? NULL : id;
}

static int end_id(void *id)
{
	return rdma_destroy_id(id);
}

static void fill(const char *what, void *(*make)(void), int (*end)(void *), long more)
{
	int count = 0, error = 0;

	limit(more);
	while (count < MOST && (errno = 0, made[count] = make()))
		count++;
	error = errno;
	if (count < MOST && error != ENOMEM && error != EAGAIN) {
		printf("%s %d: %s\n", what, count, strerror(error));
		failures++;
	}
	while (count > 0)
		if (end(made[--count])) {
			printf("%s %d stays: %s\n", what, count, strerror(errno));
			failures++;
		}
	limit(-1);
	made[0] = make();
	if (!made[0] || end(made[0])) {
		printf("%s: none afterwards: %s\n", what, strerror(errno));
		failures++;
	}
	printf("%s: %s\n", what, strerror(error));
	fflush(stdout);
}

int main(int count, char **arguments)
{
	struct ibv_device **devices;

	(void)arguments;
	if (count > 1)
		limit(20 << 20);
	devices = ibv_get_device_list(NULL);
	if (!devices || !devices[0])
		return 2;
	context = ibv_open_device(devices[0]);
	if (count > 1) {
		printf("without memory: %s\n", context ? "a device" : strerror(errno));
		return !!context;
	}
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	if (!pd || !cq)
		return 2;
	fill("QPs", make_qp, end_qp, 32 << 20);
	fill("CQs", make_cq, end_cq, 32 << 20);
	fill("small CQs", make_small_cq, end_cq, 8 << 20);
	fill("SRQs", make_srq, end_srq, 32 << 20);
	fill("ids", make_id, end_id, 1 << 20);
	if (!failures)
		printf("no memory is an error\n");
	return !!failures;
}
