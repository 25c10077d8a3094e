/*
 * The files of the kernel's drivers that programs look for, in the places where UCX, libfabric, Mooncake and perftest look
 * for them, against what the library says of the same device.
 */

/* As distributions build programs: realpath becomes __realpath_chk where the room is known. */
#define _FORTIFY_SOURCE 2

#include "check.h"

#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, unsigned *type);

/* Not in the headers' public part. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *buf, size_t size);

static const char *reads(const char *folder, const char *name)
{
	static char text[2048];
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "r");
	if (!file) {
		fprintf(stderr, "%s\n", path);
		exit(1);
	}
	CHECK(fgets(text, sizeof(text), file));
	fclose(file);
	char *end = strchr(text, '\n');
	CHECK(end && end[1] == 0);
	*end = 0;
	return text;
}

static int is_pci(const char *path, int numbers[4])
{
	char *copy = strdup(path);
	int found = sscanf(basename(copy), "%x:%x:%x.%x", &numbers[0], &numbers[1], &numbers[2], &numbers[3]);

	free(copy);
	return found == 4;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	CHECK(context && !ibv_query_device(context, &device) && !ibv_query_port(context, 1, &port));
	const char *folder = list[0]->ibdev_path;
	const int ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	char path[PATH_MAX + 16], real[PATH_MAX], board[64];
	int pci[4], same[4];

	/* UCX: two folders above the device; libfabric: `device`; Mooncake: ../.. */
	snprintf(path, sizeof(path), "%s/device", folder);
	CHECK(realpath(path, real) && is_pci(real, pci) && pci[3] == 0);
	snprintf(path, sizeof(path), "%s/../..", folder);
	CHECK(realpath(path, real) && is_pci(real, same) && !memcmp(pci, same, sizeof(pci)));
	char *plain = realpath(folder, NULL);
	CHECK(plain && !strcmp(basename(plain), ibv_get_device_name(list[0])));
	free(plain);
	CHECK(realpath(folder, real));
	char *function = dirname(dirname(real));
	CHECK(strtol(reads(function, "vendor"), NULL, 0) == 0x15b3);
	CHECK(strtol(reads(function, "device"), NULL, 0) == device.vendor_part_id);
	CHECK(!strcmp(reads(function, "class"), ethernet ? "0x020000" : "0x020700"));
	CHECK(!strcmp(reads(folder, "device/numa_node"), "-1"));
	CHECK(!strncmp(reads(folder, "device/local_cpus"), "ffffffff,", 9));

	char type[16];
	snprintf(type, sizeof(type), "MT%u", device.vendor_part_id);
	CHECK(!strcmp(reads(folder, "hca_type"), type));
	CHECK(!strcmp(reads(folder, "fw_ver"), device.fw_ver));
	CHECK(strtoul(reads(folder, "hw_rev"), NULL, 16) == device.hw_ver);
	CHECK(ibv_read_sysfs_file(folder, "board_id", board, sizeof(board)) > 0);
	CHECK(!strcmp(reads(folder, "board_id"), board));
	CHECK(!strcmp(reads(folder, "node_type"), "1: CA"));

	CHECK(!strcmp(reads(folder, "ports/1/link_layer"), ethernet ? "Ethernet" : "InfiniBand"));
	CHECK(atoi(reads(folder, "ports/1/state")) == (int)port.state);
	CHECK(atoi(reads(folder, "ports/1/phys_state")) == port.phys_state);
	/* Linux: the lanes' units of 100 Mb/s, of 250 each for EDR. */
	int lanes = port.active_width == 2 ? 4 : 0, gbps = 0, width = 0;
	char speed[8];
	CHECK(sscanf(reads(folder, "ports/1/rate"), "%d Gb/sec (%dX%3s)", &gbps, &width, speed) == 3);
	CHECK(port.active_speed == 32 && !strcmp(speed, "EDR") && width == lanes && gbps == lanes * 250 / 10);

	for (int index = 0; index < port.gid_tbl_len; index++) {
		struct ibv_gid_entry entry;
		char name[64];
		if (ibv_query_gid_ex(context, 1, index, &entry, 0))
			continue;
		snprintf(name, sizeof(name), "ports/1/gid_attrs/types/%d", index);
		const char *expected = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1";
		CHECK(!strcmp(reads(folder, name), expected));
		snprintf(name, sizeof(name), "ports/1/gid_attrs/ndevs/%d", index);
		snprintf(path, sizeof(path), "%s/%s", folder, name);
		CHECK((access(path, R_OK) == 0) == ethernet);
		if (ethernet) {
			snprintf(path, sizeof(path), "%s/device/net/%s", folder, reads(folder, name));
			struct stat found;
			CHECK(!stat(path, &found) && S_ISDIR(found.st_mode));
		}
	}
	/* Not there on purpose. */
	static const char *absent[] = { "device/modalias", "device/current_link_speed", "ports/1/gids/0", "node_guid" };
	for (size_t i = 0; i < sizeof(absent) / sizeof(*absent); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, absent[i]);
		CHECK(access(path, F_OK) == -1 && errno == ENOENT);
	}

	struct stat node;
	snprintf(path, sizeof(path), "/dev/infiniband/%s", list[0]->dev_name);
	CHECK(!stat(path, &node) && S_ISCHR(node.st_mode) && !access(path, R_OK | W_OK));
	CHECK(!strcmp(reads("/sys/class/infiniband_verbs/uverbs0", "ibdev"), ibv_get_device_name(list[0])));
	ibv_close_device(context);
	ibv_free_device_list(list);
	printf("sysfs: the files are as the library has it\n");
	return 0;
}
