//! Raw packet QPs that share a port: frames that come round to it, receive queues by themselves with a table of them, and
//! a rule whose removal is refused.

use bareverbs_core::ah::{AddressHandle, AhAttr};
use bareverbs_core::{
    Access, AsyncEvent, Buffer, Cq, CqInit, Destination, FlowAttr, FlowError, FlowSpec,
    HashedPackets, PostError, QpAttrMask, QpCap, QpInitAttr, QpInitHandles, QpState, Qpn, RKey,
    RawPacketError, Remote, RssHash, SendData, SendFlags, SendOp, SendWr, WcOpcode,
};
use connectx_model::{CommandFault, CommandRule, Status};

use crate::lab::{CAP, Lab, MS, lab};
use crate::packets::{Packet, UDP, toeplitz};
use crate::raw::{Domain, RawQp, SLOTS, attr, domain, to_mac};
use crate::seam::Seam;
use crate::support::{BROADCAST, INIT, Random, frame, padded, send, take};

/// DELETE_FLOW_TABLE_ENTRY.
const DELETE_FTE: u16 = 0x938;

/// A raw packet QP in RTS with a CQ and a buffer of its own, in a domain.
struct Station<'d> {
    qp: RawQp<'d>,
    cq: Cq<'d, Seam>,
    buffer: Buffer<'d, Seam>,
    posted: u64,
}

/// Receives that a station has at first.
const RECEIVES: u64 = 8;

impl<'d> Station<'d> {
    fn new(lab: &Lab<'d>, domain: &Domain<'d>, node: usize) -> Self {
        let side = &lab.sides[node];
        let cq = side.device.create_cq(CqInit::new(64)).unwrap();
        let buffer = side.pd.alloc_buffer(65_536, Access::LOCAL_WRITE).unwrap();
        let mut qp = domain
            .create_raw_packet_qp(&side.pd, &mut QpInitAttr::new(&cq, 16))
            .unwrap();
        qp.bring_to_rts().unwrap();
        let mut this = Self {
            qp,
            cq,
            buffer,
            posted: 0,
        };
        for _ in 0..RECEIVES {
            this.post();
        }
        this
    }

    fn post(&mut self) {
        let sge = self
            .buffer
            .sge(2048 * (self.posted % RECEIVES) as usize, 2048);
        self.qp
            .recv_queue()
            .post(self.posted, &[sge.unwrap()])
            .unwrap();
        self.posted += 1;
    }

    fn send(&mut self, frame: &[u8]) {
        let at = 2048 * RECEIVES as usize;
        self.buffer.copy_in(at, frame).unwrap();
        let sge = self.buffer.sge(at, frame.len()).unwrap();
        let mut batch = self.qp.send_queue().batch();
        batch.send_packet(99, SendFlags::empty(), sge).unwrap();
        batch.ring();
    }

    /// The frames that came.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(wc) = self.cq.poll().unwrap().map(|found| found.to_wc()) {
            if wc.opcode == WcOpcode::Send {
                continue;
            }
            let mut bytes = vec![0; wc.byte_len as usize];
            let at = 2048 * (wc.wr_id % RECEIVES) as usize;
            self.buffer.copy_out(at, &mut bytes).unwrap();
            frames.push(bytes);
            self.post();
        }
        frames
    }
}

/// Frames that a port sends to a group or to its own address come to the rules of its other transport domains, and not to its
/// own; those for its own address do not leave it.
#[test]
fn frames_come_round_to_other_domains() {
    lab(|lab| {
        let domains = [0, 1].map(|_| domain(lab, 0));
        let mut stations = [0, 0, 1].map(|at: usize| Station::new(lab, &domains[at], 0));
        let mut slots = SLOTS;
        let mut flows = domains[0].create_flow_table(&mut slots, 5).unwrap();
        let mut peer = lab.queue(1, INIT);
        let own = domains[0].mac();
        // One rule at a time, for each of the stations: a frame has one target.
        for (at, to) in [
            (0, BROADCAST),
            (1, BROADCAST),
            (2, BROADCAST),
            (1, own),
            (2, own),
        ] {
            let rule = to_mac(&mut flows, &stations[at].qp, to);
            for sender in [0, 2] {
                let text = frame(to, own, 100, at as u64 + sender as u64);
                stations[sender].send(&text);
                lab.pause(MS);
                let comes = (at == 2) != (sender == 2);
                for (other, station) in stations.iter_mut().enumerate() {
                    let wanted: &[Vec<u8>] = match comes && other == at {
                        true => std::slice::from_ref(&text),
                        false => &[],
                    };
                    assert_eq!(station.take(), wanted, "{sender} to {to:x?} of {at}");
                }
                let away = (to == BROADCAST).then_some(text);
                assert_eq!(take(&mut peer), away);
            }
            flows.remove(rule).unwrap();
        }
        // Another port's address: not here, whatever the rules say.
        let other = lab.sides[1].mac;
        let rule = to_mac(&mut flows, &stations[2].qp, other);
        let text = frame(other, own, 100, 9);
        stations[0].send(&text);
        assert_eq!(lab.receive(&mut peer), text);
        assert_eq!(stations[2].take(), <[Vec<u8>; 0]>::default());
        flows.remove(rule).unwrap();
        drop(flows);
        for station in stations {
            station.qp.destroy().unwrap();
        }
    });
}

/// Receive queues of one CQ, ready, with 64 receives each into the same place.
fn work_queues<'d>(
    lab: &Lab<'d>,
    domain: &Domain<'d>,
    cq: &Cq<'d, Seam>,
    buffer: &Buffer<'d, Seam>,
) -> Vec<RawQp<'d>> {
    let make = |_| {
        let mut handles = QpInitHandles {
            send_cq: cq.handle(),
            recv_cq: cq.handle(),
            srq: None,
            cap: QpCap {
                max_recv_wr: 64,
                max_recv_sge: 1,
                ..CAP
            },
            sq_sig_all: false,
        };
        let queue = domain.create_work_queue_by_handles(&lab.sides[1].pd, &mut handles);
        assert_eq!(handles.cap.max_send_wr, 0);
        let mut queue = queue.unwrap();
        assert_eq!(queue.target(), Err(RawPacketError::NoReceiveQueue));
        let ready = QpAttrMask::STATE | QpAttrMask::PORT;
        queue.modify(&attr(QpState::Init), ready).unwrap();
        for wr_id in 0..64 {
            let sge = buffer.sge(0, 2048).unwrap();
            queue.recv_queue().post(wr_id, &[sge]).unwrap();
        }
        queue
    };
    (0..4).map(make).collect()
}

/// Receive queues of a table get the frames whose hash names them.
#[test]
fn work_queues_of_a_table() {
    const SEED: u64 = 0x4a55;
    println!("seed {SEED:#x}");
    lab(|lab| {
        let mut random = Random(SEED);
        let side = &lab.sides[1];
        let domain = domain(lab, 1);
        let mut cq = side.device.create_cq(CqInit::new(256)).unwrap();
        let buffer = side.pd.alloc_buffer(2048, Access::LOCAL_WRITE).unwrap();
        let mut queues = work_queues(lab, &domain, &cq, &buffer);
        let numbers: Vec<_> = queues
            .iter()
            .map(|queue| queue.receive_number().unwrap())
            .collect();
        let table = domain.create_indirection_table(&numbers, 16).unwrap();
        let hash = RssHash::all_of(HashedPackets::UdpIpv4);
        let target = domain.create_hashed_target(&table, &hash).unwrap();
        let mut slots = SLOTS;
        let mut flows = domain.create_flow_table(&mut slots, 5).unwrap();
        let specs = [
            FlowSpec::to_mac(domain.mac()),
            FlowSpec::ActionTag(0x7_1234),
        ];
        let rule = flows
            .create_flow(target.number(), &FlowAttr::normal(&specs))
            .unwrap();
        let mut peer = lab.queue(0, INIT);
        let mut each = [0; 4];
        for _ in 0..100 {
            let packet = Packet {
                v6: false,
                vlan: None,
                protocol: UDP,
                ..Packet::draw(&mut random, domain.mac())
            };
            let bytes = packet.frame(lab.sides[0].mac);
            let value = toeplitz(&hash.key, &packet.hash_input(true));
            send(&mut peer, &bytes);
            lab.pause(MS);
            let queue = value as usize % 16 % 4;
            let found = cq.poll().unwrap().expect("a frame");
            assert_eq!(found.flow_tag(), 0x7_1234);
            let wc = found.to_wc();
            assert_eq!(wc.qp_num.number(), numbers[queue].number());
            let mut got = vec![0; wc.byte_len as usize];
            buffer.copy_out(0, &mut got).unwrap();
            assert_eq!(got, padded(bytes));
            each[queue] += 1;
            let sge = buffer.sge(0, 2048).unwrap();
            queues[queue].recv_queue().post(0, &[sge]).unwrap();
        }
        assert!(each.iter().all(|&count| count > 5), "{each:?}");
        flows.remove(rule).unwrap();
        drop(flows);
        target.destroy().unwrap();
        table.destroy().unwrap();
        for queue in queues {
            queue.destroy().unwrap();
        }
        assert_eq!(cq.garbage_completions(), 0);
    });
}

/// Queues of a CQ that overruns: each that gets a frame which cannot be completed says so, once, and the others do not.
#[test]
fn work_queues_without_a_cq_are_in_error() {
    const SEED: u64 = 0x4a56;
    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    let (mut failed, mut spared) = (0, 0);
    for _ in 0..12 {
        lab(|lab| {
            let side = &lab.sides[1];
            let domain = domain(lab, 1);
            let entries = 1 + random.below(15) as u32;
            let mut cq = side.device.create_cq(CqInit::new(entries)).unwrap();
            let buffer = side.pd.alloc_buffer(2048, Access::LOCAL_WRITE).unwrap();
            let queues = work_queues(lab, &domain, &cq, &buffer);
            let numbers: Vec<_> = queues
                .iter()
                .map(|queue| queue.receive_number().unwrap())
                .collect();
            let table = domain.create_indirection_table(&numbers, 16).unwrap();
            let hash = RssHash::all_of(HashedPackets::UdpIpv4);
            let target = domain.create_hashed_target(&table, &hash).unwrap();
            let mut slots = SLOTS;
            let mut flows = domain.create_flow_table(&mut slots, 5).unwrap();
            let specs = [FlowSpec::to_mac(domain.mac())];
            let _rule = flows
                .create_flow(target.number(), &FlowAttr::normal(&specs))
                .unwrap();
            let mut peer = lab.queue(0, INIT);
            let mut hit = Vec::new();
            for _ in 0..entries + random.below(8) as u32 {
                let packet = Packet {
                    v6: false,
                    vlan: None,
                    protocol: UDP,
                    ..Packet::draw(&mut random, domain.mac())
                };
                send(&mut peer, &packet.frame(lab.sides[0].mac));
                lab.pause(MS);
                let value = toeplitz(&hash.key, &packet.hash_input(true));
                hit.push(numbers[value as usize % 16 % 4]);
            }
            let mut taken = 0;
            while let Ok(Some(found)) = cq.poll() {
                assert_eq!(found.to_wc().qp_num.number(), hit[taken].number());
                taken += 1;
            }
            let mut expected: Vec<u32> = hit[taken..].iter().map(|it| it.number()).collect();
            expected.sort_unstable();
            expected.dedup();
            let mut said = Vec::new();
            while let Some(event) = side.device.next_async_event() {
                if let AsyncEvent::WqFatal { rqn } = event {
                    said.push(rqn.number());
                }
            }
            said.sort_unstable();
            assert_eq!(
                said, expected,
                "{entries} entries, {taken} of {hit:?} taken"
            );
            failed += said.len();
            spared += numbers.len() - said.len();
        });
    }
    assert!(failed > 5 && spared > 5, "{failed} {spared}");
}

/// A rule that the firmware does not remove stays in force, and can be removed later.
#[test]
fn a_refused_removal_gives_the_rule_back() {
    lab(|lab| {
        let domain = domain(lab, 1);
        let mut station = Station::new(lab, &domain, 1);
        let mut slots = SLOTS;
        let mut flows = domain.create_flow_table(&mut slots, 5).unwrap();
        let rule = to_mac(&mut flows, &station.qp, domain.mac());
        lab.world.with_model(1, |model| {
            let fault = CommandFault::Fail {
                status: Status::NoResources,
                syndrome: 0x1234,
            };
            model.faults_mut().commands = vec![CommandRule::next(DELETE_FTE, fault)];
        });
        let Err((rule, error)) = flows.try_remove(rule) else {
            panic!("the firmware has refused");
        };
        assert!(matches!(error, FlowError::Command(_)), "{error}");
        assert_eq!(flows.rules(), 1);
        let mut peer = lab.queue(0, INIT);
        let text = lab.frame(0, 100, 1);
        send(&mut peer, &text);
        lab.pause(MS);
        assert_eq!(station.take(), [text]);
        flows.try_remove(rule).unwrap();
        assert_eq!(flows.rules(), 0);
        send(&mut peer, &lab.frame(0, 100, 2));
        lab.pause(MS);
        assert_eq!(station.take(), <[Vec<u8>; 0]>::default());
        drop(flows);
        station.qp.destroy().unwrap();
    });
}

/// A queue for frames has no operation but SEND: a datagram's would write an address vector where the device expects an
/// Ethernet segment. What is refused leaves no trace in the queue.
#[test]
fn a_queue_for_frames_refuses_other_operations() {
    lab(|lab| {
        let domain = domain(lab, 0);
        let mut station = Station::new(lab, &domain, 0);
        let mut peer = lab.queue(1, INIT);
        let attr = AhAttr {
            dmac: [2; 6],
            ..AhAttr::default()
        };
        let ah = AddressHandle::encode(&attr, None, 0, 0).unwrap();
        let to = Destination {
            ah: &ah,
            remote_qpn: Qpn::from_low_bits(1),
            remote_qkey: 0,
        };
        let (addr, rkey) = (station.buffer.addr(), RKey(1));
        let remote = Remote { addr, rkey };
        let sges = [station.buffer.sge(0, 100).unwrap()];
        let free = station.qp.send_queue().free();
        for op in [
            SendOp::SendTo(to),
            SendOp::SendToImm(to, 1),
            SendOp::SendImm(1),
            SendOp::SendInv(rkey),
            SendOp::Write(remote),
            SendOp::Read(remote),
            SendOp::FetchAdd { remote, add: 1 },
        ] {
            let wr = SendWr {
                wr_id: 1,
                op,
                flags: SendFlags::SIGNALED,
                data: SendData::Sges(&sges),
            };
            let posted = station.qp.send_queue().post(&wr);
            assert_eq!(posted, Err(PostError::Unsupported), "{op:?}");
        }
        assert_eq!(station.qp.send_queue().free(), free);
        let text = lab.frame(0, 100, 1);
        station.send(&text);
        assert_eq!(lab.receive(&mut peer), text);
        station.qp.destroy().unwrap();
    });
}
