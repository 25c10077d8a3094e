/*
 * Prints what the functions and constants of rdma-core's infiniband/mlx5dv.h make of numbers: the golden table behind the
 * words of the data path. Compiled by `cargo rig layouts`; field names are those of bareverbs-firmware-cmds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

static void vector(const char *structure, const char *fields, const void *bytes, size_t size)
{
	printf("vector\tstruct %s\t%s\t", structure, fields);
	for (size_t i = 0; i < size; i++)
		printf("%02x", ((const uint8_t *)bytes)[i]);
	printf("\n");
}

static char text[256];

#define FIELDS(...) (snprintf(text, sizeof(text), __VA_ARGS__), text)

static void control(uint8_t op_mod, uint16_t index, uint8_t opcode, uint32_t qpn, uint8_t ds, uint8_t signature,
		    uint8_t fm_ce_se, uint32_t imm)
{
	struct mlx5_wqe_ctrl_seg seg;

	memset(&seg, 0, sizeof(seg));
	mlx5dv_set_ctrl_seg(&seg, index, opcode, op_mod, qpn, fm_ce_se, ds, signature, htobe32(imm));
	vector("mlx5_wqe_ctrl_seg",
	       FIELDS("op_mod=%u wqe_index=%u opcode=%u qpn=%u ds=%u signature=%u fm_ce_se=%u imm=%u", op_mod, index,
		      opcode, qpn, ds, signature, fm_ce_se, imm),
	       &seg, sizeof(seg));
}

static void flags(uint8_t fm_ce_se, const char *fields)
{
	struct mlx5_wqe_ctrl_seg seg;

	memset(&seg, 0, sizeof(seg));
	mlx5dv_set_ctrl_seg(&seg, 0, 0, 0, 0, fm_ce_se, 0, 0, 0);
	vector("mlx5_wqe_ctrl_seg", fields, &seg, sizeof(seg));
}

static void data(uint32_t length, uint32_t lkey, uint64_t address)
{
	struct mlx5_wqe_data_seg seg;

	memset(&seg, 0, sizeof(seg));
	mlx5dv_set_data_seg(&seg, length, lkey, address);
	vector("mlx5_wqe_data_seg", FIELDS("byte_count=%u lkey=%u addr=%" PRIu64, length, lkey, address), &seg,
	       sizeof(seg));
}

static void datagram(uint32_t qkey, uint32_t dqp, uint8_t ext, uint8_t fl_mlid, uint16_t rlid, uint64_t mac,
		     uint8_t tclass, uint8_t hop_limit, uint64_t gid_high, uint64_t gid_low)
{
	struct mlx5_wqe_datagram_seg seg;
	uint8_t rmac[6], rgid[16];

	for (int i = 0; i < 6; i++)
		rmac[i] = mac >> (40 - 8 * i);
	for (int i = 0; i < 8; i++) {
		rgid[i] = gid_high >> (56 - 8 * i);
		rgid[8 + i] = gid_low >> (56 - 8 * i);
	}
	memset(&seg, 0, sizeof(seg));
	mlx5dv_set_dgram_seg(&seg, (uint64_t)qkey << 32, dqp, ext, 0, fl_mlid, rlid, rmac, tclass, hop_limit, 0, rgid);
	vector("mlx5_av",
	       FIELDS("qkey=%u dqp=%u ext=%u mlid=%u rlid=%u rmac_47_16=%u rmac_15_0=%u tclass=%u hop_limit=%u "
		      "rgid_127_64=%" PRIu64 " rgid_63_0=%" PRIu64,
		      qkey, dqp, ext, fl_mlid, rlid, (uint32_t)(mac >> 16), (uint16_t)mac, tclass, hop_limit, gid_high,
		      gid_low),
	       &seg, sizeof(seg));
}

static void ethernet(uint8_t cs_flags, uint16_t mss, uint16_t inline_size)
{
	uint8_t headers[16] = { 0 };
	/* The function copies the headers behind the segment. */
	union {
		struct mlx5_wqe_eth_seg seg;
		uint8_t bytes[64];
	} wqe;

	memset(&wqe, 0, sizeof(wqe));
	mlx5dv_set_eth_seg(&wqe.seg, cs_flags, mss, inline_size, headers);
	vector("mlx5_wqe_eth_seg", FIELDS("cs_flags=%u mss=%u inline_hdr_sz=%u", cs_flags, mss, inline_size), &wqe, 16);
}

static void completion(uint8_t op_own)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.op_own = op_own;
	vector("mlx5_cqe64",
	       FIELDS("opcode=%u format=%u solicited=%u owner=%u", mlx5dv_get_cqe_opcode(&cqe),
		      mlx5dv_get_cqe_format(&cqe), mlx5dv_get_cqe_se(&cqe), mlx5dv_get_cqe_owner(&cqe)),
	       &cqe, sizeof(cqe));
}

static void umr(uint8_t bits, const char *fields)
{
	struct mlx5_wqe_umr_ctrl_seg seg;

	memset(&seg, 0, sizeof(seg));
	seg.flags = bits;
	vector("mlx5_wqe_umr_ctrl_seg", fields, &seg, sizeof(seg));
}

static void inline_data(uint32_t length)
{
	struct mlx5_wqe_inl_data_seg seg = { htobe32(MLX5_INLINE_SEG | length) };

	vector("mlx5_wqe_inline_seg", FIELDS("inline=1 length=%u", length), &seg, sizeof(seg));
}

static void checks(uint8_t hds_ip_ext, const char *fields)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.hds_ip_ext = hds_ip_ext;
	vector("mlx5_cqe64", fields, &cqe, sizeof(cqe));
}

#define CONSTANT(name) printf("constant\t" #name "\t%llu\n", (unsigned long long)(uint32_t)(name))

int main(void)
{
	const uint32_t most = UINT32_MAX;
	const uint64_t all = UINT64_MAX;

	control(0xff, 0, 0, 0, 0, 0, 0, 0);
	control(0, 0xffff, 0, 0, 0, 0, 0, 0);
	control(0, 0, 0xff, 0, 0, 0, 0, 0);
	control(0, 0, 0, 0xffffff, 0, 0, 0, 0);
	control(0, 0, 0, 0, 0x3f, 0, 0, 0);
	control(0, 0, 0, 0, 0, 0xff, 0, 0);
	control(0, 0, 0, 0, 0, 0, 0xff, 0);
	control(0, 0, 0, 0, 0, 0, 0, most);
	control(0x5a, 0x1234, 0x0a, 0xabcde, 3, 0x77, 0x88, 0x11223344);
	flags(MLX5_WQE_CTRL_SOLICITED, "solicited=1");
	flags(MLX5_WQE_CTRL_CQ_UPDATE, "completion=2");
	flags(MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE, "fence=1");
	flags(MLX5_WQE_CTRL_FENCE, "fence=4");

	data(most, 0, 0);
	data(0, most, 0);
	data(0, 0, all);
	data(0x1000, 0x00112201, 0x7f0000001234);

	datagram(most, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	datagram(0, 0xffffff, 0, 0, 0, 0, 0, 0, 0, 0);
	datagram(0, 0, 1, 0, 0, 0, 0, 0, 0, 0);
	datagram(0, 0, 0, 0x7f, 0, 0, 0, 0, 0, 0);
	datagram(0, 0, 0, 0, 0xffff, 0, 0, 0, 0, 0);
	datagram(0, 0, 0, 0, 0, 0xffffffff0000, 0, 0, 0, 0);
	datagram(0, 0, 0, 0, 0, 0x00000000ffff, 0, 0, 0, 0);
	datagram(0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0);
	datagram(0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0);
	datagram(0, 0, 0, 0, 0, 0, 0, 0, all, 0);
	datagram(0, 0, 0, 0, 0, 0, 0, 0, 0, all);
	datagram(0x11223344, 0x42, 1, 3, 0xc123, 0x020000000009, 0x10, 64, 0xfe80000000000000, 0xffffc0a80102);

	ethernet(0xff, 0, 0);
	ethernet(0, 0xffff, 0);
	ethernet(0, 0, 14);
	ethernet(MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM, 1448, 16);

	umr(MLX5_WQE_UMR_CTRL_FLAG_INLINE, "inline=1");
	umr(MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE, "check=1");
	umr(MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET, "translation_offset=1");
	umr(MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN, "check_qpn=1");

	inline_data(0);
	inline_data(0x3ff);

	checks(MLX5_CQE_L2_OK, "l2_ok=1");
	checks(MLX5_CQE_L3_OK, "l3_ok=1");
	checks(MLX5_CQE_L4_OK, "l4_ok=1");

	for (int bit = 0; bit < 8; bit++)
		completion(1 << bit);
	completion(MLX5_CQE_INVALID << 4);
	completion(3 << 2);
	completion(MLX5_CQE_RESP_SEND_IMM << 4 | 3);

	CONSTANT(MLX5_OPCODE_NOP);
	CONSTANT(MLX5_OPCODE_SEND_INVAL);
	CONSTANT(MLX5_OPCODE_RDMA_WRITE);
	CONSTANT(MLX5_OPCODE_RDMA_WRITE_IMM);
	CONSTANT(MLX5_OPCODE_SEND);
	CONSTANT(MLX5_OPCODE_SEND_IMM);
	CONSTANT(MLX5_OPCODE_TSO);
	CONSTANT(MLX5_OPCODE_RDMA_READ);
	CONSTANT(MLX5_OPCODE_ATOMIC_CS);
	CONSTANT(MLX5_OPCODE_ATOMIC_FA);
	CONSTANT(MLX5_OPCODE_ATOMIC_MASKED_CS);
	CONSTANT(MLX5_OPCODE_ATOMIC_MASKED_FA);
	CONSTANT(MLX5_OPCODE_CONFIG_CMD);
	CONSTANT(MLX5_OPCODE_SET_PSV);
	CONSTANT(MLX5_OPCODE_UMR);
	CONSTANT(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_MW_BIND_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_BAD_RESP_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
	CONSTANT(MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);
	CONSTANT(MLX5_CQE_L2_OK);
	CONSTANT(MLX5_CQE_L3_OK);
	CONSTANT(MLX5_CQE_L4_OK);
	CONSTANT(MLX5_CQE_L3_HDR_TYPE_IPV6);
	CONSTANT(MLX5_CQE_L3_HDR_TYPE_IPV4);
	CONSTANT(MLX5_CQE_OWNER_MASK);
	CONSTANT(MLX5_CQE_REQ);
	CONSTANT(MLX5_CQE_RESP_WR_IMM);
	CONSTANT(MLX5_CQE_RESP_SEND);
	CONSTANT(MLX5_CQE_RESP_SEND_IMM);
	CONSTANT(MLX5_CQE_RESP_SEND_INV);
	CONSTANT(MLX5_CQE_RESIZE_CQ);
	CONSTANT(MLX5_CQE_NO_PACKET);
	CONSTANT(MLX5_CQE_SIG_ERR);
	CONSTANT(MLX5_CQE_REQ_ERR);
	CONSTANT(MLX5_CQE_RESP_ERR);
	CONSTANT(MLX5_CQE_INVALID);
	CONSTANT(MLX5_CQ_DOORBELL);
	CONSTANT(MLX5_CQ_DB_REQ_NOT_SOL);
	CONSTANT(MLX5_CQ_DB_REQ_NOT);
	CONSTANT(MLX5_INVALID_LKEY);
	CONSTANT(MLX5_EXTENDED_UD_AV);
	CONSTANT(MLX5_WQE_CTRL_CQ_UPDATE);
	CONSTANT(MLX5_WQE_CTRL_SOLICITED);
	CONSTANT(MLX5_WQE_CTRL_FENCE);
	CONSTANT(MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
	CONSTANT(MLX5_SEND_WQE_BB);
	CONSTANT(MLX5_INLINE_SEG);
	CONSTANT(MLX5_ETH_WQE_L3_CSUM);
	CONSTANT(MLX5_ETH_WQE_L4_CSUM);
	CONSTANT(MLX5_RCV_DBR);
	CONSTANT(MLX5_SND_DBR);
	CONSTANT(MLX5_WQE_UMR_CTRL_FLAG_INLINE);
	CONSTANT(MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE);
	CONSTANT(MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET);
	CONSTANT(MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
	CONSTANT(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE);
	return 0;
}
