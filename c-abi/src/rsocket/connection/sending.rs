//! A stream sends bytes, and writes them into buffers that the other end has mapped.

use bareverbs_node::verbs::{RKey, Remote, SendData, SendOp};

use super::{Connection, DATA, End, Mapped};
use crate::process::failure::{Errno, Result};
use crate::rsocket::flow::Piece;
use crate::rsocket::options::MOST_INLINE;
use crate::rsocket::remaining::Remaining;
use crate::rsocket::wire::{MAPPING_LEN, Mapping, Message, TARGET_LEN, TARGETS, Target};

impl Connection {
    /// Sends as much as there are targets and room for, in as few messages as can be. What there is no credit for waits in the
    /// staging ring, and counts as sent.
    pub(in crate::rsocket) fn send(&mut self, bytes: &mut Remaining<'_>) -> Result<()> {
        self.send_waiting()?;
        if !self.tell_mappings()? {
            return Ok(());
        }
        while bytes.length() > 0 {
            let Some(piece) = self.outbound.take(bytes.length(), self.inline) else {
                break;
            };
            let mut left = piece.length as usize;
            if let Some(start) = piece.staged {
                let mut at = start;
                while left > 0 {
                    let part = bytes.next(left);
                    let from = at as usize;
                    self.staging.copy_in(from, part).map_err(|_| Errno::EIO)?;
                    (at, left) = (at + part.len() as u32, left - part.len());
                }
                if let Some(op) = data_op(&piece) {
                    self.post_staged(op, start, piece.length as usize)?;
                }
                continue;
            }
            let mut inline = [0; MOST_INLINE as usize];
            let inline = &mut inline[..left];
            let mut at = 0;
            while at < left {
                let part = bytes.next(left - at);
                inline[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            if let Some(op) = data_op(&piece) {
                self.post(DATA, op, SendData::Inline(inline))?;
            }
        }
        Ok(())
    }

    /// Sends what has waited for credits, as far as there are any.
    pub(super) fn send_waiting(&mut self) -> Result<()> {
        while self.end == End::Open
            && let Some(piece) = self.outbound.take_waiting()
        {
            if let (Some(op), Some(at)) = (data_op(&piece), piece.staged) {
                self.post_staged(op, at, piece.length as usize)?;
            }
        }
        Ok(())
    }

    /// Posts what is in the staging ring.
    fn post_staged(&mut self, op: SendOp<'_>, at: u32, length: usize) -> Result<()> {
        let sge = self.staging.sge(at as usize, length).ok_or(Errno::EIO)?;
        let wr_id = DATA | length as u64;
        self.post(wr_id, op, SendData::Sges(&[sge]))
    }

    /// Tells the other end which buffers were mapped since. `false` if that has to wait for credits.
    fn tell_mappings(&mut self) -> Result<bool> {
        let Some(peer) = self.peer else {
            return Ok(false);
        };
        while let Some(at) = self.mapped.iter().position(Mapped::waits) {
            let mapped = &self.mapped[at];
            let Some(index) = mapped.index else {
                break;
            };
            if !self.outbound.take_credit() {
                return Ok(false);
            }
            let mapping = Mapping {
                offset: mapped.offset,
                target: Target {
                    addr: mapped.region.addr(),
                    key: mapped.region.rkey().0,
                    length: u32::try_from(mapped.length).unwrap_or(u32::MAX),
                },
            };
            let to = Remote {
                addr: peer.mapping_at(index),
                rkey: RKey(peer.targets.key),
            };
            let bytes = mapping.to_bytes(peer.swap);
            let op = SendOp::WriteImm(to, Message::Mapping(index).to_immediate());
            self.post(DATA, op, SendData::Inline(&bytes))?;
            let mut mapped = self.mapped.remove(at);
            mapped.told = true;
            self.mapped.push(mapped);
        }
        Ok(true)
    }

    /// Writes into a buffer that the other end has mapped, as much as there is room for; how many bytes that were.
    /// `None` if no buffer has this offset.
    pub(in crate::rsocket) fn write_at(
        &mut self,
        bytes: &[u8],
        offset: u64,
    ) -> Result<Option<usize>> {
        if !self.tell_mappings()? {
            return Ok(Some(0));
        }
        let mut written = 0;
        while written < bytes.len() {
            let Some((mapping, addr, most)) = self.mapping(offset.wrapping_add(written as u64))?
            else {
                return Ok((written > 0).then_some(written));
            };
            let left = bytes.len() - written;
            let Some((length, staged)) = self.outbound.take_direct(left, most, self.inline) else {
                break;
            };
            let op = SendOp::Write(Remote {
                addr,
                rkey: RKey(mapping.target.key),
            });
            let length = length as usize;
            let part = &bytes[written..written + length];
            match staged {
                None => self.post(DATA, op, SendData::Inline(part))?,
                Some(at) => {
                    let to = at as usize;
                    self.staging.copy_in(to, part).map_err(|_| Errno::EIO)?;
                    self.post_staged(op, at, length)?;
                }
            }
            written += length;
        }
        Ok(Some(written))
    }

    /// The buffer of the other end that has this offset, where in it that is, and how much is left there.
    fn mapping(&self, offset: u64) -> Result<Option<(Mapping, u64, u32)>> {
        for index in 0..usize::from(self.mappings) {
            let mut bytes = [0; MAPPING_LEN];
            let at = TARGETS * TARGET_LEN + index * MAPPING_LEN;
            self.table
                .copy_out(at, &mut bytes)
                .map_err(|_| Errno::EIO)?;
            let mapping = Mapping::from_bytes(&bytes);
            if let Some((addr, left)) = mapping.find(offset) {
                return Ok(Some((mapping, addr, left)));
            }
        }
        Ok(None)
    }
}

/// The message that a piece goes in; `None` if it waits for a credit.
fn data_op(piece: &Piece) -> Option<SendOp<'static>> {
    let to = piece.to?;
    let at = Remote {
        addr: to.addr,
        rkey: RKey(to.key),
    };
    let message = Message::Data(piece.length);
    Some(SendOp::WriteImm(at, message.to_immediate()))
}
