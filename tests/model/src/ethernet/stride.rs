//! Striding receive queues: a WQE names room for many frames, each of which starts at a stride.
//!
//! The rules are those that the vendor's driver counts by (`mlx5e_handle_rx_cqe_mpwrq` of Linux, `mlx5_rx_burst_mprq` of
//! DPDK): frames fill a WQE in order, none goes over its end, and strides that stay unused at the end are said to be so by
//! a completion without a frame. The WQE is used up when all its strides are.

use super::queue::{OpenWqe, Strides};
use super::receive::{Outcome, put_wqe};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::cqe::entry;
use crate::roce::env::{RecvWork, Syndrome};
use bareverbs_firmware_cmds::cqe::{ByteCountWord, Opcode};
use bareverbs_firmware_cmds::word::Word;

impl Device {
    /// Writes a frame to the next free strides.
    pub(super) fn place_strided(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        strides: Strides,
        data: &[u8],
        work: &mut RecvWork,
    ) -> Outcome {
        let wanted = data.len().div_ceil(strides.size()) as u32;
        let Some(rq) = self.nic.rqs.get_mut(number) else {
            return Outcome::NoBuffer;
        };
        // What cannot go into any WQE costs the one that it comes to.
        let fits = wanted <= strides.number();
        if fits
            && let Some(open) = rq
                .open
                .take_if(|open| open.used + wanted > strides.number())
        {
            self.put_filler(io, number, strides, &open);
        }
        let open = self.nic.rqs.get_mut(number).and_then(|rq| rq.open.take());
        let mut open = match open {
            Some(open) => open,
            None => match self.fetch_buffer(io, number, work) {
                Ok(true) => OpenWqe {
                    index: work.index,
                    used: 0,
                    segments: core::mem::take(&mut work.segments),
                },
                Ok(false) => return Outcome::NoBuffer,
                Err(syndrome) => {
                    return Outcome::Failed {
                        index: 0,
                        strided: Some((work.index, strides.number() as u16)),
                        syndrome,
                    };
                }
            },
        };
        let first = open.used;
        let written = if fits {
            let at = first as usize * strides.size();
            self.scatter(io, number, &open.segments, at, data)
        } else {
            Err(Syndrome::LocalLength)
        };
        match written {
            Ok(()) => {
                open.used += wanted;
                let strided = Some((open.index, wanted as u16));
                if open.used < strides.number()
                    && let Some(rq) = self.nic.rqs.get_mut(number)
                {
                    rq.open = Some(open);
                }
                Outcome::Done {
                    index: first as u16,
                    strided,
                }
            }
            Err(syndrome) => Outcome::Failed {
                index: first as u16,
                strided: Some((open.index, (strides.number() - first) as u16)),
                syndrome,
            },
        }
    }

    /// Says that the rest of a WQE stays unused.
    fn put_filler(&mut self, io: &mut Io<'_>, number: u32, strides: Strides, open: &OpenWqe) {
        let Some(rq) = self.nic.rqs.get(number) else {
            return;
        };
        let (cqn, user_index) = (rq.context.cqn(), rq.context.user_index());
        let mut cqe = entry(Opcode::ResponderSend, user_index, 0, 0, open.used as u16);
        put_wqe(&mut cqe, open.index);
        let mut count = ByteCountWord(0);
        count.set_filler(true);
        count.set_consumed_strides((strides.number() - open.used) as u16);
        count.write(&mut cqe);
        if self.complete(io, cqn, &mut cqe, false).is_err() {
            self.fail_rq(io, number);
        }
    }
}
