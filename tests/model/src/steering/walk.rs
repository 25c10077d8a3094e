//! The way of a frame through the tables.

use super::group::{Destination, action};
use super::headers::Headers;
use super::matching;
use super::{Direction, Hit, Miss, Rewritten, Steering};
use crate::ethernet::frame::Start;

/// Tables that one frame may come through, with entries that send it to several.
pub(super) const WALK: u32 = 1024;

/// A step of a frame's walk that is still to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    table: u32,
    /// The tag that the frame has when it comes there.
    tag: u32,
    /// The index of the frame that it has become on the way.
    rewritten: Option<usize>,
}

/// The end of a frame's way through the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Tir(u32),
    Allowed,
    /// No entry took it, and misses of the table go nowhere.
    Missed,
    /// No entry took it, and misses of the table go to another domain.
    Switched,
}

/// The fate of a RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Dropped,
    /// It is for Ethernet's tables.
    Switched,
}

impl Steering {
    /// Finds the TIRs that a received frame goes to, none if it is dropped; counts it on the way.
    pub(crate) fn classify(&mut self, frame: &[u8], inside: Option<Start>, hits: &mut Vec<Hit>) {
        hits.clear();
        self.rewritten.clear();
        let Some(start) = self.start(Direction::Receive) else {
            return;
        };
        self.walk(start, frame, inside, None, |end, flow_tag, rewritten| {
            if let End::Tir(tir) = end {
                hits.push(Hit {
                    tir,
                    flow_tag,
                    rewritten,
                });
            }
        });
    }

    /// Returns `true` if a frame is sent; the frame is replaced by what the tables made of it. Counts it on the way. `inside`
    /// finds the start of the packet within a tunnel's.
    pub(crate) fn transmit(
        &mut self,
        frame: &mut Vec<u8>,
        inside: impl FnOnce(&[u8]) -> Option<Start>,
    ) -> bool {
        let Some(start) = self.start(Direction::Transmit) else {
            return true;
        };
        self.rewritten.clear();
        let mut sent = None;
        let inside = inside(frame);
        self.walk(start, frame, inside, None, |_, _, rewritten| {
            sent = Some(rewritten)
        });
        if let Some(nth) = sent.flatten() {
            *frame = self.rewritten.swap_remove(nth).frame;
        }
        sent.is_some()
    }

    /// Decides on a RoCE packet before its QP is looked for; counts it on the way.
    #[inline]
    pub(crate) fn rdma_received(&mut self, frame: &[u8]) -> Verdict {
        // Mostly there are no tables, and every packet asks.
        match self.levels[Direction::RdmaReceive as usize].is_empty() {
            true => Verdict::Passed,
            false => self.through_rdma(Direction::RdmaReceive, frame, 0).0,
        }
    }

    /// Returns `true` if a RoCE packet is sent that a QP has made, as what it has become then; counts it on the way.
    #[inline]
    pub(crate) fn rdma_sent(&mut self, frame: &mut Vec<u8>, qpn: u32) -> bool {
        match self.levels[Direction::RdmaTransmit as usize].is_empty() {
            true => true,
            false => self.change_sent(frame, qpn),
        }
    }

    #[inline(never)]
    fn change_sent(&mut self, frame: &mut Vec<u8>, qpn: u32) -> bool {
        let (verdict, rewritten) = self.through_rdma(Direction::RdmaTransmit, frame, qpn);
        if let Some(nth) = rewritten {
            *frame = self.rewritten.swap_remove(nth).frame;
        }
        verdict == Verdict::Passed
    }

    /// Decides on a packet, and names the element of [`Steering::rewritten`] that it is then.
    #[inline(never)]
    fn through_rdma(
        &mut self,
        direction: Direction,
        frame: &[u8],
        qpn: u32,
    ) -> (Verdict, Option<usize>) {
        let Some(start) = self.start(direction) else {
            return (Verdict::Passed, None);
        };
        self.rewritten.clear();
        let mut outcome = (Verdict::Dropped, None);
        self.walk(start, frame, None, Some(qpn), |end, _, rewritten| {
            let verdict = match end {
                End::Switched => Verdict::Switched,
                End::Allowed | End::Missed | End::Tir(_) => Verdict::Passed,
            };
            outcome = (verdict, rewritten);
        });
        outcome
    }

    /// Takes a frame through the tables from one on. `inside` is where the packet starts that is inside of a tunnel's; `qpn` is
    /// RDMA's only, and the QP that sends; `end` is called with how each way ends that no entry closes, the frame's tag then,
    /// and what it has become.
    fn walk(
        &mut self,
        start: u32,
        frame: &[u8],
        inside: Option<Start>,
        qpn: Option<u32>,
        mut end: impl FnMut(End, u32, Option<usize>),
    ) {
        let Some(headers) = Headers::parse(frame) else {
            return;
        };
        // Of what is inside nothing is ever changed, so that it need not be looked at again.
        let inner = inside.and_then(|start| Headers::parse_inner(frame, start));
        let mut fields = matching::of_frame(&headers, inner.as_ref());
        if let Some(qpn) = qpn {
            matching::add_transport(&mut fields, frame, &headers, qpn);
        }
        self.steps.clear();
        self.steps.push(Step {
            table: start,
            tag: 0,
            rewritten: None,
        });
        let mut left = WALK;
        while let Some(step) = self.steps.pop() {
            let Some(table) = self.tables.get(step.table) else {
                continue;
            };
            if left == 0 {
                log::warn!(
                    "a frame came through {WALK} flow tables and is not followed any further"
                );
                return;
            }
            left -= 1;
            let fields = step
                .rewritten
                .and_then(|nth| self.rewritten.get(nth))
                .map_or(&fields, |rewritten| &rewritten.fields);
            let groups = table
                .groups
                .values()
                .filter_map(|&group| self.groups.get(group));
            let Some(entry) = groups
                .filter_map(|group| group.find(fields, &mut self.key))
                .next()
            else {
                match table.miss {
                    Miss::Table(table) => self.steps.push(Step { table, ..step }),
                    Miss::Default => end(End::Missed, step.tag, step.rewritten),
                    Miss::SwitchDomain => end(End::Switched, step.tag, step.rewritten),
                }
                continue;
            };
            for &counter in &entry.counters {
                if let Some(traffic) = self.counters.get(counter) {
                    traffic.packets += 1;
                    traffic.octets += frame.len() as u64;
                }
            }
            let tag = if entry.flow_tag != 0 {
                entry.flow_tag
            } else {
                step.tag
            };
            let rewrite = entry.rewrite.and_then(|number| self.rewrites.get(number));
            let rewritten = match rewrite {
                Some(rewrite) => {
                    let before = step.rewritten.and_then(|nth| self.rewritten.get(nth));
                    let mut frame = before
                        .map_or(frame, |before| before.frame.as_slice())
                        .to_vec();
                    if let Some(headers) = Headers::parse(&frame) {
                        rewrite.apply(&mut frame, &headers);
                    }
                    let headers = Headers::parse(&frame).unwrap_or(headers);
                    let mut fields = matching::of_frame(&headers, inner.as_ref());
                    if let Some(qpn) = qpn {
                        matching::add_transport(&mut fields, &frame, &headers, qpn);
                    }
                    self.rewritten.push(Rewritten { frame, fields });
                    Some(self.rewritten.len() - 1)
                }
                None => step.rewritten,
            };
            if entry.action & action::ALLOW != 0 {
                end(End::Allowed, tag, rewritten);
            }
            let first = self.steps.len();
            for &destination in &entry.destinations {
                match destination {
                    Destination::Tir(tir) => end(End::Tir(tir), tag, rewritten),
                    Destination::Table(table) => self.steps.push(Step {
                        table,
                        tag,
                        rewritten,
                    }),
                }
            }
            self.steps[first..].reverse();
        }
    }
}
