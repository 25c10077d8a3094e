//! Arguments and states that the kernel or rdma-core refuses, by errno, and what is left of an id afterwards. `cargo rig twin`
//! compares the same calls with Linux.

// UNSAFETY: calls functions of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;

use bareverbs_c::abi::cma::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use bareverbs_c::abi::objects::{ibv_pd, ibv_qp_attr, ibv_qp_init_attr};
use libc::{sockaddr, sockaddr_in, sockaddr_in6};

unsafe extern "C" {
    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: c_int,
    ) -> c_int;
    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int;
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        src: *mut sockaddr,
        dst: *mut sockaddr,
        timeout: c_int,
    ) -> c_int;
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout: c_int) -> c_int;
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int;
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int;
    fn rdma_set_option(
        id: *mut rdma_cm_id,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: usize,
    ) -> c_int;
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event)
    -> c_int;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
}

const RDMA_PS_IPOIB: c_int = 0x0002;
const RDMA_PS_TCP: c_int = 0x0106;
const RDMA_PS_UDP: c_int = 0x0111;
const IBV_QPT_RC: c_int = 2;
const IBV_QPT_UD: c_int = 4;
/// `enum ibv_qp_state`.
const ERR: c_int = 6;
/// `enum rdma_cm_event_type`.
const ADDR_RESOLVED: c_int = 0;
const ROUTE_RESOLVED: c_int = 2;
const CONNECT_REQUEST: c_int = 4;
const REJECTED: c_int = 8;
/// `RDMA_OPTION_ID_TOS`, `RDMA_OPTION_ID_REUSEADDR`.
const TOS: c_int = 0;
const REUSEADDR: c_int = 1;

fn v4(port: u16) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(std::net::Ipv4Addr::new(10, 0, 0, 1)).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// The outcome of a call that returns -1 with an errno.
fn outcome(result: c_int) -> c_int {
    match result {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap(),
    }
}

fn channel() -> *mut rdma_event_channel {
    // SAFETY: a new channel, which stays until the process ends.
    unsafe { rdma_create_event_channel() }
}

fn create(channel: *mut rdma_event_channel, ps: c_int) -> Result<*mut rdma_cm_id, c_int> {
    let mut id = null_mut();
    // SAFETY: the channel is there, and the id can be written.
    match outcome(unsafe { rdma_create_id(channel, &mut id, null_mut(), ps) }) {
        0 => Ok(id),
        errno => Err(errno),
    }
}

fn bind(id: *mut rdma_cm_id, address: &mut sockaddr_in) -> c_int {
    let address: *mut sockaddr_in = address;
    // SAFETY: the id is there, and the address is one.
    outcome(unsafe { rdma_bind_addr(id, address.cast()) })
}

fn create_qp(id: *mut rdma_cm_id, qp_type: c_int) -> c_int {
    // SAFETY: the id is there, and the attributes are numbers and null pointers.
    unsafe {
        let mut attr: ibv_qp_init_attr = zeroed();
        attr.qp_type = qp_type;
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (2, 2);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
        outcome(rdma_create_qp(id, null_mut(), &mut attr))
    }
}

/// `id->qp->state`.
fn state(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the id has a QP. The library writes the field from another thread.
    unsafe { (&raw const (*(*id).qp).state).read_volatile() }
}

/// Takes the next event, which is of this type: its id and its status.
fn next(channel: *mut rdma_event_channel, event_type: c_int) -> (*mut rdma_cm_id, c_int) {
    let mut event = null_mut();
    // SAFETY: the channel is there; the event is acknowledged once.
    unsafe {
        assert_eq!(rdma_get_cm_event(channel, &mut event), 0);
        let found = ((*event).id, (*event).status);
        assert_eq!((*event).event, event_type, "status {}", found.1);
        assert_eq!(rdma_ack_cm_event(event), 0);
        found
    }
}

/// A request at a listener: the id that asks, and that of the request.
fn asked(channel: *mut rdma_event_channel, port: u16) -> (*mut rdma_cm_id, *mut rdma_cm_id) {
    let id = create(channel, RDMA_PS_TCP).unwrap();
    let to: *mut sockaddr_in = &mut v4(port);
    // SAFETY: the id is there, and the address is one.
    unsafe {
        assert_eq!(rdma_resolve_addr(id, null_mut(), to.cast(), 2000), 0);
        next(channel, ADDR_RESOLVED);
        assert_eq!(rdma_resolve_route(id, 2000), 0);
        next(channel, ROUTE_RESOLVED);
        assert_eq!(create_qp(id, IBV_QPT_RC), 0);
        let mut param: rdma_conn_param = zeroed();
        assert_eq!(rdma_connect(id, &mut param), 0);
    }
    (id, next(channel, CONNECT_REQUEST).0)
}

fn listener(channel: *mut rdma_event_channel, ps: c_int, port: u16) -> *mut rdma_cm_id {
    let id = create(channel, ps).unwrap();
    assert_eq!(bind(id, &mut v4(port)), 0);
    // SAFETY: the id is there.
    assert_eq!(unsafe { rdma_listen(id, 4) }, 0);
    id
}

#[test]
fn port_spaces_and_families_that_are_none_are_einval() {
    let channel = channel();
    for ps in [0, 1, 0x0105, 0x0140, -1] {
        assert_eq!(create(channel, ps), Err(libc::EINVAL), "{ps:#x}");
    }
    // `ucma_addrlen` of librdmacm: 0 of a family that it does not know.
    let id = create(channel, RDMA_PS_UDP).unwrap();
    let mut address = v4(0);
    address.sin_family = libc::AF_UNIX as u16;
    assert_eq!(bind(id, &mut address), libc::EINVAL);
    let from: *mut sockaddr_in = &mut v4(0);
    // SAFETY: numbers may be zero.
    let mut six: sockaddr_in6 = unsafe { zeroed() };
    six.sin6_family = libc::AF_INET6 as u16;
    let to: *mut sockaddr_in6 = &mut six;
    // SAFETY: the id is there, and the addresses are some.
    let mixed = unsafe { rdma_resolve_addr(id, from.cast(), to.cast(), 100) };
    assert_eq!(outcome(mixed), libc::EINVAL);
    // There is no IPoIB on Ethernet.
    let id = create(channel, RDMA_PS_IPOIB).unwrap();
    assert_eq!(bind(id, &mut v4(7300)), libc::EINVAL);
}

#[test]
fn options_are_copied_before_they_are_looked_at() {
    let channel = channel();
    let id = create(channel, RDMA_PS_TCP).unwrap();
    let mut value = [0_u8; 8];
    let mut set = |id, level, name, null: bool, length| {
        let value = if null { null_mut() } else { value.as_mut_ptr() };
        // SAFETY: the id is there; of the value as many bytes are read as the option has, or none.
        outcome(unsafe { rdma_set_option(id, level, name, value.cast(), length) })
    };
    for (level, name, null, length, errno) in [
        (0, TOS, true, 1, libc::EFAULT),
        (0, TOS, true, 0, libc::EINVAL),
        (7, 99, true, 4, libc::EFAULT),
        (7, 99, true, 0, libc::ENOSYS),
        (7, 99, false, (4 << 20) + 1, libc::EINVAL),
        // The kernel's length has 32 bits.
        (0, TOS, false, (1 << 32) + 1, 0),
        (0, REUSEADDR, false, 4, 0),
    ] {
        assert_eq!(
            set(id, level, name, null, length),
            errno,
            "{level} {name} {length}"
        );
    }
    assert_eq!(bind(id, &mut v4(7301)), 0);
    assert_eq!(set(id, 0, REUSEADDR, false, 4), libc::EINVAL);
    // SAFETY: the id is there.
    assert_eq!(unsafe { rdma_listen(id, 1) }, 0);
    assert_eq!(set(id, 0, TOS, false, 1), 0);
}

/// `rdma_accept` of core/cma.c refuses a request where it fails; librdmacm finds other parameters before.
#[test]
fn an_answer_that_the_kernel_cannot_send_refuses_the_request() {
    let channel = channel();
    listener(channel, RDMA_PS_TCP, 7302);
    let data = [0_u8; 255];
    // SAFETY: the ids are there, and the data has as many bytes.
    unsafe {
        let mut param: rdma_conn_param = zeroed();
        param.private_data = data.as_ptr().cast();
        for of_id in [true, false] {
            let (id, other) = asked(channel, 7302);
            if of_id {
                assert_eq!(create_qp(other, IBV_QPT_RC), 0);
            }
            param.private_data_len = 197;
            assert_eq!(outcome(rdma_accept(other, &mut param)), libc::EINVAL);
            assert_eq!(next(channel, REJECTED), (id, 28));
            if of_id {
                assert_eq!(state(other), ERR);
            }
            assert_eq!(outcome(rdma_reject(other, null_mut(), 0)), libc::EINVAL);
        }
        let (id, other) = asked(channel, 7302);
        param.private_data_len = 0;
        param.responder_resources = 254;
        assert_eq!(outcome(rdma_accept(other, &mut param)), libc::EINVAL);
        assert_eq!(rdma_reject(other, data.as_ptr().cast(), 1), 0);
        assert_eq!(next(channel, REJECTED), (id, 28));
    }
}

#[test]
fn a_listener_has_no_qp_unless_it_is_for_datagrams() {
    let channel = channel();
    let (connections, datagrams) = (
        listener(channel, RDMA_PS_TCP, 7303),
        listener(channel, RDMA_PS_UDP, 7303),
    );
    assert_eq!(create_qp(connections, IBV_QPT_RC), libc::EINVAL);
    assert_eq!(create_qp(datagrams, IBV_QPT_UD), 0);
    // SAFETY: the ids are there; attributes are numbers and may be zero.
    unsafe {
        // There is nothing to end, and the QP is in ERR.
        assert_eq!(rdma_disconnect(connections), 0);
        assert_eq!(rdma_disconnect(datagrams), 0);
        assert_eq!(state(datagrams), ERR);
        let bound = create(channel, RDMA_PS_TCP).unwrap();
        assert_eq!(bind(bound, &mut v4(7304)), 0);
        assert_eq!(create_qp(bound, IBV_QPT_RC), 0);
        // librdmacm stops the QP before it asks the kernel.
        assert_eq!(outcome(rdma_disconnect(bound)), libc::EINVAL);
        assert_eq!(state(bound), ERR);
        for (id, wanted, errno) in [
            (connections, 1, libc::EINVAL),
            // Port, P_Key, and access flags or Q_Key, whatever the state.
            (bound, 3, 0),
            (datagrams, 3, 0),
        ] {
            let mut attr: ibv_qp_attr = zeroed();
            attr.qp_state = wanted;
            let mut mask = 0;
            assert_eq!(outcome(rdma_init_qp_attr(id, &mut attr, &mut mask)), errno);
            if errno == 0 {
                let or = if id == bound { 1 << 3 } else { 1 << 6 };
                assert_eq!((mask, attr.qp_state), (1 | 1 << 4 | 1 << 5 | or, wanted));
            }
        }
    }
}
