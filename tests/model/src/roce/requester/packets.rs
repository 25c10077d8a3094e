//! Request packets out of messages.

use super::super::env::{AtomicOp, QpConfig, SendOp};
use super::super::opcode::{Opcode, Operation};
use super::super::outgoing::Outgoing;
use super::super::packet::{AtomicEth, Extended, Reth};
use super::super::psn::Psn;
use super::message::Message;

/// The request packet of a message at a packet offset.
pub(super) fn request(config: &QpConfig, message: &Message, offset: u32, psn: Psn) -> Outgoing {
    use Operation as Op;
    let work = &message.work;
    let mtu = config.mtu as u32;
    let begin = offset * mtu;
    let rest = message.len - begin.min(message.len);
    let (first, last) = (offset == 0, offset + 1 == message.packets);
    let mut extended = Extended {
        xrc_srqn: work.xrc_srqn,
        ..Extended::default()
    };
    let mut payload_len = rest.min(mtu);
    let send = |only, at_end| match (first, last) {
        (true, true) => only,
        (true, false) => Op::SendFirst,
        (false, false) => Op::SendMiddle,
        (false, true) => at_end,
    };
    let write = |only, at_end| match (first, last) {
        (true, true) => only,
        (true, false) => Op::WriteFirst,
        (false, false) => Op::WriteMiddle,
        (false, true) => at_end,
    };
    let operation = match work.op {
        SendOp::Local | SendOp::Send => send(Op::SendOnly, Op::SendLast),
        SendOp::SendImm(imm) => {
            extended.imm = imm;
            send(Op::SendOnlyImm, Op::SendLastImm)
        }
        SendOp::SendInv(rkey) => {
            extended.invalidate = rkey;
            send(Op::SendOnlyInv, Op::SendLastInv)
        }
        SendOp::Write => write(Op::WriteOnly, Op::WriteLast),
        SendOp::WriteImm(imm) => {
            extended.imm = imm;
            write(Op::WriteOnlyImm, Op::WriteLastImm)
        }
        SendOp::Read => {
            payload_len = 0;
            Op::ReadRequest
        }
        SendOp::Atomic(op) => {
            payload_len = 0;
            let (operation, swap_or_add, compare) = match op {
                AtomicOp::CompareSwap { compare, swap } => (Op::CompareSwap, swap, compare),
                AtomicOp::FetchAdd { add } => (Op::FetchAdd, add, 0),
            };
            extended.atomic = AtomicEth {
                addr: work.remote_addr,
                rkey: work.rkey,
                swap_or_add,
                compare,
            };
            operation
        }
    };
    if operation.has_reth() {
        extended.reth = Reth {
            addr: work.remote_addr.wrapping_add(u64::from(begin)),
            rkey: work.rkey,
            len: rest,
        };
    }
    Outgoing {
        opcode: Opcode::new(config.kind.service(), operation),
        psn,
        destination_qpn: config.remote_qpn,
        ack_request: false,
        solicited: work.solicited && last && message.takes_recv(),
        extended,
        payload_len: payload_len as usize,
    }
}
