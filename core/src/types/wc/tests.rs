//! Tests of the decoding of completions.

use super::*;

impl Entry for &[u8; 64] {
    fn word<W: Word>(self) -> W {
        W::read(self)
    }
}

fn fields(bytes: &[u8; 64]) -> Fields<&[u8; 64]> {
    Fields::new(TailWord::read(bytes), bytes)
}

/// Byte offsets in `struct mlx5_cqe64` and `struct mlx5_err_cqe`, counted by hand.
mod cqe {
    pub(super) const ML_PATH: usize = 0x11;
    pub(super) const SLID: usize = 0x16;
    pub(super) const FLAGS_RQPN: usize = 0x18;
    pub(super) const IMM: usize = 0x24;
    pub(super) const BYTE_CNT: usize = 0x2c;
    pub(super) const ERRORS: usize = 0x34;
    pub(super) const WQE_OPCODE_QPN: usize = 0x38;
    pub(super) const OP_OWN: usize = 0x3f;
}

#[test]
fn every_syndrome_has_its_status() {
    let known = [
        (0x01, WcStatus::LocLenErr, 1),
        (0x02, WcStatus::LocQpOpErr, 2),
        (0x04, WcStatus::LocProtErr, 4),
        (0x05, WcStatus::WrFlushErr, 5),
        (0x06, WcStatus::MwBindErr, 6),
        (0x10, WcStatus::BadRespErr, 7),
        (0x11, WcStatus::LocAccessErr, 8),
        (0x12, WcStatus::RemInvReqErr, 9),
        (0x13, WcStatus::RemAccessErr, 10),
        (0x14, WcStatus::RemOpErr, 11),
        (0x15, WcStatus::RetryExcErr, 12),
        (0x16, WcStatus::RnrRetryExcErr, 13),
        (0x22, WcStatus::RemAbortErr, 16),
    ];
    for syndrome in 0..=255 {
        for op in [13, 14] {
            let mut bytes = [0xa5; 64];
            bytes[cqe::ERRORS + 3] = syndrome;
            bytes[cqe::ERRORS + 2] = 0x77;
            bytes[cqe::OP_OWN] = op << 4;
            let expected = known
                .iter()
                .find(|k| k.0 == syndrome)
                .map_or(WcStatus::GeneralErr, |k| k.1);
            let fields = fields(&bytes);
            assert_eq!(fields.status(), expected);
            assert_eq!((fields.syndrome(), fields.vendor_err()), (syndrome, 0x77));
        }
    }
    for (_, status, number) in known {
        assert_eq!(status as u8, number);
    }
}

#[test]
fn fields_of_a_datagram() {
    let mut bytes = [0; 64];
    bytes[cqe::FLAGS_RQPN..][..4].copy_from_slice(&0x1234_5678_u32.to_be_bytes());
    bytes[cqe::IMM..][..4].copy_from_slice(&0xdead_ffff_u32.to_be_bytes());
    bytes[cqe::BYTE_CNT..][..4].copy_from_slice(&296_u32.to_be_bytes());
    bytes[cqe::WQE_OPCODE_QPN..][..4].copy_from_slice(&0x0a00_0042_u32.to_be_bytes());
    bytes[cqe::SLID..][..2].copy_from_slice(&0x0102_u16.to_be_bytes());
    bytes[cqe::ML_PATH] = 0x83;
    bytes[cqe::OP_OWN] = 2 << 4 | 1;
    let mut wc = Wc::EMPTY;
    fields(&bytes).write_wc(7, &mut wc);
    assert_eq!(wc.wr_id, 7);
    assert_eq!(wc.status, WcStatus::Success);
    assert_eq!(wc.opcode, WcOpcode::Recv);
    assert_eq!(wc.byte_len, 296);
    assert_eq!(wc.qp_num, Qpn::from_low_bits(0x42));
    assert_eq!(wc.src_qp, Qpn::from_low_bits(0x345678));
    assert_eq!(wc.flags, WcFlags::GRH);
    assert_eq!(
        (wc.pkey_index, wc.slid, wc.sl, wc.dlid_path_bits),
        (0xffff, 0x0102, 2, 3)
    );
    assert_eq!(fields(&bytes).network_header(), NetworkHeader::Ipv4);
}

#[test]
fn opcodes_and_flags() {
    let case = |op: u8, wqe: u8| {
        let mut bytes = [0; 64];
        bytes[cqe::WQE_OPCODE_QPN] = wqe;
        bytes[cqe::OP_OWN] = op << 4;
        (fields(&bytes).opcode(), fields(&bytes).flags())
    };
    let none = WcFlags::empty();
    assert_eq!(case(0, 0x0a), (WcOpcode::Send, none));
    assert_eq!(case(0, 0x0b), (WcOpcode::Send, none));
    assert_eq!(case(0, 0x01), (WcOpcode::Send, none));
    assert_eq!(case(0, 0x08), (WcOpcode::RdmaWrite, none));
    assert_eq!(case(0, 0x09), (WcOpcode::RdmaWrite, none));
    assert_eq!(case(0, 0x10), (WcOpcode::RdmaRead, none));
    assert_eq!(case(0, 0x11), (WcOpcode::CompSwap, none));
    assert_eq!(case(0, 0x12), (WcOpcode::FetchAdd, none));
    assert_eq!(case(0, 0x25), (WcOpcode::BindMw, none));
    assert_eq!(case(0, LOCAL_INV), (WcOpcode::LocalInv, none));
    assert_eq!(case(0, 0x77), (WcOpcode::Unknown, none));
    assert_eq!(case(1, 0), (WcOpcode::RecvRdmaWithImm, WcFlags::WITH_IMM));
    assert_eq!(case(2, 0), (WcOpcode::Recv, none));
    assert_eq!(case(3, 0), (WcOpcode::Recv, WcFlags::WITH_IMM));
    assert_eq!(case(4, 0), (WcOpcode::Recv, WcFlags::WITH_INV));
}
