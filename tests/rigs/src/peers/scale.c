/*
 * Nanoseconds of a post and of a completion in rdma-core's mlx5 provider, by the number of queue pairs that take turns in an
 * order that a seed draws: queues of 16, batches of 256, without locks. The completions of a batch are on one queue.
 *
 * Arguments: numbers of queue pairs. Prints a line for each: `scale`, the number, the median batch's nanoseconds of a post and
 * of a completion.
 */
#include "plain.h"

#include <infiniband/verbs.h>
#include <time.h>

#define BATCH 256
#define LIST 16
#define DEPTH 16
/* Operations of a measurement, at least. */
#define OPERATIONS 400000
#define SEED 0x9e3779b97f4a7c15u

static uint64_t state = SEED;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int ascending(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

/* What the device knows of a queue pair. */
struct place {
	uint32_t index, number, user;
	uint16_t next;
};

static void shuffle(struct place *places, unsigned count)
{
	for (unsigned i = count; i > 1; i--) {
		unsigned other = (unsigned)draw(i);
		struct place place = places[i - 1];

		places[i - 1] = places[other];
		places[other] = place;
	}
}

static void measure(unsigned count)
{
	const struct plain how = {.locks = false};
	struct mlx5_context *context = plain_context(&how);
	struct mlx5_cq *cq = plain_cq(context, BATCH, &how);
	/* As by default: four registers for all. */
	struct mlx5_bf *registers[4];
	struct mlx5_qp **qps = calloc(count, sizeof(*qps));
	/* Posts before their completions are taken: to the last whole batch of all. */
	unsigned posted = count < BATCH ? BATCH : count / BATCH * BATCH;
	unsigned batches = (OPERATIONS + posted - 1) / posted * (posted / BATCH);
	struct place *places = calloc(count, sizeof(*places));
	uint64_t all = 0;
	uint64_t *posts = calloc(batches, sizeof(*posts)), *polls = calloc(batches, sizeof(*polls));
	uint32_t completed = 0;
	struct ibv_wc wcs[LIST];

	CHECK(qps && places && posts && polls);
	for (int i = 0; i < 4; i++)
		registers[i] = plain_register(&how);
	for (unsigned i = 0; i < count; i++)
		qps[i] = plain_qp(context, IBV_QPT_RC, cq, cq, DEPTH, DEPTH, registers[i % 4], &how);
	for (unsigned i = 0; i < count; i++) {
		places[i] = (struct place){.index = i, .number = qps[i]->verbs_qp.qp.qp_num, .user = qps[i]->rsc.rsn};
		CHECK(places[i].number - places[0].number == i);
	}
	for (unsigned at = 0; at < batches;) {
		/* One post to each, in one order, or several where they are few; then the completions in another. */
		shuffle(places, count);
		for (unsigned done = 0; done < posted; done += BATCH) {
			uint64_t begin = now();

			for (unsigned i = done; i < done + BATCH; i++) {
				struct ibv_qp_ex *qp = &qps[places[i % count].index]->verbs_qp.qp_ex;

				ibv_wr_start(qp);
				qp->wr_id = i;
				qp->wr_flags = IBV_SEND_SIGNALED;
				ibv_wr_send(qp);
				ibv_wr_set_sge(qp, 0x00112201, 0x7f0000001000, 0x1000);
				CHECK(ibv_wr_complete(qp) == 0);
			}
			posts[at + done / BATCH] = now() - begin;
		}
		shuffle(places, posted < count ? posted : count);
		for (unsigned done = 0; done < posted; done += BATCH) {
			unsigned found = 0;
			uint64_t sum = 0;

			/* The device has its own notes of what it completes: the queue pairs' memory is not read. */
			for (unsigned i = done; i < done + BATCH; i++) {
				struct place *place = &places[i % count];

				plain_completion(cq, &completed, place->user, place->number, MLX5_CQE_REQ, MLX5_OPCODE_SEND,
						 place->next++, 4096);
			}
			uint64_t begin = now();

			for (unsigned i = 0; i < BATCH; i += LIST) {
				found += (unsigned)mlx5_poll_cq_v1(&cq->verbs_cq.cq, LIST, wcs);
				for (unsigned j = 0; j < LIST; j++)
					if (wcs[j].status == IBV_WC_SUCCESS)
						sum += wcs[j].wr_id;
			}
			polls[at + done / BATCH] = now() - begin;
			CHECK(found == BATCH);
			all += sum;
		}
		at += posted / BATCH;
	}
	CHECK(all == (uint64_t)posted * (posted - 1) / 2 * (batches * BATCH / posted));
	qsort(posts, batches, sizeof(*posts), ascending);
	qsort(polls, batches, sizeof(*polls), ascending);
	printf("scale %u %.2f %.2f\n", count, (double)posts[batches / 2] / BATCH, (double)polls[batches / 2] / BATCH);
	fflush(stdout);
}

int main(int count, char **arguments)
{
	for (int i = 1; i < count; i++)
		measure((unsigned)strtoul(arguments[i], NULL, 10));
	return 0;
}
