/* For `cargo rig c-abi`: creates as many objects of each kind as ibv_query_device says that there can be, and goes on until one is
 * refused: with ENOMEM, and not long after that number. Then all are destroyed, and the first kind is tried again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

/* So many more than the device says are no fault: the driver has some room for queues of its own. */
#define SLACK 8
/* Memory regions are more than the memory of a small machine holds the descriptions of. */
#define MOST_MRS 100000

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char page[4096];

static void *make_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	return ibv_create_qp(pd, &attr);
}

static int end_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static void *make_cq(void)
{
	return ibv_create_cq(context, 1, NULL, NULL, 0);
}

static int end_cq(void *of)
{
	return ibv_destroy_cq(of);
}

static void *make_srq(void)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};
	return ibv_create_srq(pd, &attr);
}

static int end_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *make_pd(void)
{
	return ibv_alloc_pd(context);
}

static int end_pd(void *of)
{
	return ibv_dealloc_pd(of);
}

static void *make_mr(void)
{
	return ibv_reg_mr(pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE);
}

static int end_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void fill(const char *what, void *(*make)(void), int (*end)(void *), int told, int ours, int until_refused)
{
	/* `ours` exist already. */
	int least = told - ours, most = until_refused ? told + SLACK : least, count = 0;
	void **made = calloc(most + 1, sizeof(*made));

	if (!made || least < 1) {
		fprintf(stderr, "%s: the device says %d\n", what, told);
		exit(1);
	}
	errno = 0;
	while (count < most && (made[count] = make()))
		count++;
	if (count < least || (until_refused && (count == most || (errno != ENOMEM && errno != EAGAIN)))) {
		fprintf(stderr, "%s: %d of %d, errno %d\n", what, count, told, errno);
		exit(1);
	}
	for (int at = 0; at < count; at++) {
		if (end(made[at])) {
			fprintf(stderr, "%s: number %d cannot be destroyed\n", what, at);
			exit(1);
		}
	}
	printf("%s: %d\n", what, count);
	free(made);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr attr;

	if (!list || !list[0] || !(context = ibv_open_device(list[0])) || ibv_query_device(context, &attr))
		return 1;
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	if (!pd || !cq)
		return 1;
	fill("QPs", make_qp, end_qp, attr.max_qp, 0, 1);
	fill("CQs", make_cq, end_cq, attr.max_cq, 1, 1);
	fill("SRQs", make_srq, end_srq, attr.max_srq, 0, 1);
	fill("PDs", make_pd, end_pd, attr.max_pd, 1, 1);
	fill("MRs", make_mr, end_mr, attr.max_mr < MOST_MRS ? attr.max_mr : MOST_MRS, 0, 0);
	fill("QPs again", make_qp, end_qp, attr.max_qp, 0, 1);
	if (ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context))
		return 1;
	ibv_free_device_list(list);
	printf("all limits are real\n");
	return 0;
}
