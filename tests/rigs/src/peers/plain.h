/*
 * rdma-core's mlx5 provider without a device: a context, completion queues and queue pairs in plain memory, in the state that
 * the provider's own commands would have left them in. The provider is not changed; it is linked to this, and finds here
 * what its data path reads.
 */
#ifndef PLAIN_H
#define PLAIN_H

#include <config.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mlx5.h"
#include "wqe.h"

/* How a queue pair and its doorbells are. */
struct plain {
	/* Spin locks, as the provider has them unless its caller asks for a thread domain and a single-threaded CQ. */
	bool locks;
	/* A single short request goes into the register whole, as the provider does on write-combining pages. */
	bool blue_flame;
};

struct mlx5_context *plain_context(const struct plain *how);
struct mlx5_cq *plain_cq(struct mlx5_context *context, int entries, const struct plain *how);
struct mlx5_qp *plain_qp(struct mlx5_context *context, enum ibv_qp_type type, struct mlx5_cq *send_cq,
			 struct mlx5_cq *recv_cq, unsigned sends, unsigned receives, struct mlx5_bf *bf,
			 const struct plain *how);
struct mlx5_bf *plain_register(const struct plain *how);
struct ibv_ah *plain_ah(struct mlx5_context *context);

/* Writes a completion as the device does: of a queue pair's user index and number. */
void plain_completion(struct mlx5_cq *cq, uint32_t *produced, uint32_t user_index, uint32_t qp_number,
		      uint8_t cqe_opcode, uint8_t wqe_opcode, uint16_t wqe_counter, uint32_t bytes);
/* The same of a queue pair. */
void plain_complete(struct mlx5_cq *cq, uint32_t *produced, const struct mlx5_qp *qp, uint8_t cqe_opcode,
		    uint8_t wqe_opcode, uint16_t wqe_counter, uint32_t bytes);

#endif
