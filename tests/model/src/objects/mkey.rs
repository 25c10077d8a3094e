//! Memory keys: what a key gives access to, and of what its addresses are made.

use crate::memory::pages::Place;
use crate::roce::env::{AccessError, RemoteRight};
use bareverbs_firmware_cmds::mkey::Mkc;
use bareverbs_firmware_cmds::values::MkeyAccessMode;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    KlmAddressWord, KlmWord, RepeatAddressWord, RepeatBlockWord, RepeatCountWord, RepeatEntryWord,
    umr,
};

/// An entry of an indirect key's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Indirect {
    /// Meaningless if all entries are of one size.
    pub(crate) len: u32,
    pub(crate) key: u32,
    pub(crate) addr: u64,
}

impl Indirect {
    pub(crate) const ZERO: Self = Self {
        len: 0,
        key: 0,
        addr: 0,
    };

    pub(crate) fn from_bytes(entry: &[u8; 16]) -> Self {
        let klm = KlmWord::read(entry);
        Self {
            len: klm.bcount(),
            key: klm.key(),
            addr: KlmAddressWord::read(entry).va(),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut entry = [0; 16];
        let mut klm = KlmWord(0);
        klm.set_bcount(self.len);
        klm.set_key(self.key);
        klm.write(&mut entry);
        KlmAddressWord(self.addr).write(&mut entry);
        entry
    }
}

/// A strided pattern in a list: the entries behind its head, which are taken again and again.
struct Pattern<'a> {
    /// Bytes of one repetition.
    round: u64,
    repetitions: u64,
    entries: &'a [Indirect],
}

impl<'a> Pattern<'a> {
    /// The pattern that a list begins with, if it does. One that the list is too short for, or whose head says another
    /// length than its entries have, is none that can be used.
    fn at(list: &'a [Indirect]) -> Option<Result<Self, AccessError>> {
        let (head, rest) = list.split_first()?;
        if head.key != umr::REPEAT {
            return None;
        }
        let head = head.to_bytes();
        let count = RepeatCountWord::read(&head);
        let pattern = rest
            .get(..usize::from(count.num_ent()))
            .map(|entries| Self {
                round: entries.iter().map(|e| e.repeated().0).sum(),
                repetitions: count.repeat_count().into(),
                entries,
            })
            .filter(|this| this.round == u64::from(RepeatBlockWord::read(&head).byte_count()));
        Some(pattern.ok_or(AccessError::Range))
    }

    fn len(&self) -> u64 {
        self.round * self.repetitions
    }

    /// The piece that has byte `skip`, which is inside: its key, the byte's address, and how many bytes follow.
    fn piece(&self, skip: u64) -> Option<(u32, u64, u64)> {
        let (repetition, mut skip) = (skip / self.round, skip % self.round);
        for entry in self.entries {
            let (len, stride) = entry.repeated();
            if skip < len {
                let from = entry.addr.wrapping_add(repetition.wrapping_mul(stride));
                return Some((entry.key, from.wrapping_add(skip), len - skip));
            }
            skip -= len;
        }
        None
    }
}

impl Indirect {
    /// As an entry of a strided pattern: bytes of each repetition, and from one to the next.
    fn repeated(&self) -> (u64, u64) {
        let bytes = self.to_bytes();
        let word = RepeatEntryWord::read(&bytes);
        debug_assert_eq!(RepeatAddressWord::read(&bytes).va(), self.addr);
        (word.byte_count().into(), word.stride().into())
    }
}

/// Returns `true` if the strided patterns in a list are whole and agree with themselves.
pub(crate) fn patterns_agree(mut list: &[Indirect]) -> bool {
    while let [_, rest @ ..] = list {
        list = match Pattern::at(list) {
            None => rest,
            Some(Ok(pattern)) => &rest[pattern.entries.len()..],
            Some(Err(_)) => return false,
        };
    }
    true
}

/// The rights that an access needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    Atomic,
}

impl From<RemoteRight> for Right {
    fn from(right: RemoteRight) -> Self {
        match right {
            RemoteRight::Read => Self::RemoteRead,
            RemoteRight::Write => Self::RemoteWrite,
            RemoteRight::Atomic => Self::Atomic,
        }
    }
}

/// A memory key.
#[derive(Debug)]
pub(crate) struct Mkey {
    pub(crate) context: Mkc,
    pub(crate) mode: MkeyAccessMode,
    /// Host addresses of the pages, low bits cleared; the two access bits of each entry in `page_rights`.
    pub(crate) pages: Vec<u64>,
    /// With page access: bit 0 read, bit 1 write, one per page; empty without.
    pub(crate) page_rights: Vec<u8>,
    /// The list of an indirect key.
    pub(crate) entries: Vec<Indirect>,
    /// Invalidated by the peer or never validated.
    pub(crate) free: bool,
    /// The user memory that it lies in, if in any.
    pub(crate) umem: Option<u32>,
    pub(crate) place: Place,
}

/// The owner of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accessor {
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
    /// `true` if the QP may use the reserved key (`rlky`).
    pub(crate) reserved_key: bool,
}

/// The reserved key, which kernels use for memory by its bus address.
pub(crate) const RESERVED_LKEY: u32 = 0x0000_0700;

/// The key of a null region, which is no key in the table.
pub(crate) const DUMP_FILL_MKEY: u32 = 0x0000_0500;

impl Mkey {
    fn start(&self) -> u64 {
        // Device memory has its place there, and addresses from 0 on.
        match self.mode {
            MkeyAccessMode::Memic => 0,
            _ => self.context.start_addr(),
        }
    }

    /// Checks everything but the translation.
    pub(crate) fn check(
        &self,
        key: u32,
        who: Accessor,
        addr: u64,
        len: u64,
        right: Right,
    ) -> Result<(), AccessError> {
        let context = &self.context;
        if context.mkey_7_0() != key as u8 || self.free {
            return Err(AccessError::Key);
        }
        if context.pd() != who.pd
            || !matches!(context.qpn(), qpn if qpn == 0xff_ffff || qpn == who.qpn)
        {
            return Err(AccessError::Domain);
        }
        let granted = match right {
            Right::LocalRead => context.lr(),
            Right::LocalWrite => context.lw(),
            Right::RemoteRead => context.rr(),
            Right::RemoteWrite => context.rw(),
            Right::Atomic => context.a(),
        };
        if !granted {
            return Err(AccessError::Rights);
        }
        addr.checked_add(len).ok_or(AccessError::Range)?;
        let inside = || {
            let offset = addr.checked_sub(self.start())?;
            Some(offset.checked_add(len)? <= context.len())
        };
        if context.length64() || inside() == Some(true) {
            Ok(())
        } else {
            Err(AccessError::Range)
        }
    }

    pub(crate) fn indirect(&self) -> bool {
        matches!(self.mode, MkeyAccessMode::Klms | MkeyAccessMode::Ksm)
    }

    /// Walks over the host addresses of a range that was checked.
    pub(crate) fn pages(
        &self,
        addr: u64,
        len: usize,
        write: bool,
        mut each: impl FnMut(u64, core::ops::Range<usize>) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        if self.mode == MkeyAccessMode::Pa {
            return each(addr, 0..len);
        }
        let log_page = self.context.log_page_size();
        let page = 1u64 << log_page;
        let base = self.start() & !(page - 1);
        let mut done = 0;
        while done < len {
            let offset = addr.wrapping_add(done as u64).wrapping_sub(base);
            let index = usize::try_from(offset >> log_page).map_err(|_| AccessError::Range)?;
            let inside = offset & (page - 1);
            let run = usize::try_from(page - inside)
                .unwrap_or(usize::MAX)
                .min(len - done);
            let host = *self.pages.get(index).ok_or(AccessError::Range)?;
            if let Some(&rights) = self.page_rights.get(index)
                && rights & (1 << u8::from(write)) == 0
            {
                return Err(AccessError::Rights);
            }
            each(host.wrapping_add(inside), done..done + run)?;
            done += run;
        }
        Ok(())
    }

    /// Walks over the pieces of other keys that a range of an indirect key is made of: key, address, and which part.
    pub(crate) fn parts(
        &self,
        addr: u64,
        len: u64,
        mut each: impl FnMut(u32, u64, core::ops::Range<u64>) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let fixed =
            (self.mode == MkeyAccessMode::Ksm).then(|| 1u64 << self.context.log_page_size());
        let base = match fixed {
            Some(size) => self.start() & !(size - 1),
            None => self.start(),
        };
        let mut skip = addr.wrapping_sub(base);
        let mut done = 0;
        let mut list = &self.entries[..];
        while let [entry, rest @ ..] = list {
            if done == len {
                break;
            }
            let pattern = match fixed {
                None => Pattern::at(list).transpose()?,
                Some(_) => None,
            };
            list = rest;
            if let Some(pattern) = pattern {
                list = &rest[pattern.entries.len()..];
                if skip >= pattern.len() {
                    skip -= pattern.len();
                    continue;
                }
                while done < len && skip < pattern.len() {
                    let (key, addr, run) = pattern.piece(skip).ok_or(AccessError::Range)?;
                    let run = run.min(len - done);
                    each(key, addr, done..done + run)?;
                    done += run;
                    skip += run;
                }
                skip = 0;
                continue;
            }
            // Lists are padded with entries of no length.
            let size = fixed.unwrap_or(u64::from(entry.len));
            if skip >= size {
                skip -= size;
                continue;
            }
            let run = (size - skip).min(len - done);
            each(entry.key, entry.addr.wrapping_add(skip), done..done + run)?;
            skip = 0;
            done += run;
        }
        if done == len {
            Ok(())
        } else {
            Err(AccessError::Range)
        }
    }
}
