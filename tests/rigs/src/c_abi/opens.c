/*
 * Opens and closes everything so many times, and counts the descriptors of the process before and after.
 *
 * The first rounds leave what the process keeps until it ends: the device, which stays up, and a few descriptors of
 * channels that were destroyed, in case another thread still reads them.
 */
#include "check.h"

#include <dirent.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define FIRST_ROUNDS 10

static int descriptors(void)
{
	int count = 0;
	DIR *directory = opendir("/proc/self/fd");

	CHECK(directory != NULL);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void verbs(void)
{
	static char memory[8192];
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	CHECK(list != NULL && count == 1);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context != NULL);
	ibv_free_device_list(list);

	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd != NULL);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(mr != NULL);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel != NULL);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, channel, 0);
	CHECK(cq != NULL);
	struct ibv_srq_init_attr srq_attributes = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attributes);
	CHECK(srq != NULL);
	struct ibv_qp_init_attr attributes = {
	    .send_cq = cq,
	    .recv_cq = cq,
	    .srq = srq,
	    .cap = {.max_send_wr = 16, .max_send_sge = 1},
	    .qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attributes);
	CHECK(qp != NULL);

	/* What is in use is not destroyed. */
	CHECK(ibv_dealloc_pd(pd) != 0);
	CHECK(ibv_destroy_cq(cq) != 0);
	CHECK(ibv_destroy_srq(srq) != 0);

	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
}

static void connection_manager(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr attributes = {
	    .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	    .qp_type = IBV_QPT_RC,
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id, *listener;

	CHECK(channel != NULL);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_getaddrinfo("10.0.0.1", "7471", &hints, &info) == 0);
	CHECK(rdma_bind_addr(id, info->ai_src_addr) == 0);
	CHECK(rdma_create_qp(id, NULL, &attributes) == 0);
	CHECK(rdma_listen(id, 1) == 0);
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(rdma_create_ep(&listener, info, NULL, &attributes) == 0);
	CHECK(rdma_listen(listener, 1) == 0);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(info);
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 0, before = 0;

	CHECK(rounds > FIRST_ROUNDS);

	for (int round = 0; round < rounds; round++) {
		verbs();
		connection_manager();
		if (round < FIRST_ROUNDS)
			before = descriptors();
	}
	CHECK(descriptors() == before);
	printf("%d rounds done, %d descriptors\n", rounds, before);
	return 0;
}
