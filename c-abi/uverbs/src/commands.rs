//! The commands: from a request to an answer.

use std::collections::HashMap;
use std::os::fd::IntoRawFd;
use std::rc::Rc;

use bareverbs_node::verbs::{Access, LinkLayer, Platform, PortState, RoceVersion};
use libc::c_int;
use zerocopy::FromZeros;

use crate::abi::*;
use crate::attrs::{Args, Result};
use crate::doorbell_pages;
use crate::doorbells::{self, Queue};
use crate::events::Channel;
use crate::queues::{Cq, Object, Qp, Uar, refused};
use crate::server::{Context, Server};
use crate::transition::needs_destination;

/// Doorbell pages that libmlx5 maps by default.
const PAGES: u32 = 8;
/// QPs that can name a doorbell page of their own, in each page.
const QPS_PER_PAGE: u32 = 2;

impl<'d> Context<'d> {
    fn add(&mut self, object: Object<'d>) -> u32 {
        self.next += 1;
        self.objects.insert(self.next, object);
        self.next
    }

    /// Removes what `DEALLOC_PD`, `DEREG_MR` or `DESTROY_AH` names.
    fn remove(&mut self, number: u32, handle: u32) -> Result<()> {
        let objects = &mut self.objects;
        match (number, objects.get(&handle)) {
            (command::DEALLOC_PD, Some(Object::Pd(_)))
            | (command::DEREG_MR, Some(Object::Mr(_)))
            | (command::DESTROY_AH, Some(Object::Ah)) => {}
            _ => return Err(libc::EINVAL),
        }
        let (object, error) = match objects.remove(&handle) {
            Some(Object::Pd(pd)) => match pd.dealloc() {
                Ok(()) => return Ok(()),
                Err((pd, error)) => (Object::Pd(pd), error),
            },
            Some(Object::Mr(mr)) => match mr.dereg() {
                Ok(()) => return Ok(()),
                Err((mr, error)) => (Object::Mr(mr), error),
            },
            _ => return Ok(()),
        };
        objects.insert(handle, object);
        Err(refused(error))
    }

    fn cqn(&self, handle: u32) -> Result<u32> {
        match self.objects.get(&handle) {
            Some(Object::Cq(cq)) => Ok(cq.cqn.number()),
            _ => Err(libc::EINVAL),
        }
    }
}

impl<'d> Server<'_, '_, 'd> {
    fn context(&mut self, fd: c_int) -> Result<&mut Context<'d>> {
        self.contexts.get_mut(&fd).ok_or(libc::EINVAL)
    }

    /// Answers a call.
    pub(crate) fn answer(&mut self, fd: c_int, args: &mut Args<'_>) -> Result<()> {
        let found = match (args.header.object, args.header.method) {
            (OBJECT_DEVICE, INVOKE_WRITE) => {
                let number = args.number(WRITE_CMD)? as u32;
                let done = self.command(fd, number, args);
                log::debug!("command {number:#x}: {done:?}");
                done
            }
            (OBJECT_DEVICE, QUERY_GID_ENTRY) => self.query_gid(args),
            _ => Err(libc::EPROTONOSUPPORT),
        };
        if let Err(libc::EPROTONOSUPPORT) = found {
            let (object, method) = (args.header.object, args.header.method);
            log::debug!("object {object:#x}, method {method:#x} is not there");
        }
        found
    }

    fn command(&mut self, fd: c_int, number: u32, args: &mut Args<'_>) -> Result<()> {
        let extended = number & command::EXTENDED != 0;
        match number & !command::EXTENDED {
            command::GET_CONTEXT => self.get_context(fd, args),
            command::QUERY_DEVICE => self.query_device(args, extended),
            command::QUERY_PORT => self.query_port(args),
            command::ALLOC_PD => {
                let pd = self.device.alloc_pd().map_err(refused)?;
                let out = Mlx5AllocPdOut {
                    pdn: pd.pdn().number(),
                };
                let handle = self.context(fd)?.add(Object::Pd(pd));
                args.output(CORE_OUT, &HandleOnly { handle });
                args.output(UHW_OUT, &out);
                Ok(())
            }
            command::REG_MR => self.reg_mr(fd, args),
            command::CREATE_AH => self.create_ah(fd, args),
            command::DEALLOC_PD | command::DEREG_MR | command::DESTROY_AH => {
                let HandleOnly { handle } = args.input(CORE_IN)?;
                self.context(fd)?.remove(number, handle)
            }
            command::CREATE_COMP_CHANNEL => {
                let channels = &mut self.context(fd)?.channels;
                let (channel, end) = Channel::new()?;
                let handle = end.into_raw_fd();
                channels.insert(handle, Rc::new(channel));
                args.output(
                    CORE_OUT,
                    &HandleOnly {
                        handle: handle as u32,
                    },
                );
                Ok(())
            }
            command::CREATE_CQ => self.create_cq(fd, args, extended),
            command::DESTROY_CQ => self.destroy_cq(fd, args),
            command::CREATE_QP => self.create_qp(fd, args, extended),
            command::MODIFY_QP => self.modify_qp(fd, args, extended),
            command::QUERY_QP => {
                let QueryQpIn { handle, .. } = args.input(CORE_IN)?;
                match self.context(fd)?.objects.get_mut(&handle) {
                    Some(Object::Qp(qp)) => {
                        args.output(CORE_OUT, &qp.query()?);
                        Ok(())
                    }
                    _ => Err(libc::EINVAL),
                }
            }
            command::DESTROY_QP => {
                let DestroyIn { handle, .. } = args.input(CORE_IN)?;
                let objects = &mut self.context(fd)?.objects;
                let Some(Object::Qp(qp)) = objects.get(&handle) else {
                    return Err(libc::EINVAL);
                };
                qp.destroy()?;
                objects.remove(&handle);
                args.output(CORE_OUT, &DestroyQpOut { events_reported: 0 });
                Ok(())
            }
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    fn get_context(&mut self, fd: c_int, args: &mut Args<'_>) -> Result<()> {
        if self.contexts.contains_key(&fd) {
            return Err(libc::EINVAL);
        }
        let asked: Mlx5GetContextIn = args.input(UHW_IN)?;
        let caps = &self.device.capabilities().hca;
        let (events, async_fd) = Channel::new()?;
        let uar = Uar::alloc(self.device)?;
        doorbell_pages::add(fd, doorbell_pages::create()?)?;
        let context = Context {
            uar,
            _events: events,
            channels: HashMap::new(),
            objects: HashMap::new(),
            next: 0,
        };
        self.contexts.insert(fd, context);
        let out = GetContextOut {
            async_fd: async_fd.into_raw_fd() as u32,
            num_comp_vectors: 1,
        };
        args.output(CORE_OUT, &out);
        let out = Mlx5GetContextOut {
            qp_tab_size: 1 << caps.log_max_qp(),
            bf_reg_size: 1 << caps.log_bf_reg_size(),
            tot_bfregs: asked
                .total_num_bfregs
                .min(PAGES * QPS_PER_PAGE)
                .next_multiple_of(QPS_PER_PAGE),
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
            log_uar_size: 12,
            num_uars_per_page: 1,
            ..FromZeros::new_zeroed()
        };
        args.output(UHW_OUT, &out);
        Ok(())
    }

    fn query_device(&mut self, args: &mut Args<'_>, extended: bool) -> Result<()> {
        let caps = self.device.capabilities();
        let port = self.device.query_port().map_err(refused)?;
        let adapter = self.device.query_adapter().map_err(refused)?;
        let firmware = caps.firmware;
        let receive = u32::from(caps.hca.max_wqe_sz_rq()) / 16;
        let base = QueryDeviceOut {
            fw_ver: u64::from(firmware.major) << 32
                | u64::from(firmware.minor) << 16
                | u64::from(firmware.subminor),
            node_guid: port.node_guid.to_be_bytes(),
            sys_image_guid: port.system_image_guid.to_be_bytes(),
            max_mr_size: caps.max_mr_size(),
            page_size_cap: !0xfff,
            vendor_id: adapter.ieee_vendor_id,
            vendor_part_id: self.device.platform().device_id().unwrap_or(0).into(),
            max_qp: caps.max_qp(),
            max_qp_wr: caps.max_qp_wr() / 4,
            max_sge: caps.max_sge_rd().min(receive),
            max_sge_rd: caps.max_sge_rd(),
            max_cq: caps.max_cq(),
            max_cqe: caps.max_cqe().min((1 << 22) - 1),
            max_mr: caps.max_mr(),
            max_pd: caps.max_pd(),
            max_qp_rd_atom: caps.max_responder_resources(),
            max_qp_init_rd_atom: caps.max_initiator_depth(),
            atomic_cap: caps.has_atomics().into(),
            max_ah: 1 << 30,
            max_pkeys: 1,
            local_ca_ack_delay: caps.hca.local_ca_ack_delay(),
            phys_port_cnt: 1,
            ..FromZeros::new_zeroed()
        };
        if extended {
            let out = ExQueryDeviceOut {
                base,
                comp_mask: 0,
                response_length: size_of::<ExQueryDeviceOut>() as u32,
            };
            args.output(CORE_OUT, &out);
            let out = Mlx5QueryDeviceOut {
                comp_mask: 0,
                response_length: size_of::<Mlx5QueryDeviceOut>() as u32,
            };
            args.output(UHW_OUT, &out);
        } else {
            args.output(CORE_OUT, &base);
        }
        Ok(())
    }

    fn query_port(&mut self, args: &mut Args<'_>) -> Result<()> {
        let QueryPortIn { port_num, .. } = args.input(CORE_IN)?;
        if port_num != 1 {
            return Err(libc::EINVAL);
        }
        let port = self.device.query_port().map_err(refused)?;
        let ethernet = port.link_layer == LinkLayer::Ethernet;
        // Lanes and the speed of each, as `mlx5_ib` has them.
        let (width, speed) = match port.rate_mbps / 1000 {
            0..10 => (1, 1),
            10..25 => (1, 4),
            25..40 => (1, 32),
            40..100 => (2, 4),
            100..200 => (2, 32),
            200..400 => (2, 64),
            _ => (2, 128),
        };
        let out = QueryPortOut {
            // CM_SUP, IP_BASED_GIDS.
            port_cap_flags: 1 << 16 | 1 << 26,
            max_msg_sz: u32::try_from(port.max_msg_size).unwrap_or(u32::MAX),
            gid_tbl_len: port.gid_table_len as u32,
            pkey_tbl_len: if ethernet {
                1
            } else {
                port.pkey_table_len as u16
            },
            lid: port.lid,
            sm_lid: port.sm_lid,
            state: match port.state {
                PortState::Down => 1,
                PortState::Init => 2,
                PortState::Armed => 3,
                PortState::Active => 4,
                PortState::ActiveDefer => 5,
                PortState::Unknown(_) => 0,
            },
            max_mtu: port.max_mtu.number(),
            active_mtu: port.active_mtu.number(),
            active_width: width,
            active_speed: speed,
            phys_state: if port.state == PortState::Down { 3 } else { 5 },
            link_layer: if ethernet { 2 } else { 1 },
            // GRH_REQUIRED.
            flags: 1,
            ..FromZeros::new_zeroed()
        };
        args.output(CORE_OUT, &out);
        Ok(())
    }

    fn query_gid(&mut self, args: &mut Args<'_>) -> Result<()> {
        let (port, index) = (args.number(GID_ENTRY_PORT)?, args.number(GID_ENTRY_INDEX)?);
        let index = u16::try_from(index).map_err(|_| libc::EINVAL)?;
        if port != 1 || usize::from(index) >= self.device.gid_table_len() {
            return Err(libc::EINVAL);
        }
        let entry = self.device.port_gid(index).ok_or(libc::ENODATA)?;
        let out = GidEntryOut {
            gid: entry.gid.0,
            index: index.into(),
            port: 1,
            kind: match entry.version {
                RoceVersion::V1 => 1,
                RoceVersion::V2 => 2,
            },
            netdev: 0,
        };
        args.output(GID_ENTRY_OUT, &out);
        Ok(())
    }

    fn create_cq(&mut self, fd: c_int, args: &mut Args<'_>, extended: bool) -> Result<()> {
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
        let (device, eqn) = (self.device, u32::from(self.events.eqn.0));
        let context = self.context(fd)?;
        let channel = match wanted.comp_channel {
            -1 => None,
            channel => Some(context.channels.get(&channel).ok_or(libc::EBADF)?.clone()),
        };
        let (cq, mut out) = Cq::create(
            device,
            (eqn, context.uar.number),
            &wanted,
            &provided,
            channel,
        )?;
        let provider_out = Mlx5CreateCqOut {
            cqn: cq.cqn.number(),
            reserved: 0,
        };
        out.handle = context.add(Object::Cq(cq));
        let out = ExCreateCqOut {
            base: out,
            comp_mask: 0,
            response_length: size_of::<ExCreateCqOut>() as u32,
        };
        args.output(CORE_OUT, &out);
        args.output(UHW_OUT, &provider_out);
        Ok(())
    }

    fn destroy_cq(&mut self, fd: c_int, args: &mut Args<'_>) -> Result<()> {
        let DestroyIn { handle, .. } = args.input(CORE_IN)?;
        let objects = &mut self.context(fd)?.objects;
        let Some(Object::Cq(cq)) = objects.get(&handle) else {
            return Err(libc::EINVAL);
        };
        cq.destroy()?;
        // Events that the program has not read are not for it any more.
        let unread = cq.channel.as_ref();
        let unread = unread.map_or(0, |channel| channel.remove(cq.user_handle.to_ne_bytes()));
        let out = DestroyCqOut {
            comp_events_reported: cq.events.saturating_sub(unread),
            async_events_reported: 0,
        };
        objects.remove(&handle);
        args.output(CORE_OUT, &out);
        Ok(())
    }

    fn create_qp(&mut self, fd: c_int, args: &mut Args<'_>, extended: bool) -> Result<()> {
        let wanted = match extended {
            true => args.input(CORE_IN)?,
            false => args.input::<CreateQpIn>(CORE_IN)?.rest,
        };
        let provided: Mlx5CreateQpIn = args.input(UHW_IN)?;
        let device = self.device;
        let context = self.context(fd)?;
        let Some(Object::Pd(pd)) = context.objects.get(&wanted.pd_handle) else {
            return Err(libc::EINVAL);
        };
        let cqns = [
            context.cqn(wanted.send_cq_handle)?,
            context.cqn(wanted.recv_cq_handle)?,
        ];
        let owner = (pd.pdn().number(), cqns);
        let qp = Qp::create(device, context.uar.number, owner, &wanted, &provided)?;
        let qpn = qp.qpn.number();
        let base = CreateQpOut {
            handle: context.add(Object::Qp(qp)),
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
        // The first register of the first page: it takes 8 bytes at a time, so that QPs share it without a lock.
        args.output(UHW_OUT, &Mlx5CreateQpOut::new_zeroed());
        Ok(())
    }

    fn modify_qp(&mut self, fd: c_int, args: &mut Args<'_>, extended: bool) -> Result<()> {
        let modify: ModifyQpIn = args.input(CORE_IN)?;
        let mac = match needs_destination(&modify) {
            true => self.destination_mac(&modify.dest)?,
            false => [0; 6],
        };
        let Some(Object::Qp(qp)) = self.context(fd)?.objects.get_mut(&modify.handle) else {
            return Err(libc::EINVAL);
        };
        qp.modify(&modify, mac)?;
        if extended {
            let out = ExModifyQpOut {
                comp_mask: 0,
                response_length: size_of::<ExModifyQpOut>() as u32,
            };
            args.output(CORE_OUT, &out);
            let out = Mlx5ModifyQpOut {
                response_length: size_of::<Mlx5ModifyQpOut>() as u32,
                ..FromZeros::new_zeroed()
            };
            args.output(UHW_OUT, &out);
        }
        Ok(())
    }

    fn create_ah(&mut self, fd: c_int, args: &mut Args<'_>) -> Result<()> {
        let ah: CreateAhIn = args.input(CORE_IN)?;
        let dest = Destination {
            dgid: ah.dgid,
            sgid_index: ah.sgid_index,
            is_global: ah.is_global,
            ..FromZeros::new_zeroed()
        };
        let dmac = self.destination_mac(&dest)?;
        let handle = self.context(fd)?.add(Object::Ah);
        args.output(CORE_OUT, &HandleOnly { handle });
        let out = Mlx5CreateAhOut {
            response_length: size_of::<Mlx5CreateAhOut>() as u32,
            dmac,
            reserved: [0; 6],
        };
        args.output(UHW_OUT, &out);
        Ok(())
    }

    fn reg_mr(&mut self, fd: c_int, args: &mut Args<'_>) -> Result<()> {
        let asked: RegMrIn = args.input(CORE_IN)?;
        let context = self.context(fd)?;
        let Some(Object::Pd(pd)) = context.objects.get(&asked.pd_handle) else {
            return Err(libc::EINVAL);
        };
        let access = Access::from_bits_truncate(asked.access_flags);
        let mr = crate::memory::register(pd, &asked, access)?;
        let out = RegMrOut {
            handle: 0,
            lkey: mr.lkey().0,
            rkey: mr.rkey().0,
        };
        let handle = context.add(Object::Mr(mr));
        args.output(CORE_OUT, &RegMrOut { handle, ..out });
        Ok(())
    }

    /// Destroys what a context had: QPs first, then CQs, then the rest.
    pub(crate) fn close(&mut self, fd: c_int) {
        let Some(mut context) = self.contexts.remove(&fd) else {
            return;
        };
        let qps = |object: &Object<'_>| matches!(object, Object::Qp(_));
        let queues = |object: &Object<'_>| matches!(object, Object::Qp(_) | Object::Cq(_));
        let others = |object: &Object<'_>| !matches!(object, Object::Pd(_));
        let mut stays = false;
        let order: [&dyn Fn(&Object<'_>) -> bool; 3] = [&qps, &queues, &others];
        for which in order {
            let objects = std::mem::take(&mut context.objects);
            for (handle, object) in objects {
                if !which(&object) {
                    context.objects.insert(handle, object);
                    continue;
                }
                // The program may give its records back, whatever the firmware answers.
                let done = match &object {
                    Object::Qp(qp) => {
                        doorbells::remove(Queue::Send(qp.qpn));
                        qp.destroy()
                    }
                    Object::Cq(cq) => {
                        doorbells::remove(Queue::Arm(cq.cqn));
                        cq.destroy()
                    }
                    _ => Ok(()),
                };
                if done.is_err() {
                    // The device may use its memory for ever.
                    log::error!("an object of a closed context stays");
                    std::mem::forget(object);
                    stays = true;
                }
            }
        }
        // The domains.
        context.objects.clear();
        if stays {
            // It is the page of what stays.
            std::mem::forget(context.uar);
        }
    }
}
