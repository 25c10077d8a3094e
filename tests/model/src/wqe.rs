//! Work queue entries: from the bytes in the host's memory to the transport's work items.

use crate::device::Device;
use crate::infiniband::LocalDestination;
use crate::io::Io;
use crate::qp::{Destination, Qp, service};
use crate::roce::env::{
    AtomicOp, BadWqe, DatagramAddress, RecvWork, Segment, SendOp, SendWork, Syndrome,
};
use bareverbs_firmware_cmds::roce::RoceAddr;

/// Send WQE opcodes.
pub(crate) mod opcode {
    pub(crate) const NOP: u8 = 0x00;
    pub(crate) const SEND_INVALIDATE: u8 = 0x01;
    pub(crate) const RDMA_WRITE: u8 = 0x08;
    pub(crate) const RDMA_WRITE_IMM: u8 = 0x09;
    pub(crate) const SEND: u8 = 0x0a;
    pub(crate) const SEND_IMM: u8 = 0x0b;
    pub(crate) const RDMA_READ: u8 = 0x10;
    pub(crate) const COMPARE_SWAP: u8 = 0x11;
    pub(crate) const FETCH_ADD: u8 = 0x12;
    pub(crate) const UMR: u8 = 0x25;
}

/// Ends a receive scatter list.
///
/// Devices with `terminate_scatter_list_mkey` name another one.
const TERMINATOR: u32 = 0x100;
/// Bits of `atomic_operations` and of `atomic_size_qp`.
const COMPARE_SWAP_OFFERED: u16 = 1 << 0;
const FETCH_ADD_OFFERED: u16 = 1 << 1;
const ATOMIC_8_BYTES: u16 = 1 << 3;
const INLINE: u32 = 1 << 31;
/// What a zero length means.
const TWO_GIB: u32 = 1 << 31;

/// In the address vector's word with the flow label: there is to be a global header.
const GLOBAL: u32 = 1 << 30;
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

    fn be32(&mut self) -> Result<u32, BadWqe> {
        self.take().map(|bytes| u32::from_be_bytes(*bytes))
    }

    fn be64(&mut self) -> Result<u64, BadWqe> {
        self.take().map(|bytes| u64::from_be_bytes(*bytes))
    }
}

fn memory(byte_count: u32, lkey: u32, addr: u64) -> Segment {
    Segment::Memory {
        lkey,
        addr,
        len: if byte_count == 0 { TWO_GIB } else { byte_count },
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
        let mut wqe = core::mem::take(&mut self.wqe);
        let fetched = self.fetch_send_into(io, qpn, work, &mut wqe);
        self.wqe = wqe;
        fetched
    }

    fn fetch_send_into(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        work: &mut SendWork,
        wqe: &mut Vec<u8>,
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
        if let Some(written) = &written {
            wqe.clone_from(&written.bytes);
            self.stats.blue_flame += 1;
        } else {
            wqe.resize(64, 0);
            if qp.read_sq(io, qp.sq_next, wqe).is_err() {
                qp.sq_next = qp.sq_posted;
                return Err(BAD);
            }
        }
        work.wqe_opcode = wqe[3];
        let octowords = usize::from(wqe[7] & 0x3f);
        let blocks = octowords.div_ceil(4).max(1) as u16;
        if octowords > 4 && written.is_none() {
            wqe.resize(octowords * 16, 0);
            if qp
                .read_sq(io, qp.sq_next.wrapping_add(1), &mut wqe[64..])
                .is_err()
            {
                qp.sq_next = qp.sq_posted;
                return Err(BAD);
            }
        }
        let index = u16::from_be_bytes([wqe[1], wqe[2]]);
        let number = u32::from_be_bytes([0, wqe[4], wqe[5], wqe[6]]);
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
        qp.sq_next = qp.sq_next.wrapping_add(blocks);
        let len = octowords * 16;
        self.parse_send(qpn, &wqe[..len], work)?;
        Ok(true)
    }

    fn parse_send(&self, qpn: u32, wqe: &[u8], work: &mut SendWork) -> Result<(), BadWqe> {
        let qp = self.qps.get(qpn).ok_or(BAD)?;
        let st = qp.context.st();
        let mut rest = Cursor { rest: wqe };
        let control: &[u8; 16] = rest.take()?;
        let flags = control[0x0b];
        let imm = u32::from_be_bytes([control[12], control[13], control[14], control[15]]);
        work.signaled = matches!(flags >> 2 & 3, 2 | 3);
        work.solicited = flags & 2 != 0;
        work.fence = flags >> 5 >= 2;

        let xrc = st == service::XRC;
        let reliable = st == service::RC || xrc;
        let connected = reliable || st == service::UC;
        let datagram = matches!(st, service::UD | service::QP1 | service::QP0);
        let allowed = match work.wqe_opcode {
            opcode::NOP => true,
            opcode::UMR => connected || st == service::REG_UMR,
            opcode::SEND | opcode::SEND_IMM => connected || datagram,
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => connected,
            opcode::SEND_INVALIDATE
            | opcode::RDMA_READ
            | opcode::COMPARE_SWAP
            | opcode::FETCH_ADD => reliable,
            _ => false,
        };
        if !allowed {
            log::warn!("QP {qpn:#x} of type {st:#x}: opcode {:#x}", work.wqe_opcode);
            return Err(BAD);
        }
        let offered = match work.wqe_opcode {
            opcode::COMPARE_SWAP => self.has_atomic(COMPARE_SWAP_OFFERED),
            opcode::FETCH_ADD => self.has_atomic(FETCH_ADD_OFFERED),
            _ => true,
        };
        if !offered || wqe.len() > usize::from(self.caps.general.max_wqe_sz_sq()) {
            log::warn!(
                "QP {qpn:#x}: opcode {:#x} in {} bytes is beyond the capabilities",
                work.wqe_opcode,
                wqe.len()
            );
            return Err(BAD);
        }
        if matches!(work.wqe_opcode, opcode::NOP | opcode::UMR) {
            work.op = SendOp::Local;
            return Ok(());
        }
        // Behind the returns above: what stays here, as the binding of a window, has no such segment.
        if xrc {
            work.xrc_srqn = rest.be32()? & 0xff_ffff;
            rest.take::<12>()?;
        }
        if datagram {
            work.datagram = Some(self.parse_address(&mut rest)?);
        }
        if matches!(
            work.wqe_opcode,
            opcode::RDMA_WRITE
                | opcode::RDMA_WRITE_IMM
                | opcode::RDMA_READ
                | opcode::COMPARE_SWAP
                | opcode::FETCH_ADD
        ) {
            work.remote_addr = rest.be64()?;
            work.rkey = rest.be32()?;
            rest.be32()?;
        }
        work.op = match work.wqe_opcode {
            opcode::SEND => SendOp::Send,
            opcode::SEND_IMM => SendOp::SendImm(imm),
            opcode::SEND_INVALIDATE => SendOp::SendInv(imm),
            opcode::RDMA_WRITE => SendOp::Write,
            opcode::RDMA_WRITE_IMM => SendOp::WriteImm(imm),
            opcode::RDMA_READ => SendOp::Read,
            atomic => {
                let (first, compare) = (rest.be64()?, rest.be64()?);
                SendOp::Atomic(if atomic == opcode::COMPARE_SWAP {
                    AtomicOp::CompareSwap {
                        compare,
                        swap: first,
                    }
                } else {
                    AtomicOp::FetchAdd { add: first }
                })
            }
        };
        while !rest.rest.is_empty() {
            let byte_count = rest.be32()?;
            if byte_count & INLINE == 0 {
                let (lkey, addr) = (rest.be32()?, rest.be64()?);
                work.segments.push(memory(byte_count, lkey, addr));
                continue;
            }
            // Inline data: the length's ten bits, then the bytes, padded so that the next segment starts at a multiple of 16.
            let len = (byte_count & 0x3ff) as usize;
            let room = (4 + len).next_multiple_of(16) - 4;
            if rest.rest.len() < room {
                return Err(BAD);
            }
            let (bytes, after) = rest.rest.split_at(room);
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
        let word = |at: usize| u32::from_be_bytes([av[at], av[at + 1], av[at + 2], av[at + 3]]);
        let grh = word(0x1c);
        if !self.ethernet() {
            let mut gid = [0; 16];
            gid.copy_from_slice(&av[0x20..0x30]);
            return Ok(DatagramAddress {
                path: self.local_path(&LocalDestination {
                    lid: u16::from_be_bytes([av[0x0e], av[0x0f]]),
                    service_level: av[0x0c] & 0xf,
                    gid: (grh & GLOBAL != 0).then_some(&gid),
                    traffic_class: av[0x1a],
                    flow_label: grh & 0xf_ffff,
                    hop_limit: av[0x1b],
                }),
                remote_qpn: word(0x08) & 0xff_ffff,
                qkey: word(0x00),
            });
        }
        let index = (grh >> 20 & 0xff) as usize;
        let source = self.gids.get(index).ok_or(BAD)?;
        if *source == RoceAddr::ZERO {
            log::warn!("datagram from source address {index}, which is empty");
            return Err(BAD);
        }
        let mut mac = [0; 6];
        mac.copy_from_slice(&av[0x14..0x1a]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&av[0x20..0x30]);
        let path = self.path(
            source,
            &Destination {
                mac,
                gid: &gid,
                traffic_class: av[0x1a],
                flow_label: grh & 0xf_ffff,
                hop_limit: av[0x1b],
                udp_source_port: u16::from_be_bytes([av[0x0e], av[0x0f]]),
                // The service level field holds the priority, shifted.
                priority: av[0x0c] >> 1 & 7,
            },
        );
        Ok(DatagramAddress {
            path,
            remote_qpn: word(0x08) & 0xff_ffff,
            qkey: word(0x00),
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
        match work.wqe_opcode {
            opcode::NOP => Ok(()),
            opcode::UMR => self.execute_umr(io, qpn, work.index),
            _ => Err(Syndrome::LocalQpOperation),
        }
    }
}

impl Qp {
    /// The whole WQE at an index, for what is executed from the queue itself.
    pub(crate) fn read_wqe(&self, io: &mut Io<'_>, index: u16) -> Option<Vec<u8>> {
        let mut head = [0; 16];
        self.read_sq(io, index, &mut head).ok()?;
        let mut wqe = vec![0; usize::from(head[7] & 0x3f) * 16];
        self.read_sq(io, index, &mut wqe).ok()?;
        Some(wqe)
    }
}

impl Device {
    /// Whether a QP does an atomic operation, given as its bit in `atomic_operations`, on 8 bytes.
    fn has_atomic(&self, operation: u16) -> bool {
        let atomic = &self.caps.atomic;
        self.caps.general.atomic()
            && atomic.atomic_operations() & operation != 0
            && atomic.atomic_size_qp() & ATOMIC_8_BYTES != 0
    }

    /// Whether a QP does atomics at all.
    pub(crate) fn has_atomics(&self) -> bool {
        self.has_atomic(COMPARE_SWAP_OFFERED | FETCH_ADD_OFFERED)
    }

    /// Key of the segment that ends a scatter list.
    pub(crate) fn list_terminator(&self) -> u32 {
        if self.caps.general.terminate_scatter_list_mkey() {
            self.config.terminate_scatter_list_mkey
        } else {
            TERMINATOR
        }
    }
}

/// The data segments of a receive WQE, up to its end or the terminator.
pub(crate) fn scatter_list(wqe: &[u8], terminator: u32, work: &mut RecvWork) {
    for segment in wqe.chunks_exact(16) {
        let word = |at: usize| {
            u32::from_be_bytes([
                segment[at],
                segment[at + 1],
                segment[at + 2],
                segment[at + 3],
            ])
        };
        let lkey = word(4);
        if lkey == terminator {
            break;
        }
        let addr = u64::from(word(8)) << 32 | u64::from(word(12));
        work.segments.push(memory(word(0), lkey, addr));
    }
}
