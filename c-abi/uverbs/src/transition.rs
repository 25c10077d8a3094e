//! Transitions of QPs, as `mlx5_ib_modify_qp` makes them.

use bareverbs_node::verbs::firmware_cmds::qp::{
    Ads, Init2initQpIn, Init2rtrQpIn, Qp2ErrIn, Qp2RstIn, Qpc, QueryQpIn as QueryQp, Rst2initQpIn,
    Rtr2rtsQpIn, Rts2rtsQpIn, Sqerr2rtsQpIn,
};
use bareverbs_node::verbs::firmware_cmds::values::{AtomicMode, OptParamMask, PathMigration};
use bareverbs_node::verbs::{RoceVersion, ah};
use zerocopy::FromZeros;

use crate::abi::{ModifyQpIn, QueryQpOut};
use crate::attrs::Result;
use crate::doorbells::{self, Queue};
use crate::queues::{Qp, refused};

/// `enum ib_qp_state`.
mod state {
    pub(super) const RESET: u8 = 0;
    pub(super) const INIT: u8 = 1;
    pub(super) const RTR: u8 = 2;
    pub(super) const RTS: u8 = 3;
    pub(super) const SQE: u8 = 5;
    pub(super) const ERR: u8 = 6;
}

/// `enum ib_qp_attr_mask`.
mod mask {
    pub(super) const STATE: u32 = 1 << 0;
    pub(super) const CUR_STATE: u32 = 1 << 1;
    pub(super) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const PORT: u32 = 1 << 5;
    pub(super) const QKEY: u32 = 1 << 6;
    pub(super) const AV: u32 = 1 << 7;
    pub(super) const PATH_MTU: u32 = 1 << 8;
    pub(super) const TIMEOUT: u32 = 1 << 9;
    pub(super) const RETRY_CNT: u32 = 1 << 10;
    pub(super) const RNR_RETRY: u32 = 1 << 11;
    pub(super) const RQ_PSN: u32 = 1 << 12;
    pub(super) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(super) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(super) const SQ_PSN: u32 = 1 << 16;
    pub(super) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(super) const DEST_QPN: u32 = 1 << 20;
}

/// `enum ib_qp_type`.
const RC: u8 = 2;
const UC: u8 = 3;
const UD: u8 = 4;
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ: u32 = 1 << 2;
const REMOTE_ATOMIC: u32 = 1 << 3;

/// The bits of QP numbers and packet sequence numbers.
const NUMBER: u32 = 0xff_ffff;

/// The values that transitions repeat, and the state that the QP is in.
pub(crate) struct State {
    kind: u8,
    /// As the context has the type.
    pub(crate) service: u8,
    pdn: u32,
    cqns: [u32; 2],
    pub(crate) now: u8,
    access: u32,
    depth: u8,
}

impl State {
    pub(crate) fn new(kind: u8, pdn: u32, cqns: [u32; 2]) -> Result<Self> {
        let service = match kind {
            RC => 0,
            UC => 1,
            UD => 2,
            _ => return Err(libc::EOPNOTSUPP),
        };
        Ok(Self {
            kind,
            service,
            pdn,
            cqns,
            now: state::RESET,
            access: 0,
            depth: 0,
        })
    }
}

fn log_depth(depth: u8) -> u8 {
    depth
        .max(1)
        .checked_next_power_of_two()
        .map_or(7, |depth| depth.ilog2() as u8)
}

/// Returns `true` if a transition needs the MAC address of the destination.
pub(crate) fn needs_destination(modify: &ModifyQpIn) -> bool {
    modify.attr_mask & mask::AV != 0
}

impl Qp<'_> {
    /// Makes a transition. Numbers that are too wide lose their upper bits, as `MLX5_SET` has it.
    pub(crate) fn modify(&mut self, modify: &ModifyQpIn, mac: [u8; 6]) -> Result<()> {
        let given = |bit| modify.attr_mask & bit != 0;
        let from = match given(mask::CUR_STATE) {
            true => modify.cur_qp_state,
            false => self.state.now,
        };
        let to = match given(mask::STATE) {
            true => modify.qp_state,
            false => from,
        };
        let qpn = self.qpn.number();
        let device = self.device;
        match to {
            state::RESET => {
                let mut command = Qp2RstIn::new();
                command.set_qpn(qpn);
                device.execute(&command).map_err(refused)?;
                doorbells::reset(Queue::Send(self.qpn));
            }
            state::ERR => {
                let mut command = Qp2ErrIn::new();
                command.set_qpn(qpn);
                device.execute(&command).map_err(refused)?;
            }
            _ => {
                let mut context = Qpc::ZERO;
                self.describe(&mut context, modify, mac, from)?;
                let optional = self.optional(modify.attr_mask, from, to).bits();
                /// Sends one of the commands, which are laid out alike.
                macro_rules! send {
                    ($Command:ident) => {{
                        let mut command = <$Command>::new();
                        command.set_qpn(qpn).set_opt_param_mask(optional);
                        *command.qpc_mut() = context;
                        device.execute(&command).map(drop).map_err(refused)?
                    }};
                }
                match (from, to) {
                    (state::RESET, state::INIT) => send!(Rst2initQpIn),
                    (state::INIT, state::INIT) => send!(Init2initQpIn),
                    (state::INIT, state::RTR) => send!(Init2rtrQpIn),
                    (state::RTR, state::RTS) => send!(Rtr2rtsQpIn),
                    (state::RTS, state::RTS) => send!(Rts2rtsQpIn),
                    (state::SQE, state::RTS) => send!(Sqerr2rtsQpIn),
                    _ => return Err(libc::EINVAL),
                }
                if given(mask::ACCESS_FLAGS) {
                    self.state.access = modify.qp_access_flags;
                }
                if given(mask::MAX_DEST_RD_ATOMIC) {
                    self.state.depth = modify.max_dest_rd_atomic;
                }
            }
        }
        self.state.now = to;
        Ok(())
    }

    fn optional(&self, given: u32, from: u8, to: u8) -> OptParamMask {
        use OptParamMask as Opt;
        let allowed = match (self.state.kind, from, to) {
            (UD, state::INIT, state::INIT) => Opt::PKEY_INDEX | Opt::Q_KEY | Opt::PRI_PORT,
            (_, state::INIT, state::INIT) => Opt::ACCESS | Opt::PKEY_INDEX | Opt::PRI_PORT,
            (UD, state::INIT, state::RTR) => Opt::PKEY_INDEX | Opt::Q_KEY,
            (UC, state::INIT, state::RTR) => Opt::RWE | Opt::PKEY_INDEX,
            (_, state::INIT, state::RTR) => Opt::ACCESS | Opt::PKEY_INDEX,
            (UD, _, state::RTS) => Opt::Q_KEY,
            (UC, _, state::RTS) => Opt::RWE | Opt::PM_STATE,
            (_, _, state::RTS) => Opt::ACCESS | Opt::PM_STATE | Opt::RNR_TIMEOUT,
            _ => Opt::empty(),
        };
        let table = [
            (mask::ACCESS_FLAGS, Opt::ACCESS),
            (mask::MAX_DEST_RD_ATOMIC, Opt::ACCESS),
            (mask::PKEY_INDEX, Opt::PKEY_INDEX),
            (mask::QKEY, Opt::Q_KEY),
            (mask::MIN_RNR_TIMER, Opt::RNR_TIMEOUT),
            (mask::PORT, Opt::PRI_PORT),
        ];
        let bits = table.iter().filter(|(bit, _)| given & bit != 0);
        allowed & bits.fold(Opt::empty(), |bits, (_, bit)| bits | *bit)
    }

    fn describe(
        &self,
        context: &mut Qpc,
        modify: &ModifyQpIn,
        mac: [u8; 6],
        from: u8,
    ) -> Result<()> {
        let given = |bit| modify.attr_mask & bit != 0;
        let state = &self.state;
        let caps = &self.device.capabilities().hca;
        context
            .set_st(state.service)
            .set_pm_state(PathMigration::Migrated.number())
            .set_pd(state.pdn)
            .set_cqn_snd(state.cqns[0])
            .set_cqn_rcv(state.cqns[1])
            .set_log_ack_req_freq(8);
        if state.kind == UD {
            // 4096 bytes.
            context.set_mtu(5).set_log_msg_max(12);
        } else if given(mask::PATH_MTU) {
            // 256 to 4096 bytes.
            if !(1..=5).contains(&modify.path_mtu) {
                return Err(libc::EINVAL);
            }
            context
                .set_mtu(modify.path_mtu)
                .set_log_msg_max(caps.log_max_msg());
        }
        if from == state::RESET {
            context.set_dbr_addr(self.record_iova());
        }
        if given(mask::DEST_QPN) {
            context.set_remote_qpn(modify.dest_qp_num & NUMBER);
        }
        if given(mask::QKEY) {
            context.set_q_key(modify.qkey);
        }
        if given(mask::RQ_PSN) {
            context.set_next_rcv_psn(modify.rq_psn & NUMBER);
        }
        if given(mask::SQ_PSN) {
            context.set_next_send_psn(modify.sq_psn & NUMBER);
        }
        if given(mask::RETRY_CNT) {
            context.set_retry_count(modify.retry_cnt & 7);
        }
        if given(mask::RNR_RETRY) {
            context.set_rnr_retry(modify.rnr_retry & 7);
        }
        if given(mask::MIN_RNR_TIMER) {
            context.set_min_rnr_nak(modify.min_rnr_timer & 31);
        }
        if given(mask::MAX_QP_RD_ATOMIC) {
            context.set_log_sra_max(log_depth(modify.max_rd_atomic));
        }
        if given(mask::MAX_DEST_RD_ATOMIC) {
            context.set_log_rra_max(log_depth(modify.max_dest_rd_atomic));
        }
        if given(mask::ACCESS_FLAGS) || given(mask::MAX_DEST_RD_ATOMIC) {
            let asked = match given(mask::ACCESS_FLAGS) {
                true => modify.qp_access_flags,
                false => state.access,
            };
            let depth = match given(mask::MAX_DEST_RD_ATOMIC) {
                true => modify.max_dest_rd_atomic,
                false => state.depth,
            };
            // Without responder resources only writes are possible.
            let allowed = match depth {
                0 => asked & REMOTE_WRITE,
                _ => asked,
            };
            context
                .set_rwe(allowed & REMOTE_WRITE != 0)
                .set_rre(allowed & REMOTE_READ != 0);
            if allowed & REMOTE_ATOMIC != 0 {
                context
                    .set_rae(true)
                    .set_atomic_mode(AtomicMode::IbSpec.number());
            }
        }
        let path = context.primary_address_path_mut();
        if given(mask::PKEY_INDEX) {
            path.set_pkey_index(modify.pkey_index);
        }
        if given(mask::PORT) {
            if modify.port_num != 1 {
                return Err(libc::EINVAL);
            }
            path.set_vhca_port_num(modify.port_num);
        }
        if given(mask::TIMEOUT) {
            path.set_ack_timeout(modify.timeout & 31);
        }
        if given(mask::AV) {
            self.path(path, modify, mac)?;
        }
        Ok(())
    }

    /// The path of a connection on RoCE.
    fn path(&self, path: &mut Ads, modify: &ModifyQpIn, mac: [u8; 6]) -> Result<()> {
        let dest = &modify.dest;
        let source = self.device.port_gid(dest.sgid_index.into());
        let source = source.ok_or(libc::EINVAL)?;
        path.set_vhca_port_num(1)
            .set_src_addr_index(dest.sgid_index)
            .set_hop_limit(dest.hop_limit)
            .set_tclass(dest.traffic_class)
            .set_flow_label(dest.flow_label & 0xf_ffff)
            .set_rmac(mac)
            .set_eth_prio(dest.sl & 7);
        *path.rgid_rip_mut() = dest.dgid;
        if source.version == RoceVersion::V2 {
            let (own, peer) = (self.qpn.number(), modify.dest_qp_num & NUMBER);
            path.set_dscp(dest.traffic_class >> 2)
                .set_udp_sport(ah::connection_udp_sport(
                    dest.flow_label & 0xf_ffff,
                    own,
                    peer,
                ));
        }
        Ok(())
    }

    /// The attributes that the firmware has of it.
    pub(crate) fn query(&mut self) -> Result<QueryQpOut> {
        let mut command = QueryQp::new();
        command.set_qpn(self.qpn.number());
        let found = self.device.execute(&command).map_err(refused)?;
        let context = found.qpc();
        // The device's numbers of the states.
        self.state.now = match context.state() {
            0 => state::RESET,
            1 => state::INIT,
            2 => state::RTR,
            3 => state::RTS,
            4 => state::SQE,
            6 => state::ERR,
            _ => self.state.now,
        };
        let mut out = QueryQpOut::new_zeroed();
        let path = context.primary_address_path();
        out.dest.dgid = *path.rgid_rip();
        out.dest.sgid_index = path.src_addr_index();
        out.dest.hop_limit = path.hop_limit();
        out.dest.traffic_class = path.tclass();
        out.dest.flow_label = path.flow_label();
        out.dest.sl = path.eth_prio();
        out.dest.is_global = 1;
        out.dest.port_num = 1;
        out.max_send_wr = self.wanted.max_send_wr;
        out.max_recv_wr = self.wanted.max_recv_wr;
        out.max_send_sge = self.wanted.max_send_sge;
        out.max_recv_sge = self.wanted.max_recv_sge;
        out.max_inline_data = self.wanted.max_inline_data;
        out.sq_sig_all = self.wanted.sq_sig_all;
        out.qkey = context.q_key();
        out.rq_psn = context.next_rcv_psn();
        out.sq_psn = context.next_send_psn();
        out.dest_qp_num = context.remote_qpn();
        out.qp_access_flags = self.state.access;
        out.pkey_index = path.pkey_index();
        out.qp_state = self.state.now;
        out.cur_qp_state = self.state.now;
        out.path_mtu = context.mtu();
        out.max_rd_atomic = 1 << context.log_sra_max();
        out.max_dest_rd_atomic = self.state.depth;
        out.min_rnr_timer = context.min_rnr_nak();
        out.port_num = 1;
        out.timeout = path.ack_timeout();
        out.retry_cnt = context.retry_count();
        out.rnr_retry = context.rnr_retry();
        Ok(out)
    }
}
