//! Receiving: frames go through steering, by hash or directly, into a receive queue's buffers.

use super::checksum::{self, Verdict};
use super::frame::{self, Parsed, Start, TAG, Transport, Version};
use super::queue::{INDIRECT, QueueState};
use super::rss::{self, Hash};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::cqe::{entry, put_error};
use crate::objects::eq::event;
use crate::objects::mkey::Right;
use crate::objects::qp::EVENT_RQ;
use crate::objects::wqe::{next_wqe, scatter_list};
use crate::roce::env::{AccessError, Counter, RecvWork, Segment, Syndrome};
use crate::steering::Hit;
use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, HeadersWord, Opcode, PathWord, RssHashWord, SIZE, SlidWord, WqeIdWord,
    l3_header, l4_header,
};
use bareverbs_firmware_cmds::doorbell::ReceiveRecord;
use bareverbs_firmware_cmds::eq::QpEvents;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::SEGMENT_UNIT;

/// In the length of a receive segment: the driver asks for padding in front, which this card does not do.
const START_PADDING: u32 = 1 << 31;
/// `self_lb_block` of a TIR: despite its name, frames that come round from its own transport domain reach it only if the
/// bit is set; this is how both of the vendor's drivers use it.
const LOOPBACK_UNICAST: u8 = 1 << 0;
const LOOPBACK_MULTICAST: u8 = 1 << 1;

/// The facts about a frame that a completion has beside its length.
struct Facts {
    tag: Option<u16>,
    parsed: Parsed,
    /// The inner packet, at a queue that looks into tunnels.
    inner: Option<Parsed>,
    verdict: Verdict,
    hash: Hash,
    flow_tag: u32,
}

/// A frame, looked into before it is known where it goes.
struct Looked {
    parsed: Parsed,
    inner: Option<Parsed>,
    verdict: Verdict,
}

impl Looked {
    fn at(frame: &[u8], parsed: Parsed, inside: Option<Start>) -> Self {
        Self {
            parsed,
            inner: inside.map(|start| frame::parse_from(frame, start)),
            verdict: checksum::check(frame, &parsed),
        }
    }
}

/// The outcome for a frame at one queue.
pub(super) enum Outcome {
    Done {
        index: u16,
        strided: Strided,
    },
    Failed {
        index: u16,
        strided: Strided,
        syndrome: Syndrome,
    },
    NoBuffer,
}

/// Additional fields of completions of a striding queue: the WQE, and the number of strides used up. The index beside them is
/// the stride's.
pub(super) type Strided = Option<(u16, u16)>;

impl Device {
    /// Takes a frame through the flow tables into receive queues. Returns whether any took it. `from` is the transport
    /// domain of the sender if the frame came round.
    pub(crate) fn deliver_ethernet(
        &mut self,
        io: &mut Io<'_>,
        frame: &[u8],
        from: Option<u32>,
    ) -> bool {
        if frame.len() < frame::HEADER {
            return false;
        }
        let mut hits = core::mem::take(&mut self.nic.hits);
        let parsed = frame::parse(frame);
        let inside = self.nic.tunnels.inner(frame, &parsed);
        self.steering.classify(frame, inside, &mut hits);
        let mut taken = false;
        if !hits.is_empty() {
            let looked = Looked::at(frame, parsed, inside);
            let rewritten = core::mem::take(&mut self.steering.rewritten);
            for hit in &hits {
                let Some(nth) = hit.rewritten else {
                    taken |= self.deliver_tir(io, frame, from, *hit, &looked);
                    continue;
                };
                let frame = rewritten.get(nth).map_or(frame, |it| it.frame.as_slice());
                let parsed = frame::parse(frame);
                let inside = self.nic.tunnels.inner(frame, &parsed);
                let looked = Looked::at(frame, parsed, inside);
                taken |= self.deliver_tir(io, frame, from, *hit, &looked);
            }
            self.steering.rewritten = rewritten;
        }
        self.nic.hits = hits;
        taken
    }

    fn deliver_tir(
        &mut self,
        io: &mut Io<'_>,
        frame: &[u8],
        from: Option<u32>,
        hit: Hit,
        looked: &Looked,
    ) -> bool {
        let Some(tir) = self.nic.tirs.get(hit.tir) else {
            return false;
        };
        let context = &tir.context;
        let wanted = if frame[0] & 1 != 0 {
            LOOPBACK_MULTICAST
        } else {
            LOOPBACK_UNICAST
        };
        if from == Some(context.transport_domain()) && context.self_lb_block() & wanted == 0 {
            return false;
        }
        let inner = looked
            .inner
            .as_ref()
            .filter(|_| context.tunneled_offload_en());
        let (number, hash) = if context.disp_type() == INDIRECT {
            let hash = rss::hash(context, frame, &looked.parsed, inner);
            let Some(table) = self.nic.rqts.get(context.indirect_table()) else {
                return false;
            };
            let at = hash.value as usize % table.queues.len().max(1);
            let Some(&number) = table.queues.get(at) else {
                return false;
            };
            (number, hash)
        } else {
            (context.inline_rqn(), Hash::default())
        };
        let facts = Facts {
            tag: None,
            parsed: looked.parsed,
            inner: inner.copied(),
            verdict: match inner {
                Some(inner) => checksum::check_inside(frame, &looked.parsed, inner),
                None => looked.verdict,
            },
            hash,
            flow_tag: hit.flow_tag,
        };
        self.deliver_rq(io, number, frame, facts)
    }

    fn deliver_rq(&mut self, io: &mut Io<'_>, number: u32, frame: &[u8], mut facts: Facts) -> bool {
        let Some(rq) = self.nic.rqs.get(number) else {
            return false;
        };
        if rq.state != QueueState::Ready {
            return false;
        }
        let strip = !rq.context.vsd();
        let counter_set = rq.context.counter_set_id();
        let mut stripped = core::mem::take(&mut self.nic.stripped);
        stripped.clear();
        let data = if let (true, Some(tag)) = (strip, facts.parsed.tag) {
            facts.tag = Some(tag);
            stripped.extend_from_slice(&frame[..12]);
            stripped.extend_from_slice(&frame[12 + TAG..]);
            stripped.as_slice()
        } else {
            frame
        };
        let mut work = core::mem::take(&mut self.nic.work);
        let striding = self.nic.rqs.get(number).and_then(super::Rq::strides);
        let outcome = match striding {
            Some(strides) => self.place_strided(io, number, strides, data, &mut work),
            None => self.place_frame(io, number, data, &mut work),
        };
        let length = data.len() as u32;
        self.nic.work = work;
        self.nic.stripped = stripped;
        match outcome {
            Outcome::NoBuffer => {
                if let Some(set) = self.counters.get_mut(u32::from(counter_set)) {
                    set.values[Counter::OutOfBuffer as usize] += 1;
                }
                // It came as far as the queue, which is as far as the port counts.
                self.stats.frames_dropped += 1;
                true
            }
            Outcome::Done { index, strided } => {
                let mut count = ByteCountWord(length);
                if let Some((_, used)) = strided {
                    count.set_consumed_strides(used);
                }
                self.receive_done(io, number, (index, strided), count, &facts);
                true
            }
            Outcome::Failed {
                index,
                strided,
                syndrome,
            } => {
                self.receive_failed(io, number, index, strided, syndrome);
                true
            }
        }
    }

    /// Writes a frame into the buffers of the next WQE.
    fn place_frame(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        data: &[u8],
        work: &mut RecvWork,
    ) -> Outcome {
        match self.fetch_buffer(io, number, work) {
            Ok(true) => {}
            Ok(false) => return Outcome::NoBuffer,
            Err(syndrome) => {
                return Outcome::Failed {
                    index: work.index,
                    strided: None,
                    syndrome,
                };
            }
        }
        let index = work.index;
        match self.scatter(io, number, &work.segments, 0, data) {
            Ok(()) => Outcome::Done {
                index,
                strided: None,
            },
            Err(syndrome) => Outcome::Failed {
                index,
                strided: None,
                syndrome,
            },
        }
    }

    /// Writes data to what segments name, from a byte on.
    pub(super) fn scatter(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        segments: &[Segment],
        mut skip: usize,
        data: &[u8],
    ) -> Result<(), Syndrome> {
        let rq = self.nic.rqs.get(number).ok_or(Syndrome::LocalQpOperation)?;
        // A pool has its own protection domain.
        let pd = match rq.pool().and_then(|pool| self.srqs.get(pool)) {
            Some(pool) => pool.pd,
            None => rq.context.wq().pd(),
        };
        let who = rq.accessor(number, pd);
        let mut rest = data;
        for segment in segments {
            let Segment::Memory { lkey, addr, len } = *segment else {
                continue;
            };
            let space = match len & !START_PADDING {
                // Zero means 2 GiB, which is the bit.
                0 => START_PADDING as usize,
                len => len as usize,
            };
            let skipped = skip.min(space);
            skip -= skipped;
            let (now, later) = rest.split_at((space - skipped).min(rest.len()));
            if rest.is_empty() {
                break;
            }
            if now.is_empty() {
                continue;
            }
            let at = addr.wrapping_add(skipped as u64);
            let written = self.write_key(io, lkey, who, at, now, Right::LocalWrite);
            if let Err(error) = written {
                log::warn!("RQ {number:#x}: scatter of {} bytes: {error:?}", now.len());
                return Err(match error {
                    AccessError::Fault => Syndrome::LocalQpOperation,
                    _ => Syndrome::LocalProtection,
                });
            }
            rest = later;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Syndrome::LocalLength)
        }
    }

    /// Fetches the next receive WQE; `false` if there is none.
    pub(super) fn fetch_buffer(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        work: &mut RecvWork,
    ) -> Result<bool, Syndrome> {
        work.clear();
        let bad = Syndrome::LocalQpOperation;
        let terminator = self.list_terminator();
        let Some(rq) = self.nic.rqs.get_mut(number) else {
            return Ok(false);
        };
        if let Some(pool) = rq.pool() {
            return self.fetch_shared(io, pool, work).map_err(|bad| bad.0);
        }
        if rq.posted == rq.next {
            let record = rq.ring.record();
            let record = io.read_be32(record).map_err(|_| bad)?;
            rq.posted = ReceiveRecord(record).counter();
        }
        let posted = rq.posted.wrapping_sub(rq.next);
        if posted == 0 {
            return Ok(false);
        }
        let (index, at) = if rq.cyclic() {
            (rq.next, u32::from(rq.next) & (rq.entries() - 1))
        } else {
            (rq.link, u32::from(rq.link))
        };
        work.index = index;
        let mut wqe = [0; 2048];
        let wqe = &mut wqe[..(rq.stride() as usize).min(2048)];
        let sound = u32::from(posted) <= rq.entries() && at < rq.entries();
        if !sound || rq.ring.read(io, u64::from(at) * rq.stride(), wqe).is_err() {
            log::warn!("RQ {number:#x}: WQE {index:#x} of {posted} posted");
            return Err(bad);
        }
        rq.next = rq.next.wrapping_add(1);
        if !rq.cyclic() {
            rq.link = next_wqe(wqe);
        }
        let front = if rq.cyclic() && rq.strides().is_none() {
            0
        } else {
            SEGMENT_UNIT
        };
        scatter_list(wqe.get(front..).unwrap_or(&[]), terminator, work);
        Ok(true)
    }

    fn receive_done(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        (index, strided): (u16, Strided),
        count: ByteCountWord,
        facts: &Facts,
    ) {
        let Some(rq) = self.nic.rqs.get(number) else {
            return;
        };
        let cqn = rq.context.cqn();
        let user_index = rq.context.user_index();
        let format = rq.context.ts_format();
        let mut cqe = entry(Opcode::ResponderSend, user_index, 0, facts.flow_tag, index);
        self.stamp(&mut cqe, format, self.caps.general.rq_ts_format());
        RssHashWord(facts.hash.value).write(&mut cqe);
        let mut hashed = PathWord(0);
        hashed.set_rss_hash_type(facts.hash.kind);
        hashed.write(&mut cqe);
        let mut sum = SlidWord(0);
        sum.set_check_sum(facts.verdict.complete);
        sum.write(&mut cqe);
        headers(facts).write(&mut cqe);
        count.write(&mut cqe);
        if let Some((wqe, _)) = strided {
            put_wqe(&mut cqe, wqe);
        }
        put_tunnel(&mut cqe, facts);
        if self.complete(io, cqn, &mut cqe, false).is_err() {
            self.rq_event(io, number);
            self.fail_rq(io, number);
        }
    }

    /// A receive WQE ends in error. What is too long costs its WQE only; the rest stops the queue.
    fn receive_failed(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        index: u16,
        strided: Strided,
        syndrome: Syndrome,
    ) {
        self.put_receive_error(io, number, index, strided, syndrome);
        if syndrome != Syndrome::LocalLength {
            self.fail_rq(io, number);
        }
    }

    fn put_receive_error(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        index: u16,
        strided: Strided,
        syndrome: Syndrome,
    ) {
        let Some(rq) = self.nic.rqs.get(number) else {
            return;
        };
        let cqn = rq.context.cqn();
        let user_index = rq.context.user_index();
        let mut cqe = entry(Opcode::ResponderError, user_index, 0, number, index);
        put_error(&mut cqe, syndrome);
        if let Some((wqe, used)) = strided {
            put_wqe(&mut cqe, wqe);
            let mut count = ByteCountWord(0);
            count.set_consumed_strides(used);
            count.write(&mut cqe);
        }
        if self.complete(io, cqn, &mut cqe, false).is_err() {
            self.rq_event(io, number);
            if let Some(rq) = self.nic.rqs.get_mut(number) {
                rq.state = QueueState::Error;
            }
        }
    }

    /// Says that a queue stops without a completion. One in error has stopped before.
    fn rq_event(&mut self, io: &mut Io<'_>, number: u32) {
        let rq = self.nic.rqs.get(number);
        if rq.is_some_and(|rq| rq.state == QueueState::Ready) {
            let mut data = QpEvents::ZERO;
            data.set_type(EVENT_RQ).set_qpn_rqn_sqn(number);
            self.event(io, event::WQ_CATAS, 0, &data.0);
        }
    }

    /// Stops a receive queue; what was and will be posted is flushed.
    pub(crate) fn fail_rq(&mut self, io: &mut Io<'_>, number: u32) {
        let Some(rq) = self.nic.rqs.get_mut(number) else {
            return;
        };
        rq.state = QueueState::Error;
        if rq.context.flush_in_error_en() && rq.pool().is_none() {
            self.begin_draining(number);
            self.flush_rq(io, number);
        }
    }

    /// Completes what is posted to a queue in error.
    pub(crate) fn flush_rq(&mut self, io: &mut Io<'_>, number: u32) {
        let Some(rq) = self.nic.rqs.get_mut(number) else {
            return;
        };
        let Ok(record) = io.read_be32(rq.ring.record()) else {
            return;
        };
        rq.posted = ReceiveRecord(record).counter();
        let cqn = rq.context.cqn();
        let strides = rq.strides();
        if let (Some(open), Some(strides)) = (rq.open.take(), strides) {
            let left = (open.index, (strides.number() - open.used) as u16);
            let used = open.used as u16;
            self.put_receive_error(io, number, used, Some(left), Syndrome::WorkRequestFlushed);
        }
        loop {
            let Some(rq) = self.nic.rqs.get_mut(number) else {
                return;
            };
            let left = rq.posted.wrapping_sub(rq.next);
            // A queue that cannot complete keeps what it has.
            let alive = self.cqs.get(cqn).is_some_and(|cq| cq.status == 0);
            if left == 0 || u32::from(left) > rq.entries() || !alive {
                return;
            }
            let index = if rq.cyclic() {
                rq.next
            } else {
                let link = rq.link;
                let mut next = [0; 4];
                let at = u64::from(link) * rq.stride();
                if u32::from(link) >= rq.entries() || rq.ring.read(io, at, &mut next).is_err() {
                    return;
                }
                rq.link = next_wqe(&next);
                link
            };
            rq.next = rq.next.wrapping_add(1);
            let strided = strides.map(|strides| (index, strides.number() as u16));
            let index = if strided.is_some() { 0 } else { index };
            self.put_receive_error(io, number, index, strided, Syndrome::WorkRequestFlushed);
        }
    }
}

/// Says which WQE of a striding queue it was.
pub(super) fn put_wqe(cqe: &mut [u8; SIZE], index: u16) {
    let mut word = WqeIdWord(0);
    word.set_wqe_id(index);
    word.write(cqe);
}

/// Says whether the headers that the completion speaks of are in a tunnel, and of which IP version that is.
fn put_tunnel(cqe: &mut [u8; SIZE], facts: &Facts) {
    if facts.inner.is_none() {
        return;
    }
    let mut word = WqeIdWord::read(cqe);
    word.set_tunneled(true);
    let outer = facts.parsed.network.map(|network| network.version);
    word.set_outer_ipv6(outer == Some(Version::V6));
    word.write(cqe);
}

/// The headers that there are, the inner ones in a tunnel, which were found right, and the tag if one was taken out.
fn headers(facts: &Facts) -> HeadersWord {
    const ACK: u8 = 0x10;
    let mut word = HeadersWord(0);
    word.set_l2_ok(true);
    word.set_l3_ok(facts.verdict.network_ok);
    word.set_l4_ok(facts.verdict.transport_ok);
    if let Some(tag) = facts.tag {
        word.set_vlan(true);
        word.set_vlan_info(tag);
    }
    let seen = facts.inner.as_ref().unwrap_or(&facts.parsed);
    let Some(network) = &seen.network else {
        return word;
    };
    word.set_l3_hdr_type(match network.version {
        Version::V6 => l3_header::IPV6,
        Version::V4 => l3_header::IPV4,
    });
    word.set_ip_frag(network.fragment);
    word.set_l4_hdr_type(match seen.transport {
        None => 0,
        Some(Transport::Udp { .. }) => l4_header::UDP,
        Some(Transport::Tcp { at, header, flags }) => {
            let data = at + header < network.end;
            match (flags & ACK != 0, data) {
                (false, _) => l4_header::TCP_NO_ACK,
                (true, false) => l4_header::TCP_ACK_NO_DATA,
                (true, true) => l4_header::TCP_ACK_AND_DATA,
            }
        }
    });
    word
}
