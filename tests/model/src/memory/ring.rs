//! A queue in the host's memory, given as a list of page addresses or as a part of user memory.

use crate::bus::io::Io;
use crate::host::IommuFault;
use crate::objects::umem::Umem;

/// A byte range scattered over pages, and the doorbell record that goes with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ring {
    pages: Vec<u64>,
    log_page: u32,
    offset: u64,
    len: u64,
    /// The accesses to user memory that the device is denied.
    unreadable: bool,
    unwritable: bool,
    record: u64,
    /// The user memory of the queue and of the record.
    umems: [Option<u32>; 2],
}

/// Why a page list does not describe the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingError {
    /// The list is shorter than the queue.
    Short,
    /// The page size is beyond what addresses can say.
    PageSize,
    /// A page of the list does not start at a multiple of the page size, or has bits set below 4 KiB, which are reserved.
    Unaligned,
    /// It is in user memory that there is not.
    Umem,
    /// It reaches over the end of its user memory.
    Range,
}

impl Ring {
    /// A queue of `len` bytes in the pages of `list` (big-endian addresses of whole pages, `mlx5_ifc` structure `cmd_pas`);
    /// `log_page_size` counts from 4 KiB, `page_offset` in 64ths of a page.
    pub(crate) fn new(
        list: &[u8],
        log_page_size: u8,
        page_offset: u8,
        len: u64,
    ) -> Result<Self, RingError> {
        let log_page = u32::from(log_page_size) + 12;
        if log_page > 43 {
            return Err(RingError::PageSize);
        }
        let offset = u64::from(page_offset) * ((1 << log_page) / 64);
        let needed = (offset + len).div_ceil(1 << log_page);
        if ((list.len() / 8) as u64) < needed {
            return Err(RingError::Short);
        }
        let pages: Vec<u64> = list
            .chunks_exact(8)
            .take(needed as usize)
            .map(|entry| {
                entry
                    .iter()
                    .fold(0, |all, &byte| all << 8 | u64::from(byte))
            })
            .collect();
        if pages.iter().any(|page| !page.is_multiple_of(1 << log_page)) {
            return Err(RingError::Unaligned);
        }
        Ok(Self {
            pages,
            log_page,
            offset,
            len,
            ..Self::default()
        })
    }

    /// A queue of `len` bytes in user memory, from `offset` on; `None` if it reaches over its end.
    pub(crate) fn over(id: u32, umem: &Umem, offset: u64, len: u64) -> Option<Self> {
        umem.has(offset, len).then(|| Self {
            pages: umem.pages.clone(),
            log_page: umem.log_page,
            offset: umem.offset + offset,
            len,
            unreadable: !umem.readable,
            unwritable: !umem.writable,
            record: 0,
            umems: [Some(id), None],
        })
    }

    /// The same queue with a doorbell record at an address, which is in user memory or not.
    pub(crate) fn with_record(mut self, address: u64, umem: Option<u32>) -> Self {
        self.record = address;
        self.umems[1] = umem;
        self
    }

    /// The same queue with the doorbell record of another one.
    pub(crate) fn with_record_of(self, other: &Self) -> Self {
        self.with_record(other.record, other.umems[1])
    }

    /// The address of the doorbell record.
    pub(crate) fn record(&self) -> u64 {
        self.record
    }

    /// The user memory that this uses.
    pub(crate) fn umems(&self) -> [Option<u32>; 2] {
        self.umems
    }

    /// The page list, as the query commands give it back. User memory has none.
    pub(crate) fn pages(&self) -> &[u64] {
        if self.umems[0].is_some() {
            return &[];
        }
        &self.pages
    }

    /// The address of a byte of the queue, and how many of `len` bytes from there on lie in its page.
    fn piece(&self, at: u64, len: usize) -> (u64, usize) {
        let page = 1u64 << self.log_page;
        let position = self.offset + at;
        let inside = position & (page - 1);
        let run = usize::try_from(page - inside).unwrap_or(usize::MAX);
        let base = self.pages.get((position >> self.log_page) as usize);
        // Beyond the list there is no address at all; all-ones faults in any host.
        let address = base.map_or(u64::MAX, |base| base.wrapping_add(inside));
        (address, run.min(len))
    }

    /// Reads at `at`, wrapping at the end of the queue.
    pub(crate) fn read(
        &self,
        io: &mut Io<'_>,
        mut at: u64,
        mut data: &mut [u8],
    ) -> Result<(), IommuFault> {
        if self.len == 0 || self.unreadable {
            return io.read(u64::MAX, data);
        }
        while !data.is_empty() {
            if at >= self.len {
                at = 0;
            }
            let left = usize::try_from(self.len - at).unwrap_or(usize::MAX);
            let (address, run) = self.piece(at, data.len().min(left));
            let (head, rest) = data.split_at_mut(run);
            io.read(address, head)?;
            at += run as u64;
            data = rest;
        }
        Ok(())
    }

    /// Writes at `at`; the entry must not reach over the end.
    pub(crate) fn write(&self, io: &mut Io<'_>, at: u64, data: &[u8]) -> Result<(), IommuFault> {
        if self.unwritable {
            return io.write(u64::MAX, data);
        }
        let mut done = 0;
        while done < data.len() {
            let (address, run) = self.piece(at + done as u64, data.len() - done);
            io.write(address, &data[done..done + run])?;
            done += run;
        }
        Ok(())
    }
}
