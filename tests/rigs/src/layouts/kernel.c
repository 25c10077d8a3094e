/*
 * Prints what the inline functions and constants of Linux's include/linux/mlx5/{device,cq,qp}.h make of numbers, for what
 * infiniband/mlx5dv.h has nothing for. Compiled by `cargo rig layouts` against Debian's kernel headers. The few types and
 * functions of the kernel that those headers use stand here; the headers that declare them are empty files.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16, __be16;
typedef uint32_t u32, __be32;
typedef uint64_t u64, __be64;
typedef int refcount_t;
struct completion { int done; };
struct list_head { struct list_head *next, *prev; };
struct ib_grh { u8 bytes[40]; };
struct ib_ah { int unused; };
struct mlx5_core_rsc_common { int unused; };
struct mlx5_hca_cap { u32 cur[1], max[1]; };
struct mlx5_core_dev { struct { struct mlx5_hca_cap *hca[64]; } caps; };
#define __iomem
#define __packed __attribute__((packed))
#define ____cacheline_aligned_in_smp
#define struct_group(name, ...) __VA_ARGS__
#define offsetofend(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))
#define DECLARE_FLEX_ARRAY(type, name) struct { struct { } empty_##name; type name[]; }
#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))
#define PAGE_SIZE 4096
#define mlx5_get_roce_state(device) false
#define wmb() __asm__ volatile("" ::: "memory")
#define cpu_to_be32 htobe32
#define be16_to_cpu be16toh
#define be32_to_cpu be32toh
#define refcount_inc(count) ((void)(count))
#define refcount_dec_and_test(count) ((void)(count), false)
#define complete(what) ((void)(what))
#define print_hex_dump(...) ((void)0)
#define KERN_WARNING ""
#define DUMP_PREFIX_OFFSET 0

static __be32 doorbell_register[2];

static void mlx5_write64(__be32 value[2], void *where)
{
	(void)where;
	memcpy(doorbell_register, value, sizeof(doorbell_register));
}

#define MLX5_CQ_DOORBELL 0x20

#include <linux/mlx5/device.h>
#include <linux/mlx5/cq.h>
#include <linux/mlx5/qp.h>

static void vector(const char *structure, const char *fields, const void *bytes, size_t size)
{
	printf("vector\t%s\t%s\t", structure, fields);
	for (size_t i = 0; i < size; i++)
		printf("%02x", ((const u8 *)bytes)[i]);
	printf("\n");
}

static char text[256];

#define FIELDS(...) (snprintf(text, sizeof(text), __VA_ARGS__), text)

static void arm(u32 sequence, bool solicited_only, u32 consumer, u32 cqn)
{
	__be32 record[2] = { 0, 0 };
	struct mlx5_core_cq cq = { .cqn = cqn, .cons_index = consumer, .arm_sn = sequence };
	u32 command = solicited_only ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT;

	cq.set_ci_db = &record[0];
	cq.arm_db = &record[1];
	mlx5_cq_set_ci(&cq);
	mlx5_cq_arm(&cq, command, NULL, consumer);
	vector("CqConsumerRecord", FIELDS("consumer=%u", consumer & 0xffffff), &record[0], 4);
	vector("CqArmRecord",
	       FIELDS("sequence=%u solicited_only=%u consumer=%u", sequence & 3, solicited_only, consumer & 0xffffff),
	       &record[1], 4);
	vector("CqArmDoorbell", FIELDS("record=%u cqn=%u", be32toh(record[1]), cqn), doorbell_register, 8);
}

static void headers(u8 l4_l3_hdr_type)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.l4_l3_hdr_type = l4_l3_hdr_type;
	vector("struct mlx5_cqe64",
	       FIELDS("l4_hdr_type=%u vlan=%u", get_cqe_l4_hdr_type(&cqe), cqe_has_vlan(&cqe)), &cqe, sizeof(cqe));
}

static void strides(u32 byte_cnt)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.byte_cnt = htobe32(byte_cnt);
	vector("struct mlx5_cqe64",
	       FIELDS("filler=%u consumed_strides=%u strided_byte_cnt=%u", mpwrq_is_filler_cqe(&cqe),
		      mpwrq_get_cqe_consumed_strides(&cqe), mpwrq_get_cqe_byte_cnt(&cqe)), &cqe, sizeof(cqe));
}

static void tunnel(u8 tls_outer_l3_tunneled)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.tls_outer_l3_tunneled = tls_outer_l3_tunneled;
	vector("struct mlx5_cqe64", FIELDS("tunneled=%u", cqe_is_tunneled(&cqe)), &cqe, sizeof(cqe));
}

static void timestamp(u32 high, u32 low)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.timestamp_h = htobe32(high);
	cqe.timestamp_l = htobe32(low);
	vector("struct mlx5_cqe64",
	       FIELDS("timestamp_h=%u timestamp_l=%u", (u32)(get_cqe_ts(&cqe) >> 32), (u32)get_cqe_ts(&cqe)), &cqe,
	       sizeof(cqe));
}

static void flags(u8 fm_ce_se, const char *fields)
{
	struct mlx5_wqe_ctrl_seg seg;

	memset(&seg, 0, sizeof(seg));
	seg.fm_ce_se = fm_ce_se;
	vector("struct mlx5_wqe_ctrl_seg", fields, &seg, sizeof(seg));
}

static void vlan(u16 type, u16 tci)
{
	struct mlx5_wqe_eth_seg seg;

	memset(&seg, 0, sizeof(seg));
	seg.insert.type = htobe16(type);
	seg.insert.vlan_tci = htobe16(tci);
	vector("struct mlx5_wqe_eth_seg", FIELDS("inline_hdr_sz=%u vlan_tci=%u", type, tci), &seg, 16);
}

static void umr(u8 bits, const char *fields)
{
	struct mlx5_wqe_umr_ctrl_seg seg;

	memset(&seg, 0, sizeof(seg));
	seg.flags = bits;
	vector("struct mlx5_wqe_umr_ctrl_seg", fields, &seg, sizeof(seg));
}

#define CONSTANT(name) printf("constant\t" #name "\t%llu\n", (unsigned long long)(name))

int main(void)
{
	arm(3, false, 0, 0);
	arm(0, true, 0, 0);
	arm(0, false, 0xffffffff, 0);
	arm(0, false, 0, 0xffffff);
	arm(6, true, 0x123456, 0x42);

	headers(1 << 0);
	for (int bit = 4; bit < 7; bit++)
		headers(1 << bit);
	headers(7 << 4);

	strides(0xffffffff);
	strides(0x80000000);
	strides(0x7fff0000);
	strides(0x0000ffff);
	strides(0x000205ee);
	tunnel(1);

	timestamp(0xffffffff, 0);
	timestamp(0, 0xffffffff);
	timestamp(0x01234567, 0x89abcdef);

	flags(MLX5_WQE_CTRL_SOLICITED, "solicited=1");
	flags(MLX5_WQE_CTRL_CQ_UPDATE, "completion=2");
	flags(MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE, "completion=3");
	flags(MLX5_FENCE_MODE_INITIATOR_SMALL, "fence=1");
	flags(MLX5_FENCE_MODE_FENCE, "fence=2");
	flags(MLX5_FENCE_MODE_STRONG_ORDERING | MLX5_FENCE_MODE_SMALL_AND_FENCE, "fence=7");

	vlan(MLX5_ETH_WQE_INSERT_VLAN, 0xffff);
	vlan(MLX5_ETH_WQE_INSERT_VLAN | MLX5_ETH_WQE_SVLAN, 0x600a);
	vlan(0xffff, 0);

	umr(MLX5_UMR_INLINE, "inline=1");
	umr(MLX5_UMR_CHECK_NOT_FREE, "check=1");
	umr(MLX5_UMR_CHECK_FREE, "check=2");
	umr(MLX5_UMR_CHECK_NOT_FREE | MLX5_UMR_CHECK_FREE, "check=3");
	umr(MLX5_UMR_TRANSLATION_OFFSET_EN, "translation_offset=1");

	CONSTANT(MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE);
	CONSTANT(MLX5_FENCE_MODE_INITIATOR_SMALL);
	CONSTANT(MLX5_FENCE_MODE_FENCE);
	CONSTANT(MLX5_FENCE_MODE_STRONG_ORDERING);
	CONSTANT(MLX5_FENCE_MODE_SMALL_AND_FENCE);
	CONSTANT(MLX5_ETH_WQE_L3_INNER_CSUM);
	CONSTANT(MLX5_ETH_WQE_L4_INNER_CSUM);
	CONSTANT(MLX5_ETH_WQE_INSERT_VLAN);
	CONSTANT(MLX5_ETH_WQE_SVLAN);
	CONSTANT(MLX5_UMR_CHECK_NOT_FREE);
	CONSTANT(MLX5_UMR_CHECK_FREE);
	CONSTANT(MLX5_UMR_TRANSLATION_OFFSET_EN);
	CONSTANT(CQE_L4_HDR_TYPE_TCP_NO_ACK);
	CONSTANT(CQE_L4_HDR_TYPE_UDP);
	CONSTANT(CQE_L4_HDR_TYPE_TCP_ACK_NO_DATA);
	CONSTANT(CQE_L4_HDR_TYPE_TCP_ACK_AND_DATA);
	CONSTANT(MLX5_MKEY_MASK_LEN);
	CONSTANT(MLX5_MKEY_MASK_PAGE_SIZE);
	CONSTANT(MLX5_MKEY_MASK_START_ADDR);
	CONSTANT(MLX5_MKEY_MASK_PD);
	CONSTANT(MLX5_MKEY_MASK_EN_RINVAL);
	CONSTANT(MLX5_MKEY_MASK_EN_SIGERR);
	CONSTANT(MLX5_MKEY_MASK_BSF_EN);
	CONSTANT(MLX5_MKEY_MASK_KEY);
	CONSTANT(MLX5_MKEY_MASK_QPN);
	CONSTANT(MLX5_MKEY_MASK_LR);
	CONSTANT(MLX5_MKEY_MASK_LW);
	CONSTANT(MLX5_MKEY_MASK_RR);
	CONSTANT(MLX5_MKEY_MASK_RW);
	CONSTANT(MLX5_MKEY_MASK_A);
	CONSTANT(MLX5_MKEY_MASK_SMALL_FENCE);
	CONSTANT(MLX5_MKEY_MASK_RELAXED_ORDERING_WRITE);
	CONSTANT(MLX5_MKEY_MASK_FREE);
	CONSTANT(MLX5_MKEY_MASK_RELAXED_ORDERING_READ);
	return 0;
}
