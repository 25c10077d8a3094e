//! The connection manager's file, `/dev/infiniband/rdma_cm`: the commands that librdmacm writes, answered by `RdmaCm`.
//!
//! An id of `RdmaCm` has no QP here: librdmacm moves the program's own, with attributes from `INIT_QP_ATTR`.

// UNSAFETY: reads and writes the program's memory, where the program says.
#![expect(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::FromRawFd;
use std::time::Duration;

use bareverbs_node::cm::rdma::{
    ChannelId, CmEvent, CmId, ConnParam, EventType, IdType, PortSpace, RdmaError, SockAddr,
};
use bareverbs_node::verbs::{Gid, QpState};
use libc::{c_int, c_void};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::abi::*;
use crate::attrs::Result;
use crate::cancel;
use crate::program_memory;
use crate::server::Server;

/// An error number for what the connection manager says.
fn refused(error: RdmaError) -> i32 {
    log::debug!("{error}");
    match error.errno() {
        0 => libc::EIO,
        errno => errno.saturating_abs(),
    }
}

/// A command in the program's memory.
pub(crate) struct Written {
    at: *const u8,
    len: usize,
}

impl Written {
    pub(crate) const fn new(at: *const c_void, len: usize) -> Self {
        Self { at: at.cast(), len }
    }

    /// The value at an offset, from its beginning; the rest of a shorter one is zero.
    fn read<T: FromBytes + IntoBytes + FromZeros>(&self, offset: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        let len = size_of::<T>().min(self.len.saturating_sub(offset));
        let from = (self.at as u64).wrapping_add(offset as u64);
        program_memory::read(from, &mut value.as_mut_bytes()[..len])?;
        Ok(value)
    }

    pub(crate) fn header(&self) -> Result<CmHeader> {
        self.read(0)
    }

    /// Returns `true` if the header describes all of it, as that of a command does.
    pub(crate) fn is_command(&self) -> bool {
        let Ok(CmHeader { command, len, .. }) = self.header() else {
            return false;
        };
        let header = size_of::<CmHeader>();
        command < 32 && self.len >= header && usize::from(len) == self.len - header
    }

    fn input<T: FromBytes + IntoBytes + FromZeros>(&self) -> Result<T> {
        self.read(size_of::<CmHeader>())
    }

    /// Answers where the command says.
    fn output<T: IntoBytes + Immutable>(&self, response: u64, value: &T) -> Result<()> {
        let len = usize::from(self.header()?.out).min(size_of::<T>());
        if response == 0 {
            return Err(libc::EFAULT);
        }
        program_memory::write(response, &value.as_bytes()[..len])
    }
}

/// An id of a program.
struct Id {
    file: c_int,
    cm: CmId,
    uid: u64,
    /// Events that the program has taken.
    events: u32,
}

/// An open file: its events, and a counter that makes the descriptor readable while there are some.
struct Events {
    waiting: VecDeque<CmEvent>,
    counter: File,
    is_readable: bool,
}

/// The ids and files that programs have of the connection manager.
#[derive(Default)]
pub(crate) struct Manager {
    channel: Option<ChannelId>,
    files: HashMap<c_int, Events>,
    ids: HashMap<u32, Id>,
    next: u32,
}

impl Manager {
    fn id(&mut self, id: u32) -> Result<&mut Id> {
        self.ids.get_mut(&id).ok_or(libc::EINVAL)
    }

    fn add(&mut self, id: Id) -> u32 {
        self.next += 1;
        self.ids.insert(self.next, id);
        self.next
    }
}

fn from_c(address: &Sockaddr) -> Result<SocketAddr> {
    let port = u16::from_be_bytes(address.port);
    let ip: IpAddr = match i32::from(address.family) {
        libc::AF_INET => address.flow_info.into(),
        libc::AF_INET6 => address.address.into(),
        _ => return Err(libc::EINVAL),
    };
    Ok((ip, port).into())
}

fn to_c(address: Option<SocketAddr>) -> Sockaddr {
    let mut to = Sockaddr::new_zeroed();
    let Some(address) = address else {
        return to;
    };
    to.port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => {
            (to.family, to.flow_info) = (libc::AF_INET as u16, ip.octets());
        }
        IpAddr::V6(ip) => {
            (to.family, to.address) = (libc::AF_INET6 as u16, ip.octets());
        }
    }
    to
}

fn param(from: &Param) -> ConnParam<'_> {
    ConnParam {
        private_data: &from.private_data[..from.private_data_len.into()],
        responder_resources: from.responder_resources,
        initiator_depth: from.initiator_depth,
        flow_control: from.flow_control != 0,
        retry_count: from.retry_count,
        rnr_retry_count: from.rnr_retry_count,
        srq: from.srq != 0,
        qp_num: from.qp_num,
    }
}

impl Server<'_, '_, '_> {
    /// A descriptor becomes a file of the connection manager's: it is a counter from now on, which can be waited for.
    pub(crate) fn open_cm(&mut self, fd: c_int) -> Result<()> {
        if self.manager.channel.is_none() {
            let channel = self.cm.create_event_channel().map_err(refused)?;
            self.manager.channel = Some(channel);
        }
        // SAFETY: a new descriptor, which replaces the program's. Its flags are kept.
        let counter = unsafe {
            let counter = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            let flags = libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK;
            if counter < 0 || libc::dup3(counter, fd, libc::O_CLOEXEC) < 0 {
                return Err(libc::EMFILE);
            }
            libc::fcntl(fd, libc::F_SETFL, flags);
            File::from_raw_fd(counter)
        };
        self.manager.files.insert(
            fd,
            Events {
                waiting: VecDeque::new(),
                counter,
                is_readable: false,
            },
        );
        Ok(())
    }

    /// A file of the connection manager's was closed.
    pub(crate) fn close_cm(&mut self, fd: c_int) {
        self.drop_events(fd, |_| true);
        self.manager.files.remove(&fd);
        let cm = &mut *self.cm;
        self.manager.ids.retain(|_, id| {
            if id.file == fd {
                let _ = cm.destroy_id(id.cm);
            }
            id.file != fd
        });
    }

    /// Drops events that were not taken, and with a request its id.
    fn drop_events(&mut self, fd: c_int, which: impl Fn(&CmEvent) -> bool) {
        let Some(events) = self.manager.files.get_mut(&fd) else {
            return;
        };
        let (dropped, kept): (VecDeque<_>, VecDeque<_>) = events.waiting.drain(..).partition(which);
        events.waiting = kept;
        for event in dropped {
            if event.event == EventType::ConnectRequest {
                let _ = self.cm.destroy_id(event.id);
            }
        }
    }

    /// Hands events of ids to the files, and makes these readable.
    pub(crate) fn deliver_cm_events(&mut self) {
        let manager = &mut self.manager;
        let Some(channel) = manager.channel else {
            return;
        };
        while let Ok(Some(event)) = self.cm.try_get_cm_event(channel) {
            let number = event.context as u32;
            let Some(file) = manager.ids.get(&number).map(|id| id.file) else {
                continue;
            };
            if let Some(events) = manager.files.get_mut(&file) {
                events.waiting.push_back(event);
            }
        }
        for events in manager.files.values_mut() {
            let has = !events.waiting.is_empty();
            if has == events.is_readable {
                continue;
            }
            events.is_readable = has;
            // A counter that cannot be read or written is as it is to be.
            let _ = match has {
                true => events.counter.write(&1_u64.to_ne_bytes()),
                false => events.counter.read(&mut [0; 8]),
            };
        }
    }

    /// Answers a command.
    pub(crate) fn cm_command(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let number = written.header()?.command;
        let done = self.cm_answer(fd, number, written);
        self.deliver_cm_events();
        log::debug!("connection manager's command {number}: {done:?}");
        done
    }

    fn cm_answer(&mut self, fd: c_int, number: u32, written: &Written) -> Result<()> {
        match number {
            cm_command::CREATE_ID => {
                let asked: CreateIdIn = written.input()?;
                let port_space = match asked.port_space {
                    0x0106 => PortSpace::Tcp,
                    0x013f => PortSpace::Ib,
                    // Events of datagrams have `struct rdma_ucm_ud_param`.
                    _ => return Err(libc::EINVAL),
                };
                let number = u64::from(self.manager.next) + 1;
                let kind = IdType::of_port_space(port_space);
                let channel = self.manager.channel;
                let cm = self.cm.create_id_of(channel, number, port_space, kind);
                let id = self.manager.add(Id {
                    file: fd,
                    cm: cm.map_err(refused)?,
                    uid: asked.uid,
                    events: 0,
                });
                written.output(asked.response, &CmIdOnly { id })
            }
            cm_command::DESTROY_ID => {
                let DestroyIdIn { response, id, .. } = written.input()?;
                let Id {
                    cm, events, file, ..
                } = *self.manager.id(id)?;
                self.cm.destroy_id(cm).map_err(refused)?;
                self.manager.ids.remove(&id);
                self.drop_events(file, |event| event.context as u32 == id);
                written.output(response, &events)
            }
            cm_command::BIND_IP => {
                let BindIpIn { address, id, .. } = written.input()?;
                let cm = self.manager.id(id)?.cm;
                self.cm.bind_addr(cm, from_c(&address)?).map_err(refused)
            }
            cm_command::RESOLVE_IP => {
                let asked: ResolveIpIn = written.input()?;
                let cm = self.manager.id(asked.id)?.cm;
                let source = match asked.source.family {
                    0 => None,
                    _ => Some(from_c(&asked.source)?),
                };
                let destination = from_c(&asked.destination)?;
                let timeout = Duration::from_millis(asked.timeout_ms.into());
                let begun = self.cm.resolve_addr::<SockAddr>(
                    cm,
                    source.map(Into::into),
                    destination.into(),
                    timeout,
                );
                begun.map_err(refused)
            }
            cm_command::RESOLVE_ROUTE => {
                let ResolveRouteIn { id, timeout_ms } = written.input()?;
                let cm = self.manager.id(id)?.cm;
                let timeout = Duration::from_millis(timeout_ms.into());
                self.cm.resolve_route(cm, timeout).map_err(refused)
            }
            cm_command::QUERY_ROUTE => self.query_route(written),
            cm_command::CONNECT => {
                let asked: ConnectIn = written.input()?;
                let cm = self.manager.id(asked.id)?.cm;
                let param = param(&asked.param);
                self.cm.connect(cm, Some(&param)).map_err(refused)
            }
            cm_command::LISTEN => {
                let ListenIn { id, backlog } = written.input()?;
                let cm = self.manager.id(id)?.cm;
                self.cm.listen(cm, backlog).map_err(refused)?;
                // Servers print nothing when they are ready; test harnesses wait for this.
                let port = self.cm.get_src_port(cm).map_err(refused)?;
                log::info!("rdma_listen: at port {port}");
                Ok(())
            }
            cm_command::ACCEPT => {
                let asked: AcceptIn = written.input()?;
                let id = self.manager.id(asked.id)?;
                let cm = id.cm;
                // Without parameters it is the confirmation of the end that connects.
                if asked.param.valid == 0 {
                    return self.cm.establish(cm).map_err(refused);
                }
                id.uid = asked.uid;
                let param = param(&asked.param);
                self.cm.accept(cm, Some(&param)).map_err(refused)
            }
            cm_command::REJECT => {
                let asked: RejectIn = written.input()?;
                let cm = self.manager.id(asked.id)?.cm;
                let data = &asked.private_data[..asked.len.into()];
                self.cm.reject(cm, data).map_err(refused)
            }
            cm_command::DISCONNECT => {
                let CmIdOnly { id } = written.input()?;
                let cm = self.manager.id(id)?.cm;
                self.cm.disconnect(cm).map_err(refused)
            }
            cm_command::NOTIFY => {
                let CmIdOnly { id } = written.input()?;
                let cm = self.manager.id(id)?.cm;
                self.cm.notify(cm).map_err(refused)
            }
            cm_command::INIT_QP_ATTR => self.init_qp_attr(written),
            cm_command::GET_EVENT => self.get_event(fd, written),
            _ => Err(libc::ENOSYS),
        }
    }

    fn query_route(&mut self, written: &Written) -> Result<()> {
        let QueryRouteIn { response, id, .. } = written.input()?;
        let cm = self.manager.id(id)?.cm;
        let source = self.cm.get_local_addr(cm).map_err(refused)?;
        let destination = self.cm.get_peer_addr(cm).map_err(refused)?;
        let gid = |address: Option<SocketAddr>| {
            address
                .map_or(Gid::ZERO, |address| Gid::from(address.ip()))
                .0
        };
        let mut out = QueryRouteOut::new_zeroed();
        out.paths[0].sgid = gid(source);
        out.paths[0].dgid = gid(destination);
        out.paths[0].pkey = [0xff; 2];
        out.source = to_c(source);
        out.destination = to_c(destination);
        if source.is_some_and(|source| !source.ip().is_unspecified()) {
            out.node_guid = self.node_guid;
            out.port_num = 1;
        }
        // The device has no number in netlink.
        out.ibdev_index = u32::MAX;
        written.output(response, &out)
    }

    fn init_qp_attr(&mut self, written: &Written) -> Result<()> {
        let asked: InitQpAttrIn = written.input()?;
        let cm = self.manager.id(asked.id)?.cm;
        let state = match asked.qp_state {
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            _ => return Err(libc::EINVAL),
        };
        let (attr, mask) = self.cm.init_qp_attr(cm, state).map_err(refused)?;
        let path = &attr.ah_attr;
        let out = QpAttrOut {
            mask: mask.bits(),
            qp_state: asked.qp_state,
            path_mtu: attr.path_mtu.number().into(),
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qp_num.number(),
            qp_access_flags: attr.qp_access_flags.bits(),
            ah_attr: AhAttrOut {
                dgid: path.dgid.0,
                flow_label: path.flow_label,
                sgid_index: path.sgid_index as u8,
                hop_limit: path.hop_limit,
                traffic_class: path.traffic_class,
                sl: path.sl,
                static_rate: path.static_rate.number(),
                is_global: 1,
                port_num: 1,
                ..FromZeros::new_zeroed()
            },
            pkey_index: attr.pkey_index,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port_num,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            ..FromZeros::new_zeroed()
        };
        written.output(asked.response, &out)
    }

    fn get_event(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let GetEventIn { response } = written.input()?;
        let manager = &mut self.manager;
        let events = manager.files.get(&fd).ok_or(libc::EINVAL)?;
        let event = *events.waiting.front().ok_or(libc::EAGAIN)?;
        let asked = event.context as u32;
        let uid = manager.id(asked)?.uid;
        // The id of a request is new, and has no name of the program's yet.
        let is_request = event.event == EventType::ConnectRequest;
        let number = if is_request { manager.next + 1 } else { asked };
        let mut param = Param::new_zeroed();
        let data = event.private_data();
        param.private_data[..data.len()].copy_from_slice(data);
        param.private_data_len = data.len() as u8;
        param.qp_num = event.conn.qp_num;
        param.srq = event.conn.srq.into();
        param.responder_resources = event.conn.responder_resources;
        param.initiator_depth = event.conn.initiator_depth;
        param.flow_control = event.conn.flow_control.into();
        param.retry_count = event.conn.retry_count;
        param.rnr_retry_count = event.conn.rnr_retry_count;
        let out = CmEventOut {
            uid,
            id: number,
            event: event.event as u32,
            status: event.status as u32,
            param,
            ..FromZeros::new_zeroed()
        };
        // An event that the program does not get stays the next one.
        written.output(response, &out)?;
        if let Some(events) = self.manager.files.get_mut(&fd) {
            events.waiting.pop_front();
        }
        self.manager.id(asked)?.events += 1;
        if is_request {
            let number = self.manager.add(Id {
                file: fd,
                cm: event.id,
                uid: 0,
                events: 0,
            });
            let context = u64::from(number);
            self.cm.set_context(event.id, context).map_err(refused)?;
        }
        Ok(())
    }
}

/// Waits until there is an event, unless the descriptor says that nothing is to be waited for.
pub(crate) fn wait(fd: c_int) -> Result<()> {
    // SAFETY: the structure can be written.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags >= 0 && flags & libc::O_NONBLOCK != 0 {
            return Err(libc::EAGAIN);
        }
        let mut asked = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // Nothing is to be dropped here if the thread is cancelled.
        loop {
            match cancel::poll(&mut asked, 1, -1) {
                // Another thread has closed it, upon which a caller in Linux's kernel waits for ever.
                1.. if asked.revents & libc::POLLNVAL != 0 => asked.fd = -1,
                1.. => return Ok(()),
                _ => return Err(libc::EINTR),
            }
        }
    }
}
