/* Three connections on InfiniBand ports whose paths the client brings along: `infiniband server` and `infiniband client`. The
 * first one is made step by step, with all that has to be refused on the way, the second one as an endpoint, the third one
 * is an rsocket. */

#include "check.h"

#include <endian.h>

#include <infiniband/ib.h>
#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#define REFUSED(call, error)                                                                                 \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		CHECK((call) == -1 && errno == (error));                                                     \
	} while (0)

/* What subnet administration would not have said: the ports have an MTU of 4096 bytes, and its paths service level 0. */
enum { SERVICE_LEVEL = 3 };
#define MTU IBV_MTU_1024
enum { SERVER_LID = 1, CLIENT_LID = 2 };
static const char SERVER[] = "fe80::2:c903:0:101", SERVICE[] = "7471", OF_SOCKETS[] = "7472";
static const uint32_t USABLE = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;

static char text[64];

static struct rdma_addrinfo *resolve(const char *node, const char *service, int flags, int port_space)
{
	struct rdma_addrinfo *found, hints = {
		.ai_flags = RAI_NUMERICHOST | RAI_FAMILY | flags,
		.ai_family = AF_IB,
		.ai_port_space = port_space,
	};
	CHECK(!rdma_getaddrinfo(node, service, &hints, &found));
	CHECK(found->ai_family == AF_IB);
	return found;
}

static struct ibv_qp_init_attr queues(void)
{
	return (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
}

static void server(void)
{
	struct rdma_addrinfo *found = resolve(NULL, OF_SOCKETS, RAI_PASSIVE, RDMA_PS_TCP);
	int listening = rsocket(AF_IB, SOCK_STREAM, 0);
	CHECK(listening >= 0 && !rbind(listening, found->ai_src_addr, found->ai_src_len) && !rlisten(listening, 1));
	rdma_freeaddrinfo(found);
	found = resolve(NULL, SERVICE, RAI_PASSIVE, RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = queues();
	struct rdma_cm_id *listener, *id;
	CHECK(!rdma_create_ep(&listener, found, NULL, &attr));
	CHECK(!rdma_listen(listener, 1));
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;
		CHECK(!rdma_get_request(listener, &id));
		const struct sockaddr_ib *peer = (void *) rdma_get_peer_addr(id);
		CHECK(peer->sib_family == AF_IB && peer->sib_addr.sib_raw[0] == 0xfe);
		struct ibv_mr *mr = rdma_reg_msgs(id, text, sizeof text);
		CHECK(mr && !rdma_post_recv(id, NULL, text, sizeof text, mr));
		CHECK(!rdma_accept(id, NULL));
		CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
		printf("received %s\n", text);
		CHECK(!rdma_disconnect(id));
		CHECK(!rdma_dereg_mr(mr));
		rdma_destroy_ep(id);
	}
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(found);
	struct sockaddr_ib peer;
	socklen_t length = sizeof peer;
	int socket = raccept(listening, (struct sockaddr *) &peer, &length);
	CHECK(socket >= 0 && length == sizeof peer && peer.sib_family == AF_IB && peer.sib_addr.sib_raw[0] == 0xfe);
	CHECK(rrecv(socket, text, sizeof text, 0) > 0);
	printf("received %s\n", text);
	CHECK(!rclose(socket) && !rclose(listening));
}

/* A path from the client's port. */
static struct ibv_path_data path_to(const struct sockaddr *to, const union ibv_gid *from)
{
	struct ibv_path_data data = { .flags = USABLE };
	struct ibv_path_record *path = &data.path;
	memcpy(&path->dgid, &((const struct sockaddr_ib *) to)->sib_addr, sizeof path->dgid);
	path->sgid = *from;
	path->dlid = htobe16(SERVER_LID);
	path->slid = htobe16(CLIENT_LID);
	path->reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1;
	path->pkey = htobe16(0xffff);
	path->qosclass_sl = htobe16(SERVICE_LEVEL);
	path->mtu = 2 << 6 | MTU;
	path->rate = 2 << 6 | IBV_RATE_40_GBPS;
	path->packetlifetime = 2 << 6 | 12;
	return data;
}

static int set_path(struct rdma_cm_id *id, const void *paths, size_t length)
{
	return rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, (void *) paths, length);
}

/* The connection goes along the path that was set. */
static void converse(struct rdma_cm_id *id, const char *what)
{
	CHECK(!rdma_connect(id, NULL));
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_AV | IBV_QP_PATH_MTU, &init));
	CHECK(attr.path_mtu == MTU && attr.ah_attr.sl == SERVICE_LEVEL && attr.ah_attr.dlid == SERVER_LID);
	strcpy(text, what);
	struct ibv_mr *mr = rdma_reg_msgs(id, text, sizeof text);
	struct ibv_wc wc;
	CHECK(mr && !rdma_post_send(id, NULL, text, sizeof text, mr, 0));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!rdma_disconnect(id));
	CHECK(!rdma_dereg_mr(mr));
}

/* Addresses that are refused. */
static void addresses(const struct sockaddr *good)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	struct sockaddr_ib address = *(const struct sockaddr_ib *) good;
	struct sockaddr *bad = (struct sockaddr *) &address;
	/* Another port's. */
	REFUSED(rdma_bind_addr(id, bad), ENODEV);
	address.sib_addr = (struct ib_addr){};
	address.sib_family = 99;
	REFUSED(rdma_bind_addr(id, bad), EINVAL);
	REFUSED(rdma_resolve_addr(id, NULL, bad, 1000), EINVAL);
	address.sib_family = AF_INET;
	/* This is where an address of IPv4 is. */
	address.sib_flowinfo = htobe32(0x0a000001);
	REFUSED(rdma_bind_addr(id, bad), EADDRNOTAVAIL);
	REFUSED(rdma_resolve_addr(id, NULL, bad, 1000), ENETUNREACH);
	address.sib_flowinfo = 0;
	address.sib_family = AF_IB;
	/* A service of another port space, unless the mask leaves that open. */
	address.sib_sid = htobe64((uint64_t) RDMA_PS_UDP << 16 | 7000);
	REFUSED(rdma_bind_addr(id, bad), EPROTONOSUPPORT);
	/* A partition that the port is not in. */
	address.sib_sid_mask = htobe64(0xffff);
	address.sib_pkey = htobe16(0x1234);
	REFUSED(rdma_bind_addr(id, bad), ENODEV);
	address.sib_pkey = 0;
	CHECK(!rdma_bind_addr(id, bad));
	CHECK(be16toh(rdma_get_src_port(id)) == 7000);
	const struct sockaddr_ib *bound = (void *) rdma_get_local_addr(id);
	CHECK(be64toh(bound->sib_sid) == ((uint64_t) RDMA_PS_TCP << 16 | 7000));
	CHECK(!rdma_destroy_id(id));
	/* Without a port any free one, also in the port space that has connections of every kind. */
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_IB));
	address.sib_sid = htobe64((uint64_t) RDMA_PS_IB << 16);
	address.sib_sid_mask = htobe64(~(uint64_t) 0xffff);
	CHECK(!rdma_bind_addr(id, bad));
	CHECK(rdma_get_src_port(id) != 0);
	bound = (void *) rdma_get_local_addr(id);
	CHECK(be64toh(bound->sib_sid) >> 16 == RDMA_PS_IB);
	CHECK(!rdma_destroy_id(id));
}

/* An rsocket with a path. */
static void stream(struct ibv_path_data path)
{
	struct rdma_addrinfo *found = resolve(SERVER, OF_SOCKETS, 0, RDMA_PS_TCP);
	REFUSED(rsocket(AF_IB, SOCK_DGRAM, 0), EAFNOSUPPORT);
	int socket = rsocket(AF_IB, SOCK_STREAM, 0);
	CHECK(socket >= 0);
	REFUSED(rconnect(socket, found->ai_dst_addr, found->ai_dst_len - 1), EINVAL);
	REFUSED(rsetsockopt(socket, SOL_RDMA, RDMA_ROUTE, &path, sizeof path - 1), EINVAL);
	REFUSED(rsetsockopt(socket, SOL_RDMA, RDMA_ROUTE, NULL, sizeof path), EINVAL);
	/* It is this path and no other that is taken. */
	path.path.slid = htobe16(CLIENT_LID + 7);
	CHECK(!rsetsockopt(socket, SOL_RDMA, RDMA_ROUTE, &path, sizeof path));
	REFUSED(rconnect(socket, found->ai_dst_addr, found->ai_dst_len), EINVAL);
	CHECK(!rclose(socket));
	path.path.slid = htobe16(CLIENT_LID);
	socket = rsocket(AF_IB, SOCK_STREAM, 0);
	CHECK(socket >= 0 && !rsetsockopt(socket, SOL_RDMA, RDMA_ROUTE, &path, sizeof path));
	CHECK(!rconnect(socket, found->ai_dst_addr, found->ai_dst_len));
	strcpy(text, "by a socket");
	CHECK(rsend(socket, text, sizeof text, 0) == sizeof text);
	CHECK(!rclose(socket));
	rdma_freeaddrinfo(found);
}

static void client(void)
{
	/* In a port space of its own, whose ids may have services of the other one. */
	struct rdma_addrinfo *found = resolve(SERVER, SERVICE, 0, RDMA_PS_TCP);
	addresses(found->ai_dst_addr);
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_IB));
	struct ibv_path_data path = {};
	REFUSED(set_path(id, &path, sizeof path), EINVAL);
	path.flags = USABLE;
	/* Too early. */
	REFUSED(set_path(id, &path, sizeof path), EINVAL);
	CHECK(!rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000));
	const union ibv_gid own = id->route.addr.addr.ibaddr.sgid;
	path = path_to(found->ai_dst_addr, &own);
	REFUSED(set_path(id, NULL, sizeof path), EFAULT);
	REFUSED(set_path(id, &path, 0), EINVAL);
	REFUSED(set_path(id, &path, sizeof path - 1), EINVAL);
	REFUSED(set_path(id, &path.path, sizeof path.path), EINVAL);
	REFUSED(rdma_set_option(id, RDMA_OPTION_IB, 2, &path, sizeof path), ENOSYS);
	path.path.slid = htobe16(CLIENT_LID + 7);
	REFUSED(set_path(id, &path, sizeof path), EINVAL);
	path.path.slid = htobe16(CLIENT_LID);
	path.path.dlid = 0;
	REFUSED(set_path(id, &path, sizeof path), EINVAL);
	path.path.dlid = htobe16(SERVER_LID);
	/* The one in the middle. */
	struct ibv_path_data paths[3] = { path, path, path };
	paths[0].flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_OUTBOUND;
	paths[0].path.dlid = htobe16(77);
	paths[2].path.dlid = htobe16(78);
	REFUSED(set_path(id, paths, sizeof paths[0]), EINVAL);
	CHECK(!set_path(id, paths, sizeof paths));
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(id->channel, &event));
	CHECK(event->event == RDMA_CM_EVENT_ROUTE_RESOLVED && event->status == 0);
	CHECK(!rdma_ack_cm_event(event));
	const struct ibv_sa_path_rec *route = id->route.path_rec;
	CHECK(id->route.num_paths == 1 && be16toh(route->dlid) == SERVER_LID && route->sl == SERVICE_LEVEL);
	CHECK(route->mtu == MTU && route->rate == IBV_RATE_40_GBPS && !memcmp(&route->sgid, &own, sizeof own));
	struct ibv_qp_init_attr attr = queues();
	CHECK(!rdma_create_qp(id, NULL, &attr));
	converse(id, "step by step");
	rdma_destroy_ep(id);

	found->ai_route = malloc(sizeof path);
	CHECK(found->ai_route);
	memcpy(found->ai_route, &path, sizeof path);
	found->ai_route_len = sizeof path - 1;
	attr = queues();
	REFUSED(rdma_create_ep(&id, found, NULL, &attr), EINVAL);
	found->ai_route_len = sizeof path;
	CHECK(!rdma_create_ep(&id, found, NULL, &attr));
	converse(id, "by an endpoint");
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(found);
	stream(path);
	printf("connected along paths of its own\n");
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(argv[1], "server"))
		server();
	else
		client();
	return 0;
}
