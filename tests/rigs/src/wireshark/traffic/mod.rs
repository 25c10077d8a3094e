//! The data path over verbs alone: every operation, sizes around every MTU, every encapsulation, and what goes wrong.

mod pair;
mod trouble;

use super::expect::source_port;
use super::packets::{Flow, Operation, Service};
use super::scene::{Address, Node, Scene};
use bareverbs_core::firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_core::{
    Access, AhAttr, Destination, Mtu, QpAttr, QpAttrMask, QpState, Qpn, Rc, SendData, SendFlags,
    SendOp, SendWr, TailIn, Uc, Ud,
};
use pair::{End, GRH, LANDING, Link, Pair, QKEY, completion, solicited, succeeded, text};
use trouble::{
    lost_acknowledgement, lost_atomic, lost_packet, lost_response, receiver_not_ready, refused,
};

const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

/// Runs all of the following, in order.
pub(super) fn run(scene: &mut Scene) -> Result<(), String> {
    sizes_and_operations(scene)?;
    wrappings(scene)?;
    invalidation(scene)?;
    unreliable(scene)?;
    datagrams(scene)?;
    several_at_once(scene)?;
    lost_packet(scene)?;
    lost_acknowledgement(scene)?;
    lost_response(scene)?;
    lost_atomic(scene)?;
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
            5,
            12,
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
            // It does not match any more, and has no effect.
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
            let mut path = scene.path(address);
            path.hop_limit = 9;
            path.traffic_class = traffic_class;
            path.flow_label = flow_label;
            path.vlan = address.vlan().map(|id| (id, priority));
            // Without a label it is the first port that the device may use.
            path.source_port = Some(match flow_label {
                0 => 0xc000,
                label => source_port(label),
            });
            let mut flow = Flow {
                service: Service::Ud,
                path,
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
                    let _ = succeeded(&what, completion(scene, &what, &mut asking.send_cq)?)?;
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
        let _ = succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
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
