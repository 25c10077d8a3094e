//! Event channels under drawn orders of calls: what `poll` says of a channel's descriptor is what `rdma_get_cm_event` finds.

// UNSAFETY: calls functions of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;

use bareverbs_c::abi::cma::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use libc::{pollfd, sockaddr, sockaddr_in};

#[path = "rsockets/random.rs"]
mod random;
use random::{Random, seeds};

unsafe extern "C" {
    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: c_int,
    ) -> c_int;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
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
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event)
    -> c_int;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
}

const RDMA_PS_TCP: c_int = 0x0106;
const CONNECT_REQUEST: c_int = 4;
const CHANNELS: usize = 3;
const MOST_IDS: usize = 12;

fn address(port: u16) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(std::net::Ipv4Addr::new(10, 0, 0, 1)).to_be(),
        },
        sin_zero: [0; 8],
    }
}

struct Channel(*mut rdma_event_channel);

impl Channel {
    fn new() -> Self {
        // SAFETY: a new channel, whose descriptor gets a flag.
        unsafe {
            let channel = rdma_create_event_channel();
            assert!(!channel.is_null());
            libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK);
            Self(channel)
        }
    }

    fn is_readable(&self, milliseconds: c_int) -> bool {
        let mut entry = pollfd {
            // SAFETY: the channel is there.
            fd: unsafe { (*self.0).fd },
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut entry, 1, milliseconds) == 1 }
    }

    /// Takes an event without waiting: its type, and its id.
    fn take(&self) -> io::Result<(c_int, *mut rdma_cm_id)> {
        let mut event = null_mut();
        // SAFETY: the channel is there; the event is acknowledged once.
        unsafe {
            if rdma_get_cm_event(self.0, &mut event) != 0 {
                return Err(io::Error::last_os_error());
            }
            let found = ((*event).event, (*event).id);
            assert_eq!(rdma_ack_cm_event(event), 0);
            Ok(found)
        }
    }
}

/// The parameters of a connection whose QP is the program's.
fn param() -> rdma_conn_param {
    // SAFETY: numbers and pointers may be zero.
    let mut param: rdma_conn_param = unsafe { zeroed() };
    param.qp_num = 77;
    param
}

struct Run {
    channels: Vec<Channel>,
    ids: Vec<*mut rdma_cm_id>,
    next_port: u16,
    ports: Vec<u16>,
    taken: usize,
}

impl Run {
    /// A call, of which some fail as the id is in no state for them: that is no matter here.
    fn step(&mut self, random: &mut Random) -> String {
        let channel = &self.channels[random.below(CHANNELS)];
        let id = match self.ids.len() {
            0 => null_mut(),
            count => self.ids[random.below(count)],
        };
        let kind = random.below(12);
        if kind >= 10 {
            channel.is_readable(20);
            return "wait".into();
        }
        if kind == 9 {
            return self.look(random.below(CHANNELS));
        }
        if id.is_null() || kind < 2 && self.ids.len() < MOST_IDS {
            let listens = kind == 0 || self.ports.is_empty();
            return self.create(random, listens);
        }
        // SAFETY: ids, channels and parameters are there.
        unsafe {
            match kind {
                0 | 1 => {
                    self.ids.retain(|other| *other != id);
                    format!("destroy {}", rdma_destroy_id(id))
                }
                2 => format!("migrate {}", rdma_migrate_id(id, channel.0)),
                3 => format!("resolve route {}", rdma_resolve_route(id, 1000)),
                4 | 5 => format!("connect {}", rdma_connect(id, &mut param())),
                6 => format!("accept {}", rdma_accept(id, &mut param())),
                7 => format!("reject {}", rdma_reject(id, null_mut(), 0)),
                _ => format!("disconnect {}", rdma_disconnect(id)),
            }
        }
    }

    fn create(&mut self, random: &mut Random, listens: bool) -> String {
        let channel = &self.channels[random.below(CHANNELS)];
        let mut id = null_mut();
        // SAFETY: the channel is there, and the address is one.
        unsafe {
            assert_eq!(
                rdma_create_id(channel.0, &mut id, null_mut(), RDMA_PS_TCP),
                0
            );
            self.ids.push(id);
            if listens {
                self.next_port += 1;
                self.ports.push(self.next_port);
                let mut own = address(self.next_port);
                assert_eq!(rdma_bind_addr(id, (&raw mut own).cast()), 0);
                format!("listen {}", rdma_listen(id, 4))
            } else {
                let port = self.ports[random.below(self.ports.len())];
                let mut to = address(port);
                let resolved = rdma_resolve_addr(id, null_mut(), (&raw mut to).cast(), 1000);
                format!("resolve address {resolved}")
            }
        }
    }

    /// `poll` and `rdma_get_cm_event` of a channel.
    fn look(&mut self, channel: usize) -> String {
        let channel = &self.channels[channel];
        let is_readable = channel.is_readable(0);
        match channel.take() {
            Ok((event, id)) => {
                self.taken += 1;
                if event == CONNECT_REQUEST {
                    self.ids.push(id);
                }
                format!("event {event}")
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
                assert!(!is_readable, "the descriptor was readable without an event");
                "no event".into()
            }
        }
    }
}

#[test]
fn poll_and_get_agree() {
    let mut taken = 0;
    for seed in seeds(12) {
        println!("BAREVERBS_TEST_SEED={seed}");
        let random = &mut Random(seed);
        let mut run = Run {
            channels: (0..CHANNELS).map(|_| Channel::new()).collect(),
            ids: Vec::new(),
            next_port: 7000,
            ports: Vec::new(),
            taken: 0,
        };
        for _ in 0..300 {
            println!("{}", run.step(random));
        }
        for channel in 0..CHANNELS {
            while run.look(channel) != "no event" {}
        }
        for id in std::mem::take(&mut run.ids) {
            // SAFETY: it is there, and is not used again.
            assert_eq!(unsafe { rdma_destroy_id(id) }, 0);
        }
        for (channel, it) in run.channels.iter().enumerate() {
            assert!(!it.is_readable(0), "channel {channel} without an id");
            // SAFETY: no id has it any more.
            unsafe { rdma_destroy_event_channel(it.0) };
        }
        taken += run.taken;
    }
    assert!(taken > 100, "only {taken} events");
}
