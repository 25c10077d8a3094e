//! UD and GSI: one packet, one message, no acknowledgement.

use super::env::{
    BadWqe, Counter, DatagramSource, Domain, Env, QpConfig, QpKind, RecvCompletion, RecvOp,
    RecvWork, SendCompletion, SendOp, SendWork, Syndrome,
};
use super::headers::Headers;
use super::memory::{Fault, gather, scatter};
use super::opcode::{Opcode, Operation, Service};
use super::outgoing::{GSI_QKEY, Outgoing, Scratch, transmit};
use super::packet::{Deth, Extended, GRH_LEN, Packet};
use super::psn::Psn;
use super::template::Template;

/// The datagrams of one QP.
pub(super) struct Datagram {
    psn: Psn,
    work: SendWork,
    recv: RecvWork,
}

impl Datagram {
    pub(super) fn new(psn: Psn) -> Datagram {
        Datagram {
            psn,
            work: SendWork::default(),
            recv: RecvWork::default(),
        }
    }

    pub(super) fn next_psn(&self) -> Psn {
        self.psn
    }

    /// Sends what is posted. An error is that of the WQE just completed with it.
    pub(super) fn run(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        scratch: &mut Scratch,
        budget: &mut usize,
    ) -> Result<(), Syndrome> {
        if config.state != super::env::QpState::Rts {
            return Ok(());
        }
        while *budget > 0 {
            self.work.clear();
            let result = match env.next_send(&mut self.work) {
                Ok(false) => return Ok(()),
                Ok(true) => self.send(config, env, scratch),
                Err(BadWqe(syndrome)) => Err(syndrome),
            };
            *budget -= 1;
            env.complete_send(SendCompletion {
                index: self.work.index,
                wqe_opcode: self.work.wqe_opcode,
                signaled: self.work.signaled,
                byte_len: u32::try_from(self.work.len()).unwrap_or(u32::MAX),
                result,
            });
            result?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        scratch: &mut Scratch,
    ) -> Result<(), Syndrome> {
        let work = &self.work;
        let (operation, imm) = match work.op {
            SendOp::Local => return env.execute_local(work),
            SendOp::Send => (Operation::SendOnly, 0),
            SendOp::SendImm(imm) => (Operation::SendOnlyImm, imm),
            _ => return Err(Syndrome::LocalQpOperation),
        };
        let to = work.datagram.ok_or(Syndrome::LocalQpOperation)?;
        if work.len() > config.mtu as u64 {
            return Err(Syndrome::LocalLength);
        }
        let qkey = if to.qkey & 0x8000_0000 == 0 {
            to.qkey
        } else {
            own_qkey(config)
        };
        let out = Outgoing {
            opcode: Opcode::new(Service::Ud, operation),
            psn: self.psn,
            destination_qpn: to.remote_qpn,
            ack_request: false,
            solicited: work.solicited,
            extended: Extended {
                deth: Deth {
                    qkey,
                    source_qpn: config.source_qpn,
                },
                imm,
                ..Extended::default()
            },
            payload_len: work.len() as usize,
        };
        let template = Template::new(&Headers::new(to.path));
        transmit(config, &template, env, scratch, out, |env, payload| {
            gather(env, work, 0, payload)
        })
        .map_err(|_| Syndrome::LocalProtection)?;
        self.psn = self.psn.plus(1);
        Ok(())
    }

    /// Delivers a datagram: GRH area, then payload.
    pub(super) fn receive(
        &mut self,
        config: &QpConfig,
        env: &mut dyn Env,
        packet: &Packet<'_>,
    ) -> Result<(), Fault> {
        let bth = &packet.repr.bth;
        let extended = &packet.repr.extended;
        if extended.deth.qkey != own_qkey(config) {
            env.count(Counter::QkeyViolations);
            return Ok(());
        }
        if packet.payload.len() > config.mtu {
            env.count(Counter::PacketsDropped);
            return Ok(());
        }
        let work = &mut self.recv;
        work.clear();
        let byte_len = GRH_LEN + packet.payload.len();
        let (area, grh) = packet.grh();
        let result = match env.next_recv(Domain::Own, work) {
            Ok(false) => {
                env.count(Counter::OutOfBuffer);
                return Ok(());
            }
            Err(BadWqe(syndrome)) => Err(syndrome),
            Ok(true) if work.len() < byte_len as u64 => {
                env.count(Counter::RespLocalLengthError);
                Err(Syndrome::LocalLength)
            }
            Ok(true) => scatter(env, Domain::Own, &work.segments, 0, &area)
                .and_then(|()| {
                    scatter(
                        env,
                        Domain::Own,
                        &work.segments,
                        GRH_LEN as u64,
                        packet.payload,
                    )
                })
                .map_err(|_| Syndrome::LocalProtection),
        };
        let op = match (bth.opcode.operation, result) {
            (Operation::SendOnlyImm, Ok(())) => RecvOp::SendImm(extended.imm),
            _ => RecvOp::Send,
        };
        env.complete_recv(RecvCompletion {
            index: work.index,
            op,
            byte_len: byte_len as u32,
            solicited: bth.solicited,
            source: Some(DatagramSource {
                qpn: extended.deth.source_qpn,
                grh,
                pkey: bth.pkey,
                vlan: packet.repr.headers.path.vlan,
            }),
            domain: Domain::Own,
            result,
        });
        result.map_err(Fault::local)
    }
}

fn own_qkey(config: &QpConfig) -> u32 {
    match config.kind {
        QpKind::Gsi => GSI_QKEY,
        // Only the kernel has such a QP.
        QpKind::Smi => 0,
        _ => config.qkey,
    }
}
