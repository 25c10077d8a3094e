//! BlueFlame: WQEs that are written into a doorbell register, which spares the card the fetch.
//!
//! What the card guarantees, as far as the vendor's driver relies on it (its test of write combining, `mlx5_ib_test_wc` and
//! `wc.c`, writes WQEs into the register that differ from those in memory, and concludes from the completions which
//! ones were executed):
//!
//! * A WQE that comes in bursts of 64 bytes, from the start of a register's buffer on, is executed as it came. That in
//!   memory is not read.
//! * Anything else is a doorbell, if it has the first eight bytes: the eight small writes that an uncached page makes of a
//!   burst, a burst whose successors stay out or come in another order, a WQE longer than the buffer. The WQE is fetched.
//! * So is one that is not the next to be executed. It may be late, or early.

use crate::bus::bar;
use crate::bus::front::{BURST, PartialWqe};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::wqe::Written;
use core::time::Duration;

/// The time that the card waits for the next burst of a WQE.
const TIMEOUT: Duration = Duration::from_micros(1);

impl Device {
    /// A write to the registers of a page, `at` bytes into it, by the bus at once. `space`: from the start of a buffer
    /// to its end, if that is where it is. Whether it was part of a WQE.
    #[inline(never)]
    pub(crate) fn blue_flame_write(
        &mut self,
        io: &mut Io<'_>,
        uar: u32,
        at: u64,
        data: &[u8],
        space: Option<usize>,
    ) -> bool {
        let whole = data.len() == BURST && self.caps.general.bf();
        match self.front.as_mut().and_then(|front| front.partial.take()) {
            Some(mut partial) if whole && (partial.uar, partial.next) == (uar, at) => {
                partial.bytes.extend_from_slice(data);
                partial.next += BURST as u64;
                partial.until = self.now + self.burst_timeout();
                self.continue_wqe(io, partial);
                return true;
            }
            Some(partial) => self.abandon_wqe(io, &partial),
            None => {}
        }
        let Some(space) = space.filter(|_| whole) else {
            return false;
        };
        let partial = PartialWqe {
            uar,
            next: at + BURST as u64,
            bytes: data.to_vec(),
            until: self.now + self.burst_timeout(),
        };
        if partial.len() > space {
            return false;
        }
        self.continue_wqe(io, partial);
        true
    }

    /// Where bursts are put together they come as slowly as that takes.
    fn burst_timeout(&self) -> Duration {
        self.config.combining.map_or(TIMEOUT, |time| TIMEOUT + time)
    }

    /// The rest did not come: a doorbell.
    fn abandon_wqe(&mut self, io: &mut Io<'_>, partial: &PartialWqe) {
        self.stats.blue_flame_missed += 1;
        self.send_doorbell(io, partial.uar, partial.control());
    }

    /// Passes on what has waited until its timeout.
    #[inline(never)]
    pub(crate) fn front_late(&mut self, io: &mut Io<'_>) {
        let now = self.now;
        let Some(front) = &mut self.front else {
            return;
        };
        let writes = front.combiner.as_mut().map(|combiner| combiner.late(now));
        for (offset, data) in writes.into_iter().flatten() {
            bar::write(self, io, offset, &data);
        }
        let partial = self.front.as_mut().and_then(|front| {
            let late = |partial: &mut PartialWqe| partial.until <= now;
            front.partial.take_if(late)
        });
        if let Some(partial) = partial {
            self.abandon_wqe(io, &partial);
        }
    }

    fn continue_wqe(&mut self, io: &mut Io<'_>, partial: PartialWqe) {
        if partial.bytes.len() < partial.len() {
            if let Some(front) = &mut self.front {
                front.partial = Some(partial);
            }
            return;
        }
        let (uar, control) = (partial.uar, partial.control());
        self.send_doorbell(io, uar, control);
        let (number, index) = (control.qpn(), control.wqe_index());
        let bytes = partial.bytes;
        let written = Some(Box::new(Written { index, bytes }));
        if let Some(sq) = self.nic.sqs.get_mut(number)
            && sq.context.wq().uar_page() == uar
            && sq.next == index
        {
            sq.written = written;
        } else if let Some(qp) = self.qps.get_mut(number)
            && qp.context.uar_page() == uar
            && qp.sq_next == index
        {
            qp.written = written;
        } else {
            self.stats.blue_flame_missed += 1;
        }
    }
}
