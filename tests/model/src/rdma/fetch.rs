//! Send and receive WQEs of queue pairs: from the bytes in the host's memory to the transport's work items.

use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::qp::{BLOCK, Qp, service};
use crate::objects::wqe::{control, memory, scatter_list};
use crate::port::lid::LocalDestination;
use crate::rdma::queue_pair::Destination;
use crate::roce::env::{
    AtomicOp, BadWqe, DatagramAddress, DcTarget, RecvWork, Segment, SendOp, SendWork, Syndrome,
};
use bareverbs_firmware_cmds::numbers::LKey;
use bareverbs_firmware_cmds::roce::RoceAddr;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    AtomicCompareWord, AtomicSwapAddWord, ControlFlags, DcKeyWord, DestinationWord, GrhWord,
    InlineWord, Opcode, QKeyWord, RemoteAddressWord, RemoteGidHighWord, RemoteGidLowWord,
    RemoteKeyWord, RemoteMacWord, SEGMENT_UNIT, XrcWord, completion, fence,
};

/// Bits of `atomic_operations` and of `atomic_size_qp`.
const COMPARE_SWAP_OFFERED: u16 = 1 << 0;
const FETCH_ADD_OFFERED: u16 = 1 << 1;
const ATOMIC_8_BYTES: u16 = 1 << 3;
const BAD: BadWqe = BadWqe(Syndrome::LocalQpOperation);

/// Reads a WQE's segments front to back; what is missing reads as an error.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], BadWqe> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(BAD)?;
        self.rest = rest;
        Ok(head)
    }
}

impl Device {
    /// Fetches the next send WQE of a QP.
    pub(crate) fn fetch_send(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        work: &mut SendWork,
    ) -> Result<bool, BadWqe> {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return Ok(false);
        };
        let posted = qp.sq_posted.wrapping_sub(qp.sq_next);
        if posted == 0 || qp.sq_blocks() == 0 {
            return Ok(false);
        }
        work.index = qp.sq_next;
        if u32::from(posted) > qp.sq_blocks() {
            log::warn!(
                "QP {qpn:#x}: {posted} blocks posted in a queue of {}",
                qp.sq_blocks()
            );
            qp.sq_next = qp.sq_posted;
            return Err(BAD);
        }
        let written = qp.written.take().filter(|it| it.index == qp.sq_next);
        let blocks = |wqe: &[u8]| u16::from(control(wqe).ds()).div_ceil(4).max(1);
        let wqe = if let Some(written) = &written {
            self.stats.blue_flame += 1;
            &written.bytes[..]
        } else {
            let read = self.read_ahead.from(qpn, qp.sq_next);
            let all = read.len() / BLOCK as usize >= usize::from(blocks(read).min(posted));
            if !all && self.read_ahead.read(io, qpn, qp, posted).is_err() {
                qp.sq_next = qp.sq_posted;
                return Err(BAD);
            }
            self.read_ahead.from(qpn, qp.sq_next)
        };
        let control = control(wqe);
        work.wqe_opcode = control.opcode();
        let octowords = usize::from(control.ds());
        let blocks = blocks(wqe);
        let (index, number) = (control.wqe_index(), control.qpn());
        let sound = octowords != 0 && blocks <= posted && index == work.index && number == qpn;
        if !sound {
            log::warn!(
                "QP {qpn:#x}: WQE {:#x} is malformed: index {index:#x}, QP {number:#x}, {octowords} octowords of {posted} blocks posted",
                work.index
            );
            // What follows is flushed: only this WQE is skipped.
            qp.sq_next = qp.sq_next.wrapping_add(blocks.min(posted));
            return Err(BAD);
        }
        let Some(wqe) = wqe.get(..octowords * SEGMENT_UNIT) else {
            // Its end cannot be reached.
            qp.sq_next = qp.sq_posted;
            return Err(BAD);
        };
        qp.sq_next = qp.sq_next.wrapping_add(blocks);
        self.parse_send(qpn, wqe, work)?;
        let otherwise = work.target.is_some() && self.has_other_priority(qpn, wqe);
        if otherwise {
            // Drivers give an initiator the service level of all its requests (`uct_dc_mlx5_iface_dci_connect`).
            self.answer_unknown(format_args!(
                "DCI {qpn:#x}: a request of another priority than the initiator's"
            ));
        }
        Ok(true)
    }

    /// Returns true if a request of an initiator names another service level than the context.
    fn has_other_priority(&self, qpn: u32, wqe: &[u8]) -> bool {
        let (Some(qp), Some(av)) = (
            self.qps.get(qpn),
            wqe.get(16..).and_then(<[u8]>::first_chunk),
        ) else {
            return false;
        };
        let (path, av) = (
            qp.context.primary_address_path(),
            DestinationWord::read::<48>(av),
        );
        match self.ethernet() {
            true => path.eth_prio() != av.eth_prio(),
            false => path.sl() != av.sl(),
        }
    }

    fn parse_send(&self, qpn: u32, wqe: &[u8], work: &mut SendWork) -> Result<(), BadWqe> {
        let qp = self.qps.get(qpn).ok_or(BAD)?;
        let st = qp.context.st();
        let mut rest = Cursor { rest: wqe };
        let flags = ControlFlags::read(rest.take::<16>()?);
        let imm = flags.imm();
        work.signaled = flags.fm_ce_se() & completion::MASK >= completion::ALWAYS;
        work.solicited = flags.solicited();
        work.fence = flags.fm_ce_se() & fence::MASK >= fence::FENCE;

        let xrc = st == service::XRC;
        let dynamic = st == service::DCI;
        if dynamic {
            work.stream = Some(flags.dci_stream_channel_id());
        }
        let reliable = st == service::RC || xrc || dynamic;
        let connected = reliable || st == service::UC;
        let datagram = matches!(st, service::UD | service::QP1 | service::QP0);
        let opcode = Opcode::from_number(work.wqe_opcode);
        let allowed = match opcode {
            Some(Opcode::Nop) => true,
            Some(Opcode::Umr) => connected || st == service::REG_UMR,
            Some(Opcode::Send | Opcode::SendImmediate) => connected || datagram,
            Some(Opcode::RdmaWrite | Opcode::RdmaWriteImmediate) => connected,
            Some(
                Opcode::SendInvalidate
                | Opcode::RdmaRead
                | Opcode::AtomicCompareSwap
                | Opcode::AtomicFetchAdd,
            ) => reliable,
            _ => false,
        };
        if !allowed {
            log::warn!("QP {qpn:#x} of type {st:#x}: opcode {:#x}", work.wqe_opcode);
            return Err(BAD);
        }
        let offered = match opcode {
            Some(Opcode::AtomicCompareSwap) => self.has_atomic(COMPARE_SWAP_OFFERED, st),
            Some(Opcode::AtomicFetchAdd) => self.has_atomic(FETCH_ADD_OFFERED, st),
            _ => true,
        };
        let longest = if dynamic {
            self.caps.general.max_wqe_sz_sq_dc()
        } else {
            self.caps.general.max_wqe_sz_sq()
        };
        if !offered || wqe.len() > usize::from(longest) {
            log::warn!(
                "QP {qpn:#x}: opcode {:#x} in {} bytes is beyond the capabilities",
                work.wqe_opcode,
                wqe.len()
            );
            return Err(BAD);
        }
        let Some(opcode) = opcode.filter(|opcode| !matches!(opcode, Opcode::Nop | Opcode::Umr))
        else {
            work.op = SendOp::Local;
            return Ok(());
        };
        // Behind the return above: what stays here, as the binding of a window, has no such segment.
        if xrc {
            work.xrc_srqn = XrcWord::read(rest.take::<16>()?).srqn();
        }
        if datagram {
            work.datagram = Some(self.parse_address(&mut rest)?);
        }
        if dynamic {
            let key = rest.rest.first_chunk::<8>().ok_or(BAD)?;
            let key = DcKeyWord::read(key).dc_key();
            let to = self.parse_address(&mut rest)?;
            work.target = Some(Box::new(DcTarget {
                path: to.path,
                number: to.remote_qpn,
                key,
            }));
        }
        if matches!(
            opcode,
            Opcode::RdmaWrite
                | Opcode::RdmaWriteImmediate
                | Opcode::RdmaRead
                | Opcode::AtomicCompareSwap
                | Opcode::AtomicFetchAdd
        ) {
            let remote = rest.take::<16>()?;
            work.remote_addr = RemoteAddressWord::read(remote).raddr();
            work.rkey = RemoteKeyWord::read(remote).rkey();
        }
        work.op = match opcode {
            Opcode::Send => SendOp::Send,
            Opcode::SendImmediate => SendOp::SendImm(imm),
            Opcode::SendInvalidate => SendOp::SendInv(imm),
            Opcode::RdmaWrite => SendOp::Write,
            Opcode::RdmaWriteImmediate => SendOp::WriteImm(imm),
            Opcode::RdmaRead => SendOp::Read,
            _ => {
                let operands = rest.take::<16>()?;
                let first = AtomicSwapAddWord::read(operands).swap_add();
                SendOp::Atomic(if opcode == Opcode::AtomicCompareSwap {
                    AtomicOp::CompareSwap {
                        compare: AtomicCompareWord::read(operands).compare(),
                        swap: first,
                    }
                } else {
                    AtomicOp::FetchAdd { add: first }
                })
            }
        };
        while !rest.rest.is_empty() {
            let inline = InlineWord::read(rest.rest.first_chunk::<4>().ok_or(BAD)?);
            if !inline.inline() {
                work.segments.push(memory(rest.take()?));
                continue;
            }
            // Inline data: the length, then the bytes, padded so that the next segment starts at a multiple of 16.
            rest.take::<{ InlineWord::SIZE }>()?;
            let len = usize::from(inline.length());
            let space = (InlineWord::SIZE + len).next_multiple_of(SEGMENT_UNIT) - InlineWord::SIZE;
            if rest.rest.len() < space {
                return Err(BAD);
            }
            let (bytes, after) = rest.rest.split_at(space);
            let start = work.inline_data.len() as u32;
            work.inline_data.extend_from_slice(&bytes[..len]);
            work.segments.push(Segment::Inline {
                start,
                len: len as u32,
            });
            rest.rest = after;
        }
        let inline = !work.inline_data.is_empty();
        if inline && matches!(work.op, SendOp::Read | SendOp::Atomic(_)) {
            return Err(BAD);
        }
        Ok(())
    }

    /// The address vector of a datagram.
    fn parse_address(&self, rest: &mut Cursor<'_>) -> Result<DatagramAddress, BadWqe> {
        let av: &[u8; 48] = rest.take()?;
        let (to, grh) = (DestinationWord::read(av), GrhWord::read(av));
        let gid = [
            RemoteGidHighWord::read(av).rgid_127_64(),
            RemoteGidLowWord::read(av).rgid_63_0(),
        ];
        let gid: [u8; 16] = zerocopy::transmute!(gid.map(u64::to_be_bytes));
        let path = if self.ethernet() {
            let index = grh.sgid_index();
            let source = self.gids.get(usize::from(index)).ok_or(BAD)?;
            if *source == RoceAddr::ZERO {
                log::warn!("datagram from source address {index}, which is empty");
                return Err(BAD);
            }
            let [m0, m1, m2, m3] = RemoteMacWord::read(av).rmac_47_16().to_be_bytes();
            let [m4, m5] = grh.rmac_15_0().to_be_bytes();
            self.path(
                source,
                &Destination {
                    mac: [m0, m1, m2, m3, m4, m5],
                    gid: &gid,
                    traffic_class: grh.tclass(),
                    flow_label: grh.flow_label(),
                    hop_limit: grh.hop_limit(),
                    udp_source_port: to.udp_sport(),
                    priority: to.eth_prio(),
                },
            )
        } else {
            self.local_path(&LocalDestination {
                lid: to.rlid(),
                path_bits: to.mlid(),
                service_level: to.sl(),
                gid: grh.grh().then_some(&gid),
                traffic_class: grh.tclass(),
                flow_label: grh.flow_label(),
                hop_limit: grh.hop_limit(),
            })
        };
        Ok(DatagramAddress {
            path,
            remote_qpn: to.dqp(),
            qkey: QKeyWord::read(av).qkey(),
        })
    }

    /// Fetches the next receive WQE of a QP, from its own or its shared queue.
    pub(crate) fn fetch_receive(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        work: &mut RecvWork,
    ) -> Result<bool, BadWqe> {
        let Some(qp) = self.qps.get(qpn) else {
            return Ok(false);
        };
        if let Some(srqn) = qp.shared_queue() {
            return self.fetch_shared(io, srqn, work);
        }
        if qp.rq_entries() == 0 {
            return Ok(false);
        }
        if qp.rq_posted == qp.rq_next && !self.read_receive_record(io, qpn) {
            return Err(BAD);
        }
        let Some(qp) = self.qps.get_mut(qpn) else {
            return Ok(false);
        };
        let posted = qp.rq_posted.wrapping_sub(qp.rq_next);
        if posted == 0 {
            return Ok(false);
        }
        work.index = qp.rq_next;
        if u32::from(posted) > qp.rq_entries() {
            log::warn!(
                "QP {qpn:#x}: {posted} receives posted in a queue of {}",
                qp.rq_entries()
            );
            return Err(BAD);
        }
        let at = u64::from(qp.rq_next) % u64::from(qp.rq_entries()) * qp.rq_stride();
        let mut wqe = [0; 2048];
        let wqe = &mut wqe[..qp.rq_stride() as usize];
        let read = qp.ring.read(io, at, wqe);
        qp.rq_next = qp.rq_next.wrapping_add(1);
        if read.is_err() {
            return Err(BAD);
        }
        scatter_list(wqe, self.list_terminator(), work);
        Ok(true)
    }

    /// Executes what has nothing to do with the wire.
    pub(crate) fn execute_local(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        work: &SendWork,
    ) -> Result<(), Syndrome> {
        match Opcode::from_number(work.wqe_opcode) {
            Some(Opcode::Nop) => Ok(()),
            Some(Opcode::Umr) => self.execute_umr(io, qpn, work.index),
            _ => Err(Syndrome::LocalQpOperation),
        }
    }
}

impl Qp {
    /// The whole WQE at an index, for what is executed from the queue itself.
    pub(crate) fn read_wqe(&self, io: &mut Io<'_>, index: u16) -> Option<Vec<u8>> {
        let mut head = [0; 16];
        self.read_sq(io, index, &mut head).ok()?;
        let mut wqe = vec![0; usize::from(control(&head).ds()) * SEGMENT_UNIT];
        self.read_sq(io, index, &mut wqe).ok()?;
        Some(wqe)
    }
}

impl Device {
    /// Returns `true` if a QP of a service type does an atomic operation, given as its bit in `atomic_operations`, on 8
    /// bytes.
    fn has_atomic(&self, operation: u16, st: u8) -> bool {
        let atomic = &self.caps.atomic;
        let sizes = match st {
            service::DCI | service::DCT => atomic.atomic_size_dc(),
            _ => atomic.atomic_size_qp(),
        };
        self.caps.general.atomic()
            && atomic.atomic_operations() & operation != 0
            && sizes & ATOMIC_8_BYTES != 0
    }

    /// Returns `true` if a QP of a service type does atomics at all.
    pub(crate) fn has_atomics(&self, st: u8) -> bool {
        self.has_atomic(COMPARE_SWAP_OFFERED | FETCH_ADD_OFFERED, st)
    }

    /// Key of the segment that ends a scatter list.
    pub(crate) fn list_terminator(&self) -> u32 {
        if self.caps.general.terminate_scatter_list_mkey() {
            self.config.terminate_scatter_list_mkey
        } else {
            LKey::TERMINATOR.0
        }
    }
}
