//! A lane that forwards frames, and its two devices' part.

use std::sync::atomic::Ordering::Relaxed;

use bareverbs_core::{
    CompressedForwarder, EthernetDomain, ForwardCounters, ForwardInit, Forwarder, FrameCompression,
    Pd,
};
use bareverbs_firmware_cmds::caps::{EthernetOffloadCaps, FlowTableNicCap};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::values::{CapabilityGroup, CapabilityMode};
use bareverbs_firmware_cmds::vport::NicVportContext;
use zerocopy::{FromZeros, IntoBytes};

use crate::measured::{self, Count};
use crate::platform::{Counting, Setup};
use crate::support::firmware::{Action, Posted};

/// Frames of a burst.
const BURST: usize = bareverbs_core::ethernet::BURST;
/// Bytes of a frame.
const FRAME: u32 = 64;
/// Bytes that the request itself has: both addresses.
const INLINE: u32 = 12;
/// Frames that the lane holds.
const FRAMES: u32 = 4 * BURST as u32;
/// The addresses that frames leave with.
const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 7]];

/// The firmware's answers for an Ethernet port.
pub(crate) fn of_port(posted: &Posted) -> Action {
    let mut output = vec![0; posted.output_len.max(16)];
    let current = |group: CapabilityGroup| posted.op_mod == group.query(CapabilityMode::Current);
    let mut put = |image: &[u8]| output[16..][..image.len()].copy_from_slice(image);
    if posted.is(Opcode::QueryNicVportContext) {
        let mut context = NicVportContext::new_zeroed();
        context.set_permanent_address(0x0200_0000_0007);
        put(context.as_bytes());
    } else if current(CapabilityGroup::EthernetOffloads) {
        let mut caps = EthernetOffloadCaps::new_zeroed();
        // No headers need be inline.
        caps.set_wqe_inline_mode(2);
        put(caps.as_bytes());
    } else if current(CapabilityGroup::FlowTable) {
        let mut caps = FlowTableNicCap::new_zeroed();
        caps.flow_table_properties_nic_receive_mut()
            .set_ft_support(true);
        put(caps.as_bytes());
    } else {
        return Action::Normal;
    }
    Action::Answer(output)
}

/// A lane of either kind.
enum Kind<'d> {
    Plain(Forwarder<'d, Counting>),
    Compressed(CompressedForwarder<'d, Counting>),
}

/// The lane: both ports are one device's.
pub(crate) struct Lane<'d> {
    forwarder: Kind<'d>,
    // In the order in which they have to go.
    _domain: EthernetDomain<'d, Counting>,
    _pd: Pd<'d, Counting>,
    setup: &'d Setup,
    /// CQ and user index of the receiver; ring, number, CQ and user index of the sender.
    receiver: (u32, u32),
    sender: (u64, u32, (u32, u32)),
    counted: Count,
    /// Frames that have come.
    frames: u32,
}

impl<'d> Lane<'d> {
    pub(crate) fn new(setup: &'d Setup, compression: FrameCompression) -> Self {
        let device = &setup.device;
        let pd = device.alloc_pd().expect("PD");
        let domain = device.alloc_ethernet_domain().expect("domain");
        let init = ForwardInit {
            frames: FRAMES,
            addresses: Some(ADDRESSES),
            ..ForwardInit::default()
        };
        let to = (&domain, &pd);
        let forwarder = if compression == FrameCompression::OFF {
            Kind::Plain(domain.create_forwarder(&pd, to, &init).expect("lane"))
        } else {
            let lane = domain.create_compressed_forwarder(&pd, to, &init, compression);
            Kind::Compressed(lane.expect("lane"))
        };
        let rings = setup.rings.lock().expect("not poisoned");
        let (_, receiver) = rings.receiver.expect("a receive queue");
        let (sqn, ring, sender) = rings.sender.expect("a send queue");
        drop(rings);
        let (receiver, sender) = (receiver.ctx(), sender.ctx());
        Self {
            forwarder,
            receiver: (receiver.cqn(), receiver.user_index()),
            sender: (ring, sqn, (sender.cqn(), sender.user_index())),
            _domain: domain,
            _pd: pd,
            setup,
            counted: Count::default(),
            frames: 0,
        }
    }

    /// Writes a completion into the CQ of a queue, which is the title of a session if `count` is not 1.
    fn complete(
        &self,
        (cqn, user_index): (u32, u32),
        op: u8,
        number: u32,
        counter: u32,
        count: u32,
    ) {
        let mut rings = self.setup.rings.lock().expect("not poisoned");
        let (ring, log_size, producer) = rings.cqs.get_mut(&cqn).expect("a CQ");
        let write = |index: u32, entry: &[u8; 64]| {
            let at = u64::from(index & ((1 << *log_size) - 1)) * 64;
            self.setup.fake().lock().dma_write(*ring + at, entry);
        };
        let mut array = [0; 64];
        for mini in array.as_chunks_mut::<8>().0 {
            mini[4..].copy_from_slice(&FRAME.to_be_bytes());
        }
        for completion in (0..count).step_by(8).filter(|_| count > 1) {
            write(*producer + completion.max(1), &array);
        }
        let (length, format) = match count {
            1 => (FRAME, 0),
            _ => (count, 3 << 2),
        };
        let mut cqe = [0; 64];
        cqe[0x20..0x24].copy_from_slice(&user_index.to_be_bytes());
        cqe[0x2c..0x30].copy_from_slice(&length.to_be_bytes());
        cqe[0x38..0x3c].copy_from_slice(&number.to_be_bytes());
        cqe[0x3c..0x3e].copy_from_slice(&(counter as u16).to_be_bytes());
        cqe[0x3f] = op << 4 | format | (*producer >> *log_size & 1) as u8;
        write(*producer, &cqe);
        *producer += count;
    }

    /// Lets a burst come, and the one before it have gone out; forwards it.
    fn burst(&mut self) {
        let (_, sqn, sender) = self.sender;
        if self.frames != 0 {
            self.complete(sender, 0, sqn, self.frames - 1, 1);
        }
        let each = match self.forwarder {
            Kind::Plain(_) => 1,
            Kind::Compressed(_) => BURST as u32,
        };
        for nth in (0..BURST as u32).step_by(each as usize) {
            self.complete(self.receiver, 2, 0, self.frames + nth, each);
        }
        self.frames += BURST as u32;
        match &mut self.forwarder {
            Kind::Plain(lane) => measured::l2fwd(lane, BURST, &self.counted),
            Kind::Compressed(lane) => measured::l2fwd_compressed(lane, BURST, &self.counted),
        }
    }

    /// Forwards `count` frames.
    pub(crate) fn round(&mut self, count: usize) {
        for _ in 0..count / BURST {
            self.burst();
        }
        let frames = u64::from(self.frames);
        assert_eq!(self.counted.sent.load(Relaxed), frames);
        assert_eq!(self.counted.dropped.load(Relaxed), 0);
        assert_eq!(self.counted.garbage.load(Relaxed), 0);
        let counters = ForwardCounters {
            received: frames,
            sent: frames,
            ..ForwardCounters::default()
        };
        let found = match &self.forwarder {
            Kind::Plain(lane) => lane.counters(),
            Kind::Compressed(lane) => lane.counters(),
        };
        assert_eq!(found, counters);
        self.check_bytes();
    }

    /// Looks at the requests of the last burst.
    fn check_bytes(&self) {
        let (ring, sqn, _) = self.sender;
        for frame in self.frames - BURST as u32..self.frames {
            let slot = frame % FRAMES;
            let mut memory = self.setup.fake().lock();
            let wqe = memory.dma_read(ring + u64::from(slot) * 64, 64);
            let word = |at: usize| {
                wqe[at..at + 4]
                    .iter()
                    .fold(0, |all, &byte| all << 8 | u32::from(byte))
            };
            assert_eq!(
                [word(0), word(4)],
                [(frame & 0xffff) << 8 | 0x0a, sqn << 8 | 4]
            );
            // Only the last one asks for a completion.
            let is_last = frame == self.frames - 1;
            assert_eq!(word(8), if is_last { 8 } else { 0 });
            assert_eq!(wqe[0x1c..0x1e], [0, INLINE as u8]);
            assert_eq!(wqe[0x1e..0x2a], ADDRESSES.concat());
            assert_eq!(word(0x30), FRAME - INLINE);
            assert_eq!(word(0x3c) % 64, INLINE);
        }
    }
}
