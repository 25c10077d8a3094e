//! The connection manager's file, `/dev/infiniband/rdma_cm`: the commands that librdmacm writes, answered by `RdmaCm`.
//!
//! An id of `RdmaCm` has no QP here: librdmacm moves the program's own, with attributes from `INIT_QP_ATTR`.

// UNSAFETY: reads and writes the program's memory, where the program says.
#![expect(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{Read, Write};
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::FromRawFd;
use std::time::Duration;

use bareverbs_node::cm::rdma::{
    ChannelId, CmEvent, CmId, ConnParam, EventType, IdType, PortSpace, RdmaError, Route, SockAddr,
};
use bareverbs_node::verbs::{AhAttr, Gid, QpState};
use libc::{c_int, c_void};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::attrs::Result;
use crate::cancel;
use crate::cm_abi::*;
use crate::cm_group::{Group, is_of_group};
use crate::program_memory;
use crate::server::Server;

/// `IB_SA_EQ`: a value of a path is as it is said.
const EXACTLY: u8 = 2;
/// `IB_EVENT_COMM_EST`.
const COMMUNICATION_ESTABLISHED: u32 = 4;

/// An error number for what the connection manager says.
pub(crate) fn refused(error: RdmaError) -> i32 {
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

    pub(crate) fn input<T: FromBytes + IntoBytes + FromZeros>(&self) -> Result<T> {
        self.read(size_of::<CmHeader>())
    }

    /// A command that became longer; it has to reach to the end of what it had first.
    fn input_from<T: FromBytes + IntoBytes + FromZeros>(&self, least: usize) -> Result<T> {
        match usize::from(self.header()?.len) < least {
            true => Err(libc::EINVAL),
            false => self.input(),
        }
    }

    /// Answers where the command says.
    pub(crate) fn output<T: IntoBytes + Immutable>(&self, response: u64, value: &T) -> Result<()> {
        let len = usize::from(self.header()?.out).min(size_of::<T>());
        if response == 0 {
            return Err(libc::EFAULT);
        }
        program_memory::write(response, &value.as_bytes()[..len])
    }
}

/// An id of a program.
pub(crate) struct Id {
    pub(crate) file: c_int,
    pub(crate) cm: CmId,
    uid: u64,
    /// Its QP is for datagrams, and its events say where to send these.
    is_datagram: bool,
    /// Events that the program has taken.
    pub(crate) events: u32,
}

/// An event that was not taken, and the id or group that it names: of a request the new id.
pub(crate) struct Waiting {
    pub(crate) event: CmEvent,
    pub(crate) named: u32,
}

impl Waiting {
    /// The id that it is an event of: of a request the listener.
    pub(crate) const fn of(&self) -> u32 {
        self.event.context as u32
    }
}

/// An open file: its events, and a counter that makes the descriptor readable while there are some.
pub(crate) struct Events {
    pub(crate) waiting: VecDeque<Waiting>,
    counter: File,
    is_readable: bool,
}

/// The ids and files that programs have of the connection manager.
#[derive(Default)]
pub(crate) struct Manager {
    channel: Option<ChannelId>,
    pub(crate) files: HashMap<c_int, Events>,
    ids: HashMap<u32, Id>,
    next: u32,
    pub(crate) groups: HashMap<u32, Group>,
    pub(crate) next_group: u32,
}

impl Manager {
    pub(crate) fn id(&mut self, id: u32) -> Option<&mut Id> {
        self.ids.get_mut(&id)
    }

    /// The id of a file: `ucma_get_ctx`.
    pub(crate) fn id_of(&mut self, file: c_int, id: u32) -> Result<&mut Id> {
        let found = self.ids.get_mut(&id).ok_or(libc::ENOENT)?;
        match found.file == file {
            true => Ok(found),
            false => Err(libc::EINVAL),
        }
    }

    fn add(&mut self, id: Id) -> u32 {
        self.next += 1;
        self.ids.insert(self.next, id);
        self.next
    }
}

pub(crate) fn from_c(address: &Sockaddr) -> Result<SocketAddr> {
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
        qp_num: from.qp_num & 0xff_ffff,
    }
}

/// The other end's parameters in an event of a connection's id.
fn param_to_c(event: &CmEvent) -> Param {
    let mut param = Param {
        qp_num: event.conn.qp_num,
        srq: event.conn.srq.into(),
        responder_resources: event.conn.responder_resources,
        initiator_depth: event.conn.initiator_depth,
        flow_control: event.conn.flow_control.into(),
        retry_count: event.conn.retry_count,
        rnr_retry_count: event.conn.rnr_retry_count,
        ..FromZeros::new_zeroed()
    };
    let data = event.private_data();
    param.private_data[..data.len()].copy_from_slice(data);
    param.private_data_len = data.len() as u8;
    param
}

/// The destination in an event of a datagrams' id.
fn ud_param_to_c(event: &CmEvent) -> UdParam {
    let mut param = UdParam {
        qp_num: event.ud.qp_num,
        qkey: event.ud.qkey,
        ..FromZeros::new_zeroed()
    };
    let path = &event.ud.ah_attr;
    // A request says nothing of the way back (`cma_ib_req_handler`).
    if event.event != EventType::ConnectRequest && !path.dgid.is_zero() {
        param.ah_attr = path_to_c(path);
    }
    let data = event.private_data();
    param.private_data[..data.len()].copy_from_slice(data);
    param.private_data_len = data.len() as u8;
    param
}

fn path_to_c(path: &AhAttr) -> AhAttrOut {
    AhAttrOut {
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
        let groups = &mut self.manager.groups;
        self.manager.ids.retain(|number, id| {
            if id.file == fd {
                let _ = cm.destroy_id(id.cm);
                groups.retain(|_, group| !group.is_of(*number));
            }
            id.file != fd
        });
    }

    /// Drops events that were not taken, and with a request its id.
    pub(crate) fn drop_events(&mut self, fd: c_int, which: impl Fn(&Waiting) -> bool) {
        let Some(events) = self.manager.files.get_mut(&fd) else {
            return;
        };
        let (dropped, kept): (VecDeque<_>, VecDeque<_>) = events.waiting.drain(..).partition(which);
        events.waiting = kept;
        for Waiting { event, named } in dropped {
            if event.event == EventType::ConnectRequest {
                let _ = self.cm.destroy_id(event.id);
                self.manager.ids.remove(&named);
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
            let of = event.context as u32;
            let Some(&Id {
                file,
                cm,
                uid,
                is_datagram,
                ..
            }) = manager.ids.get(&of)
            else {
                continue;
            };
            // The program hears of the id of a request when it has accepted: `ucma_event_handler`.
            let named = match event.event {
                EventType::ConnectRequest => {
                    let new = Id {
                        file,
                        cm: event.id,
                        uid: 0,
                        is_datagram,
                        events: 0,
                    };
                    let number = manager.add(new);
                    // There is such an id: its event says so.
                    let _ = self.cm.set_context(event.id, number.into());
                    number
                }
                _ if uid == 0 || event.id != cm => continue,
                of_group if is_of_group(of_group) => event.arg as u32,
                _ => of,
            };
            if is_of_group(event.event) && !manager.groups.contains_key(&named) {
                continue;
            }
            if let Some(events) = manager.files.get_mut(&file) {
                events.waiting.push_back(Waiting { event, named });
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
        if usize::from(written.header()?.out) < least_answer(number) {
            return Err(libc::ENOSPC);
        }
        match number {
            cm_command::CREATE_ID => {
                let asked: CreateIdIn = written.input()?;
                // Port spaces, and types of QPs (`enum ib_qp_type`) for the one that has several.
                let (port_space, kind) = match (asked.port_space, asked.qp_type) {
                    (0x0002, _) => (PortSpace::Ipoib, IdType::Ud),
                    (0x0106, _) => (PortSpace::Tcp, IdType::Rc),
                    (0x0111, _) => (PortSpace::Udp, IdType::Ud),
                    (0x013f, 2) => (PortSpace::Ib, IdType::Rc),
                    (0x013f, 3) => (PortSpace::Ib, IdType::Uc),
                    (0x013f, 4) => (PortSpace::Ib, IdType::Ud),
                    (0x013f, 9) => (PortSpace::Ib, IdType::XrcSend),
                    (0x013f, 10) => (PortSpace::Ib, IdType::XrcRecv),
                    _ => return Err(libc::EINVAL),
                };
                let number = u64::from(self.manager.next) + 1;
                let channel = self.manager.channel;
                let cm = self.cm.create_id_of(channel, number, port_space, kind);
                let id = self.manager.add(Id {
                    file: fd,
                    cm: cm.map_err(refused)?,
                    uid: asked.uid,
                    is_datagram: kind == IdType::Ud,
                    events: 0,
                });
                written.output(asked.response, &CmIdOnly { id })
            }
            cm_command::DESTROY_ID => {
                let DestroyIdIn { response, id, .. } = written.input()?;
                let Id { cm, events, .. } = *self.manager.id_of(fd, id)?;
                self.cm.destroy_id(cm).map_err(refused)?;
                self.manager.ids.remove(&id);
                self.manager.groups.retain(|_, group| !group.is_of(id));
                self.drop_events(fd, |waiting| waiting.of() == id);
                written.output(response, &events)
            }
            cm_command::BIND_IP => {
                let BindIpIn { address, id, .. } = written.input()?;
                let address = from_c(&address)?;
                let cm = self.manager.id_of(fd, id)?.cm;
                self.cm.bind_addr(cm, address).map_err(refused)
            }
            cm_command::RESOLVE_IP => {
                let asked: ResolveIpIn = written.input()?;
                let source = match asked.source.family {
                    0 => None,
                    _ => Some(from_c(&asked.source)?),
                };
                let destination = from_c(&asked.destination)?;
                let cm = self.manager.id_of(fd, asked.id)?.cm;
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
                let cm = self.manager.id_of(fd, id)?.cm;
                let timeout = Duration::from_millis(timeout_ms.into());
                self.cm.resolve_route(cm, timeout).map_err(refused)
            }
            cm_command::QUERY_ROUTE => self.query_route(fd, written),
            cm_command::CONNECT => {
                let asked: ConnectIn = written.input_from(offset_of!(ConnectIn, ece))?;
                if asked.param.valid == 0 {
                    return Err(libc::EINVAL);
                }
                let cm = self.manager.id_of(fd, asked.id)?.cm;
                let param = param(&asked.param);
                self.cm.connect(cm, Some(&param)).map_err(refused)
            }
            cm_command::LISTEN => {
                let ListenIn { id, backlog } = written.input()?;
                let cm = self.manager.id_of(fd, id)?.cm;
                self.cm.listen(cm, backlog).map_err(refused)?;
                // Servers print nothing when they are ready; test harnesses wait for this.
                let port = self.cm.get_src_port(cm).map_err(refused)?;
                log::info!("rdma_listen: at port {port}");
                Ok(())
            }
            cm_command::ACCEPT => {
                let asked: AcceptIn = written.input_from(offset_of!(AcceptIn, ece))?;
                let id = self.manager.id_of(fd, asked.id)?;
                // Without parameters it is the confirmation of the end that connects.
                if asked.param.valid == 0 {
                    return self.cm.establish(id.cm).map_err(refused);
                }
                let param = param(&asked.param);
                self.cm.accept(id.cm, Some(&param)).map_err(refused)?;
                id.uid = asked.uid;
                Ok(())
            }
            cm_command::REJECT => {
                let asked: RejectIn = written.input()?;
                let data = &asked.private_data[..asked.len.into()];
                // `enum ib_cm_rej_reason`; nothing is the program's own reason.
                let is_ece = match asked.reason {
                    0 | 28 => false,
                    35 => true,
                    _ => return Err(libc::EINVAL),
                };
                let cm = self.manager.id_of(fd, asked.id)?.cm;
                let done = match is_ece {
                    true => self.cm.reject_ece(cm, data),
                    false => self.cm.reject(cm, data),
                };
                done.map_err(refused)
            }
            cm_command::DISCONNECT => {
                let CmIdOnly { id } = written.input()?;
                let cm = self.manager.id_of(fd, id)?.cm;
                self.cm.disconnect(cm).map_err(refused)
            }
            cm_command::NOTIFY => {
                let NotifyIn { id, event } = written.input()?;
                let cm = self.manager.id_of(fd, id)?.cm;
                match event {
                    COMMUNICATION_ESTABLISHED => self.cm.notify(cm).map_err(refused),
                    _ => Err(libc::EINVAL),
                }
            }
            cm_command::INIT_QP_ATTR => self.init_qp_attr(fd, written),
            cm_command::SET_OPTION => self.set_option(fd, written),
            cm_command::JOIN_IP_MCAST => self.join_ip_mcast(fd, written),
            cm_command::JOIN_MCAST => self.join_mcast(fd, written),
            cm_command::LEAVE_MCAST => self.leave_mcast(fd, written),
            cm_command::MIGRATE_ID => self.migrate_id(fd, written),
            cm_command::GET_EVENT => self.get_event(fd, written),
            _ => Err(libc::ENOSYS),
        }
    }

    fn query_route(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let QueryRouteIn { response, id, .. } = written.input()?;
        let cm = self.manager.id_of(fd, id)?.cm;
        let route = self.cm.route(cm).map_err(refused)?;
        let source = route.local;
        let mut out = QueryRouteOut::new_zeroed();
        out.source = to_c(source);
        out.destination = to_c(route.peer);
        (out.num_paths, out.paths[0]) = record(&route);
        if source.is_some_and(|source| !source.ip().is_unspecified()) {
            out.node_guid = self.node_guid;
            out.port_num = 1;
        }
        // The device has no number in netlink.
        out.ibdev_index = u32::MAX;
        written.output(response, &out)
    }

    fn init_qp_attr(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let asked: InitQpAttrIn = written.input()?;
        let cm = self.manager.id_of(fd, asked.id)?.cm;
        let state = match asked.qp_state {
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            _ => return Err(libc::EINVAL),
        };
        let (attr, mask) = self.cm.init_qp_attr(cm, state).map_err(refused)?;
        let out = QpAttrOut {
            mask: mask.bits(),
            qp_state: asked.qp_state,
            path_mtu: attr.path_mtu.number().into(),
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qp_num.number(),
            qp_access_flags: attr.qp_access_flags.bits(),
            ah_attr: path_to_c(&attr.ah_attr),
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
        let waiting = events.waiting.front().ok_or(libc::EAGAIN)?;
        let (event, named, asked) = (waiting.event, waiting.named, waiting.of());
        let Id {
            uid, is_datagram, ..
        } = *manager.id_of(fd, asked)?;
        let group = manager.groups.get(&named);
        let group = group.filter(|_| is_of_group(event.event));
        let uid = group.map_or(uid, |group| group.uid);
        let mut out = CmEventOut {
            uid,
            id: named,
            event: event.event as u32,
            status: event.status as u32,
            ..FromZeros::new_zeroed()
        };
        match is_datagram {
            true => out.param = zerocopy::transmute!(ud_param_to_c(&event)),
            false => {
                let param = param_to_c(&event);
                out.param[..size_of::<Param>()].copy_from_slice(param.as_bytes());
            }
        }
        // An event that the program does not get stays the next one.
        written.output(response, &out)?;
        if let Some(events) = self.manager.files.get_mut(&fd) {
            events.waiting.pop_front();
        }
        self.manager.id_of(fd, asked)?.events += 1;
        if is_of_group(event.event)
            && let Some(group) = self.manager.groups.get_mut(&named)
        {
            group.events += 1;
        }
        Ok(())
    }
}

/// The room that an answer has to have, as far as its structure had it from the beginning.
const fn least_answer(command: u32) -> usize {
    match command {
        cm_command::CREATE_ID | cm_command::JOIN_IP_MCAST | cm_command::JOIN_MCAST => {
            size_of::<CmIdOnly>()
        }
        cm_command::DESTROY_ID | cm_command::LEAVE_MCAST => size_of::<u32>(),
        cm_command::QUERY_ROUTE => offset_of!(QueryRouteOut, ibdev_index),
        cm_command::INIT_QP_ATTR => size_of::<QpAttrOut>(),
        cm_command::GET_EVENT => offset_of!(CmEventOut, reserved),
        _ => 0,
    }
}

/// The number of an id's paths, which is 0 before the route is resolved, and the path: its ends alone before that.
fn record(route: &Route) -> (u32, PathOut) {
    let gid =
        |address: Option<SocketAddr>| address.map_or([0; 16], |address| Gid::from(address.ip()).0);
    let ends = PathOut {
        sgid: gid(route.local),
        dgid: gid(route.peer),
        pkey: [0xff; 2],
        ..FromZeros::new_zeroed()
    };
    if route.path_mtu == 0 {
        return (0, ends);
    }
    let path = PathOut {
        flow_label: route.flow_label.to_be(),
        traffic_class: route.traffic_class,
        hop_limit: 64,
        reversible: 1,
        num_path: 1,
        mtu_selector: EXACTLY,
        mtu: route.path_mtu.into(),
        rate_selector: EXACTLY,
        life_time_selector: EXACTLY,
        life_time: route.packet_life_time,
        ..ends
    };
    (1, path)
}

/// Returns `true` if a descriptor is one.
pub(crate) fn is_open(fd: c_int) -> bool {
    // SAFETY: asks about a number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
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
