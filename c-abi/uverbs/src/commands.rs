//! The commands: from a request to an answer.

use std::os::fd::IntoRawFd;

use bareverbs_node::verbs::{GidEntry, LinkLayer, MwType, QpAttrMask, QpKind, RoceVersion};
use libc::c_int;
use zerocopy::{FromZeros, IntoBytes};

use crate::abi::*;
use crate::attrs::{Args, Result, refused, unregistered};
use crate::dct::Dct;
use crate::devx::{create_user, destroy_user};
use crate::doorbell_pages;
use crate::events::Channel;
use crate::objects::{Context, Object};
use crate::queries::dv_query_port;
use crate::queues::{Cq, Numbers, Qp, Uar};
use crate::server::Server;
use crate::transition::mask;

/// Doorbell pages that libmlx5 maps by default.
const PAGES: u32 = 8;
/// QPs that can name a doorbell page of their own, in each page.
const QPS_PER_PAGE: u32 = 2;
/// Completion vectors.
pub(crate) const VECTORS: u32 = 1;
/// The hop limit of connections over Ethernet, as routes have it by default.
const HOP_LIMIT: u8 = 64;
/// `MLX5_LIB_CAP_DYN_UAR`.
const LIB_CAP_DYN_UAR: u64 = 1 << 1;
/// `MLX5_IB_ALLOC_UCTX_DEVX`.
const ALLOC_DEVX: u32 = 1 << 0;
/// `IB_QPT_RAW_PACKET`.
const RAW_PACKET: u8 = 8;
/// `IB_QPT_DRIVER`: a type of the provider's.
const DRIVER: u8 = 0xff;
/// `MLX5_QP_FLAG_TYPE_DCT`.
const TYPE_DCT: u32 = 1 << 4;
/// `MLX5_QP_FLAG_TYPE_DCI`.
const TYPE_DCI: u32 = 1 << 5;

impl<'d> Server<'_, '_, 'd> {
    pub(crate) fn context(&mut self, fd: c_int) -> Result<&mut Context<'d>> {
        self.contexts.get_mut(&fd).ok_or(libc::EINVAL)
    }

    /// Answers a call.
    pub(crate) fn answer(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        args.check()?;
        let found = match (args.header.object, args.header.method) {
            (OBJECT_DEVICE, INVOKE_WRITE) => {
                let number = args.number(WRITE_CMD)? as u32;
                let done = self.command(fd, number, args);
                log::debug!("command {number:#x}: {done:?}");
                done
            }
            (OBJECT_DEVICE, QUERY_CONTEXT) => self.query_context(fd, args),
            (OBJECT_ASYNC_EVENT, ASYNC_EVENT_ALLOC) => self.alloc_async_events(fd, args),
            (OBJECT_DEVICE, QUERY_GID_TABLE) => self.query_gid_table(args),
            (OBJECT_DEVICE, QUERY_GID_ENTRY) => self.query_gid(args),
            (OBJECT_DEVICE, DV_QUERY_PORT) => dv_query_port(args),
            (matcher::OBJECT, matcher::CREATE) => self.create_matcher(fd, args),
            (matcher::OBJECT, matcher::DESTROY) => self.destroy_matcher(fd, args),
            (matcher::RULE, matcher::CREATE) => self.create_rule(fd, args),
            (matcher::RULE, matcher::DESTROY) => self.destroy_rule(fd, args),
            (dm::OBJECT, dm::ALLOC) => self.alloc_dm(fd, args),
            (dm::OBJECT, dm::FREE) => self.free_dm(fd, args),
            (OBJECT_MR, dm::REG) => self.reg_dm_mr(fd, args),
            (OBJECT_MR, ADVISE_MR) => self.advise_mr(fd, args),
            (object, _) if object >= devx::DEVX => {
                let done = self.devx(fd, args);
                log::debug!("object {object:#x}: {done:?}");
                done
            }
            _ => Err(libc::EPROTONOSUPPORT),
        };
        if let Err(libc::EPROTONOSUPPORT) = found {
            let (object, method) = (args.header.object, args.header.method);
            log::debug!("object {object:#x}, method {method:#x} is not there");
        }
        match args.lost {
            true => found.and(Err(libc::EFAULT)),
            false => found,
        }
    }

    fn command(&mut self, fd: c_int, number: u32, args: &mut Args) -> Result<()> {
        let extended = number & command::EXTENDED != 0;
        match number & !command::EXTENDED {
            command::GET_CONTEXT => self.get_context(fd, args),
            command::QUERY_DEVICE => self.query_device(args, extended),
            command::QUERY_PORT => self.query_port(args),
            command::ALLOC_PD => {
                let uid = self.context(fd)?.uid;
                let pd = self.device.alloc_pd_of(uid).map_err(refused)?;
                let out = Mlx5AllocPdOut {
                    pdn: pd.pdn().number(),
                };
                let handle = self.context(fd)?.add(Object::Pd(pd));
                args.output(CORE_OUT, &HandleOnly { handle });
                args.output(UHW_OUT, &out);
                Ok(())
            }
            command::REG_MR => self.reg_mr(fd, args),
            command::REREG_MR => self.rereg_mr(fd, args),
            command::CREATE_AH => self.create_ah(fd, args),
            command::DEALLOC_PD => {
                let HandleOnly { handle } = args.input(CORE_IN)?;
                // The firmware knows of no address handles, nor of the PD of a QP that hashes.
                let of = |object: &Object<'_>| match object {
                    Object::Ah(pd) => *pd == handle,
                    Object::Raw(raw) => raw.pd() == handle,
                    _ => false,
                };
                match self.context(fd)?.objects.values().any(of) {
                    true => Err(libc::EBUSY),
                    false => self.remove(fd, args, |it| matches!(it, Object::Pd(_))),
                }
            }
            command::DEREG_MR => self.remove(fd, args, |it| {
                matches!(it, Object::Mr(..) | Object::Region(_))
            }),
            command::DEALLOC_MW => self.remove(fd, args, |it| matches!(it, Object::Mw(_))),
            command::DESTROY_AH => self.remove(fd, args, |it| matches!(it, Object::Ah(_))),
            command::CLOSE_XRCD => self.remove(fd, args, |it| matches!(it, Object::Xrcd(_))),
            command::CREATE_COMP_CHANNEL => {
                let handle = self.context(fd)?.add_channel()?;
                args.output(CORE_OUT, &HandleOnly { handle });
                Ok(())
            }
            command::CREATE_SRQ | command::CREATE_XSRQ => {
                self.create_srq(fd, args, number == command::CREATE_XSRQ)
            }
            command::MODIFY_SRQ => self.modify_srq(fd, args),
            command::QUERY_SRQ => self.query_srq(fd, args),
            command::DESTROY_SRQ => self.destroy_srq(fd, args),
            command::OPEN_XRCD => self.open_xrcd(fd, args),
            command::ALLOC_MW => {
                let asked: AllocMwIn = args.input(CORE_IN)?;
                let kind = match asked.mw_type {
                    1 => MwType::Type1,
                    2 => MwType::Type2,
                    _ => return Err(libc::EINVAL),
                };
                let context = self.context(fd)?;
                let mw = context.pd(asked.pd_handle)?.alloc_mw(kind);
                let mw = mw.map_err(unregistered)?;
                let rkey = mw.rkey().0;
                let handle = context.add(Object::Mw(mw));
                args.output(CORE_OUT, &AllocMwOut { handle, rkey });
                Ok(())
            }
            command::CREATE_CQ => self.create_cq(fd, args, extended),
            command::RESIZE_CQ => {
                let asked: ResizeCqIn = args.input(CORE_IN)?;
                let provided: Mlx5ResizeCqIn = args.input(UHW_IN)?;
                let cq = self.context(fd)?.cq(asked.handle)?;
                let cqe = cq.resize(asked.cqe, &provided)?;
                args.output(CORE_OUT, &ResizeCqOut { cqe, reserved: 0 });
                Ok(())
            }
            command::DESTROY_CQ => self.destroy_cq(fd, args),
            command::CREATE_FLOW => self.create_flow(fd, args),
            command::DESTROY_FLOW => self.destroy_flow(fd, args),
            command::CREATE_WQ => self.create_wq(fd, args),
            command::MODIFY_WQ => self.modify_wq(fd, args),
            command::DESTROY_WQ => self.destroy_wq(fd, args),
            command::CREATE_RWQ_IND_TBL => self.create_table(fd, args),
            command::DESTROY_RWQ_IND_TBL => self.destroy_table(fd, args),
            command::CREATE_QP => self.create_qp(fd, args, extended),
            command::MODIFY_QP => self.modify_qp(fd, args, extended),
            command::QUERY_QP => {
                let QueryQpIn { handle, .. } = args.input(CORE_IN)?;
                let context = self.context(fd)?;
                let found = match context.objects.get_mut(&handle) {
                    Some(Object::Raw(raw)) => raw.query()?,
                    _ => context.qp(handle)?.query()?,
                };
                args.output(CORE_OUT, &found);
                Ok(())
            }
            command::ATTACH_MCAST | command::DETACH_MCAST => {
                let asked: AttachMcastIn = args.input(CORE_IN)?;
                let qp = self.context(fd)?.qp(asked.qp_handle)?;
                match number {
                    command::ATTACH_MCAST => qp.attach(&asked),
                    _ => qp.detach(&asked),
                }
            }
            command::DESTROY_QP => {
                let asked: DestroyIn = args.input(CORE_IN)?;
                self.check_rules(fd, &asked)?;
                let context = self.context(fd)?;
                // One in a group is in use: `uverbs_free_qp`.
                if let Ok(qp) = context.qp(asked.handle)
                    && !qp.groups.is_empty()
                {
                    return Err(libc::EBUSY);
                }
                let is =
                    |it: &Object<'_>| matches!(it, Object::Qp(_) | Object::Dct(_) | Object::Raw(_));
                let gone = context.remove(asked.handle, is)?;
                if let Object::Qp(qp) = gone {
                    let user_handle = qp.wanted.user_handle;
                    let events_reported = context.read_events(user_handle, qp.events);
                    args.output(CORE_OUT, &DestroyQpOut { events_reported });
                } else {
                    args.output(CORE_OUT, &DestroyQpOut { events_reported: 0 });
                }
                Ok(())
            }
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    /// Destroys the object whose handle is all of a request.
    fn remove(&mut self, fd: c_int, args: &mut Args, is: fn(&Object<'_>) -> bool) -> Result<()> {
        let HandleOnly { handle } = args.input(CORE_IN)?;
        self.context(fd)?.remove(handle, is).map(drop)
    }

    fn get_context(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        if self.contexts.contains_key(&fd) {
            return Err(libc::EINVAL);
        }
        let asked: Mlx5GetContextIn = args.input(UHW_IN)?;
        let caps = &self.device.capabilities().hca;
        let (events, async_fd) = Channel::new()?;
        let uar = Uar::alloc(self.device)?;
        let pages = doorbell_pages::of(self.device.platform(), uar.number)?;
        let uid = match asked.flags & ALLOC_DEVX {
            0 => 0,
            _ => create_user(self.device)?,
        };
        let answer = Mlx5GetContextOut {
            qp_tab_size: 1 << caps.log_max_qp(),
            // VFIO maps a card's pages uncached: there is no BlueFlame, as on Linux without write combining (`wc_support`).
            bf_reg_size: match self.device.platform().is_card() {
                true => 0,
                false => 1 << caps.log_bf_reg_size(),
            },
            // A library that asks for each page on its own has none from the beginning.
            tot_bfregs: match asked.lib_caps & LIB_CAP_DYN_UAR {
                0 => asked
                    .total_num_bfregs
                    .min(PAGES * QPS_PER_PAGE)
                    .next_multiple_of(QPS_PER_PAGE),
                _ => 0,
            },
            cache_line_size: 64,
            max_sq_desc_sz: caps.max_wqe_sz_sq(),
            max_rq_desc_sz: caps.max_wqe_sz_rq(),
            max_send_wqebb: 1 << caps.log_max_qp_sz(),
            max_recv_wr: 1 << caps.log_max_qp_sz(),
            max_srq_recv_wr: 1 << caps.log_max_srq_sz(),
            num_ports: 1,
            response_length: size_of::<Mlx5GetContextOut>() as u32,
            cqe_version: asked.max_cqe_version.min(1),
            // QUERY_DEVICE and CREATE_AH answer to the provider, too.
            cmds_supp_uhw: 3,
            clock_info_versions: self.clock.is_some().into(),
            log_uar_size: 12,
            num_uars_per_page: 1,
            ..FromZeros::new_zeroed()
        };
        let context = Context::new(uar, uid, events, answer);
        self.contexts.insert(fd, context);
        doorbell_pages::add(fd, pages).inspect_err(|_| self.close(fd))?;
        let out = GetContextOut {
            async_fd: async_fd.into_raw_fd() as u32,
            num_comp_vectors: VECTORS,
        };
        args.output(CORE_OUT, &out);
        args.output(UHW_OUT, &answer);
        Ok(())
    }

    fn query_gid(&mut self, args: &mut Args) -> Result<()> {
        let (port, index) = (args.number(GID_ENTRY_PORT)?, args.number(GID_ENTRY_INDEX)?);
        let index = u16::try_from(index).map_err(|_| libc::EINVAL)?;
        if port != 1 || usize::from(index) >= self.device.gid_table_len() {
            return Err(libc::EINVAL);
        }
        let entry = self.device.port_gid(index).ok_or(libc::ENODATA)?;
        args.output(GID_ENTRY_OUT, &gid_entry(index, &entry));
        Ok(())
    }

    fn query_gid_table(&mut self, args: &mut Args) -> Result<()> {
        let size = args.number(GID_TABLE_ENTRY_SIZE)? as usize;
        let room = args.buffer_size(GID_TABLE_OUT);
        if size == 0 || room == 0 || !room.is_multiple_of(size) {
            return Err(libc::EINVAL);
        }
        let mut out = Vec::new();
        let mut count = 0_u64;
        for (index, entry) in self.device.gid_table() {
            if out.len() + size > room {
                return Err(libc::EINVAL);
            }
            let whole = gid_entry(index, &entry);
            let known = whole.as_bytes().iter().copied();
            out.extend(known.chain(std::iter::repeat(0)).take(size));
            count += 1;
        }
        args.output_bytes(GID_TABLE_OUT, &out);
        args.output(GID_TABLE_LEN_OUT, &count);
        Ok(())
    }

    fn create_cq(&mut self, fd: c_int, args: &mut Args, extended: bool) -> Result<()> {
        let wanted = match extended {
            true => args.input(CORE_IN)?,
            false => {
                let old: CreateCqIn = args.input(CORE_IN)?;
                ExCreateCqIn {
                    user_handle: old.user_handle,
                    cqe: old.cqe,
                    comp_vector: old.comp_vector,
                    comp_channel: old.comp_channel,
                    ..FromZeros::new_zeroed()
                }
            }
        };
        let provided: Mlx5CreateCqIn = args.input(UHW_IN)?;
        if wanted.comp_vector >= VECTORS {
            return Err(libc::EINVAL);
        }
        let (device, eqn) = (self.device, u32::from(self.events.eqn.0));
        let context = self.context(fd)?;
        let channel = match wanted.comp_channel {
            -1 => None,
            channel => Some(context.channels.get(&channel).ok_or(libc::EBADF)?.clone()),
        };
        let (cq, mut out) = Cq::create(
            device,
            (eqn, context.uar.number, context.uid),
            &wanted,
            &provided,
            channel,
        )?;
        let provider_out = Mlx5CreateCqOut {
            cqn: cq.cqn.number(),
            reserved: 0,
        };
        out.handle = context.add(Object::Cq(Box::new(cq)));
        let out = ExCreateCqOut {
            base: out,
            comp_mask: 0,
            response_length: size_of::<ExCreateCqOut>() as u32,
        };
        args.output(CORE_OUT, &out);
        args.output(UHW_OUT, &provider_out);
        Ok(())
    }

    fn destroy_cq(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let DestroyIn { handle, .. } = args.input(CORE_IN)?;
        let context = self.context(fd)?;
        let gone = context.remove(handle, |it| matches!(it, Object::Cq(_)))?;
        let Object::Cq(cq) = gone else {
            return Err(libc::EINVAL);
        };
        // Events that the program has not read are not for it any more.
        let unread = cq.channel.as_ref();
        let unread = unread.map_or(0, |channel| channel.remove::<8>(cq.user_handle));
        let out = DestroyCqOut {
            comp_events_reported: cq.events.saturating_sub(unread),
            async_events_reported: context.read_events(cq.user_handle, cq.async_events),
        };
        args.output(CORE_OUT, &out);
        Ok(())
    }

    fn create_qp(&mut self, fd: c_int, args: &mut Args, extended: bool) -> Result<()> {
        let wanted = match extended {
            true => args.input(CORE_IN)?,
            false => args.input::<CreateQpIn>(CORE_IN)?.rest,
        };
        if wanted.qp_type == RAW_PACKET {
            let (handle, qpn, out) = self.create_raw_qp(fd, args, &wanted)?;
            answer_qp(args, &wanted, (handle, qpn), &out);
            return Ok(());
        }
        // There are no indirection tables, and none of the flags. Without these Linux does not look at the two other fields.
        if wanted.comp_mask != 0 || wanted.create_flags != 0 {
            return Err(libc::EINVAL);
        }
        let provided: Mlx5CreateQpIn = args.input(UHW_IN)?;
        let device = self.device;
        let context = self.context(fd)?;
        let is_target = wanted.qp_type == DRIVER && provided.flags & TYPE_DCT != 0;
        let kind = match is_target {
            true => QpKind::Dct,
            false => kind_of(&wanted, &provided)?,
        };
        let mut xrcd = None;
        let mut numbers = Numbers {
            pdn: 0,
            cqns: [0; 2],
            srqn: None,
            xrcdn: 0,
            uar: context.uar.number,
            uid: context.uid,
        };
        if kind == QpKind::XrcRecv {
            // In place of a domain's handle it has that of the XRC domain. It is the kernel's, as what it names is.
            numbers.uid = 0;
            let opened = context.xrcd(wanted.pd_handle)?.clone();
            numbers.xrcdn = opened.0.number;
            xrcd = Some(opened);
        } else {
            numbers.pdn = context.pd(wanted.pd_handle)?.pdn().number();
            numbers.cqns[0] = context.cqn(wanted.send_cq_handle)?;
            if kind != QpKind::XrcSend {
                numbers.cqns[1] = context.cqn(wanted.recv_cq_handle)?;
            }
        }
        if wanted.is_srq != 0 && !matches!(kind, QpKind::XrcSend | QpKind::XrcRecv) {
            numbers.srqn = Some(context.srq(wanted.srq_handle)?.srqn);
        }
        let (object, qpn) = match is_target {
            true => {
                let dct = Dct::new(device, numbers, &provided)?;
                (Object::Dct(Box::new(dct)), 0)
            }
            false => {
                let mut qp = Qp::create(device, kind, numbers, &wanted, &provided)?;
                qp.xrcd = xrcd;
                let qpn = qp.qp.qpn().number();
                (Object::Qp(Box::new(qp)), qpn)
            }
        };
        let handle = context.add(object);
        // The first register of the first page: it takes 8 bytes at a time, so that QPs share it without a lock.
        answer_qp(args, &wanted, (handle, qpn), &Mlx5CreateQpOut::new_zeroed());
        Ok(())
    }

    fn modify_qp(&mut self, fd: c_int, args: &mut Args, extended: bool) -> Result<()> {
        let mut modify: ModifyQpIn = args.input(CORE_IN)?;
        let mask = mask(&modify)?;
        let ethernet = self.device.capabilities().link_layer() == LinkLayer::Ethernet;
        // Alternate paths are InfiniBand's (`_ib_modify_qp`).
        if ethernet && mask.contains(QpAttrMask::ALT_PATH) {
            return Err(libc::EINVAL);
        }
        let mut provider_out = Mlx5ModifyQpOut {
            response_length: size_of::<Mlx5ModifyQpOut>() as u32,
            ..FromZeros::new_zeroed()
        };
        if let Some(Object::Dct(dct)) = self.context(fd)?.objects.get_mut(&modify.handle) {
            dct.modify(&modify)?;
            provider_out.dctn = dct.number.unwrap_or(0);
        } else if let Some(Object::Raw(raw)) = self.context(fd)?.objects.get_mut(&modify.handle) {
            raw.modify(&modify)?;
        } else {
            let mac = match mask.contains(QpAttrMask::AV) {
                true => self.destination_mac(&modify.dest)?,
                false => [0; 6],
            };
            let qp = self.context(fd)?.qp(modify.handle)?;
            if ethernet
                && matches!(
                    qp.qp.kind(),
                    QpKind::Rc | QpKind::Uc | QpKind::XrcSend | QpKind::XrcRecv
                )
            {
                // Linux takes the route's (`ib_resolve_unicast_gid_dmac`), and programs give 1 or 0.
                modify.dest.hop_limit = HOP_LIMIT;
            }
            qp.modify(&modify, mac)?;
        }
        if extended {
            let out = ExModifyQpOut {
                comp_mask: 0,
                response_length: size_of::<ExModifyQpOut>() as u32,
            };
            args.output(CORE_OUT, &out);
        }
        args.output(UHW_OUT, &provider_out);
        Ok(())
    }

    fn create_ah(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let ah: CreateAhIn = args.input(CORE_IN)?;
        self.context(fd)?.pd(ah.pd_handle)?;
        let dest = Destination {
            dgid: ah.dgid,
            sgid_index: ah.sgid_index,
            is_global: ah.is_global,
            ..FromZeros::new_zeroed()
        };
        let dmac = self.destination_mac(&dest)?;
        let handle = self.context(fd)?.add(Object::Ah(ah.pd_handle));
        args.output(CORE_OUT, &HandleOnly { handle });
        let out = Mlx5CreateAhOut {
            response_length: size_of::<Mlx5CreateAhOut>() as u32,
            dmac,
            reserved: [0; 6],
        };
        args.output(UHW_OUT, &out);
        Ok(())
    }

    /// Destroys what a context had.
    pub(crate) fn close(&mut self, fd: c_int) {
        let Some(mut context) = self.contexts.remove(&fd) else {
            return;
        };
        let stays = context.clear();
        if context.uid != 0 {
            destroy_user(self.device, context.uid);
        }
        if stays {
            // It is the page of what stays.
            std::mem::forget(context.uar);
        }
    }
}

fn gid_entry(index: u16, entry: &GidEntry) -> GidEntryOut {
    GidEntryOut {
        gid: entry.gid.0,
        index: index.into(),
        port: 1,
        kind: match entry.version {
            RoceVersion::V1 => 1,
            RoceVersion::V2 => 2,
        },
        netdev: 0,
    }
}

/// Answers with the handle and number of a new QP.
fn answer_qp(
    args: &mut Args,
    wanted: &ExCreateQpIn,
    (handle, qpn): (u32, u32),
    provider: &Mlx5CreateQpOut,
) {
    let base = CreateQpOut {
        handle,
        qpn,
        max_send_wr: wanted.max_send_wr,
        max_recv_wr: wanted.max_recv_wr,
        max_send_sge: wanted.max_send_sge,
        max_recv_sge: wanted.max_recv_sge,
        max_inline_data: wanted.max_inline_data,
        reserved: 0,
    };
    let out = ExCreateQpOut {
        base,
        comp_mask: 0,
        response_length: size_of::<ExCreateQpOut>() as u32,
    };
    args.output(CORE_OUT, &out);
    args.output(UHW_OUT, provider);
}

/// The type of a QP that a program wants.
fn kind_of(wanted: &ExCreateQpIn, provided: &Mlx5CreateQpIn) -> Result<QpKind> {
    Ok(match wanted.qp_type {
        2 => QpKind::Rc,
        3 => QpKind::Uc,
        4 => QpKind::Ud,
        9 => QpKind::XrcSend,
        10 => QpKind::XrcRecv,
        DRIVER if provided.flags & TYPE_DCI != 0 => QpKind::Dci,
        _ => return Err(libc::EOPNOTSUPP),
    })
}
