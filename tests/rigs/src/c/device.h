/* Opens the first device. */
#ifndef DEVICE_H
#define DEVICE_H

#include "check.h"

#include <infiniband/verbs.h>

static inline struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

#endif
