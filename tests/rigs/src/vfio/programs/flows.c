/*
 * Frames of drawn flows, from one network device of Linux's mlx5 driver through a forwarder to another one. Each has to come
 * back once, with what it was sent with, and Linux's queues have to count those that Toeplitz says. What the forwarder's
 * queues have to count is printed, and what its rules have to: frames of TCP and of UDP over IPv4, then over IPv6, and bytes.
 *
 *   flows hello FROM TO [VIA]                one frame, for the switch between them
 *   flows pass FROM TO VIA COUNT LANES SEED  frames to the forwarder's address VIA
 */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_FRAMES 4096
#define MOST_QUEUES 64
/* So many are on their way at a time: fewer than any queue has room for. */
#define WINDOW 32
/* Entries of the forwarder's table for each of its queues. */
#define ENTRIES 16

/* The key of Microsoft's verification suite, which is the forwarder's. */
static const uint8_t public_key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

struct flow {
	int v6;
	uint8_t protocol;
	uint8_t source[16], destination[16];
	uint16_t source_port, destination_port;
};

/* Flows whose hashes Microsoft has published. */
static const struct published {
	const char *source, *destination;
	uint16_t source_port, destination_port;
	uint32_t hash;
} published[] = {
	{ "66.9.149.187", "161.142.100.80", 2794, 1766, 0x51ccc178 },
	{ "199.92.111.2", "65.69.140.83", 14230, 4739, 0xc626b0ea },
	{ "24.19.198.95", "12.22.207.184", 12898, 38024, 0x5c2b394a },
	{ "38.27.205.30", "209.142.163.6", 48228, 2217, 0xafc7327f },
	{ "153.39.163.191", "202.188.127.2", 44251, 1303, 0x10e828a2 },
	{ "3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x40207d3d },
	{ "3ffe:501:8::260:97ff:fe40:efab", "ff02::1", 14230, 4739, 0xdde51bbf },
	{ "3ffe:1900:4545:3:200:f8ff:fe21:67cf", "fe80::200:f8ff:fe21:67cf", 44251, 38024, 0x02d1feef },
};
#define PUBLISHED (int)(sizeof published / sizeof published[0])

static uint64_t state;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545f4914f6cdd1d >> 32;
}

static uint32_t toeplitz(const uint8_t *key, const uint8_t *input, int len)
{
	uint32_t hash = 0;

	for (int bit = 0; bit < 8 * len; bit++) {
		if (!(input[bit / 8] >> (7 - bit % 8) & 1))
			continue;
		for (int at = 0; at < 32; at++)
			hash ^= (uint32_t)(key[(bit + at) / 8] >> (7 - (bit + at) % 8) & 1) << (31 - at);
	}
	return hash;
}

/* Linux asks for a hash that is the same for both directions of a flow. */
static uint32_t hash_of(const struct flow *flow, const uint8_t *key, int symmetric)
{
	uint8_t input[36], ports[2][2] = {
		{ flow->source_port >> 8, flow->source_port & 0xff },
		{ flow->destination_port >> 8, flow->destination_port & 0xff },
	};
	int len = flow->v6 ? 16 : 4;
	int turn = symmetric && memcmp(flow->destination, flow->source, len) < 0;
	int turn_ports = symmetric && memcmp(ports[1], ports[0], 2) < 0;

	memcpy(input, turn ? flow->destination : flow->source, len);
	memcpy(input + len, turn ? flow->source : flow->destination, len);
	memcpy(input + 2 * len, ports[turn_ports], 2);
	memcpy(input + 2 * len + 2, ports[!turn_ports], 2);
	return toeplitz(key, input, 2 * len + 4);
}

static struct flow flow_number(int number)
{
	struct flow flow = { 0 };

	if (number < PUBLISHED) {
		const struct published *known = &published[number];

		flow.v6 = strchr(known->source, ':') != NULL;
		flow.protocol = IPPROTO_TCP;
		flow.source_port = known->source_port;
		flow.destination_port = known->destination_port;
		CHECK(inet_pton(flow.v6 ? AF_INET6 : AF_INET, known->source, flow.source) == 1);
		CHECK(inet_pton(flow.v6 ? AF_INET6 : AF_INET, known->destination, flow.destination) == 1);
		CHECK(hash_of(&flow, public_key, 0) == known->hash);
		return flow;
	}
	flow.v6 = draw() & 1;
	flow.protocol = draw() & 1 ? IPPROTO_TCP : IPPROTO_UDP;
	/* Ports of no protocol: tshark looks at these frames. */
	flow.source_port = 0xc000 + draw() % 0x4000;
	flow.destination_port = 0xc000 + draw() % 0x4000;
	for (int at = 0; at < 16; at++) {
		flow.source[at] = draw();
		flow.destination[at] = draw();
	}
	/* Unicast addresses. */
	flow.source[0] = flow.v6 ? 0xfd : 10;
	flow.destination[0] = flow.v6 ? 0xfd : 10;
	return flow;
}

static uint16_t checksum(const uint8_t *bytes, int len, uint32_t sum)
{
	for (int at = 0; at < len; at++)
		sum += at % 2 ? bytes[at] : bytes[at] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static void put(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value & 0xff;
}

/* Writes a frame whose payload is drawn. Its length. */
static int build(uint8_t *frame, const uint8_t *to, const uint8_t *from, const struct flow *flow)
{
	int len = flow->v6 ? 16 : 4, header = flow->v6 ? 40 : 20, tcp = flow->protocol == IPPROTO_TCP;
	int payload = 32 + draw() % 1400, behind = (tcp ? 20 : 8) + payload;
	uint8_t *ip = frame + 14, *transport = ip + header;
	uint32_t sum = flow->protocol + behind;

	memset(frame, 0, 14 + header + behind);
	memcpy(frame, to, 6);
	memcpy(frame + 6, from, 6);
	put(frame + 12, flow->v6 ? 0x86dd : 0x0800);
	if (flow->v6) {
		ip[0] = 0x60;
		put(ip + 4, behind);
		ip[6] = flow->protocol;
		ip[7] = 64;
	} else {
		ip[0] = 0x45;
		put(ip + 2, header + behind);
		ip[8] = 64;
		ip[9] = flow->protocol;
	}
	memcpy(transport - 2 * len, flow->source, len);
	memcpy(transport - len, flow->destination, len);
	if (!flow->v6)
		put(ip + 10, checksum(ip, 20, 0));
	put(transport, flow->source_port);
	put(transport + 2, flow->destination_port);
	if (tcp) {
		transport[12] = 0x50;
		transport[13] = 0x10;
		put(transport + 14, 1024);
	} else {
		put(transport + 4, behind);
	}
	/* It begins as no protocol does. */
	for (int at = behind - payload + 12; at < behind; at++)
		transport[at] = draw();
	for (int at = 0; at < 2 * len; at += 2)
		sum += transport[at - 2 * len] << 8 | transport[at + 1 - 2 * len];
	sum = checksum(transport, behind, sum);
	put(transport + (tcp ? 16 : 6), sum ? sum : 0xffff);
	return 14 + header + behind;
}

struct device {
	const char *name;
	int socket, index;
	uint8_t address[6];
};

static void ask(const struct device *device, unsigned long what, void *data)
{
	struct ifreq request = { 0 };

	strncpy(request.ifr_name, device->name, IFNAMSIZ - 1);
	request.ifr_data = data;
	CHECK(ioctl(device->socket, what, &request) == 0);
}

static struct device open_device(const char *name)
{
	struct device device = { .name = name, .index = if_nametoindex(name) };
	struct sockaddr_ll place = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = device.index };
	struct ifreq request = { 0 };
	int room = 8 << 20;

	CHECK(device.index > 0);
	device.socket = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	CHECK(device.socket >= 0);
	CHECK(setsockopt(device.socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) == 0);
	CHECK(bind(device.socket, (struct sockaddr *)&place, sizeof place) == 0);
	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	CHECK(ioctl(device.socket, SIOCGIFHWADDR, &request) == 0);
	memcpy(device.address, request.ifr_hwaddr.sa_data, 6);
	return device;
}

/* What `ethtool -S` has under a name. */
static uint64_t counter(const struct device *device, const char *name)
{
	static struct {
		struct ethtool_sset_info info;
		uint32_t count;
	} sets;
	struct ethtool_gstrings *names;
	struct ethtool_stats *values;
	uint64_t value;
	uint32_t count;

	sets.info = (struct ethtool_sset_info){ .cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1 << ETH_SS_STATS };
	ask(device, SIOCETHTOOL, &sets);
	count = sets.count;
	names = calloc(1, sizeof *names + count * ETH_GSTRING_LEN);
	values = calloc(1, sizeof *values + count * 8);
	CHECK(names && values);
	*names = (struct ethtool_gstrings){ .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = count };
	ask(device, SIOCETHTOOL, names);
	*values = (struct ethtool_stats){ .cmd = ETHTOOL_GSTATS, .n_stats = count };
	ask(device, SIOCETHTOOL, values);
	for (uint32_t at = 0;; at++) {
		if (at == count) {
			fprintf(stderr, "FAIL %s counts no %s\n", device->name, name);
			exit(1);
		}
		if (!strncmp((char *)names->data + at * ETH_GSTRING_LEN, name, ETH_GSTRING_LEN)) {
			value = values->data[at];
			break;
		}
	}
	free(names);
	free(values);
	return value;
}

static uint64_t of_queue(const struct device *device, int queue)
{
	char name[ETH_GSTRING_LEN];

	snprintf(name, sizeof name, "rx%d_packets", queue);
	return counter(device, name);
}

/* A network device's key and table. */
static struct ethtool_rxfh *receive_hash(const struct device *device)
{
	struct ethtool_rxfh sizes = { .cmd = ETHTOOL_GRSSH }, *all;

	ask(device, SIOCETHTOOL, &sizes);
	CHECK(sizes.key_size == 40 && sizes.indir_size > 0);
	all = calloc(1, sizeof *all + 4 * sizes.indir_size + sizes.key_size);
	CHECK(all);
	*all = (struct ethtool_rxfh){ .cmd = ETHTOOL_GRSSH, .indir_size = sizes.indir_size, .key_size = sizes.key_size };
	ask(device, SIOCETHTOOL, all);
	CHECK(all->hfunc == 1); /* Toeplitz */
	return all;
}

static uint8_t frames[MOST_FRAMES][1600];
static int lengths[MOST_FRAMES];
static int seen[MOST_FRAMES];

/* Takes one frame, which has to be one of those that were sent. */
static void take(const struct device *to, int sent)
{
	uint8_t frame[2048];
	struct sockaddr_ll from;
	socklen_t from_len = sizeof from;
	struct pollfd waiting = { .fd = to->socket, .events = POLLIN };
	int len, at;

	do {
		CHECK(poll(&waiting, 1, 10000) == 1);
		len = recvfrom(to->socket, frame, sizeof frame, 0, (struct sockaddr *)&from, &from_len);
		CHECK(len >= 14);
	} while (from.sll_pkttype == PACKET_OUTGOING);
	CHECK(!memcmp(frame, to->address, 6));
	for (at = sent - 1; at >= 0; at--)
		if (len == lengths[at] && !memcmp(frame + 12, frames[at] + 12, len - 12))
			break;
	CHECK(at >= 0);
	CHECK(!seen[at]);
	seen[at] = 1;
}

static void pass(struct device *from, struct device *to, const uint8_t *via, int count, int lanes)
{
	struct ethtool_rxfh *hashed = receive_hash(to);
	const uint8_t *key = (uint8_t *)(hashed->rss_config + hashed->indir_size);
	uint64_t before[MOST_QUEUES], sent_before = counter(from, "tx_vport_unicast_packets");
	uint64_t came_before = counter(to, "rx_vport_unicast_packets");
	int expected[MOST_QUEUES] = { 0 }, of_lane[MOST_QUEUES] = { 0 };
	int sent = 0, came = 0, queues = 0, of_kind[4] = { 0 };
	long bytes = 0;

	for (uint32_t at = 0; at < hashed->indir_size; at++)
		if ((int)hashed->rss_config[at] >= queues)
			queues = hashed->rss_config[at] + 1;
	CHECK(queues > 1 && queues <= MOST_QUEUES);
	for (int queue = 0; queue < queues; queue++)
		before[queue] = of_queue(to, queue);
	while (came < count) {
		while (sent < count && sent - came < WINDOW) {
			struct flow flow = flow_number(sent);
			uint32_t theirs = hash_of(&flow, key, 1) & (hashed->indir_size - 1);
			uint32_t ours = hash_of(&flow, public_key, 0) & (lanes * ENTRIES - 1);

			lengths[sent] = build(frames[sent], via, from->address, &flow);
			expected[hashed->rss_config[theirs]]++;
			of_kind[2 * flow.v6 + (flow.protocol == IPPROTO_UDP)]++;
			bytes += lengths[sent];
			of_lane[ours % lanes]++;
			CHECK(send(from->socket, frames[sent], lengths[sent], 0) == lengths[sent]);
			sent++;
		}
		take(to, sent);
		came++;
	}
	printf("note: %d frames, each once; Linux's queues:", count);
	for (int queue = 0; queue < queues; queue++)
		printf(" %d", (int)(of_queue(to, queue) - before[queue]));
	printf(" (Toeplitz:");
	for (int queue = 0; queue < queues; queue++)
		printf(" %d", expected[queue]);
	printf(")\nexpected");
	for (int lane = 0; lane < lanes; lane++)
		printf(" %d", of_lane[lane]);
	printf("\ncounted");
	for (int kind = 0; kind < 4; kind++)
		printf(" %d", of_kind[kind]);
	printf(" 0 0 0 %ld\n", bytes);
	for (int queue = 0; queue < queues; queue++)
		CHECK(of_queue(to, queue) - before[queue] == (uint64_t)expected[queue]);
	CHECK(counter(from, "tx_vport_unicast_packets") - sent_before == (uint64_t)count);
	CHECK(counter(to, "rx_vport_unicast_packets") - came_before == (uint64_t)count);
	free(hashed);
}

static void parse(const char *text, uint8_t *at)
{
	CHECK(sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", at, at + 1, at + 2, at + 3, at + 4, at + 5) == 6);
}

int main(int argc, char **argv)
{
	struct device from, to;

	CHECK(argc >= 4);
	from = open_device(argv[2]);
	to = open_device(argv[3]);
	if (!strcmp(argv[1], "hello")) {
		uint8_t frame[60] = { 0 };

		memcpy(frame, to.address, 6);
		if (argc > 4)
			parse(argv[4], frame);
		memcpy(frame + 6, from.address, 6);
		/* For experiments. */
		put(frame + 12, 0x88b5);
		CHECK(send(from.socket, frame, sizeof frame, 0) == sizeof frame);
		memcpy(frames[0], frame, sizeof frame);
		lengths[0] = sizeof frame;
		take(&to, 1);
		return 0;
	}
	CHECK(!strcmp(argv[1], "pass") && argc == 8);
	uint8_t via[6];
	int count = atoi(argv[5]), lanes = atoi(argv[6]);

	parse(argv[4], via);
	CHECK(count > 0 && count <= MOST_FRAMES && lanes > 0 && lanes <= MOST_QUEUES && !(lanes & (lanes - 1)));
	state = 0x9e3779b97f4a7c15 ^ strtoull(argv[7], NULL, 10);
	pass(&from, &to, via, count, lanes);
	return 0;
}
