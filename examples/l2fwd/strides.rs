//! Lanes that receive into strides and send many frames in a request. They copy frames between, as the memory of a striding queue
//! is its own device's alone.

use bareverbs::verbs::{
    Access, Buffer, EthernetDomain, EthernetSendFlags, ForwardCounters, ForwardInit, MultiSend,
    MultiSendInit, Pd, Platform, Rqn, StridingInit, StridingReceive,
};
use bareverbs_examples::Result;

/// Frames that are under way at most; each has a place of its own.
const PLACES: usize = 64;
const PLACE: usize = 2048;
/// Blocks of the send queue: what so many frames take if each is in a request of its own, in it.
const BLOCKS: u32 = 512;
/// Shorter frames are sent in the request itself.
const IN_REQUEST: usize = 128;

/// The additional counts of lanes with striding queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Together {
    /// Times that frames were sent, as many as there were.
    pub(crate) bursts: u64,
    /// Strides that stayed unused at the ends of requests.
    pub(crate) unused: u64,
}

/// From one port's striding queue to the other port.
pub(crate) struct StridedLane<'d, P: Platform> {
    receive: StridingReceive<'d, P>,
    send: MultiSend<'d, P>,
    places: Buffer<'d, P>,
    next: usize,
    /// The destination and source with which frames leave.
    addresses: Option<[[u8; 6]; 2]>,
    received: u64,
    bursts: u64,
}

impl<'d, P: Platform> StridedLane<'d, P> {
    /// From a port to another one.
    pub(crate) fn new(
        (from, from_pd): (&EthernetDomain<'d, P>, &Pd<'d, P>),
        (to, to_pd): (&EthernetDomain<'d, P>, &Pd<'d, P>),
        init: &ForwardInit,
    ) -> Result<Self> {
        let frame_len = Some(init.frame_len as usize);
        let strides = StridingInit {
            requests: 64,
            strides: 16,
            stride_len: 256,
            frame_len,
            ..StridingInit::default()
        };
        let multi = MultiSendInit {
            blocks: BLOCKS,
            frame_len,
            ..MultiSendInit::default()
        };
        Ok(Self {
            receive: from.create_striding_receive(from_pd, &strides)?,
            send: to.create_multi_send(to_pd, &multi)?,
            places: to_pd.alloc_buffer(PLACES * PLACE, Access::empty())?,
            next: 0,
            addresses: init.addresses,
            received: 0,
            bursts: 0,
        })
    }

    /// Sends what has come, as one burst. How many frames.
    pub(crate) fn forward(&mut self) -> Result<u32> {
        self.send.poll()?;
        let room = PLACES as u32 - self.send.outstanding();
        let mut went = 0;
        let mut burst = self.send.burst(EthernetSendFlags::empty())?;
        let mut bytes = [0; PLACE];
        while went < room
            && let Some(frame) = self.receive.receive()?
        {
            let length = self.receive.copy_to(&frame, &mut bytes);
            let given = self.receive.give_back(frame);
            given.map_err(|_| "a frame that its own queue does not know")?;
            let frame = &mut bytes[..length];
            if let Some(addresses) = self.addresses {
                frame[..12].copy_from_slice(addresses.as_flattened());
            }
            if length <= IN_REQUEST {
                burst.push_inline(frame)?;
            } else {
                // Frames leave in order: the place of the oldest is free when there is room.
                let at = self.next * PLACE;
                self.next = (self.next + 1) % PLACES;
                self.places.copy_in(at, frame)?;
                let sge = self.places.sge(at, length);
                burst.push(sge.ok_or("a frame longer than its place")?)?;
            }
            went += 1;
        }
        drop(burst);
        self.received += u64::from(went);
        self.bursts += u64::from(went > 0);
        Ok(went)
    }

    pub(crate) fn counters(&self) -> ForwardCounters {
        let counters = self.receive.counters();
        ForwardCounters {
            received: self.received,
            sent: self.received,
            dropped: counters.too_long + counters.malformed,
            garbage_completions: counters.garbage_completions + self.send.garbage_completions(),
        }
    }

    pub(crate) fn together(&self) -> Together {
        Together {
            bursts: self.bursts,
            unused: self.receive.counters().unused_strides,
        }
    }

    pub(crate) fn number(&self) -> Rqn {
        self.receive.number()
    }
}
