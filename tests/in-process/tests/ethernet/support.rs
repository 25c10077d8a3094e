//! Frames, and queues that wait for them.

use bareverbs_core::{EthernetInit, EthernetQueue, EthernetSendFlags, FrameCompression};
use bareverbs_in_process::ModelPlatform;

use crate::lab::{Lab, MS, pattern};

pub(crate) type Queue<'d> = EthernetQueue<'d, ModelPlatform>;

/// An EtherType for experiments.
pub(crate) const TYPE: [u8; 2] = [0x88, 0xb5];
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];
pub(crate) const NONE: EthernetSendFlags = EthernetSendFlags::empty();

pub(crate) const INIT: EthernetInit = EthernetInit {
    send_frames: 8,
    recv_frames: 8,
    frame_len: Some(1518),
    max_groups: 3,
    strip_vlan: false,
    comp_vector: 0,
    compression: FrameCompression::OFF,
};

/// A frame of `len` bytes computed from a seed.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], len: usize, seed: u64) -> Vec<u8> {
    let mut frame = [&to[..], &from, &TYPE].concat();
    frame.extend(pattern(len.saturating_sub(14), seed));
    frame
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % limit as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

impl<'d> Lab<'d> {
    pub(crate) fn queue(&self, node: usize, init: EthernetInit) -> Queue<'d> {
        self.sides[node]
            .pd
            .create_ethernet_queue(&init)
            .expect("queue")
    }

    /// A queue on each side.
    pub(crate) fn queues(&self) -> [Queue<'d>; 2] {
        [0, 1].map(|node| self.queue(node, INIT))
    }

    /// A frame from `node` to the other side.
    pub(crate) fn frame(&self, node: usize, len: usize, seed: u64) -> Vec<u8> {
        frame(self.sides[1 - node].mac, self.sides[node].mac, len, seed)
    }

    /// The next frame.
    #[track_caller]
    pub(crate) fn receive(&self, queue: &mut Queue<'d>) -> Vec<u8> {
        self.pause(MS);
        take(queue).expect("a frame")
    }

    /// That there is no frame.
    #[track_caller]
    pub(crate) fn nothing(&self, queue: &mut Queue<'d>) {
        self.pause(MS);
        assert_eq!(take(queue), None);
    }
}

/// The next frame that is there.
#[track_caller]
pub(crate) fn take(queue: &mut Queue<'_>) -> Option<Vec<u8>> {
    let received = queue.receive_half().receive().expect("the queue works")?;
    let mut frame = vec![0xa5; received.len()];
    assert_eq!(received.copy_to(&mut frame), frame.len());
    Some(frame)
}

/// A frame as it arrives: the port pads what is too short.
pub(crate) fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(60), 0);
    frame
}

#[track_caller]
pub(crate) fn send(queue: &mut Queue<'_>, frame: &[u8]) {
    queue.send_half().send(frame, NONE).expect("sent");
}
