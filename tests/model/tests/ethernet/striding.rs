//! Many frames in one receive WQE, and many packets in one send WQE.
//!
//! Where each frame has to lie, and what is left unused, the test counts by itself, as Linux's and DPDK's drivers do:
//! frames start at strides, do not go over the end of a WQE, and what stays unused at its end is reported.

use crate::common::queues::data_segment;
use crate::lab::*;
use crate::random::{Random, Seed, seeds};
use bareverbs_firmware_cmds::rq::Rqc;
use bareverbs_firmware_cmds::sq::Sqc;
use connectx_model::{Config, Syndrome};

const MPSW: u8 = 0x29;
const LIST: u8 = 2;
const RING: u8 = 3;

/// WQEs of 2^log strides of 2^log_size bytes each.
struct Shape {
    kind: u8,
    log_number: u8,
    log_size: u8,
}

impl Shape {
    fn describe(&self, context: &mut Rqc) {
        context
            .wq_mut()
            .set_wq_type(self.kind)
            .set_log_wqe_num_of_strides(self.log_number.wrapping_sub(9) & 0xf)
            .set_log_wqe_stride_size(self.log_size - 6);
    }

    fn wqe(&self) -> u64 {
        1 << (self.log_number + self.log_size)
    }
}

/// The receive queue of a lab, made anew.
fn striding(shape: &Shape) -> Lab {
    let mut lab = Lab::new();
    lab.rq = lab.try_rq(|context| shape.describe(context)).unwrap();
    lab.move_rq(RST, RDY).unwrap();
    let rqn = lab.rq.number;
    let tir = lab
        .try_tir(|tir| {
            tir.set_inline_rqn(rqn);
        })
        .unwrap();
    lab.steer(tir, 0);
    lab
}

/// Where the room of a WQE starts.
fn room(lab: &Lab, shape: &Shape, index: u16) -> u64 {
    lab.memory + 0x8_0000 + u64::from(index % 16) * shape.wqe()
}

/// Posts WQEs, each with its room in two pieces; a list goes round.
fn post(lab: &mut Lab, shape: &Shape, count: u16) {
    for _ in 0..count {
        let index = lab.rq.posted;
        let at = lab.rq.ring + u64::from(index % 16) * 32;
        let mut wqe = vec![0; 16];
        wqe[2..4].copy_from_slice(&((index + 1) % 16).to_be_bytes());
        let piece = (lab.key, room(lab, shape, index), shape.wqe() as u32);
        wqe.extend(data_segment(piece));
        lab.node.host.put(at, &wqe);
        lab.rq.posted = index.wrapping_add(1);
    }
    let posted = u32::from(lab.rq.posted);
    lab.node.host.put32(lab.rq.record, posted);
}

#[test]
fn drawn_frames_lie_where_drivers_look_for_them() {
    for seed in seeds(40) {
        let _named = Seed(seed);
        let mut random = Random(seed);
        let shape = Shape {
            kind: if random.one_in(2) { LIST } else { RING },
            log_number: 3 + random.below(3) as u8,
            log_size: 6 + random.below(4) as u8,
        };
        let strides = 1u32 << shape.log_number;
        let mut lab = striding(&shape);
        post(&mut lab, &shape, 16);
        let (mut wqe, mut used) = (0u16, 0u32);
        for _ in 0..150 {
            let longest = (shape.wqe() as usize).min(1500);
            let length = 60 + random.below((longest - 59) as u64) as usize;
            let data = random.bytes(length - 42);
            let frame = good_udp_frame(OWN, OTHER, (1, 2), &data);
            let wanted = (frame.len() as u32).div_ceil(1 << shape.log_size);
            lab.receive(&frame);
            let mut done = lab.received().unwrap();
            if used + wanted > strides {
                assert_eq!(done.opcode(), RECEIVED);
                assert_eq!(done.length(), 1 << 31 | (strides - used) << 16);
                let named = (done.half(2) % 16, u32::from(done.counter()));
                assert_eq!(named, (wqe % 16, used));
                (wqe, used) = (wqe + 1, 0);
                post(&mut lab, &shape, 1);
                done = lab.received().unwrap();
            }
            assert_eq!((done.opcode(), done.counter()), (RECEIVED, used as u16));
            assert_eq!(done.length(), wanted << 16 | frame.len() as u32);
            assert_eq!(done.half(2) % 16, wqe % 16);
            let at = room(&lab, &shape, wqe) + (u64::from(used) << shape.log_size);
            assert_eq!(lab.node.host.bytes(at, frame.len()), frame);
            used += wanted;
            if used == strides {
                (wqe, used) = (wqe + 1, 0);
                post(&mut lab, &shape, 1);
            }
            assert!(lab.received().is_none());
        }
    }
}

#[test]
fn without_room_frames_are_dropped_and_what_fits_no_wqe_costs_one() {
    let shape = Shape {
        kind: RING,
        log_number: 3,
        log_size: 6,
    };
    let mut lab = striding(&shape);
    let small = good_udp_frame(OWN, OTHER, (1, 2), &[7; 20]);
    lab.receive(&small);
    assert!(lab.received().is_none());
    assert_eq!(lab.out_of_buffer(), 1);

    post(&mut lab, &shape, 2);
    lab.receive(&small);
    assert_eq!(lab.received().unwrap().counter(), 0);
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &[7; 600]));
    let failed = lab.received().unwrap();
    assert_eq!(
        (failed.opcode(), failed.syndrome()),
        (RECEIVE_FAILED, LENGTH)
    );
    // The rest of the WQE that it came to.
    assert_eq!((failed.half(2), failed.length()), (0, 7 << 16));
    lab.receive(&small);
    let done = lab.received().unwrap();
    assert_eq!((done.half(2), done.counter()), (1, 0));
    // In error, the WQE that was begun is flushed as well.
    lab.move_rq(RDY, ERR).unwrap();
    let flushed = lab.received().unwrap();
    assert_eq!(
        (flushed.opcode(), flushed.syndrome()),
        (RECEIVE_FAILED, FLUSHED)
    );
    assert_eq!((flushed.half(2), flushed.length()), (1, 7 << 16));
    assert!(lab.received().is_none());
}

#[test]
fn impossible_strides_are_refused() {
    let mut config = Config::new(1);
    config.general.set_ext_stride_num_range(false);
    let mut lab = Lab::with(config);
    let shape = |log_number| Shape {
        kind: RING,
        log_number,
        log_size: 6,
    };
    let few = lab.try_rq(|context| shape(8).describe(context));
    assert_eq!(few.err(), Some(refused(Syndrome::RqStrides)));
    lab.try_rq(|context| shape(9).describe(context)).unwrap();
    let narrow = lab.try_rq(|context| {
        shape(9).describe(context);
        context.wq_mut().set_log_wq_stride(4);
    });
    assert_eq!(narrow.err(), Some(refused(Syndrome::RqStride)));

    let mut config = Config::new(1);
    config.general.set_striding_rq(false);
    let mut lab = Lab::with(config);
    let lacking = lab.try_rq(|context| shape(9).describe(context));
    assert_eq!(lacking.err(), Some(refused(Syndrome::RqType)));
}

/// A packet of a multi-packet WQE that is in the WQE itself.
fn inline(data: &[u8]) -> Vec<u8> {
    let mut segment = (1u32 << 31 | data.len() as u32).to_be_bytes().to_vec();
    segment.extend(data);
    segment.resize(segment.len().next_multiple_of(16), 0);
    segment
}

#[test]
fn drawn_packets_of_one_wqe_come_out_in_order() {
    for seed in seeds(60) {
        let _named = Seed(seed);
        let mut random = Random(seed);
        let mut lab = Lab::new();
        for _ in 0..20 {
            let mut segments = ethernet_segment(NETWORK | TRANSPORT, 0, &[], None);
            let mut expected = Vec::new();
            for nth in 0..1 + random.below(40) {
                let length = 18 + random.below(120) as usize;
                let data = random.bytes(length);
                let frame = udp_frame(OTHER, OWN, (1, 2), &data);
                let next = if random.one_in(3) {
                    inline(&frame)
                } else {
                    data_segment(lab.piece(nth * 0x1001, &frame)).to_vec()
                };
                // 63 units of 16 bytes with the control segment.
                if segments.len() + next.len() > 62 * 16 {
                    break;
                }
                segments.extend(next);
                expected.push(good_udp_frame(OTHER, OWN, (1, 2), &data));
            }
            let index = lab.post(MPSW, 8, &segments);
            lab.ring();
            assert_eq!(std::mem::take(&mut lab.node.host.frames), expected);
            let done = lab.sent().unwrap();
            assert_eq!((done.opcode(), done.counter()), (SENT, index));
            assert_eq!(done.0[0x38], MPSW);
        }
    }
}

/// Posts a WQE in the older form, of packets of one length.
fn post_of_one_length(lab: &mut Lab, segments: &[u8]) -> u16 {
    let index = lab.post(LSO, 8, segments);
    let block = u64::from(index) % (1 << lab.sq.log_size);
    lab.node.host.put(lab.sq.ring + block * 64, &[1]);
    lab.ring();
    index
}

#[test]
fn drawn_packets_of_one_length_come_out_in_order() {
    for seed in seeds(60) {
        let _named = Seed(seed);
        let mut random = Random(seed);
        let mut lab = Lab::new();
        for _ in 0..20 {
            let length = 18 + random.below(60) as usize;
            let mut expected = Vec::new();
            let mut packets = Vec::new();
            for _ in 0..1 + random.below(6) {
                let data = random.bytes(length);
                packets.push(udp_frame(OTHER, OWN, (1, 2), &data));
                expected.push(good_udp_frame(OTHER, OWN, (1, 2), &data));
            }
            let len = packets[0].len() as u16;
            let mut segments = ethernet_segment(NETWORK | TRANSPORT, len, &[], None);
            if random.one_in(3) {
                segments.extend(inline(&packets.concat()));
            } else {
                for (nth, packet) in packets.iter().enumerate() {
                    let piece = lab.piece(nth as u64 * 0x1001, packet);
                    segments.extend(data_segment(piece));
                }
            }
            let index = post_of_one_length(&mut lab, &segments);
            assert_eq!(std::mem::take(&mut lab.node.host.frames), expected);
            let done = lab.sent().unwrap();
            assert_eq!((done.opcode(), done.counter()), (SENT, index));
        }
    }
}

#[test]
fn packets_of_other_lengths_fail() {
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    let len = frame.len() as u16;
    // None, one that is no divisor, and one of two packets, which a data segment is not.
    for (length, in_wqe) in [(0, false), (len - 1, true), (len / 2, false)] {
        let mut lab = Lab::new();
        let mut segments = ethernet_segment(0, length, &[], None);
        if in_wqe {
            segments.extend(inline(&frame));
        } else {
            let piece = lab.piece(0, &frame);
            segments.extend(data_segment(piece));
        }
        post_of_one_length(&mut lab, &segments);
        let done = lab.sent().unwrap();
        let syndrome = (done.opcode(), done.syndrome());
        assert_eq!(syndrome, (SEND_FAILED, OPERATION), "{length}");
        assert!(lab.node.host.frames.is_empty());
    }
    let mut config = Config::new(1);
    config.ethernet.set_multi_pkt_send_wqe(0);
    let mut lab = Lab::with(config);
    let mut segments = ethernet_segment(0, len, &[], None);
    segments.extend(inline(&frame));
    post_of_one_length(&mut lab, &segments);
    assert_eq!(lab.sent().unwrap().opcode(), SEND_FAILED);
}

/// Bytes in the WQE have the headers that the card demands in it. How it answers packets elsewhere is not known.
#[test]
fn where_headers_are_demanded_packets_of_one_length_stand_in_the_wqe() {
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 40]);
    let twice = [frame.clone(), frame.clone()];
    let mut config = Config::new(1);
    // The Ethernet header.
    config.ethernet.set_wqe_inline_mode(0);
    let mut lab = Lab::with(config);
    let piece = lab.piece(0, &frame);
    let elsewhere = [data_segment(piece), data_segment(piece)].concat();
    for (packets, goes) in [(inline(&twice.concat()), true), (elsewhere, false)] {
        let before = lab.node.model.stats().unknown_answers;
        let mut segments = ethernet_segment(0, frame.len() as u16, &[], None);
        segments.extend(packets);
        post_of_one_length(&mut lab, &segments);
        let done = lab.sent().unwrap();
        let sent = std::mem::take(&mut lab.node.host.frames);
        let unknown = lab.node.model.stats().unknown_answers - before;
        if goes {
            assert_eq!((done.opcode(), unknown), (SENT, 0));
            assert_eq!(sent, twice);
        } else {
            let syndrome = (done.opcode(), done.syndrome());
            assert_eq!((syndrome, unknown), ((SEND_FAILED, OPERATION), 1));
            assert!(sent.is_empty());
        }
    }
}

#[test]
fn malformed_multi_packet_wqes_fail() {
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    type Change = fn(&mut Vec<u8>);
    let changes: [Change; 4] = [
        // More inline data than the WQE has, and a length beyond all frames.
        |segments| segments.extend([0x80, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        |segments| segments.extend([0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        // Inline headers, and a tag.
        |segments| segments[13] = 1,
        |segments| segments[12] = 0x80,
    ];
    for (nth, change) in changes.iter().enumerate() {
        let mut lab = Lab::new();
        let mut segments = ethernet_segment(0, 0, &[], None);
        let piece = lab.piece(0, &frame);
        segments.extend(data_segment(piece));
        change(&mut segments);
        lab.post(MPSW, 8, &segments);
        lab.ring();
        let done = lab.sent().unwrap();
        let syndrome = (done.opcode(), done.syndrome());
        assert_eq!(syndrome, (SEND_FAILED, OPERATION), "{nth}");
        // What stands in front of the malformed one is sent.
        assert_eq!(lab.node.host.frames.len(), usize::from(nth < 2));
    }
    let mut lab = Lab::new();
    lab.post(MPSW, 8, &ethernet_segment(0, 0, &[], None));
    lab.ring();
    assert_eq!(lab.sent().unwrap().opcode(), SEND_FAILED);
}

#[test]
fn what_a_card_lacks_fails() {
    let mut config = Config::new(1);
    config.ethernet.set_enhanced_multi_pkt_send_wqe(false);
    config.ethernet.set_multi_pkt_send_wqe(0);
    config.ethernet.set_reg_umr_sq(false);
    let mut lab = Lab::with(config);
    for change in [
        (|context: &mut Sqc| {
            context.set_allow_multi_pkt_send_wqe(true);
        }) as fn(&mut Sqc),
        |context| {
            context.set_reg_umr(true);
        },
    ] {
        let made = lab.try_sq(change).map(|queue| queue.number);
        assert_eq!(made, Err(refused(Syndrome::SqFeature)));
    }
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    let mut segments = ethernet_segment(0, 0, &[], None);
    segments.extend(inline(&frame));
    lab.post(MPSW, 8, &segments);
    lab.ring();
    let done = lab.sent().unwrap();
    assert_eq!((done.opcode(), done.syndrome()), (SEND_FAILED, OPERATION));
    assert!(lab.node.host.frames.is_empty());
}
