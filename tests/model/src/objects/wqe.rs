//! Work queue entries: what all kinds of queues find in them.

use crate::roce::env::{RecvWork, Segment};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    ControlWord, DataAddressWord, DataWord, SEGMENT_UNIT, SrqNextWord,
};

/// A WQE as it came through a register. Its length is a multiple of a burst's.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) index: u16,
    pub(crate) bytes: Vec<u8>,
}

/// The first word of a WQE.
pub(crate) fn control(wqe: &[u8]) -> ControlWord {
    wqe.first_chunk::<16>()
        .map_or(ControlWord(0), ControlWord::read)
}

/// The link at the start of a WQE of a linked list.
pub(crate) fn next_wqe(wqe: &[u8]) -> u16 {
    wqe.first_chunk::<4>()
        .map_or(0, |head| SrqNextWord::read(head).next_wqe_index())
}

/// The data segment that names memory.
pub(crate) fn memory(segment: &[u8; 16]) -> Segment {
    let data = DataWord::read(segment);
    Segment::Memory {
        lkey: data.lkey(),
        addr: DataAddressWord::read(segment).addr(),
        len: data.length(),
    }
}

/// The data segments of a receive WQE, up to its end or the terminator.
pub(crate) fn scatter_list(wqe: &[u8], terminator: u32, work: &mut RecvWork) {
    let (segments, _) = wqe.as_chunks::<SEGMENT_UNIT>();
    for segment in segments {
        if DataWord::read(segment).lkey() == terminator {
            break;
        }
        work.segments.push(memory(segment));
    }
}
