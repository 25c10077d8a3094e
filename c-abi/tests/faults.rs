//! A C program meets firmware commands that fail because an environment variable says so.

// UNSAFETY: calls functions of C, and sets a variable before there are threads.
#![expect(unsafe_code)]

use std::env;
use std::ffi::{c_int, c_void};
use std::io;

// The library that has the functions.
use bareverbs_c::settings::FAULT;

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_open_device(device: *mut c_void) -> *mut c_void;
    fn ibv_close_device(context: *mut c_void) -> c_int;
    fn ibv_alloc_pd(context: *mut c_void) -> *mut c_void;
    fn ibv_dealloc_pd(pd: *mut c_void) -> c_int;
}

/// The only test of this process: the models are made once.
#[test]
fn a_command_fails_as_the_environment_says() {
    // SAFETY: there is no other thread that reads the environment.
    unsafe {
        env::set_var(
            FAULT,
            "loss=1%;command=ALLOC_PD,nth=4,status=LIM_ERR,syndrome=0x3c5a71",
        )
    };
    let mut count = 0;
    // SAFETY: pointers come from the library, are checked, and are given back once.
    unsafe {
        let list = ibv_get_device_list(&mut count);
        assert!(!list.is_null() && count == 1);
        let context = ibv_open_device(*list);
        assert!(!context.is_null());
        let mut failures = Vec::new();
        for _ in 0..8 {
            let pd = ibv_alloc_pd(context);
            if pd.is_null() {
                failures.push(io::Error::last_os_error().raw_os_error());
            } else {
                assert_eq!(ibv_dealloc_pd(pd), 0);
            }
        }
        assert_eq!(failures, [Some(libc::ENOMEM)]);
        assert_eq!(ibv_close_device(context), 0);
    }
}
