//! Two ends, connected, and operations between them that work.

use crate::wireshark::expect::{source_port, source_port_of};
use crate::wireshark::packets::{Flow, Operation, Service, Target};
use crate::wireshark::scene::{Address, Node, Scene};
use bareverbs_core::{
    Access, AhAttr, Buffer, Cq, CqInit, Mtu, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState,
    QpType, Qpn, RKey, Remote, RoceVersion, SendData, SendFlags, SendOp, SendWr, Wc, WcStatus,
};
use bareverbs_in_process::ModelPlatform;
use std::fmt::Display;

pub(super) const BUFFER: usize = 1 << 16;
/// Where in a buffer receives land; sends leave from its start.
pub(super) const LANDING: usize = BUFFER / 2;
pub(super) const QKEY: u32 = 0x1234_5678;
pub(super) const GRH: usize = 40;

pub(super) fn text(what: &str) -> impl Fn(&dyn Display) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// A QP at one end, with what belongs to it.
pub(super) struct End<T: QpType> {
    pub(super) qp: Qp<'static, ModelPlatform, T>,
    pub(super) send_cq: Cq<'static, ModelPlatform>,
    pub(super) recv_cq: Cq<'static, ModelPlatform>,
    pub(super) buffer: Buffer<'static, ModelPlatform>,
    pub(super) pdn: u32,
}

impl<T: QpType> End<T> {
    pub(super) fn new(node: Node) -> Result<Self, String> {
        let pd = node.alloc_pd().map_err(|e| text("PD")(&e))?;
        let cq = || node.create_cq(CqInit::new(64)).map_err(|e| text("CQ")(&e));
        let (send_cq, recv_cq) = (cq()?, cq()?);
        let everything = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let buffer = pd
            .alloc_buffer(BUFFER, everything)
            .map_err(|e| text("buffer")(&e))?;
        let mut init = QpInitAttr {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 0,
            },
            sq_sig_all: false,
        };
        let qp = pd.create_qp::<T>(&mut init).map_err(|e| text("QP")(&e))?;
        let pdn = pd.pdn().number();
        // The PD is in use to the end, which is that of the process.
        std::mem::forget(pd);
        Ok(Self {
            qp,
            send_cq,
            recv_cq,
            buffer,
            pdn,
        })
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qp.qpn().number()
    }

    pub(super) fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), String> {
        self.qp
            .modify(attr, mask)
            .map_err(|e| format!("modify to {:?}: {e}", attr.qp_state))
    }

    pub(super) fn post(
        &mut self,
        op: SendOp<'_>,
        at: usize,
        len: usize,
        flags: SendFlags,
    ) -> Result<(), String> {
        let sge = self.buffer.sge(at, len).ok_or("outside of the buffer")?;
        let sges = [sge];
        let wr = SendWr {
            wr_id: 1,
            op,
            flags: flags | SendFlags::SIGNALED,
            data: SendData::Sges(if len == 0 { &[] } else { &sges }),
        };
        self.qp.send_queue().post(&wr).map_err(|e| text("post")(&e))
    }

    pub(super) fn receive(&mut self, len: usize) -> Result<(), String> {
        let sge = self.buffer.sge(LANDING, len.max(1)).ok_or("too long")?;
        self.qp
            .recv_queue()
            .post(2, &[sge])
            .map_err(|e| text("post receive")(&e))
    }

    pub(super) fn bytes(&self, at: usize, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len];
        self.buffer
            .copy_out(at, &mut bytes)
            .map_err(|e| text("buffer")(&e))?;
        Ok(bytes)
    }
}

pub(super) fn completion(
    scene: &mut Scene,
    what: &str,
    cq: &mut Cq<'static, ModelPlatform>,
) -> Result<Wc, String> {
    scene.wait(what, |_| {
        let polled = cq.poll().map_err(|e| text("poll")(&e))?;
        Ok(polled.map(|completion| completion.to_wc()))
    })
}

pub(super) fn solicited(solicited: bool) -> SendFlags {
    if solicited {
        SendFlags::SOLICITED
    } else {
        SendFlags::empty()
    }
}

pub(super) fn succeeded(what: &str, wc: Wc) -> Result<Wc, String> {
    match wc.status {
        WcStatus::Success => Ok(wc),
        status => Err(format!("{what}: {status}")),
    }
}

/// The attributes of a connection.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) address: Address,
    pub(super) mtu: Mtu,
    pub(super) psns: [u32; 2],
    pub(super) flow_label: u32,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) priority: u8,
    /// The rights that end 1 gives end 0.
    pub(super) access: Access,
    pub(super) timeout: u8,
    pub(super) min_rnr_timer: u8,
}

impl Link {
    pub(super) fn new(address: Address, mtu: Mtu) -> Self {
        Self {
            address,
            mtu,
            psns: [0x12_3456, 0x65_4321],
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            priority: 0,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            timeout: 14,
            min_rnr_timer: 12,
        }
    }
}

/// Two connected QPs. End 0 asks, end 1 answers.
pub(super) struct Pair<T: QpType> {
    pub(super) ends: [End<T>; 2],
    pub(super) flow: Flow,
    pub(super) name: String,
    pub(super) counter: u8,
}

impl<T: QpType> Pair<T> {
    pub(super) fn new(scene: &Scene, link: Link) -> Result<Self, String> {
        let mut ends = [
            End::<T>::new(scene.nodes[0])?,
            End::<T>::new(scene.nodes[1])?,
        ];
        let qpns = [ends[0].qpn(), ends[1].qpn()];
        for (node, end) in ends.iter_mut().enumerate() {
            let mut attr = QpAttr {
                qp_state: QpState::Init,
                qp_access_flags: if node == 1 {
                    link.access
                } else {
                    Access::empty()
                },
                ..QpAttr::DEFAULT
            };
            let mask = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
            end.modify(&attr, mask | QpAttrMask::ACCESS_FLAGS)?;
            attr.qp_state = QpState::Rtr;
            attr.path_mtu = link.mtu;
            attr.dest_qp_num = Qpn::from_low_bits(qpns[1 - node]);
            attr.rq_psn = link.psns[1 - node];
            attr.max_dest_rd_atomic = 4;
            attr.min_rnr_timer = link.min_rnr_timer;
            attr.ah_attr = AhAttr {
                dgid: link.address.gid(1 - node),
                sgid_index: link.address.index(),
                hop_limit: link.hop_limit,
                traffic_class: link.traffic_class,
                flow_label: link.flow_label,
                sl: link.priority,
                dmac: scene.macs[1 - node],
                port_num: 1,
                ..AhAttr::default()
            };
            let mut mask = QpAttrMask::STATE
                | QpAttrMask::AV
                | QpAttrMask::PATH_MTU
                | QpAttrMask::DEST_QPN
                | QpAttrMask::RQ_PSN;
            if T::RELIABLE {
                mask |= QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
            }
            end.modify(&attr, mask)?;
            attr.qp_state = QpState::Rts;
            attr.sq_psn = link.psns[node];
            attr.timeout = link.timeout;
            attr.retry_cnt = 7;
            attr.rnr_retry = 7;
            attr.max_rd_atomic = 4;
            let mut mask = QpAttrMask::STATE | QpAttrMask::SQ_PSN;
            if T::RELIABLE {
                mask |= QpAttrMask::TIMEOUT
                    | QpAttrMask::RETRY_CNT
                    | QpAttrMask::RNR_RETRY
                    | QpAttrMask::MAX_QP_RD_ATOMIC;
            }
            end.modify(&attr, mask)?;
        }
        let mut path = scene.path(link.address);
        path.hop_limit = link.hop_limit;
        // In RoCE v2 the ECN bits are congestion control's, which is off: a QP's path has a field for the DSCP alone.
        path.traffic_class = match link.address.version() {
            RoceVersion::V1 => link.traffic_class,
            RoceVersion::V2 => link.traffic_class & 0xfc,
        };
        path.flow_label = link.flow_label;
        path.vlan = link.address.vlan().map(|id| (id, link.priority));
        path.source_port = Some(match link.flow_label {
            0 => source_port_of(qpns),
            label => source_port(label),
        });
        let flow = Flow {
            service: if T::RELIABLE {
                Service::Rc
            } else {
                Service::Uc
            },
            path,
            from: 0,
            remote_qpn: qpns[1],
            local_qpn: qpns[0],
            mtu: link.mtu.bytes() as usize,
            psn: link.psns[0],
            msn: 0,
            solicited: false,
        };
        let name = format!(
            "{:?} over {:?}, MTU {}, label {:#x}, class {:#x}",
            flow.service, link.address, flow.mtu, link.flow_label, link.traffic_class
        );
        Ok(Self {
            ends,
            flow,
            name,
            counter: 0,
        })
    }

    /// Bytes that differ from message to message, and do not repeat within one.
    pub(super) fn pattern(&mut self, len: usize) -> Vec<u8> {
        self.counter = self.counter.wrapping_add(1);
        let seed = usize::from(self.counter);
        (0..len)
            .map(|i| (i * 7 + (i >> 8) * 13 + seed * 31) as u8)
            .collect()
    }

    pub(super) fn target(&self) -> Target {
        Target {
            addr: self.ends[1].buffer.addr(),
            rkey: self.ends[1].buffer.rkey().0,
        }
    }

    pub(super) fn op(operation: Operation, target: Target) -> SendOp<'static> {
        let remote = Remote {
            addr: target.addr,
            rkey: RKey(target.rkey),
        };
        match operation {
            Operation::Send => SendOp::Send,
            Operation::SendImm(imm) => SendOp::SendImm(imm),
            Operation::SendInv(rkey) => SendOp::SendInv(RKey(rkey)),
            Operation::Write => SendOp::Write(remote),
            Operation::WriteImm(imm) => SendOp::WriteImm(remote, imm),
            Operation::Read => SendOp::Read(remote),
            Operation::CompareSwap { compare, swap } => SendOp::CompareSwap {
                remote,
                compare,
                swap,
            },
            Operation::FetchAdd(add) => SendOp::FetchAdd { remote, add },
        }
    }

    /// One operation that works, and its packets.
    pub(super) fn run(
        &mut self,
        scene: &mut Scene,
        operation: Operation,
        len: usize,
    ) -> Result<(), String> {
        let what = format!("{}: {operation:x?} of {len} bytes", self.name);
        let data = self.pattern(len);
        let target = self.target();
        let start = scene.frames();
        let mut original = 0;
        match operation {
            Operation::Read => {
                self.ends[1]
                    .buffer
                    .copy_in(0, &data)
                    .map_err(|e| text("buffer")(&e))?;
            }
            Operation::CompareSwap { .. } | Operation::FetchAdd(_) => {
                let found = self.ends[1].bytes(0, 8)?;
                original = u64::from_le_bytes(found.try_into().map_err(|_| "eight bytes")?);
            }
            _ => self.ends[0]
                .buffer
                .copy_in(0, &data)
                .map_err(|e| text("buffer")(&e))?,
        }
        let consumes = matches!(
            operation,
            Operation::Send
                | Operation::SendImm(_)
                | Operation::SendInv(_)
                | Operation::WriteImm(_)
        );
        if consumes {
            self.ends[1].receive(len)?;
        }
        let flags = solicited(self.flow.solicited);
        self.ends[0].post(Self::op(operation, target), 0, len, flags)?;
        let _ = succeeded(&what, completion(scene, &what, &mut self.ends[0].send_cq)?)?;
        if consumes {
            let _ = succeeded(&what, completion(scene, &what, &mut self.ends[1].recv_cq)?)?;
        }
        scene.settle();
        let arrived = match operation {
            Operation::Read => self.ends[0].bytes(0, len)?,
            Operation::Write | Operation::WriteImm(_) => self.ends[1].bytes(0, len)?,
            Operation::CompareSwap { .. } | Operation::FetchAdd(_) => data.clone(),
            _ => self.ends[1].bytes(LANDING, len)?,
        };
        if arrived != data {
            return Err(format!("{what}: other bytes arrived"));
        }
        let expected = self.flow.whole(operation, &data, target, original);
        scene.note(what, start, expected);
        Ok(())
    }
}
