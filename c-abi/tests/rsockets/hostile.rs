//! Other ends that do not keep to the rules, or go without a word: ids and QPs of librdmacm that say what an rsocket says.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::zeroed;
use std::ptr;

use bareverbs_c::abi::cma::{rdma_cm_id, rdma_conn_param, rdma_event_channel};
use bareverbs_c::abi::numbers::{IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM};
use bareverbs_c::abi::objects::{ibv_mr, ibv_pd, ibv_qp_init_attr};
use bareverbs_c::abi::requests::{ibv_recv_wr, ibv_send_wr};
use libc::sockaddr;

use crate::calls::{CLIENT, Random, SERVER, Socket, free_port, seeds, setup, to_c};

unsafe extern "C" {
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: c_int,
    ) -> c_int;
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        from: *mut sockaddr,
        to: *mut sockaddr,
        timeout: c_int,
    ) -> c_int;
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout: c_int) -> c_int;
    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int;
    fn rdma_destroy_qp(id: *mut rdma_cm_id);
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
}

const RDMA_PS_TCP: c_int = 0x106;
/// `IBV_ACCESS_LOCAL_WRITE` and `IBV_ACCESS_REMOTE_WRITE`.
const WRITTEN: c_int = 3;
/// `IBV_SEND_SIGNALED`.
const SIGNALED: c_uint = 2;
const RECEIVES: u32 = 60;

/// An end that is no rsocket. It goes without a word to the rsocket, but for what the connection manager says.
struct Stranger {
    id: *mut rdma_cm_id,
    region: *mut ibv_mr,
    /// Its list of targets.
    _memory: Vec<u64>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // SAFETY: made by `connect`, and not used again.
        unsafe {
            rdma_destroy_qp(self.id);
            assert_eq!(ibv_dereg_mr(self.region), 0);
            assert_eq!(rdma_destroy_id(self.id), 0);
        }
    }
}

impl Stranger {
    /// Connects with what an rsocket says.
    fn new(port: u16) -> Self {
        Self::connect(port, hello).unwrap()
    }

    /// Connects with private data for the address and the key of a list of targets; the errno if that is refused.
    fn connect(port: u16, private_data: impl FnOnce(u64, u32) -> Vec<u8>) -> Result<Self, i32> {
        let mut from = to_c(CLIENT, 0);
        let mut to = to_c(SERVER, port);
        // SAFETY: numbers and pointers may be zero.
        let (mut attr, mut param): (ibv_qp_init_attr, rdma_conn_param) = unsafe { zeroed() };
        attr.qp_type = IBV_QPT_RC;
        attr.cap.max_send_wr = 64;
        attr.cap.max_recv_wr = RECEIVES;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_sge = 1;
        param.retry_count = 7;
        param.rnr_retry_count = 7;
        let mut id = ptr::null_mut();
        // SAFETY: each step has what it needs from the ones before.
        unsafe {
            assert_eq!(
                rdma_create_id(ptr::null_mut(), &mut id, ptr::null_mut(), RDMA_PS_TCP),
                0
            );
            assert_eq!(rdma_bind_addr(id, (&raw mut from).cast()), 0);
            let resolved = rdma_resolve_addr(id, ptr::null_mut(), (&raw mut to).cast(), 5000);
            assert_eq!(resolved, 0);
            assert_eq!(rdma_resolve_route(id, 5000), 0);
            assert_eq!(rdma_create_qp(id, ptr::null_mut(), &mut attr), 0);
            let mut memory = vec![0_u64; 512];
            let region = ibv_reg_mr((*id).pd, memory.as_mut_ptr().cast(), 4096, WRITTEN);
            assert!(!region.is_null());
            let stranger = Self {
                id,
                region,
                _memory: memory,
            };
            stranger.post_receives();
            let data = private_data((*region).addr as u64, (*region).rkey);
            param.private_data = data.as_ptr().cast();
            param.private_data_len = data.len() as u8;
            match rdma_connect(id, &mut param) {
                0 => Ok(stranger),
                _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
            }
        }
    }

    fn post_receives(&self) {
        // SAFETY: numbers and pointers may be zero.
        let mut request: ibv_recv_wr = unsafe { zeroed() };
        let mut bad = ptr::null_mut();
        for _ in 0..RECEIVES {
            // SAFETY: the QP is there, and the list has one request.
            unsafe {
                let qp = (*self.id).qp;
                let post = (*(*qp).context).ops.post_recv.unwrap();
                assert_eq!(post(qp, &mut request, &mut bad), 0);
            }
        }
    }

    /// Says something by immediate data, without writing anything.
    fn say(&self, immediate: u32) {
        // SAFETY: numbers and pointers may be zero.
        let mut request: ibv_send_wr = unsafe { zeroed() };
        request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        request.send_flags = SIGNALED;
        request.imm_data = immediate.to_be();
        let mut bad = ptr::null_mut();
        // SAFETY: the QP is there, and the list has one request.
        unsafe {
            let qp = (*self.id).qp;
            let post = (*(*qp).context).ops.post_send.unwrap();
            assert_eq!(post(qp, &mut request, &mut bad), 0);
        }
    }
}

/// The greeting of an rsocket that has a list of targets there, and a first target with a key that does not exist.
fn hello(addr: u64, key: u32) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[0] = 1;
    bytes[2..4].copy_from_slice(&384_u16.to_be_bytes());
    bytes[8..16].copy_from_slice(&addr.to_be_bytes());
    bytes[16..20].copy_from_slice(&key.to_be_bytes());
    bytes[23] = 2;
    bytes[36..].copy_from_slice(&1024_u32.to_be_bytes());
    bytes
}

#[test]
fn other_private_data_is_refused_and_the_listener_goes_on() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    for seed in seeds(4) {
        println!("BAREVERBS_TEST_SEED={seed}");
        let random = &mut Random(seed | 1);
        let mut data: Vec<u8> = (0..random.below(57))
            .map(|_| random.below(256) as u8)
            .collect();
        if let Some(version) = data.first_mut() {
            *version = if *version == 1 { 2 } else { *version };
        }
        let refused = Stranger::connect(port, |_, _| data).map(drop);
        assert_eq!(refused, Err(libc::ECONNREFUSED));
    }
    let client = Socket::client(port);
    let server = listener.accept().unwrap();
    client.send(b"x", 0).unwrap();
    assert_eq!(server.recv(&mut [0; 8], 0), Ok(1));
}

#[test]
fn more_bytes_than_there_is_room_for_end_the_connection() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let stranger = Stranger::new(port);
    let server = listener.accept().unwrap();
    stranger.say(100);
    let mut bytes = vec![0; 1 << 20];
    assert_eq!(server.recv(&mut bytes, 0), Ok(100));
    // Half of the ring was lent at first, the other half with the first credits.
    stranger.say(128 << 10);
    assert_eq!(server.recv(&mut bytes, 0), Err(libc::EPROTO));
    assert_eq!(
        server.get(libc::SOL_SOCKET, libc::SO_ERROR),
        Ok(libc::EPROTO)
    );
}

#[test]
fn more_messages_than_credits_end_the_connection() {
    setup();
    let port = free_port();
    let listener = Socket::new();
    // The fewest credits.
    listener.set(0x10000, 1, 1).unwrap();
    listener.bind(SERVER, port).unwrap();
    listener.listen().unwrap();
    let stranger = Stranger::new(port);
    let server = listener.accept().unwrap();
    for _ in 0..17 {
        stranger.say(1);
    }
    let events = crate::calls::poll(&[(server.0, 0)], -1);
    assert_eq!(events[0] & libc::POLLERR, libc::POLLERR);
    // What came before is there.
    let mut bytes = [0; 100];
    assert_eq!(server.recv(&mut bytes, 0), Ok(16));
    assert_eq!(server.recv(&mut bytes, 0), Err(libc::EPROTO));
}

#[test]
fn messages_that_nobody_knows_do_nothing() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let stranger = Stranger::new(port);
    let server = listener.accept().unwrap();
    for immediate in [
        0x2000_0001,
        0x4000_0000,
        0x6fff_ffff,
        0xa000_0000,
        0xe000_0001,
        0xffff_ffff,
    ] {
        stranger.say(immediate);
    }
    stranger.say(0);
    stranger.say(5);
    assert_eq!(server.recv(&mut [0; 100], 0), Ok(5));
}

#[test]
fn an_end_that_writes_its_targets_badly_harms_itself_only() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    // Its target's key is none, so that the first WRITE there breaks the connection.
    let stranger = Stranger::new(port);
    let server = listener.accept().unwrap();
    let sent = server.send(&[1; 5000], 0);
    assert!(
        matches!(sent, Err(libc::ECONNRESET) | Ok(1..=1024)),
        "{sent:?}"
    );
    assert_eq!(server.recv(&mut [0; 100], 0), Err(libc::ECONNRESET));
    drop(stranger);
}

#[test]
fn an_end_that_goes_without_a_word_ends_calls_that_wait() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let stranger = Stranger::new(port);
    let server = listener.accept().unwrap();
    // Its QP is gone, and the connection manager says nothing.
    // SAFETY: the id is there, and its QP is not used again.
    unsafe { rdma_destroy_qp(stranger.id) };
    let received = server.recv(&mut [0; 100], 0);
    assert!(
        matches!(received, Err(libc::ETIMEDOUT | libc::ECONNRESET)),
        "{received:?}"
    );
}

#[test]
fn an_end_that_disconnects_without_closing_is_a_reset() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let stranger = Stranger::new(port);
    let server = listener.accept().unwrap();
    stranger.say(3);
    assert_eq!(server.recv(&mut [0; 100], 0), Ok(3));
    drop(stranger);
    assert_eq!(server.recv(&mut [0; 100], 0), Err(libc::ECONNRESET));
}
