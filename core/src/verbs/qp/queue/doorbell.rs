//! The doorbell of a send queue, by 8 bytes or by BlueFlame.

use crate::memory::send_ring::Cursor;
use crate::platform::Platform;
use crate::verbs::qp::queue::send::SendQueue;
use crate::verbs::qp::route::service::QpType;
use bareverbs_firmware_cmds::doorbell;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::ControlWord;

/// The other doorbell register: BlueFlame registers come in pairs of 256 bytes.
const DOORBELL_FLIP: u32 = doorbell::SEND_TOGGLE as u32;

impl<P: Platform, T: QpType> SendQueue<'_, P, T> {
    /// Gives the device all work requests before `head`, whose WQEs end at `cursor`; `last` is the last one's first word, as
    /// it lies in memory. `single` says that there is only one.
    #[inline(always)]
    pub(in crate::verbs::qp) fn ring_for(
        &mut self,
        cursor: Cursor,
        head: u32,
        last: u64,
        single: bool,
    ) {
        if P::WRITE_COMBINING && single {
            self.ring_single(cursor, head, last);
        } else if P::WRITE_COMBINING {
            self.ring_list(cursor, head, last);
        } else {
            self.give(cursor, head);
            self.write_doorbell(last);
        }
    }

    /// Counts what ends at `cursor` and `head` in the doorbell record.
    #[inline(always)]
    fn give(&mut self, cursor: Cursor, head: u32) {
        self.cursor = cursor;
        self.head = head;
        self.record.post(cursor.record());
    }

    /// The doorbell of 8 bytes on an uncached page.
    #[inline(always)]
    fn write_doorbell(&self, last: u64) {
        let platform = self.device.platform();
        platform.write_be64(self.doorbell as usize, ControlWord::from_memory(last).0);
    }

    /// As [`ring_for`](Self::ring_for) for a single work request where a page may be write-combining: one that fits goes there
    /// itself.
    // Out of line: with it the batch would be kept in memory until it is dropped.
    #[inline(never)]
    fn ring_single(&mut self, cursor: Cursor, head: u32, last: u64) {
        let (first, bytes) = (self.cursor, cursor.bytes_from(self.cursor));
        self.give(cursor, head);
        let (platform, register) = (self.device.platform(), &self.device.blue_flame);
        // A WQE has at least a block, so that this is never so on an uncached page.
        if bytes <= self.blue_flame && register.write(platform, &self.ring, first, bytes) {
            return;
        }
        self.write_any_doorbell(last);
    }

    /// The same for a list. Of one the device has to fetch all but one anyway.
    #[inline(never)]
    fn ring_list(&mut self, cursor: Cursor, head: u32, last: u64) {
        self.give(cursor, head);
        self.write_any_doorbell(last);
    }

    /// The doorbell of 8 bytes on a page that may be write-combining.
    #[cold]
    #[inline(never)]
    fn write_any_doorbell(&mut self, last: u64) {
        if self.blue_flame == 0 {
            return self.write_doorbell(last);
        }
        let platform = self.device.platform();
        platform.write_combining(self.doorbell as usize, &[last]);
        self.doorbell ^= DOORBELL_FLIP;
    }
}
