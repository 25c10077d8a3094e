//! Listeners on all addresses, where one of the devices refuses.

// UNSAFETY: calls functions of C, and sets a variable before there are threads.
#![expect(unsafe_code)]

use std::env;
use std::ffi::{c_int, c_void};
use std::io;
use std::net::Ipv4Addr;
use std::ptr::null_mut;

use bareverbs_c::abi::cma::{rdma_cm_id, rdma_event_channel};
use libc::{sockaddr, sockaddr_in};

unsafe extern "C" {
    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: c_int,
    ) -> c_int;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
}

const RDMA_PS_TCP: c_int = 0x0106;
const PORT: u16 = 7400;

/// A new id that is bound to an address of the port.
fn bound(channel: *mut rdma_event_channel, ip: Ipv4Addr) -> *mut rdma_cm_id {
    let mut id = null_mut();
    let mut address = sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(ip).to_be(),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: the channel is there, and the address is one.
    unsafe {
        assert_eq!(rdma_create_id(channel, &mut id, null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(rdma_bind_addr(id, (&raw mut address).cast()), 0);
    }
    id
}

/// The second device has the port already: nothing listens then, and the id is as before.
#[test]
fn a_listener_that_one_device_refuses_can_be_tried_again() {
    // SAFETY: there is no other thread that reads the environment.
    unsafe { env::set_var("BAREVERBS_DEVICE", "model,model") };
    // SAFETY: the ids are there until they are destroyed.
    unsafe {
        let channel = rdma_create_event_channel();
        let taken = bound(channel, Ipv4Addr::new(10, 0, 0, 2));
        let everywhere = bound(channel, Ipv4Addr::UNSPECIFIED);
        for _ in 0..2 {
            assert_eq!(rdma_listen(everywhere, 1), -1);
            let errno = io::Error::last_os_error().raw_os_error();
            assert_eq!(errno, Some(libc::EADDRNOTAVAIL));
        }
        assert_eq!(rdma_destroy_id(taken), 0);
        assert_eq!(rdma_listen(everywhere, 1), 0);
        assert_eq!(rdma_destroy_id(everywhere), 0);
    }
}
