//! Ids: `struct rdma_cm_id`, and the connection manager's id behind it; events that are handed out, which ids count.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::Mutex;

use bareverbs_node::cm::mad::sa::PathRecord;
use bareverbs_node::cm::rdma::{
    CmId, Ece, IdOption, IdState, IdType, PortSpace, Resolver as _, SockAddr, SockaddrIb,
};
use bareverbs_node::verbs::Gid;

use crate::abi::cma::{ibv_sa_path_rec, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use crate::abi::numbers::*;
use crate::abi::objects::{ibv_pd, ibv_qp_init_attr};
use crate::process::acks::Acks;
use crate::process::device::devices;
use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::{Cm, Hca};
use crate::process::memory;
use crate::rdmacm::channel::{EventChannel, channel};
use crate::rdmacm::own_events::OwnEvents;
use crate::rdmacm::sockaddr;
use crate::rdmacm::verbs_of;

/// An id.
#[repr(C)]
pub(crate) struct IdObject {
    pub(crate) c: rdma_cm_id,
    path: ibv_sa_path_rec,
    /// Events that were handed out and not acknowledged.
    pub(crate) acks: Acks,
    pub(crate) inner: Mutex<Inner>,
}

/// The private part of an id, which the program does not see.
pub(crate) struct Inner {
    pub(crate) hca: &'static Hca,
    pub(crate) cm: CmId,
    /// It has a channel of its own, and its calls wait for their events.
    pub(crate) sync: bool,
    /// The end of the connection was reported.
    pub(crate) disconnected: bool,
    /// Where a listener on all addresses listens besides.
    pub(crate) elsewhere: Vec<(&'static Hca, CmId)>,
    /// Options that were set, for another device.
    pub(crate) options: Vec<IdOption>,
    /// On a listener of `rdma_create_ep`: what the QPs of its requests are made from.
    pub(crate) queues: Option<(ibv_qp_init_attr, *mut ibv_pd)>,
    /// Multicast groups, and the GID and LID that the QP is attached to.
    pub(crate) groups: Vec<(IpAddr, (Gid, u16))>,
    /// The options of this end's QP, as the program or `rdma_create_qp` has said them.
    pub(crate) ece: Ece,
    /// Bound to the loopback address, which no device has.
    pub(crate) loopback: bool,
    /// Events that the manager does not have, and what `rdma_resolve_addrinfo` has found.
    pub(crate) own: OwnEvents,
    /// The QP's number, to which events of the device belong.
    pub(crate) qpn: Option<u32>,
}

/// The RNR timer of an id's QP, as the kernel has it (`cm_init_qp_rtr_attr`): programs that give few retries count on the longest
/// time.
const RNR_TIMER: IdOption = IdOption::MinRnrTimer(0);

/// A port space of the headers. Another one is EINVAL, as the kernel has it (`ucma_get_qp_type`).
pub(crate) fn port_space(ps: c_int) -> Result<PortSpace> {
    Ok(match ps {
        RDMA_PS_IPOIB => PortSpace::Ipoib,
        RDMA_PS_TCP => PortSpace::Tcp,
        RDMA_PS_UDP => PortSpace::Udp,
        RDMA_PS_IB => PortSpace::Ib,
        _ => return Err(Errno::EINVAL),
    })
}

/// The type of an id's QP in the headers' numbers.
pub(crate) fn qp_type(id_type: IdType) -> c_int {
    match id_type {
        IdType::Rc => IBV_QPT_RC,
        IdType::Uc => IBV_QPT_UC,
        IdType::Ud => IBV_QPT_UD,
        IdType::XrcSend => IBV_QPT_XRC_SEND,
        IdType::XrcRecv => IBV_QPT_XRC_RECV,
    }
}

pub(crate) fn id_type(port_space: PortSpace, qp_type: Option<c_int>) -> Result<IdType> {
    Ok(match qp_type {
        None | Some(0) => IdType::of_port_space(port_space),
        // The kernel has RC for this port space, whatever the QP is (`ucma_get_qp_type` of core/ucma.c).
        Some(IBV_QPT_UC) if port_space == PortSpace::Tcp => IdType::Rc,
        Some(IBV_QPT_RC) => IdType::Rc,
        Some(IBV_QPT_UC) => IdType::Uc,
        Some(IBV_QPT_UD) => IdType::Ud,
        Some(IBV_QPT_XRC_SEND) => IdType::XrcSend,
        Some(IBV_QPT_XRC_RECV) => IdType::XrcRecv,
        Some(_) => return Err(Errno::EOPNOTSUPP),
    })
}

impl IdObject {
    /// An object for an id of the connection manager.
    pub(crate) fn new(
        hca: &'static Hca,
        cm: CmId,
        channel: *mut EventChannel,
        context: *mut c_void,
        ps: c_int,
        qp_type: c_int,
    ) -> *mut Self {
        // SAFETY: numbers and raw pointers may be zero.
        let (mut c, path): (rdma_cm_id, ibv_sa_path_rec) = unsafe { zeroed() };
        c.channel = channel.cast();
        c.context = context;
        c.ps = ps;
        c.qp_type = qp_type;
        Box::into_raw(Box::new(Self {
            c,
            path,
            acks: Acks::default(),
            inner: Mutex::new(Inner {
                hca,
                cm,
                sync: false,
                disconnected: false,
                elsewhere: Vec::new(),
                options: Vec::new(),
                queues: None,
                groups: Vec::new(),
                loopback: false,
                own: OwnEvents::default(),
                ece: Ece::NONE,
                qpn: None,
            }),
        }))
    }

    /// Creates an id on the first device. Without a channel it gets one of its own, and its calls wait for their events.
    pub(crate) unsafe fn create(
        given: *mut rdma_event_channel,
        context: *mut c_void,
        ps: c_int,
        qp_type: Option<c_int>,
    ) -> Result<*mut Self> {
        memory::check()?;
        let space = port_space(ps)?;
        let id_type = id_type(space, qp_type)?;
        let hca = devices()?.first().ok_or(Errno::ENODEV)?.hca()?;
        let sync = given.is_null();
        let channel = if sync {
            EventChannel::create()?
        } else {
            given.cast()
        };
        let made = (|| {
            // SAFETY: the caller's promise, or just made.
            let on = unsafe { self::channel(channel.cast()) }?.on(hca)?;
            let mut manager = hca.manager()?;
            let cm = manager.create_id_of(Some(on), 0, space, id_type)?;
            manager.set_option(cm, RNR_TIMER)?;
            let kind = qp_type.filter(|kind| *kind != 0);
            let kind = kind.unwrap_or(self::qp_type(id_type));
            let object = Self::new(hca, cm, channel, context, ps, kind);
            manager.set_context(cm, object as u64)?;
            Ok(object)
        })();
        match made {
            Ok(object) => {
                // SAFETY: just made.
                let mut inner = lock(unsafe { &(*object).inner });
                inner.sync = sync;
                inner.options.push(RNR_TIMER);
                drop(inner);
                Ok(object)
            }
            Err(errno) => {
                if sync {
                    // SAFETY: just made, and no id has it.
                    unsafe { EventChannel::destroy(channel) };
                }
                Err(errno)
            }
        }
    }

    /// Checks that a port can have ids of this one's port space: those for IPoIB are for InfiniBand's (`cma_ib_acquire_dev` of
    /// core/cma.c).
    pub(crate) fn check_port_space(&self) -> Result<()> {
        if self.c.ps == RDMA_PS_IPOIB && !lock(&self.inner).hca.is_infiniband() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Returns `true` if a type of service still has an effect: the route takes it (`cma_resolve_iboe_route` of core/cma.c).
    pub(crate) fn takes_tos(&self) -> Result<bool> {
        let inner = lock(&self.inner);
        let state = inner.hca.manager()?.state(inner.cm)?;
        Ok(matches!(
            state,
            IdState::Idle | IdState::AddrBound | IdState::AddrQuery | IdState::AddrResolved
        ))
    }

    /// Sets an option, and remembers it.
    pub(crate) fn set_option(&self, option: IdOption) -> Result<()> {
        let mut inner = lock(&self.inner);
        let cm = inner.cm;
        inner.hca.manager()?.set_option(cm, option)?;
        inner.options.push(option);
        Ok(())
    }

    /// Moves an id that is on no device yet to the device with this address, if it is another one's.
    pub(crate) fn choose_device(&self, source: Option<SockAddr>) -> Result<()> {
        let source = source.filter(|source| !sockaddr::is_any(source));
        let Some(hca) = source.map(|source| device_with(&source)).transpose()? else {
            return Ok(());
        };
        let Some(hca) = hca else {
            return Ok(());
        };
        let mut inner = lock(&self.inner);
        if ptr::eq(hca, inner.hca) {
            return Ok(());
        }
        // SAFETY: the id's channel is there for as long as the id.
        let on = unsafe { channel(self.c.channel) }?.on(hca)?;
        let space = port_space(self.c.ps)?;
        let id_type = id_type(space, Some(self.c.qp_type))?;
        let cm = {
            let mut manager = hca.manager()?;
            let cm = manager.create_id_of(Some(on), ptr::from_ref(self) as u64, space, id_type)?;
            for option in &inner.options {
                manager.set_option(cm, *option)?;
            }
            inner.own.announce_again(&mut manager, cm)?;
            cm
        };
        let (old, old_cm) = (inner.hca, inner.cm);
        (inner.hca, inner.cm) = (hca, cm);
        old.manager()?.destroy_id(old_cm)?;
        drop(inner);
        // SAFETY: as above.
        unsafe { channel(self.c.channel) }?.signal();
        Ok(())
    }

    /// An address of the program's for this end, as the id's port has it: on an InfiniBand port an IPv6 address that is the
    /// port's GID stands for the GID.
    ///
    /// # Errors
    /// As [`of_family`](Self::of_family).
    pub(crate) fn on_port(&self, address: SockAddr) -> Result<SockAddr> {
        let hca = lock(&self.inner).hca;
        let gid = sockaddr::gid(&address);
        if let SockAddr::Ip(address) = address
            && hca.has_gid(gid)?
        {
            let space = port_space(self.c.ps)?;
            return Ok(SockaddrIb::new(gid, space, address.port()).into());
        }
        self.of_family(address, Errno(libc::EADDRNOTAVAIL))
    }

    /// An address that is of the family of the id's port.
    ///
    /// # Errors
    /// `without_ip` for an IP address on an InfiniBand port that was given none, and ENODEV for a GID on an Ethernet port.
    pub(crate) fn of_family(&self, address: SockAddr, without_ip: Errno) -> Result<SockAddr> {
        let hca = lock(&self.inner).hca;
        match (address, hca.is_infiniband()) {
            (SockAddr::Ip(_), _) if hca.has_ip() => Ok(address),
            (SockAddr::Ip(_), _) => Err(without_ip),
            (SockAddr::Ib(_), true) => Ok(address),
            (SockAddr::Ib(_), false) => Err(Errno::ENODEV),
        }
    }

    /// Says which device and addresses an id has, as far as they are known.
    ///
    /// # Safety
    /// The id was created here, and no other thread writes to it.
    pub(crate) unsafe fn show_addresses(id: *mut Self) -> Result<()> {
        // SAFETY: the caller promises that the id was created here, and no other thread writes to it.
        unsafe {
            let (hca, cm) = {
                let inner = lock(&(*id).inner);
                (inner.hca, inner.cm)
            };
            let (local, peer, bound, partition) = {
                let mut manager = hca.manager()?;
                (
                    local_addr(&manager, cm)?,
                    peer_addr(&manager, cm)?,
                    manager.is_bound(cm)?,
                    manager.resolver_mut().neighbours().partition(),
                )
            };
            let addr = &raw mut (*id).c.route.addr;
            if let Some(local) = local {
                (*addr).src_storage = sockaddr::to_c(local).0;
            }
            if let Some(peer) = peer {
                (*addr).dst_storage = sockaddr::to_c(peer).0;
                (*addr).addr.dgid.raw = sockaddr::gid(&peer).0;
            }
            if bound {
                let shared = verbs_of::shared_of(hca)?;
                (*id).c.verbs = shared.verbs;
                (*id).c.port_num = crate::verbs::query::PORT;
                if (*id).c.pd.is_null() {
                    (*id).c.pd = shared.pd;
                }
                (*addr).addr.pkey = match local {
                    Some(SockAddr::Ib(local)) => local.pkey.to_be(),
                    _ => partition.to_be(),
                };
                if let Some(local) = local {
                    (*addr).addr.sgid.raw = sockaddr::gid(&local).0;
                }
            }
        }
        Ok(())
    }

    /// Says which path an id has.
    ///
    /// # Safety
    /// As [`show_addresses`](Self::show_addresses).
    pub(crate) unsafe fn show_route(id: *mut Self) -> Result<()> {
        // SAFETY: the caller promises the same as for `show_addresses`.
        unsafe {
            let (hca, cm) = {
                let inner = lock(&(*id).inner);
                (inner.hca, inner.cm)
            };
            let path = path_of(&*hca.manager()?, cm)?;
            let shown = &raw mut (*id).path;
            shown.write(super::path::to_c(&path));
            (*id).c.route.path_rec = shown;
            (*id).c.route.num_paths = 1;
        }
        Ok(())
    }
}

/// The path of an id whose route is resolved.
pub(crate) fn path_of(manager: &Cm, cm: CmId) -> Result<PathRecord> {
    if let Some(path) = manager.path(cm)? {
        return Ok(path);
    }
    let route = manager.route(cm)?;
    let gid = |address: Option<SocketAddr>| address.map_or([0; 16], |it| Gid::from(it.ip()).0);
    Ok(PathRecord {
        dgid: gid(route.peer),
        sgid: gid(route.local),
        flow_label: route.flow_label,
        traffic_class: route.traffic_class,
        hop_limit: 64,
        reversible: 1,
        numb_path: 1,
        pkey: DEFAULT_PKEY,
        mtu: route.path_mtu,
        packet_life_time: route.packet_life_time,
        ..PathRecord::ZERO
    })
}

/// The partition that every port is in.
const DEFAULT_PKEY: u16 = 0xffff;

/// The device that has an address, if one has it. For GIDs the devices are brought up.
fn device_with(address: &SockAddr) -> Result<Option<&'static Hca>> {
    let ip = sockaddr::ip(address);
    for device in devices()? {
        let by_ip = device.addresses().iter().any(|own| own.ip == ip);
        if matches!(address, SockAddr::Ip(_)) && by_ip {
            return Ok(Some(device.hca()?));
        }
    }
    if ip.is_ipv4() {
        return Ok(None);
    }
    for device in devices()? {
        let hca = device.hca()?;
        if hca.has_gid(sockaddr::gid(address))? {
            return Ok(Some(hca));
        }
    }
    Ok(None)
}

/// The local address of an id.
pub(crate) fn local_addr(manager: &Cm, cm: CmId) -> Result<Option<SockAddr>> {
    let ip = manager.get_local_addr(cm)?.map(SockAddr::Ip);
    Ok(ip.or(manager.get_local_ib_addr(cm)?.map(SockAddr::Ib)))
}

/// The other end's address.
pub(crate) fn peer_addr(manager: &Cm, cm: CmId) -> Result<Option<SockAddr>> {
    let ip = manager.get_peer_addr(cm)?.map(SockAddr::Ip);
    Ok(ip.or(manager.get_peer_ib_addr(cm)?.map(SockAddr::Ib)))
}

/// The object behind an id of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
pub(crate) unsafe fn id<'a>(id: *mut rdma_cm_id) -> Result<&'a IdObject> {
    // SAFETY: the caller's promise: it is the first field of an `IdObject`.
    unsafe { id.cast::<IdObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// Device and id of the connection manager behind an id of C.
///
/// # Safety
/// As [`id`].
pub(crate) unsafe fn manager_of(id: *mut rdma_cm_id) -> Result<(&'static Hca, CmId)> {
    // SAFETY: the caller promises the same as for `id`.
    let inner = lock(unsafe { &self::id(id)?.inner });
    Ok((inner.hca, inner.cm))
}

/// Finds the same for a call that may move the id's QP. A QP that the program has taken from the id (`id->qp = NULL`) is taken from
/// the manager first.
///
/// # Safety
/// The caller promises the same as for [`id`].
pub(super) unsafe fn mover_of(id: *mut rdma_cm_id) -> Result<(&'static Hca, CmId)> {
    // SAFETY: the caller promises the same as for `id`.
    let ((hca, cm), has_none) = unsafe { (manager_of(id)?, (*id).qp.is_null()) };
    if has_none {
        let taken = hca.manager_quietly()?.qp_num(cm)?;
        if let Some(qpn) = taken {
            // What a call has begun is done before, as librdmacm does it in the call.
            hca.settle(cm, Some(qpn));
            let detached = hca.manager()?.detach_qp(cm, qpn);
            if let Err(error) = detached {
                log::debug!("{error}");
            }
        }
    }
    Ok((hca, cm))
}

/// An event with its private data.
#[repr(C)]
pub(super) struct EventObject {
    pub(super) c: rdma_cm_event,
    /// The id or listener that counts it among its events.
    pub(super) owner: *const IdObject,
    pub(super) private: [u8; 256],
}

/// Acknowledges an event, which is gone then.
///
/// # Safety
/// It is one that was handed out, and was not acknowledged yet.
pub(crate) unsafe fn acknowledge(event: *mut rdma_cm_event) -> Result<()> {
    if event.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise: it was made by `process`, and its owner waits for this.
    unsafe {
        let object = Box::from_raw(event.cast::<EventObject>());
        (*object.owner).acks.acknowledge(1);
    }
    Ok(())
}
