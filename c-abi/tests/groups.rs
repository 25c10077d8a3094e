//! A datagram QP joins and leaves multicast groups as it does with the kernel's verbs.

// UNSAFETY: calls functions of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;

use bareverbs_c::abi::objects::{
    ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_init_attr,
};

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_open_device(device: *mut c_void) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        entries: c_int,
        user: *mut c_void,
        channel: *mut c_void,
        vector: c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
}

const IBV_QPT_UD: c_int = 4;

/// The answers are those of Linux's `ib_uverbs_attach_mcast` and `ib_uverbs_detach_mcast`.
#[test]
fn attaching_again_is_no_error() {
    let group = |last: u8| {
        let mut raw = [0; 16];
        (raw[0], raw[1], raw[15]) = (0xff, 0x0e, last);
        ibv_gid { raw }
    };
    let (one, other) = (group(1), group(2));
    let mut count = 0;
    // SAFETY: pointers come from the library, are checked, and are given back once.
    unsafe {
        let list = ibv_get_device_list(&mut count);
        assert!(!list.is_null() && count >= 1);
        let context = ibv_open_device(*list);
        let pd = ibv_alloc_pd(context);
        let cq = ibv_create_cq(context, 4, null_mut(), null_mut(), 0);
        assert!(!pd.is_null() && !cq.is_null());
        let mut attr: ibv_qp_init_attr = zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, IBV_QPT_UD);
        attr.cap = ibv_qp_cap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp = ibv_create_qp(pd, &mut attr);
        assert!(!qp.is_null());
        assert_eq!(ibv_detach_mcast(qp, &one, 0), libc::EINVAL);
        assert_eq!(ibv_attach_mcast(qp, &one, 0), 0);
        assert_eq!(ibv_attach_mcast(qp, &one, 0), 0);
        assert_eq!(ibv_attach_mcast(qp, &other, 0), 0);
        assert_eq!(ibv_destroy_qp(qp), libc::EBUSY);
        for gid in [one, other] {
            assert_eq!(ibv_detach_mcast(qp, &gid, 0), 0);
            assert_eq!(ibv_detach_mcast(qp, &gid, 0), libc::EINVAL);
        }
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_destroy_cq(cq), 0);
        assert_eq!(ibv_dealloc_pd(pd), 0);
        assert_eq!(ibv_close_device(context), 0);
    }
}
