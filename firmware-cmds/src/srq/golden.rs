//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn srqc() {
    emits::<Srqc>(
        |s| {
            s.set_state(0xe)
                .set_log_srq_size(0xc)
                .set_wq_signature(false)
                .set_cont_srq(true)
                .set_rlky(false)
                .set_log_rq_stride(3)
                .set_xrcd(0x9fa5e6)
                .set_page_offset(0x1c)
                .set_cqn(0x1a5caa)
                .set_log_page_size(0x1b)
                .set_pd(0x34656d)
                .set_lwm(0x3f78)
                .set_wqe_cnt(0xeb11)
                .set_dbr_addr(0x9116d14d718331);
        },
        &[
            (0x000, "eca5a5a5 639fa5e6 711a5caa"),
            (0x010, "9ba5a5a5"),
            (0x018, "a534656d 3f78eb11"),
            (0x028, "009116d1 4d718331"),
        ],
    );
}

#[test]
fn wq() {
    emits::<Wq>(
        |s| {
            s.set_wq_type(1)
                .set_wq_signature(true)
                .set_end_padding_mode(3)
                .set_cd_slave(true)
                .set_hds_skip_first_sge(false)
                .set_log2_hds_buf_size(6)
                .set_page_offset(0x19)
                .set_lwm(0xf607)
                .set_pd(0x85b365)
                .set_uar_page(0x7f70e)
                .set_dbr_addr(0x51b216fef3582a)
                .set_hw_counter(0xc0754b16)
                .set_sw_counter(0xfe8e5f85)
                .set_log_wq_stride(0xd)
                .set_log_wq_pg_sz(0xe)
                .set_log_wq_sz(6)
                .set_dbr_umem_valid(false)
                .set_wq_umem_valid(true)
                .set_log_hairpin_num_packets(0xe)
                .set_log_hairpin_data_sz(0x1c)
                .set_log_wqe_num_of_strides(0xc)
                .set_two_byte_shift_en(true)
                .set_log_wqe_stride_size(2)
                .set_headers_mkey(0xf5d99f)
                .set_shampo_enable(false)
                .set_log_reservation_size(6)
                .set_log_max_num_of_packets_per_reservation(1)
                .set_log_headers_entry_size(3)
                .set_log_headers_buffer_entry_num(4);
        },
        &[
            (
                0x000,
                "1fa5a5a5 65b9f607 a585b365 a507f70e 0051b216 fef3582a",
            ),
            (0x018, "c0754b16 fe8e5f85 a5adaea6 6ebcaca2"),
            (0x038, "00f5d99f 26a1a7a4"),
        ],
    );
}

#[test]
fn rmpc() {
    emits::<Rmpc>(
        |s| {
            s.set_state(0xa).set_basic_cyclic_rcv_wqe(true);
            s.wq_mut()
                .set_wq_type(1)
                .set_wq_signature(true)
                .set_log_wq_sz(6);
        },
        &[
            (0x000, "a5a5a5a5 a5a5a5a5"),
            (0x030, "1da5a5a5"),
            (0x050, "a5a5a5a6"),
        ],
    );
}
