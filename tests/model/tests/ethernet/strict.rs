//! Send requests that ask for more than the capabilities offer, or carry less than the card demands.

use crate::common::queues::data_segment;
use crate::lab::*;
use connectx_model::Config;

/// `wqe_inline_mode`: the Ethernet header, as the virtual port's context says, nothing.
const BY_L2: u8 = 0;
const BY_VPORT: u8 = 1;
const NOT_REQUIRED: u8 = 2;

fn card(capability: u8, vport: u8) -> Config {
    let mut config = Config::new(1);
    config.ethernet.set_wqe_inline_mode(capability);
    config.min_wqe_inline_mode = vport;
    config
}

/// Sends a frame with this much of it inline, and returns how it completed: opcode and syndrome. A frame that is reported
/// as sent has to be on the cable, and no other.
fn completion(lab: &mut Lab, frame: &[u8], inline: usize) -> (u8, u8) {
    let mut segments = ethernet_segment(0, 0, &frame[..inline], None);
    if inline < frame.len() {
        let piece = lab.piece(0, &frame[inline..]);
        segments.extend(data_segment(piece));
    }
    request(lab, SEND, &segments, |out| out[..frame.len()] == *frame)
}

/// Posts a request and returns how it completed. `right` says whether what came out is what was asked for.
fn request(lab: &mut Lab, opcode: u8, segments: &[u8], right: impl Fn(&[u8]) -> bool) -> (u8, u8) {
    let before = lab.node.model.stats().unknown_answers;
    lab.post(opcode, 8, segments);
    lab.ring();
    let frames = std::mem::take(&mut lab.node.host.frames);
    let done = lab.sent().expect("a completion");
    let sent = done.opcode() == SENT;
    assert_eq!(
        frames.iter().filter(|frame| right(frame)).count() != 0,
        sent
    );
    assert!(sent || frames.is_empty());
    let unknown = lab.node.model.stats().unknown_answers - before;
    assert_eq!(unknown, u64::from(!sent));
    (done.opcode(), if sent { 0 } else { done.syndrome() })
}

fn with_tags(frame: &[u8], tags: &[u16]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|kind| [kind.to_be_bytes(), [0, 5]]);
    [
        &frame[..12],
        &tags.collect::<Vec<_>>().concat(),
        &frame[12..],
    ]
    .concat()
}

/// The number of bytes that are demanded is what Linux (`mlx5e_calc_min_inline`) copies.
#[test]
fn requests_with_fewer_headers_inline_than_the_card_demands_are_sent() {
    let plain = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    let tagged = with_tags(&plain, &[0x8100]);
    let twice = with_tags(&plain, &[0x88a8, 0x8100]);
    let arp = [&plain[..12], &[0x08, 0x06], &[1; 46]].concat();
    let tiny = &plain[..15];
    let cases: [(u8, u8, &[u8], usize); 15] = [
        (NOT_REQUIRED, 3, &plain, 0),
        (BY_VPORT, 0, &plain, 0),
        (BY_L2, 0, &plain, 18),
        (BY_L2, 3, &plain, 18),
        (BY_VPORT, 1, &plain, 18),
        (BY_VPORT, 1, &tagged, 18),
        (BY_VPORT, 1, &twice, 22),
        (BY_VPORT, 1, tiny, 15),
        (BY_VPORT, 2, &plain, 34),
        (BY_VPORT, 2, &twice, 42),
        (BY_VPORT, 2, &arp, 18),
        (BY_VPORT, 3, &plain, 42),
        (BY_VPORT, 3, &twice, 50),
        (BY_VPORT, 3, &arp, 18),
        (BY_VPORT, 3, tiny, 15),
    ];
    for (capability, vport, frame, demanded) in cases {
        let case = format!("{capability}, {vport}: {} bytes", frame.len());
        let mut lab = Lab::with(card(capability, vport));
        assert_eq!(completion(&mut lab, frame, demanded), (SENT, 0), "{case}");
        if let Some(fewer) = demanded.checked_sub(1) {
            let outcome = completion(&mut lab, frame, fewer);
            assert_eq!(outcome, (SEND_FAILED, OPERATION), "{case}");
            assert_eq!(lab.sq_context().state(), ERR, "{case}");
        }
    }
}

/// A queue may demand more of itself than its virtual port does.
#[test]
fn a_queue_with_an_inline_mode_of_its_own_sends_fewer_headers() {
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    for (own, demanded) in [(0, 18), (1, 18), (2, 34), (3, 42)] {
        let mut lab = Lab::with(card(BY_VPORT, 1));
        lab.sq = lab
            .try_sq(|sq| _ = sq.set_min_wqe_inline_mode(own))
            .unwrap();
        lab.move_sq(RST, RDY).unwrap();
        assert_eq!(completion(&mut lab, &frame, demanded), (SENT, 0));
        let outcome = completion(&mut lab, &frame, demanded - 1);
        assert_eq!(outcome, (SEND_FAILED, OPERATION));
    }
}

/// Linux then writes the tag into inline headers itself (`MLX5E_SQ_STATE_VLAN_NEED_L2_INLINE`).
#[test]
fn tags_are_inserted_without_the_capability() {
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    let wanted = with_tags(&frame, &[0x8100]);
    for (capability, demands, outcome) in [
        (true, NOT_REQUIRED, (SENT, 0)),
        (false, NOT_REQUIRED, (SEND_FAILED, OPERATION)),
        // No header is inline then.
        (true, BY_L2, (SEND_FAILED, OPERATION)),
    ] {
        let mut config = card(demands, 0);
        config.ethernet.set_wqe_vlan_insert(capability);
        let mut lab = Lab::with(config);
        let mut segments = ethernet_segment(0, 0, &[], Some(5));
        segments.extend(data_segment(lab.piece(0, &frame)));
        let actual = request(&mut lab, SEND, &segments, |out| *out == *wanted);
        assert_eq!(actual, outcome, "{capability}, {demands}");
    }
}

/// rdma-core refuses such requests itself (`MLX5_CSUM_SUPPORT_RAW_OVER_ETH`), Linux such cards (`csum_cap`).
#[test]
fn checksums_are_filled_in_without_the_capability() {
    let frame = udp_frame(OTHER, OWN, (1, 2), &[7; 100]);
    for flags in [0, NETWORK, TRANSPORT, NETWORK | TRANSPORT] {
        for capability in [true, false] {
            let mut config = Config::new(1);
            config.ethernet.set_csum_cap(capability);
            let mut lab = Lab::with(config);
            let mut segments = ethernet_segment(flags, 0, &[], None);
            segments.extend(data_segment(lab.piece(0, &frame)));
            let actual = request(&mut lab, SEND, &segments, |_| true);
            let outcome = match capability || flags == 0 {
                true => (SENT, 0),
                false => (SEND_FAILED, OPERATION),
            };
            assert_eq!(actual, outcome, "{flags:#x}, {capability}");
        }
    }
}

/// Linux refuses cards without `max_lso_cap`.
#[test]
fn large_sends_work_without_the_capability() {
    let headers = udp_frame(OTHER, OWN, (1, 2), &[]);
    for (log_max, outcome) in [(18, (SENT, 0)), (0, (SEND_FAILED, OPERATION))] {
        let mut config = Config::new(1);
        config.ethernet.set_max_lso_cap(log_max);
        let mut lab = Lab::with(config);
        // One byte, as 1 << 0 is 1.
        let mut segments = ethernet_segment(NETWORK | TRANSPORT, 1400, &headers, None);
        segments.extend(data_segment(lab.piece(0, &[7])));
        let actual = request(&mut lab, LSO, &segments, |_| true);
        assert_eq!(actual, outcome, "{log_max}");
    }
}
