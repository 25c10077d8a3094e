//! The commands about raw packet QPs, receive queues and tables of them.

use bareverbs_node::verbs::firmware_cmds::tir::Tirc;
use libc::c_int;
use zerocopy::{FromBytes, FromZeros};

use crate::abi::{
    CORE_IN, CORE_OUT, DestroyIn, ExCreateQpIn, Mlx5CreateQpIn, Mlx5CreateQpOut, UHW_IN, UHW_OUT,
};
use crate::attrs::{Args, Result};
use crate::objects::{Context, Object};
use crate::raw::{IND_TABLE, LOG_BLOCK, Made, Queue, RawQp, Table, Wanted};
use crate::raw_abi::*;
use crate::server::Server;

/// `enum ib_uverbs_qp_create_flags`: those of frames. Receive queues have the same ones by other numbers.
const QP_BLOCK_MULTICAST_LOOPBACK: u32 = 1 << 1;
const QP_SCATTER_FCS: u32 = 1 << 8;
const QP_CVLAN_STRIPPING: u32 = 1 << 9;
const WQ_CVLAN_STRIPPING: u32 = 1 << 0;
const WQ_SCATTER_FCS: u32 = 1 << 1;
/// `enum ib_wq_attr_mask`, and the last of `enum ib_wq_state`.
const WQ_STATE: u32 = 1 << 0;
const WQ_CUR_STATE: u32 = 1 << 1;
const WQ_FLAGS: u32 = 1 << 2;
const WQ_ERR: u32 = 2;
/// `IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE`.
const MAX_LOG_TABLE: u32 = 0xd;

/// `MLX5_QP_FLAG_*`: of `flags` of a QP.
mod flag {
    pub(super) const TUNNEL_OFFLOADS: u32 = 1 << 2;
    pub(super) const TIR_SELF_LB_UC: u32 = 1 << 6;
    pub(super) const TIR_SELF_LB_MC: u32 = 1 << 7;
}

/// `enum mlx5_rx_hash_fields`.
mod hash {
    pub(crate) const SRC_IPV4: u64 = 1 << 0;
    pub(crate) const DST_IPV4: u64 = 1 << 1;
    pub(crate) const SRC_IPV6: u64 = 1 << 2;
    pub(crate) const DST_IPV6: u64 = 1 << 3;
    pub(crate) const SRC_PORT_TCP: u64 = 1 << 4;
    pub(crate) const DST_PORT_TCP: u64 = 1 << 5;
    pub(crate) const SRC_PORT_UDP: u64 = 1 << 6;
    pub(crate) const DST_PORT_UDP: u64 = 1 << 7;
    pub(crate) const INNER: u64 = 1 << 31;
    pub(crate) const ALL: u64 = 0xff | INNER;
}
pub(crate) use hash::ALL as HASH_FIELDS;
/// `MLX5_RX_HASH_FUNC_TOEPLITZ`, and the device's number of it.
pub(crate) const HASH_TOEPLITZ: u8 = 1 << 0;
const DEVICE_TOEPLITZ: u8 = 2;
/// `MLX5_TIRC_DISP_TYPE_INDIRECT`.
const INDIRECT: u8 = 1;

/// A TIR's context, with what the flags of a QP say.
fn context_of(flags: u32) -> Tirc {
    let mut context = Tirc::ZERO;
    let given = |flag: u32| u8::from(flags & flag != 0);
    context
        .set_tunneled_offload_en(flags & flag::TUNNEL_OFFLOADS != 0)
        .set_self_lb_block(given(flag::TIR_SELF_LB_UC) | given(flag::TIR_SELF_LB_MC) << 1);
    context
}

/// The context of a TIR that hashes as asked: `create_rss_raw_qp_tir`. `size` is the number of entries of its table.
fn hashed(asked: &Mlx5CreateQpRssIn, rqtn: u32, size: usize) -> Result<Tirc> {
    let mask = asked.rx_hash_fields_mask;
    let has = |fields: u64| mask & fields != 0;
    let inner_without = has(hash::INNER) && asked.flags & flag::TUNNEL_OFFLOADS == 0;
    if asked.comp_mask != 0
        || inner_without
        || asked.rx_hash_function != HASH_TOEPLITZ
        || has(!hash::ALL)
    {
        return Err(libc::EOPNOTSUPP);
    }
    let mut context = context_of(asked.flags);
    let key = context.rx_hash_toeplitz_key_mut();
    let len = key.len();
    if usize::from(asked.rx_key_len) != len {
        return Err(libc::EINVAL);
    }
    key.copy_from_slice(&asked.rx_hash_key[..len]);
    context
        .set_disp_type(INDIRECT)
        .set_indirect_table(rqtn)
        .set_rx_hash_fn(DEVICE_TOEPLITZ);
    let [ipv4, ipv6] = [
        hash::SRC_IPV4 | hash::DST_IPV4,
        hash::SRC_IPV6 | hash::DST_IPV6,
    ];
    let [tcp, udp] = [
        hash::SRC_PORT_TCP | hash::DST_PORT_TCP,
        hash::SRC_PORT_UDP | hash::DST_PORT_UDP,
    ];
    // Without fields there is nothing to tell queues apart by.
    if has(ipv4) && has(ipv6) || has(tcp) && has(udp) || mask == 0 && size > 1 {
        return Err(libc::EINVAL);
    }
    let bit = |fields: u64, bit: u32| u32::from(has(fields)) << bit;
    let selected = bit(hash::SRC_IPV4 | hash::SRC_IPV6, 0)
        | bit(hash::DST_IPV4 | hash::DST_IPV6, 1)
        | bit(hash::SRC_PORT_TCP | hash::SRC_PORT_UDP, 2)
        | bit(hash::DST_PORT_TCP | hash::DST_PORT_UDP, 3);
    let selector = match has(hash::INNER) {
        true => context.rx_hash_field_selector_inner_mut(),
        false => context.rx_hash_field_selector_outer_mut(),
    };
    selector
        .set_l3_prot_type(has(ipv6))
        .set_l4_prot_type(has(udp))
        .set_selected_fields(selected);
    Ok(context)
}

impl<'d> Server<'_, '_, 'd> {
    /// The context's transport domain, which its first QP for frames allocates.
    fn transport_domain(&mut self, fd: c_int) -> Result<u32> {
        let device = self.device;
        let context = self.context(fd)?;
        if let Some(domain) = &context.domain {
            return Ok(domain.number);
        }
        let domain = Made::domain(device, context.uid)?;
        Ok(context.domain.insert(domain).number)
    }

    /// `CREATE_QP` of a raw packet QP: its handle and number, and the answer to the provider.
    pub(crate) fn create_raw_qp(
        &mut self,
        fd: c_int,
        args: &mut Args,
        wanted: &ExCreateQpIn,
    ) -> Result<(u32, u32, Mlx5CreateQpOut)> {
        if wanted.comp_mask & !IND_TABLE != 0 {
            return Err(libc::EINVAL);
        }
        let domain = self.transport_domain(fd)?;
        let device = self.device;
        let raw = if wanted.comp_mask & IND_TABLE != 0 {
            let asked: Mlx5CreateQpRssIn = args.input(UHW_IN)?;
            let queues = wanted.max_send_wr | wanted.max_recv_wr | wanted.max_recv_sge;
            if queues != 0 || wanted.is_srq != 0 {
                return Err(libc::EINVAL);
            }
            let context = self.context(fd)?;
            context.pd(wanted.pd_handle)?;
            let table = context.table(wanted.rwq_ind_tbl_handle)?;
            let mut tirc = hashed(&asked, table.made.number, table.queues.len())?;
            tirc.set_transport_domain(domain);
            RawQp::of_hash(Made::tir(device, context.uid, &tirc)?, wanted)
        } else {
            let provided: Mlx5CreateQpIn = args.input(UHW_IN)?;
            let flags = wanted.create_flags;
            // What a group gets back is not these queues' matter, and `mlx5_ib` takes the flag all the same.
            let ignored = match device.capabilities().hca.block_lb_mc() {
                true => QP_BLOCK_MULTICAST_LOOPBACK,
                false => 0,
            };
            let known = QP_SCATTER_FCS | QP_CVLAN_STRIPPING | ignored;
            if flags & !known != 0 || wanted.is_srq != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            let offloads = (flags & QP_CVLAN_STRIPPING != 0, flags & QP_SCATTER_FCS != 0);
            self.check_offloads(offloads.0, offloads.1)?;
            let context = self.context(fd)?;
            let send = Wanted {
                uid: context.uid,
                uar: context.uar.number,
                pdn: context.pd(wanted.pd_handle)?.pdn().number(),
                cqn: 0,
                user_index: provided.uidx,
                ring: provided.sq_buf_addr,
                record: provided.db_addr,
                count: provided.sq_wqe_count,
                shift: LOG_BLOCK,
            };
            let receive = Wanted {
                ring: provided.buf_addr,
                count: provided.rq_wqe_count,
                shift: provided.rq_wqe_shift,
                ..send
            };
            let queue = |context: &mut Context<'_>, wanted: Wanted, handle| -> Result<_> {
                let cqn = match wanted.count {
                    0 => return Ok(None),
                    _ => context.cqn(handle)?,
                };
                Ok(Some(Wanted { cqn, ..wanted }))
            };
            let queues = (
                queue(context, send, wanted.send_cq_handle)?,
                queue(context, receive, wanted.recv_cq_handle)?,
            );
            let tirc = context_of(provided.flags);
            RawQp::create(device, domain, queues, offloads, tirc, wanted)?
        };
        let mut out = Mlx5CreateQpOut::new_zeroed();
        let context = self.context(fd)?;
        // Only DevX can name them.
        if context.uid != 0 {
            for (bit, number) in raw.numbers().into_iter().enumerate() {
                out.comp_mask |= u32::from(number.is_some()) << bit;
            }
            [out.tirn, out.tisn, out.rqn, out.sqn] = raw.numbers().map(Option::unwrap_or_default);
        }
        let qpn = raw.qpn();
        Ok((context.add(Object::Raw(Box::new(raw))), qpn, out))
    }

    /// `CREATE_WQ`.
    pub(crate) fn create_wq(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let asked: CreateWqIn = args.input(CORE_IN)?;
        let provided: Mlx5CreateWqIn = args.input(UHW_IN)?;
        // There are no striding ones.
        if asked.comp_mask != 0
            || provided.comp_mask != 0
            || asked.create_flags & !(WQ_CVLAN_STRIPPING | WQ_SCATTER_FCS) != 0
        {
            return Err(libc::EOPNOTSUPP);
        }
        let device = self.device;
        let most = 1 << device.capabilities().hca.log_max_wq_sz();
        if asked.wq_type != 0 || asked.max_wr > most {
            return Err(libc::EINVAL);
        }
        let given = |flag| asked.create_flags & flag != 0;
        let (strip, scatter_fcs) = (given(WQ_CVLAN_STRIPPING), given(WQ_SCATTER_FCS));
        self.check_offloads(strip, scatter_fcs)?;
        let context = self.context(fd)?;
        let wanted = Wanted {
            uid: context.uid,
            uar: 0,
            pdn: context.pd(asked.pd_handle)?.pdn().number(),
            cqn: context.cqn(asked.cq_handle)?,
            user_index: provided.user_index,
            ring: provided.buf_addr,
            record: provided.db_addr,
            count: provided.rq_wqe_count,
            shift: provided.rq_wqe_shift,
        };
        let queue = Queue::receive(device, &wanted, strip, scatter_fcs)?;
        let wqn = queue.number();
        let out = CreateWqOut {
            comp_mask: 0,
            response_length: size_of::<CreateWqOut>() as u32,
            handle: context.add(Object::Wq(Box::new(queue))),
            max_wr: asked.max_wr,
            max_sge: asked.max_sge,
            wqn,
        };
        args.output(CORE_OUT, &out);
        args.output(UHW_OUT, &LENGTH_OUT);
        Ok(())
    }

    /// `MODIFY_WQ`.
    pub(crate) fn modify_wq(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let asked: ModifyWqIn = args.input(CORE_IN)?;
        let given = |bit| asked.attr_mask & bit != 0;
        let known = WQ_STATE | WQ_CUR_STATE | WQ_FLAGS;
        if asked.attr_mask == 0 || asked.attr_mask & !known != 0 {
            return Err(libc::EINVAL);
        }
        if given(WQ_STATE) && asked.wq_state > WQ_ERR
            || given(WQ_CUR_STATE) && asked.curr_wq_state > WQ_ERR
        {
            return Err(libc::EINVAL);
        }
        let strips = match given(WQ_FLAGS) {
            true if asked.flags_mask & !WQ_CVLAN_STRIPPING != 0 => return Err(libc::EOPNOTSUPP),
            true if asked.flags_mask != 0 => Some(asked.flags & WQ_CVLAN_STRIPPING != 0),
            _ => None,
        };
        self.check_offloads(strips.is_some(), false)?;
        let queue = self.context(fd)?.wq(asked.handle)?;
        let now = queue.verbs_state()?;
        if given(WQ_CUR_STATE) && asked.curr_wq_state != now {
            return Err(libc::EINVAL);
        }
        let to = if given(WQ_STATE) { asked.wq_state } else { now };
        queue.enter_verbs(to, strips)
    }

    /// `DESTROY_WQ`.
    pub(crate) fn destroy_wq(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let ExDestroyIn { comp_mask, handle } = args.input(CORE_IN)?;
        if comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let context = self.context(fd)?;
        let of =
            |it: &Object<'_>| matches!(it, Object::Table(table) if table.queues.contains(&handle));
        if context.objects.values().any(of) {
            return Err(libc::EBUSY);
        }
        context.remove(handle, |it| matches!(it, Object::Wq(_)))?;
        let out = DestroyWqOut {
            response_length: size_of::<DestroyWqOut>() as u32,
            ..FromZeros::new_zeroed()
        };
        args.output(CORE_OUT, &out);
        Ok(())
    }

    /// `CREATE_RWQ_IND_TBL`.
    pub(crate) fn create_table(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let bytes = args.bytes(CORE_IN)?;
        let (asked, handles) = CreateTableIn::ref_from_prefix(&bytes).map_err(|_| libc::EINVAL)?;
        if asked.comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let log = asked.log_ind_tbl_size;
        let device = self.device;
        let hca = &device.capabilities().hca;
        if log > MAX_LOG_TABLE.min(hca.log_max_rqt_size().into()) {
            return Err(libc::EINVAL);
        }
        let handles = handles.chunks_exact(size_of::<u32>()).take(1 << log);
        let number = |four: &[u8]| {
            four.first_chunk()
                .map_or(0, |four| u32::from_ne_bytes(*four))
        };
        let queues: Vec<u32> = handles.map(number).collect();
        if queues.len() != 1 << log {
            return Err(libc::EINVAL);
        }
        let context = self.context(fd)?;
        let numbers: Result<Vec<u32>> = queues
            .iter()
            .map(|handle| Ok(context.wq(*handle)?.number()))
            .collect();
        let made = Made::table(device, context.uid, &numbers?)?;
        let number = made.number;
        let out = CreateTableOut {
            comp_mask: 0,
            response_length: size_of::<CreateTableOut>() as u32,
            handle: context.add(Object::Table(Box::new(Table { made, queues }))),
            number,
        };
        args.output(CORE_OUT, &out);
        args.output(UHW_OUT, &LENGTH_OUT);
        Ok(())
    }

    /// `DESTROY_RWQ_IND_TBL`.
    pub(crate) fn destroy_table(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let ExDestroyIn { comp_mask, handle } = args.input(CORE_IN)?;
        if comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let context = self.context(fd)?;
        let of = |it: &Object<'_>| matches!(it, Object::Raw(raw) if raw.table() == Some(handle));
        if context.objects.values().any(of) {
            return Err(libc::EBUSY);
        }
        let is = |it: &Object<'_>| matches!(it, Object::Table(_));
        context.remove(handle, is).map(drop)
    }

    /// Refuses to destroy a QP that rules send frames to.
    pub(crate) fn check_rules(&mut self, fd: c_int, qp: &DestroyIn) -> Result<()> {
        let of = |it: &Object<'_>| matches!(it, Object::Flow(flow) if flow.qp == qp.handle);
        match self.context(fd)?.objects.values().any(of) {
            true => Err(libc::EBUSY),
            false => Ok(()),
        }
    }
}

/// The provider's answer, which is no more than its length.
const LENGTH_OUT: Mlx5LengthOut = Mlx5LengthOut {
    response_length: size_of::<Mlx5LengthOut>() as u32,
    reserved: 0,
};
