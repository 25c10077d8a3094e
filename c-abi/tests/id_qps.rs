//! The QPs of ids while the firmware is slow: no call and no other connection waits for a transition that is under way. Calls on the
//! QP answer as after librdmacm's own transitions; the field `state` follows when the transition is over.

// UNSAFETY: calls functions of C, and sets a variable before there are threads.
#![expect(unsafe_code)]

use std::env;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::ptr::{self, null_mut};

use bareverbs_c::abi::cma::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use bareverbs_c::abi::objects::{ibv_pd, ibv_qp, ibv_qp_init_attr};
use bareverbs_c::abi::requests::ibv_send_wr;
use bareverbs_c::settings::FAULT;
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
    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int;
    fn rdma_destroy_qp(id: *mut rdma_cm_id);
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
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event)
    -> c_int;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
}

const RDMA_PS_TCP: c_int = 0x0106;
const IBV_QPT_RC: c_int = 2;
/// `enum ibv_qp_state`.
const INIT: c_int = 1;
const RTS: c_int = 3;
const ERR: c_int = 6;
/// `enum rdma_cm_event_type`.
const ADDR_RESOLVED: c_int = 0;
const ROUTE_RESOLVED: c_int = 2;
const CONNECT_REQUEST: c_int = 4;
const CONNECT_ERROR: c_int = 6;
const REJECTED: c_int = 8;
const ESTABLISHED: c_int = 9;
const DISCONNECTED: c_int = 10;
const TIMEWAIT_EXIT: c_int = 15;

const PORT: u16 = 7471;

fn address() -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(std::net::Ipv4Addr::new(10, 0, 0, 1)).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// A channel, and the ids that report to it.
struct End(*mut rdma_event_channel);

impl End {
    fn new() -> Self {
        // SAFETY: a new channel, which stays until the process ends.
        let channel = unsafe { rdma_create_event_channel() };
        assert!(!channel.is_null());
        Self(channel)
    }

    /// Takes the next event but the end of a timewait. It is of this type: its id and its status.
    fn next(&self, event_type: c_int) -> (*mut rdma_cm_id, c_int) {
        let mut event = null_mut();
        // SAFETY: the channel is there; the event is acknowledged once.
        unsafe {
            assert_eq!(rdma_get_cm_event(self.0, &mut event), 0);
            let found = ((*event).id, (*event).status);
            if (*event).event == TIMEWAIT_EXIT {
                assert_eq!(rdma_ack_cm_event(event), 0);
                return self.next(event_type);
            }
            assert_eq!((*event).event, event_type, "status {}", found.1);
            assert_eq!(rdma_ack_cm_event(event), 0);
            found
        }
    }

    fn id(&self) -> *mut rdma_cm_id {
        let mut id = null_mut();
        // SAFETY: the channel is there, and the id can be written.
        unsafe {
            assert_eq!(rdma_create_id(self.0, &mut id, null_mut(), RDMA_PS_TCP), 0);
        }
        id
    }

    /// An id with a QP that has asked the listener for a connection.
    fn connect(&self) -> *mut rdma_cm_id {
        let id = self.id();
        let to: *mut sockaddr_in = &mut address();
        // SAFETY: the id was created above, and the address is one.
        unsafe {
            assert_eq!(rdma_resolve_addr(id, null_mut(), to.cast(), 2000), 0);
            self.next(ADDR_RESOLVED);
            assert_eq!(rdma_resolve_route(id, 2000), 0);
            self.next(ROUTE_RESOLVED);
            create_qp(id);
            let mut param: rdma_conn_param = zeroed();
            (param.responder_resources, param.initiator_depth) = (1, 1);
            param.retry_count = 7;
            assert_eq!(rdma_connect(id, &mut param), 0);
        }
        id
    }

    /// The id of the next request, with a QP.
    fn request(&self) -> *mut rdma_cm_id {
        let (id, _) = self.next(CONNECT_REQUEST);
        create_qp(id);
        id
    }
}

fn create_qp(id: *mut rdma_cm_id) {
    assert_eq!(try_create_qp(id), 0);
}

fn try_create_qp(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the id is there, and the attributes are numbers and null pointers.
    unsafe {
        let mut attr: ibv_qp_init_attr = zeroed();
        attr.qp_type = IBV_QPT_RC;
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (2, 2);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
        rdma_create_qp(id, null_mut(), &mut attr)
    }
}

fn accept(id: *mut rdma_cm_id) {
    // SAFETY: the id is one of a request.
    assert_eq!(unsafe { rdma_accept(id, null_mut()) }, 0);
}

/// `id->qp->state`.
fn state(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the id has a QP. The library writes the field from another thread.
    unsafe { (&raw const (*(*id).qp).state).read_volatile() }
}

/// Posts a SEND of no bytes, as `ibv_post_send` of the headers does.
fn post_send(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the id has a QP, and a request may be zero: a SEND without data is not, but 2 is its number.
    unsafe {
        let mut request: ibv_send_wr = zeroed();
        request.opcode = 2;
        let qp = (*id).qp;
        let post = (*(*qp).context).ops.post_send.expect("a function");
        post(qp, &mut request, &mut ptr::null_mut())
    }
}

fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the id is there, and is not used again.
    unsafe {
        rdma_destroy_qp(id);
        assert_eq!(rdma_destroy_id(id), 0);
    }
}

/// The only test of this process: the model is made once.
#[test]
fn a_slow_transition_is_waited_for_by_those_alone_that_need_it() {
    // The first QP to go there is QP1. The first acceptance is slow, so that all of another connection happens meanwhile. The
    // fourth connection fails at its client, and the firmware stops when the sixth one is to end.
    // SAFETY: there is no other thread that reads the environment.
    unsafe {
        env::set_var(
            FAULT,
            "command=INIT2RTR_QP,nth=2,late=10s;command=RTR2RTS_QP,nth=9,status=BAD_PARAM;\
             command=2ERR_QP,nth=8,health=12",
        )
    };
    let (server, client) = (End::new(), End::new());
    let listener = server.id();
    // SAFETY: the id was created above.
    unsafe {
        let at: *mut sockaddr_in = &mut address();
        assert_eq!(rdma_bind_addr(listener, at.cast()), 0);
        assert_eq!(rdma_listen(listener, 8), 0);
    }

    let slow = client.connect();
    let slow_server = server.request();
    accept(slow_server);
    assert_eq!(state(slow_server), INIT);

    // Another connection is there before.
    let quick = client.connect();
    let quick_server = server.request();
    accept(quick_server);
    assert_eq!(server.next(ESTABLISHED).0, quick_server);
    assert_eq!(client.next(ESTABLISHED).0, quick);
    assert_eq!((state(quick), state(quick_server)), (RTS, RTS));
    assert_eq!(state(slow_server), INIT);

    // After `rdma_accept` a QP takes sends, as it does with librdmacm.
    assert_eq!(post_send(slow_server), 0);
    assert_eq!(state(slow_server), RTS);
    assert_eq!(server.next(ESTABLISHED).0, slow_server);
    assert_eq!(client.next(ESTABLISHED).0, slow);

    // A QP that was disconnected is in ERR when the call returns.
    for (id, other) in [(quick, quick_server), (slow, slow_server)] {
        // SAFETY: the ids are there.
        unsafe {
            assert_eq!(rdma_disconnect(id), 0);
            assert_eq!(state(id), ERR);
            assert_eq!(client.next(DISCONNECTED).0, id);
            assert_eq!(server.next(DISCONNECTED).0, other);
            assert_eq!(rdma_disconnect(other), 0);
            assert_eq!(state(other), ERR);
        }
        destroy(other);
        destroy(id);
    }

    // A QP that the program takes from its id stays as it is when the connection ends.
    // One that is taken after `rdma_accept` is in RTS, and the connection comes up.
    let id = client.connect();
    let other = server.request();
    accept(other);
    // SAFETY: the id and its QP are there.
    let theirs = unsafe { std::mem::replace(&mut (*other).qp, null_mut()) };
    create_qp(other);
    assert_eq!(server.next(ESTABLISHED).0, other);
    assert_eq!(client.next(ESTABLISHED).0, id);
    // SAFETY: the ids and the QPs are there, and one of these is not used again.
    unsafe {
        assert_eq!((&raw const (*theirs).state).read_volatile(), RTS);
        assert_eq!(ibv_destroy_qp(theirs), 0);
        assert_eq!(state(other), INIT);
        let taken = std::mem::replace(&mut (*id).qp, null_mut());
        assert_eq!(rdma_disconnect(id), 0);
        assert_eq!((&raw const (*taken).state).read_volatile(), RTS);
        assert_eq!(client.next(DISCONNECTED).0, id);
        assert_eq!(server.next(DISCONNECTED).0, other);
        // An id whose connection has ended gets no QP (`cm_init_qp_init_attr` of Linux's core/cm.c).
        assert_eq!(try_create_qp(id), -1);
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::EINVAL)
        );
        assert_eq!(ibv_destroy_qp(taken), 0);
    }
    destroy(other);
    destroy(id);

    // A QP that the firmware does not move on the way to a connection: its other end is refused, and both are in ERR.
    let id = client.connect();
    let other = server.request();
    accept(other);
    assert_eq!(client.next(CONNECT_ERROR), (id, -libc::EINVAL));
    assert_eq!(server.next(REJECTED).0, other);
    assert_eq!((state(id), state(other)), (ERR, ERR));
    destroy(other);
    destroy(id);

    // A QP that is destroyed behind its id's back while the REP is on its way: the other end is refused.
    let id = client.connect();
    let other = server.request();
    // SAFETY: the QP is there, and is not used again.
    unsafe { assert_eq!(ibv_destroy_qp((*id).qp), 0) };
    accept(other);
    assert_eq!(client.next(CONNECT_ERROR), (id, -libc::EINVAL));
    assert_eq!(server.next(REJECTED).0, other);
    assert_eq!(state(other), ERR);
    destroy(other);
    // SAFETY: the QP of the id is gone.
    unsafe {
        (*id).qp = null_mut();
        assert_eq!(rdma_destroy_id(id), 0);
    }

    // Nothing waits for a transition of a device that fails meanwhile.
    let id = client.connect();
    let other = server.request();
    accept(other);
    assert_eq!(server.next(ESTABLISHED).0, other);
    assert_eq!(client.next(ESTABLISHED).0, id);
    // SAFETY: the id is there.
    unsafe { rdma_disconnect(id) };
    assert_ne!(state(id), ERR);
}
