//! The data path over verbs alone: every operation, sizes around every MTU, every encapsulation, and what goes wrong.

use super::expect::{source_port, source_port_of};
use super::packets::{Flow, Operation, Service, Target};
use super::scene::{Address, Node, Scene};
use bareverbs_core::firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_core::{
    Access, AhAttr, Buffer, Cq, CqInit, Destination, Mtu, Qp, QpAttr, QpAttrMask, QpCap,
    QpInitAttr, QpState, QpType, Qpn, RKey, Rc, Remote, RoceVersion, SendData, SendFlags, SendOp,
    SendWr, TailIn, Uc, Ud, Wc, WcStatus,
};
use bareverbs_in_process::ModelPlatform;
use std::fmt::Display;

const BUFFER: usize = 1 << 16;
/// Where in a buffer receives land; sends leave from its start.
const LANDING: usize = BUFFER / 2;
const QKEY: u32 = 0x1234_5678;
const GRH: usize = 40;

fn text(what: &str) -> impl Fn(&dyn Display) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// A QP at one end, with what belongs to it.
struct End<T: QpType> {
    qp: Qp<'static, ModelPlatform, T>,
    send_cq: Cq<'static, ModelPlatform>,
    recv_cq: Cq<'static, ModelPlatform>,
    buffer: Buffer<'static, ModelPlatform>,
    pdn: u32,
}

impl<T: QpType> End<T> {
    fn new(node: Node) -> Result<Self, String> {
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

    fn qpn(&self) -> u32 {
        self.qp.qpn().number()
    }

    fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), String> {
        self.qp
            .modify(attr, mask)
            .map_err(|e| format!("modify to {:?}: {e}", attr.qp_state))
    }

    fn post(
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

    fn receive(&mut self, len: usize) -> Result<(), String> {
        let sge = self.buffer.sge(LANDING, len.max(1)).ok_or("too long")?;
        self.qp
            .recv_queue()
            .post(2, &[sge])
            .map_err(|e| text("post receive")(&e))
    }

    fn bytes(&self, at: usize, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len];
        self.buffer
            .copy_out(at, &mut bytes)
            .map_err(|e| text("buffer")(&e))?;
        Ok(bytes)
    }
}

fn completion(
    scene: &mut Scene,
    what: &str,
    cq: &mut Cq<'static, ModelPlatform>,
) -> Result<Wc, String> {
    scene.wait(what, |_| {
        let polled = cq.poll().map_err(|e| text("poll")(&e))?;
        Ok(polled.map(|completion| completion.to_wc()))
    })
}

fn solicited(solicited: bool) -> SendFlags {
    if solicited {
        SendFlags::SOLICITED
    } else {
        SendFlags::empty()
    }
}

fn succeeded(what: &str, wc: Wc) -> Result<Wc, String> {
    match wc.status {
        WcStatus::Success => Ok(wc),
        status => Err(format!("{what}: {status}")),
    }
}

/// What a connection is made with.
#[derive(Clone, Copy)]
struct Link {
    address: Address,
    mtu: Mtu,
    psns: [u32; 2],
    flow_label: u32,
    traffic_class: u8,
    hop_limit: u8,
    priority: u8,
    /// What end 1 lets end 0 do.
    access: Access,
    timeout: u8,
    min_rnr_timer: u8,
}

impl Link {
    fn new(address: Address, mtu: Mtu) -> Self {
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
struct Pair<T: QpType> {
    ends: [End<T>; 2],
    flow: Flow,
    name: String,
    counter: u8,
}

impl<T: QpType> Pair<T> {
    fn new(scene: &Scene, link: Link) -> Result<Self, String> {
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
        let mut way = scene.way(link.address);
        way.hop_limit = link.hop_limit;
        // In RoCE v2 the ECN bits are congestion control's, which is off: a QP's path has a field for the DSCP alone.
        way.traffic_class = match link.address.version() {
            RoceVersion::V1 => link.traffic_class,
            RoceVersion::V2 => link.traffic_class & 0xfc,
        };
        way.flow_label = link.flow_label;
        way.vlan = link.address.vlan().map(|id| (id, link.priority));
        way.source_port = Some(match link.flow_label {
            0 => source_port_of(qpns),
            label => source_port(label),
        });
        let flow = Flow {
            service: if T::RELIABLE {
                Service::Rc
            } else {
                Service::Uc
            },
            way,
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
    fn pattern(&mut self, len: usize) -> Vec<u8> {
        self.counter = self.counter.wrapping_add(1);
        let seed = usize::from(self.counter);
        (0..len)
            .map(|i| (i * 7 + (i >> 8) * 13 + seed * 31) as u8)
            .collect()
    }

    fn target(&self) -> Target {
        Target {
            addr: self.ends[1].buffer.addr(),
            rkey: self.ends[1].buffer.rkey().0,
        }
    }

    fn op(operation: Operation, target: Target) -> SendOp<'static> {
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
    fn run(&mut self, scene: &mut Scene, operation: Operation, len: usize) -> Result<(), String> {
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
        succeeded(&what, completion(scene, &what, &mut self.ends[0].send_cq)?)?;
        if consumes {
            succeeded(&what, completion(scene, &what, &mut self.ends[1].recv_cq)?)?;
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

const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

/// Everything below, one after the other.
pub(super) fn run(scene: &mut Scene) -> Result<(), String> {
    sizes_and_operations(scene)?;
    wrappings(scene)?;
    invalidation(scene)?;
    unreliable(scene)?;
    datagrams(scene)?;
    several_at_once(scene)?;
    lost_packet(scene)?;
    lost_acknowledgement(scene)?;
    receiver_not_ready(scene)?;
    refused(scene)
}

/// Every operation, around each MTU, from PSNs that wrap.
fn sizes_and_operations(scene: &mut Scene) -> Result<(), String> {
    for mtu in MTUS {
        let mut link = Link::new(Address::Ipv4, mtu);
        link.psns[0] = 0xff_fffb;
        let mut pair = Pair::<Rc>::new(scene, link)?;
        let bytes = mtu.bytes() as usize;
        let sizes = [
            0,
            1,
            2,
            3,
            4,
            bytes - 1,
            bytes,
            bytes + 1,
            2 * bytes,
            3 * bytes + 5,
        ];
        for len in sizes {
            pair.run(scene, Operation::Send, len)?;
            pair.run(scene, Operation::SendImm(0x8000_0000 | len as u32), len)?;
            pair.run(scene, Operation::Write, len)?;
            pair.run(scene, Operation::WriteImm(len as u32), len)?;
            pair.run(scene, Operation::Read, len)?;
        }
        let before = pair.ends[1].bytes(0, 8)?;
        let before = u64::from_le_bytes(before.try_into().map_err(|_| "eight bytes")?);
        let swap = 0x0123_4567_89ab_cdef;
        for operation in [
            Operation::CompareSwap {
                compare: before,
                swap,
            },
            // It does not match any more, and leaves things alone.
            Operation::CompareSwap {
                compare: before,
                swap: !swap,
            },
            Operation::FetchAdd(u64::MAX),
        ] {
            pair.run(scene, operation, 8)?;
        }
        let after = pair.ends[1].bytes(0, 8)?;
        if after != (swap - 1).to_le_bytes() {
            return Err("the atomics did something else".to_owned());
        }
    }
    Ok(())
}

/// IPv4, IPv6, VLAN, RoCE v1, with everything that the path can ask for.
fn wrappings(scene: &mut Scene) -> Result<(), String> {
    for address in Address::ALL {
        for (flow_label, traffic_class, hop_limit, priority) in [
            (0, 0, 64, 0),
            (0x69818, 0x68, 17, 5),
            (0xf_ffff, 0xff, 255, 7),
        ] {
            let mut link = Link::new(address, Mtu::B1024);
            link.flow_label = flow_label;
            link.traffic_class = traffic_class;
            link.hop_limit = hop_limit;
            link.priority = priority;
            let mut pair = Pair::<Rc>::new(scene, link)?;
            pair.flow.solicited = priority != 0;
            for len in [0, 61, 2500] {
                pair.run(scene, Operation::SendImm(7), len)?;
                pair.run(scene, Operation::Write, len)?;
                pair.run(scene, Operation::Read, len)?;
            }
            pair.run(scene, Operation::FetchAdd(1), 8)?;
        }
    }
    Ok(())
}

/// A key at end 1 that its peer may invalidate.
fn invalidatable_key(end: &End<Rc>, node: Node) -> Result<u32, String> {
    let mut command = CreateMkeyIn::new();
    command
        .memory_key_mkey_entry_mut()
        .set_access_mode_1_0(0)
        .set_length64(true)
        .set_lr(true)
        .set_en_rinval(true)
        .set_qpn(0xff_ffff)
        .set_mkey_7_0(0x5a)
        .set_pd(end.pdn);
    let made = node
        .execute_with(&command, TailIn::None, &mut [])
        .map_err(|e| text("key")(&e))?;
    Ok(made.mkey_index() << 8 | 0x5a)
}

fn invalidation(scene: &mut Scene) -> Result<(), String> {
    let mut pair = Pair::<Rc>::new(scene, Link::new(Address::Ipv6, Mtu::B512))?;
    for len in [0, 5, 512, 1300] {
        let key = invalidatable_key(&pair.ends[1], scene.nodes[1])?;
        pair.run(scene, Operation::SendInv(key), len)?;
    }
    Ok(())
}

fn unreliable(scene: &mut Scene) -> Result<(), String> {
    for address in [Address::Ipv4, Address::Ipv6, Address::V1] {
        let mut link = Link::new(address, Mtu::B256);
        link.psns[0] = 0xff_fff0;
        link.access = Access::REMOTE_WRITE;
        let mut pair = Pair::<Uc>::new(scene, link)?;
        for len in [0, 1, 255, 256, 257, 1029] {
            pair.run(scene, Operation::Send, len)?;
            pair.run(scene, Operation::SendImm(0xdead_beef), len)?;
            pair.run(scene, Operation::Write, len)?;
            pair.run(scene, Operation::WriteImm(!0), len)?;
        }
    }
    Ok(())
}

fn datagrams(scene: &mut Scene) -> Result<(), String> {
    let mut ends = [
        End::<Ud>::new(scene.nodes[0])?,
        End::<Ud>::new(scene.nodes[1])?,
    ];
    for end in &mut ends {
        let mut attr = QpAttr {
            qp_state: QpState::Init,
            qkey: QKEY,
            ..QpAttr::DEFAULT
        };
        let port = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
        end.modify(&attr, QpAttrMask::STATE | port | QpAttrMask::QKEY)?;
        attr.qp_state = QpState::Rtr;
        end.modify(&attr, QpAttrMask::STATE)?;
        attr.qp_state = QpState::Rts;
        attr.sq_psn = 0xff_fffe;
        end.modify(&attr, QpAttrMask::STATE | QpAttrMask::SQ_PSN)?;
    }
    let [asking, answering] = &mut ends;
    let mut psn = 0xff_fffe;
    for address in Address::ALL {
        for (flow_label, traffic_class, priority) in [(0, 0, 0), (0x54321, 0x2a, 3)] {
            let attr = AhAttr {
                dgid: address.gid(1),
                sgid_index: address.index(),
                hop_limit: 9,
                traffic_class,
                flow_label,
                sl: priority,
                dmac: scene.macs[1],
                port_num: 1,
                ..AhAttr::default()
            };
            let ah = scene.nodes[0]
                .create_ah(&attr)
                .map_err(|e| text("address handle")(&e))?;
            let mut way = scene.way(address);
            way.hop_limit = 9;
            way.traffic_class = traffic_class;
            way.flow_label = flow_label;
            way.vlan = address.vlan().map(|id| (id, priority));
            // Without a label it is the first port that the device may use.
            way.source_port = Some(match flow_label {
                0 => 0xc000,
                label => source_port(label),
            });
            let mut flow = Flow {
                service: Service::Ud,
                way,
                from: 0,
                remote_qpn: answering.qpn(),
                local_qpn: asking.qpn(),
                mtu: 4096,
                psn,
                msn: 0,
                solicited: priority != 0,
            };
            for len in [0, 1, 2, 3, 64, 1000, 4095, 4096] {
                for imm in [None, Some(0x0badc0de ^ len as u32)] {
                    let what = format!("UD over {address:?}, {len} bytes, immediate {imm:x?}");
                    let data: Vec<_> = (0..len).map(|i| (i * 11 + len) as u8).collect();
                    asking
                        .buffer
                        .copy_in(0, &data)
                        .map_err(|e| text("buffer")(&e))?;
                    answering.receive(GRH + len)?;
                    let to = Destination {
                        ah: &ah,
                        remote_qpn: Qpn::from_low_bits(flow.remote_qpn),
                        remote_qkey: QKEY,
                    };
                    let start = scene.frames();
                    let op = imm.map_or(SendOp::SendTo(to), |imm| SendOp::SendToImm(to, imm));
                    asking.post(op, 0, len, solicited(flow.solicited))?;
                    succeeded(&what, completion(scene, &what, &mut asking.send_cq)?)?;
                    let got = completion(scene, &what, &mut answering.recv_cq)?;
                    let got = succeeded(&what, got)?;
                    if got.byte_len as usize != GRH + len
                        || got.src_qp.number() != flow.local_qpn
                        || answering.bytes(LANDING + GRH, len)? != data
                    {
                        return Err(format!("{what}: arrived otherwise"));
                    }
                    let expected = flow.datagram(imm, &data, QKEY);
                    scene.note(what, start, expected);
                }
            }
            psn = flow.psn;
        }
    }
    Ok(())
}

/// Work requests posted together: their packets follow each other, and one acknowledgement does for all; a READ that
/// follows is answered after it.
fn several_at_once(scene: &mut Scene) -> Result<(), String> {
    let mut pair = Pair::<Rc>::new(scene, Link::new(Address::Ipv4, Mtu::B512))?;
    let lens = [600, 0, 512, 1500, 1];
    for before_a_read in [false, true] {
        let what = if before_a_read {
            "WRITEs and a READ"
        } else {
            "WRITEs together"
        };
        let data = pair.pattern(1500);
        pair.ends[0]
            .buffer
            .copy_in(0, &data)
            .map_err(|e| text("buffer")(&e))?;
        let target = pair.target();
        let sges = lens.map(|len| [pair.ends[0].buffer.sge(0, len)]);
        let sges: Vec<Vec<_>> = sges
            .iter()
            .map(|sge| sge.iter().flatten().copied().collect())
            .collect();
        let mut wrs: Vec<_> = sges
            .iter()
            .map(|sges| SendWr {
                wr_id: 3,
                op: Pair::<Rc>::op(Operation::Write, target),
                flags: SendFlags::empty(),
                data: SendData::Sges(if sges[0].length == 0 { &[] } else { sges }),
            })
            .collect();
        let back = [pair.ends[0].buffer.sge(LANDING, 1000).ok_or("too long")?];
        if before_a_read {
            wrs.push(SendWr {
                wr_id: 3,
                op: Pair::<Rc>::op(Operation::Read, target),
                flags: SendFlags::empty(),
                data: SendData::Sges(&back),
            });
        }
        if let Some(last) = wrs.last_mut() {
            last.flags = SendFlags::SIGNALED;
        }
        let start = scene.frames();
        pair.ends[0]
            .qp
            .send_queue()
            .post_list(&wrs)
            .map_err(|e| text(what)(&e))?;
        succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
        scene.settle();
        let mut expected = Vec::new();
        for len in lens {
            let mut packets = pair.flow.whole(Operation::Write, &data[..len], target, 0);
            packets.pop();
            expected.extend(packets);
        }
        expected.push(pair.flow.acknowledge(pair.flow.psn - 1));
        if before_a_read {
            expected.extend(pair.flow.whole(Operation::Read, &data[..1000], target, 0));
        }
        scene.note(what, start, expected);
    }
    Ok(())
}

/// Offset of the BTH in an untagged RoCE v2 frame over IPv4.
const BTH: usize = 14 + 20 + 8;

/// A lost packet in the middle: one NAK, and everything from there on again.
fn lost_packet(scene: &mut Scene) -> Result<(), String> {
    let mut pair = Pair::<Rc>::new(scene, Link::new(Address::Ipv4, Mtu::B256))?;
    pair.run(scene, Operation::Send, 10)?;
    let data = pair.pattern(4 * 256);
    pair.ends[0]
        .buffer
        .copy_in(0, &data)
        .map_err(|e| text("buffer")(&e))?;
    pair.ends[1].receive(data.len())?;
    let lost = pair.flow.psn + 1;
    scene.lose(move |frame| frame.get(BTH + 9..BTH + 12) == Some(&lost.to_be_bytes()[1..]));
    let start = scene.frames();
    pair.ends[0].post(SendOp::Send, 0, data.len(), SendFlags::empty())?;
    let what = "a SEND whose second packet is lost";
    succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
    succeeded(what, completion(scene, what, &mut pair.ends[1].recv_cq)?)?;
    scene.settle();
    let requests = pair
        .flow
        .requests(Operation::Send, &data, Target::default());
    let mut expected = requests.clone();
    expected.extend_from_slice(&requests[1..]);
    // NAK, PSN sequence error: it names the packet that is missing.
    expected.push(pair.flow.answer(lost, 0x60));
    pair.flow.msn += 1;
    expected.push(pair.flow.acknowledge(pair.flow.psn + 3));
    pair.flow.psn += 4;
    scene.note(what, start, expected);
    // And it goes on.
    pair.run(scene, Operation::Write, 700)
}

/// A lost acknowledgement: after the timeout the packet again, and again an acknowledgement.
fn lost_acknowledgement(scene: &mut Scene) -> Result<(), String> {
    let mut pair = Pair::<Rc>::new(scene, Link::new(Address::Ipv4, Mtu::B1024))?;
    scene.lose(|frame| frame.get(BTH) == Some(&0x11));
    let data = pair.pattern(33);
    pair.ends[0]
        .buffer
        .copy_in(0, &data)
        .map_err(|e| text("buffer")(&e))?;
    pair.ends[1].receive(data.len())?;
    let start = scene.frames();
    pair.ends[0].post(SendOp::SendImm(5), 0, data.len(), SendFlags::empty())?;
    let what = "a SEND whose acknowledgement is lost";
    succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
    succeeded(what, completion(scene, what, &mut pair.ends[1].recv_cq)?)?;
    let mut expected = pair
        .flow
        .requests(Operation::SendImm(5), &data, Target::default());
    expected.extend(expected.clone());
    pair.flow.msn += 1;
    let acknowledgement = pair.flow.acknowledge(pair.flow.psn);
    expected.extend([acknowledgement.clone(), acknowledgement]);
    pair.flow.psn += 1;
    scene.note(what, start, expected);
    pair.run(scene, Operation::Read, 1025)
}

/// Nothing posted: RNR NAK with the receiver's timer, and the same again when that is over.
fn receiver_not_ready(scene: &mut Scene) -> Result<(), String> {
    const TIMER: u8 = 16;
    let mut link = Link::new(Address::Ipv6, Mtu::B1024);
    link.min_rnr_timer = TIMER;
    let mut pair = Pair::<Rc>::new(scene, link)?;
    let data = pair.pattern(100);
    pair.ends[0]
        .buffer
        .copy_in(0, &data)
        .map_err(|e| text("buffer")(&e))?;
    let start = scene.frames();
    pair.ends[0].post(SendOp::Send, 0, data.len(), SendFlags::empty())?;
    let what = "a SEND without a receive";
    scene.wait(
        what,
        |scene| Ok((scene.frames() >= start + 2).then_some(())),
    )?;
    pair.ends[1].receive(data.len())?;
    succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
    succeeded(what, completion(scene, what, &mut pair.ends[1].recv_cq)?)?;
    let mut expected = pair
        .flow
        .requests(Operation::Send, &data, Target::default());
    expected.extend(expected.clone());
    expected.push(pair.flow.answer(pair.flow.psn, 0x20 | TIMER));
    pair.flow.msn += 1;
    expected.push(pair.flow.acknowledge(pair.flow.psn));
    pair.flow.psn += 1;
    scene.note(what, start, expected);
    pair.run(scene, Operation::Send, 3)
}

/// What the responder refuses, and with which NAK.
fn refused(scene: &mut Scene) -> Result<(), String> {
    let nothing = Access::empty();
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let cases: [(&str, Operation, Access, u32, u8, WcStatus); 5] = [
        (
            "an rkey that is not there",
            Operation::Write,
            all,
            0xff00,
            0x62,
            WcStatus::RemAccessErr,
        ),
        (
            "a READ with such a key",
            Operation::Read,
            all,
            0xff00,
            0x62,
            WcStatus::RemAccessErr,
        ),
        (
            "a WRITE that the QP does not allow",
            Operation::Write,
            nothing,
            0,
            0x61,
            WcStatus::RemInvReqErr,
        ),
        (
            "a READ that the QP does not allow",
            Operation::Read,
            nothing,
            0,
            0x61,
            WcStatus::RemInvReqErr,
        ),
        (
            "an atomic that the QP does not allow",
            Operation::FetchAdd(1),
            nothing,
            0,
            0x61,
            WcStatus::RemInvReqErr,
        ),
    ];
    for (what, operation, access, twist, syndrome, status) in cases {
        let mut link = Link::new(Address::Ipv4, Mtu::B1024);
        link.access = access;
        let mut pair = Pair::<Rc>::new(scene, link)?;
        let data = pair.pattern(8);
        pair.ends[0]
            .buffer
            .copy_in(0, &data)
            .map_err(|e| text("buffer")(&e))?;
        let mut target = pair.target();
        target.rkey ^= twist << 8;
        let start = scene.frames();
        pair.ends[0].post(
            Pair::<Rc>::op(operation, target),
            0,
            data.len(),
            SendFlags::empty(),
        )?;
        let wc = completion(scene, what, &mut pair.ends[0].send_cq)?;
        if wc.status != status {
            return Err(format!("{what}: {}, not {status}", wc.status));
        }
        let mut expected = pair.flow.requests(operation, &data, target);
        expected.push(pair.flow.answer(pair.flow.psn, syndrome));
        scene.note(what, start, expected);
    }
    Ok(())
}
