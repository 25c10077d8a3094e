//! BlueFlame: WQEs that are written into a doorbell register, which spares the card the fetch.
//!
//! What the card promises, as far as the vendor's driver relies on it (its test of write combining, `mlx5_ib_test_wc` and
//! `wc.c`, writes WQEs into the register that differ from those in memory, and concludes from the completions which
//! ones were executed):
//!
//! * A WQE that comes in bursts of 64 bytes, from the start of a register's buffer on, is executed as it came. That in
//!   memory is not looked at.
//! * Anything else is a doorbell, if it has the first eight bytes: the eight small writes that an uncached page makes of a
//!   burst, a burst whose successors stay out or come in another order, a WQE longer than the buffer. The WQE is fetched.
//! * So is one that is not the next to be executed. It may be late, or early.

use crate::bus::bar;
use crate::bus::front::{BURST, Begun};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::wqe::Written;
use core::time::Duration;

/// How long the card waits for the next burst of a WQE.
const PATIENCE: Duration = Duration::from_micros(1);

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
        match self.front.as_mut().and_then(|front| front.begun.take()) {
            Some(mut begun) if whole && (begun.uar, begun.next) == (uar, at) => {
                begun.bytes.extend_from_slice(data);
                begun.next += BURST as u64;
                begun.until = self.now + self.burst_patience();
                self.go_on(io, begun);
                return true;
            }
            Some(begun) => self.give_up(io, &begun),
            None => {}
        }
        let Some(space) = space.filter(|_| whole) else {
            return false;
        };
        let begun = Begun {
            uar,
            next: at + BURST as u64,
            bytes: data.to_vec(),
            until: self.now + self.burst_patience(),
        };
        if begun.len() > space {
            return false;
        }
        self.go_on(io, begun);
        true
    }

    /// Where bursts are put together they come as slowly as that takes.
    fn burst_patience(&self) -> Duration {
        self.config
            .combining
            .map_or(PATIENCE, |time| PATIENCE + time)
    }

    /// The rest did not come: a doorbell.
    fn give_up(&mut self, io: &mut Io<'_>, begun: &Begun) {
        self.stats.blue_flame_missed += 1;
        self.send_doorbell(io, begun.uar, begun.control());
    }

    /// Passes on what has waited for long enough.
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
        let begun = self.front.as_mut().and_then(|front| {
            let late = |begun: &mut Begun| begun.until <= now;
            front.begun.take_if(late)
        });
        if let Some(begun) = begun {
            self.give_up(io, &begun);
        }
    }

    fn go_on(&mut self, io: &mut Io<'_>, begun: Begun) {
        if begun.bytes.len() < begun.len() {
            if let Some(front) = &mut self.front {
                front.begun = Some(begun);
            }
            return;
        }
        let (uar, control) = (begun.uar, begun.control());
        self.send_doorbell(io, uar, control);
        let (number, index) = (control.qpn(), control.wqe_index());
        let bytes = begun.bytes;
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
