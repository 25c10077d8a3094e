//! Structures of `ibv_create_wq` and `ibv_create_rwq_ind_table`.

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::objects::{ibv_context, ibv_cq, ibv_pd};
use super::requests::ibv_recv_wr;

super::c_structures! {
    struct ibv_wq_init_attr {
        wq_context: *mut c_void,
        wq_type: c_int,
        max_wr: u32,
        max_sge: u32,
        pd: *mut ibv_pd,
        cq: *mut ibv_cq,
        comp_mask: u32,
        create_flags: u32,
    }

    struct ibv_wq_attr {
        attr_mask: u32,
        wq_state: c_int,
        curr_wq_state: c_int,
        flags: u32,
        flags_mask: u32,
    }

    struct ibv_wq {
        context: *mut ibv_context,
        wq_context: *mut c_void,
        pd: *mut ibv_pd,
        cq: *mut ibv_cq,
        wq_num: u32,
        handle: u32,
        state: c_int,
        wq_type: c_int,
        post_recv: Option<unsafe extern "C" fn(*mut ibv_wq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
        comp_mask: u32,
    }

    struct ibv_rwq_ind_table {
        context: *mut ibv_context,
        ind_tbl_handle: c_int,
        ind_tbl_num: c_int,
        comp_mask: u32,
    }

    struct ibv_rwq_ind_table_init_attr {
        log_ind_tbl_size: u32,
        ind_tbl: *mut *mut ibv_wq,
        comp_mask: u32,
    }
}
