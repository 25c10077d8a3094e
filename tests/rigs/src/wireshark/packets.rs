//! The packets of an operation, by the IBTA's rules: how a message is cut, which headers which packet has, which PSN.

use super::expect::{Expected, Field, Path, Value, bytes, number};

/// Numbers of the operations within a service (IBTA volume 1, table 38).
mod op {
    pub(super) const SEND: [u8; 4] = [0x00, 0x01, 0x02, 0x04];
    pub(super) const SEND_IMM: [u8; 4] = [0x00, 0x01, 0x03, 0x05];
    pub(super) const SEND_INV: [u8; 4] = [0x00, 0x01, 0x16, 0x17];
    pub(super) const WRITE: [u8; 4] = [0x06, 0x07, 0x08, 0x0a];
    pub(super) const WRITE_IMM: [u8; 4] = [0x06, 0x07, 0x09, 0x0b];
    pub(super) const READ_REQUEST: u8 = 0x0c;
    pub(super) const READ_RESPONSE: [u8; 4] = [0x0d, 0x0e, 0x0f, 0x10];
    pub(super) const ACKNOWLEDGE: u8 = 0x11;
    pub(super) const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub(super) const COMPARE_SWAP: u8 = 0x13;
    pub(super) const FETCH_ADD: u8 = 0x14;
}

/// Transport services, as the upper bits of the opcode have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Rc = 0x00,
    Uc = 0x20,
    Ud = 0x60,
}

/// The operation of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Send,
    SendImm(u32),
    SendInv(u32),
    Write,
    WriteImm(u32),
    Read,
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd(u64),
}

/// AETH: everything acknowledged, no limit to what may be sent.
const UNLIMITED: u8 = 0x1f;

/// One direction of a connection: what its packets have in common, and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    pub(super) service: Service,
    pub(super) path: Path,
    pub(super) from: usize,
    /// QP that requests go to, and that responses go to.
    pub(super) remote_qpn: u32,
    pub(super) local_qpn: u32,
    pub(super) mtu: usize,
    /// PSN of the next request.
    pub(super) psn: u32,
    /// Messages that the responder has completed.
    pub(super) msn: u32,
    /// `true` if the receiver's completion shall count as solicited.
    pub(super) solicited: bool,
}

/// Remote memory that a request names.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

/// The payload as tshark shows it: together with the pad, whose bytes have to be zero.
pub(super) fn payload_field(payload: &[u8]) -> Field {
    match payload {
        [] => ("data.data", Value::Absent),
        payload => bytes("data.data", payload, payload.len().next_multiple_of(4)),
    }
}

impl Flow {
    /// Headers that every packet of the flow has. `back` is the responder's direction.
    fn packet(&self, back: bool, opcode: u8, psn: u32, payload: &[u8]) -> Expected {
        let (from, destination) = if back {
            (1 - self.from, self.local_qpn)
        } else {
            (self.from, self.remote_qpn)
        };
        let mut fields = self.path.fields(from);
        fields.extend([
            number("infiniband.bth.opcode", self.service as u8 | opcode),
            number("infiniband.bth.destqp", destination),
            number("infiniband.bth.psn", psn & 0xff_ffff),
            number("infiniband.bth.p_key", 0xffffu16),
            number("infiniband.bth.tver", 0u8),
            // "Migrated": where both ends of a connection without an alternate path are.
            number("infiniband.bth.m", 1u8),
            number(
                "infiniband.bth.padcnt",
                (payload.len().next_multiple_of(4) - payload.len()) as u64,
            ),
            ("_ws.malformed", Value::Absent),
        ]);
        fields.push(payload_field(payload));
        Expected { from, fields }
    }

    fn target(target: Target, len: usize) -> [Field; 3] {
        [
            number("infiniband.reth.va", target.addr),
            number("infiniband.reth.r_key", target.rkey),
            number("infiniband.reth.dmalen", len as u64),
        ]
    }

    fn aeth(&self, syndrome: u8, msn: u32) -> [Field; 4] {
        let (kind, value) = (syndrome >> 5, syndrome & 0x1f);
        let meaning = match kind {
            0 => "infiniband.aeth.syndrome.credit_count",
            1 => "infiniband.aeth.syndrome.timer",
            _ => "infiniband.aeth.syndrome.error_code",
        };
        [
            number("infiniband.aeth.syndrome", syndrome),
            number("infiniband.aeth.syndrome.opcode", kind),
            number(meaning, value),
            number("infiniband.aeth.msn", msn & 0xff_ffff),
        ]
    }

    /// The number of PSNs that a message of so many bytes takes.
    pub(super) fn packets(&self, len: usize) -> u32 {
        len.div_ceil(self.mtu).max(1) as u32
    }

    /// `data` cut into packets with the opcodes for first, middle, last and only.
    fn cut<'a>(
        &self,
        data: &'a [u8],
        opcodes: [u8; 4],
    ) -> impl Iterator<Item = (u8, bool, bool, &'a [u8])> {
        let (mtu, count) = (self.mtu, self.packets(data.len()) as usize);
        (0..count).map(move |index| {
            let (first, last) = (index == 0, index + 1 == count);
            let opcode = match (first, last) {
                (true, false) => opcodes[0],
                (false, false) => opcodes[1],
                (false, true) => opcodes[2],
                (true, true) => opcodes[3],
            };
            let piece = &data[index * mtu..data.len().min((index + 1) * mtu)];
            (opcode, first, last, piece)
        })
    }

    /// The requester's packets, from the next PSN on, which stays.
    pub(super) fn requests(
        &self,
        operation: Operation,
        data: &[u8],
        target: Target,
    ) -> Vec<Expected> {
        let asks = |last: bool| number("infiniband.bth.a", last && self.service == Service::Rc);
        let opcodes = match operation {
            Operation::Send => op::SEND,
            Operation::SendImm(_) => op::SEND_IMM,
            Operation::SendInv(_) => op::SEND_INV,
            Operation::Write => op::WRITE,
            Operation::WriteImm(_) => op::WRITE_IMM,
            Operation::Read => {
                let mut request = self.packet(false, op::READ_REQUEST, self.psn, &[]);
                request.fields.push(asks(true));
                request.fields.extend(Self::target(target, data.len()));
                return vec![request];
            }
            Operation::CompareSwap { compare, swap } => {
                return vec![self.atomic(op::COMPARE_SWAP, target, swap, compare)];
            }
            Operation::FetchAdd(add) => return vec![self.atomic(op::FETCH_ADD, target, add, 0)],
        };
        let is_write = matches!(operation, Operation::Write | Operation::WriteImm(_));
        self.cut(data, opcodes)
            .zip(self.psn..)
            .map(|((opcode, first, last, piece), psn)| {
                let mut packet = self.packet(false, opcode, psn, piece);
                packet.fields.push(asks(last));
                // Only where a receive completes, and so not in a WRITE without immediate.
                let solicits = self.solicited && last && operation != Operation::Write;
                packet.fields.push(number("infiniband.bth.se", solicits));
                if is_write && first {
                    packet.fields.extend(Self::target(target, data.len()));
                } else {
                    packet.fields.push(("infiniband.reth.va", Value::Absent));
                }
                packet.fields.push(match operation {
                    Operation::SendImm(imm) | Operation::WriteImm(imm) if last => {
                        bytes("infiniband.immdt", &imm.to_be_bytes(), 4)
                    }
                    _ => ("infiniband.immdt", Value::Absent),
                });
                packet.fields.push(match operation {
                    Operation::SendInv(rkey) if last => {
                        bytes("infiniband.ieth", &rkey.to_be_bytes(), 4)
                    }
                    _ => ("infiniband.ieth", Value::Absent),
                });
                packet
            })
            .collect()
    }

    fn atomic(&self, opcode: u8, target: Target, swap_or_add: u64, compare: u64) -> Expected {
        let mut request = self.packet(false, opcode, self.psn, &[]);
        request.fields.extend([
            number("infiniband.bth.a", 1u8),
            number("infiniband.reth.va", target.addr),
            number("infiniband.reth.r_key", target.rkey),
            number("infiniband.atomiceth.swapdt", swap_or_add),
            number("infiniband.atomiceth.cmpdt", compare),
        ]);
        request
    }

    /// An acknowledgement of everything up to `psn`.
    pub(super) fn acknowledge(&self, psn: u32) -> Expected {
        self.answer(psn, UNLIMITED)
    }

    /// An answer with any syndrome.
    pub(super) fn answer(&self, psn: u32, syndrome: u8) -> Expected {
        let mut answer = self.packet(true, op::ACKNOWLEDGE, psn, &[]);
        answer.fields.push(number("infiniband.bth.a", false));
        answer.fields.push(number("infiniband.bth.se", false));
        answer.fields.extend(self.aeth(syndrome, self.msn));
        answer
    }

    /// Everything that an operation which works puts on the wire; the flow moves on behind it. `original` is what an
    /// atomic operation found.
    pub(super) fn whole(
        &mut self,
        operation: Operation,
        data: &[u8],
        target: Target,
        original: u64,
    ) -> Vec<Expected> {
        let mut all = self.requests(operation, data, target);
        let psns = match operation {
            Operation::CompareSwap { .. } | Operation::FetchAdd(_) => 1,
            _ => self.packets(data.len()),
        };
        let (first, last) = (self.psn, self.psn + psns - 1);
        self.psn = (self.psn + psns) & 0xff_ffff;
        self.msn += 1;
        if self.service != Service::Rc {
            return all;
        }
        match operation {
            Operation::Read => {
                let pieces = self.cut(data, op::READ_RESPONSE).zip(first..);
                all.extend(pieces.map(|((opcode, begins, ends, piece), psn)| {
                    let mut response = self.packet(true, opcode, psn, piece);
                    response.fields.push(number("infiniband.bth.a", false));
                    response.fields.push(number("infiniband.bth.se", false));
                    if begins || ends {
                        response.fields.extend(self.aeth(UNLIMITED, self.msn));
                    } else {
                        let none = ["infiniband.aeth.syndrome", "infiniband.aeth.msn"];
                        response
                            .fields
                            .extend(none.map(|name| (name, Value::Absent)));
                    }
                    if begins && !ends {
                        // C9-148 lets a READ count from when its request was found good to when its last packet goes.
                        let either = Value::Within((self.msn - 1).into(), self.msn.into());
                        response.fields.pop();
                        response.fields.push(("infiniband.aeth.msn", either));
                    }
                    response
                }));
            }
            Operation::CompareSwap { .. } | Operation::FetchAdd(_) => {
                let mut response = self.packet(true, op::ATOMIC_ACKNOWLEDGE, first, &[]);
                response.fields.extend(self.aeth(UNLIMITED, self.msn));
                response
                    .fields
                    .push(number("infiniband.atomicacketh.origremdt", original));
                all.push(response);
            }
            _ => all.push(self.acknowledge(last)),
        }
        all
    }

    /// A datagram; the flow moves on behind it.
    pub(super) fn datagram(&mut self, imm: Option<u32>, data: &[u8], qkey: u32) -> Vec<Expected> {
        let opcode = op::SEND[3] + u8::from(imm.is_some());
        let mut packet = self.packet(false, opcode, self.psn, data);
        packet.fields.extend([
            number("infiniband.bth.a", false),
            number("infiniband.bth.se", self.solicited),
            number("infiniband.deth.q_key", qkey),
            number("infiniband.deth.srcqp", self.local_qpn),
            match imm {
                Some(imm) => bytes("infiniband.immdt", &imm.to_be_bytes(), 4),
                None => ("infiniband.immdt", Value::Absent),
            },
        ]);
        self.psn = (self.psn + 1) & 0xff_ffff;
        vec![packet]
    }
}
