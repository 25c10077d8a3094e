//! UMR work requests: changing a memory key from the send queue. Fast registration and local invalidation are made of it.

use crate::device::{Device, ObjectKind};
use crate::io::Io;
use crate::mkey::{Accessor, Indirect, MODE_KLM, MODE_KSM, MODE_MTT, Mkey, Right};
use crate::qp::service;
use crate::roce::env::Syndrome;
use bareverbs_firmware_cmds::mkey::Mkc;
use zerocopy::FromBytes;

const CONTROL: usize = 16;
const CONTEXT: usize = 64;
const LIST: usize = 128;

const INLINE: u8 = 0x80;
const OFFSET: u8 = 0x10;
const CHECK_QP: u8 = 0x08;

/// Lists are kept, and sent, in multiples of this many octowords.
const LIST_UNIT: usize = 4;
const ANY_QP: u32 = 0xff_ffff;

/// What of the context a request sets.
mod mask {
    pub(super) const LEN: u64 = 1 << 0;
    pub(super) const PAGE_SIZE: u64 = 1 << 1;
    pub(super) const START: u64 = 1 << 6;
    pub(super) const PD: u64 = 1 << 7;
    pub(super) const REMOTE_INVALIDATE: u64 = 1 << 8;
    pub(super) const KEY: u64 = 1 << 13;
    pub(super) const QPN: u64 = 1 << 14;
    pub(super) const LOCAL_READ: u64 = 1 << 17;
    pub(super) const LOCAL_WRITE: u64 = 1 << 18;
    pub(super) const REMOTE_READ: u64 = 1 << 19;
    pub(super) const REMOTE_WRITE: u64 = 1 << 20;
    pub(super) const ATOMIC: u64 = 1 << 21;
    pub(super) const FREE: u64 = 1 << 29;
}

fn be(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |all, &byte| all << 8 | u64::from(byte))
}

fn merge(to: &mut Mkc, from: &Mkc, fields: u64) {
    let has = |field: u64| fields & field != 0;
    if has(mask::LEN) {
        to.set_len(from.len()).set_length64(from.length64());
    }
    if has(mask::PAGE_SIZE) {
        to.set_log_page_size(from.log_page_size());
    }
    if has(mask::START) {
        to.set_start_addr(from.start_addr());
    }
    if has(mask::PD) {
        to.set_pd(from.pd());
    }
    if has(mask::REMOTE_INVALIDATE) {
        to.set_en_rinval(from.en_rinval());
    }
    if has(mask::KEY) {
        to.set_mkey_7_0(from.mkey_7_0());
    }
    if has(mask::QPN) {
        to.set_qpn(from.qpn());
    }
    if has(mask::LOCAL_READ) {
        to.set_lr(from.lr());
    }
    if has(mask::LOCAL_WRITE) {
        to.set_lw(from.lw());
    }
    if has(mask::REMOTE_READ) {
        to.set_rr(from.rr());
    }
    if has(mask::REMOTE_WRITE) {
        to.set_rw(from.rw());
    }
    if has(mask::ATOMIC) {
        to.set_a(from.a());
    }
}

impl Device {
    /// Executes the UMR at an index of a QP's send queue.
    pub(crate) fn execute_umr(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        index: u16,
    ) -> Result<(), Syndrome> {
        let bad = Syndrome::LocalQpOperation;
        let qp = self.qps.get(qpn).ok_or(bad)?;
        let who = qp.accessor(qpn);
        // Only the kernel has this kind of QP; its keys are of all protection domains.
        let privileged = qp.context.st() == service::REG_UMR;
        let wqe = qp.read_wqe(io, index).ok_or(bad)?;
        let key = be(wqe.get(12..16).ok_or(bad)?) as u32;
        let control = wqe.get(CONTROL..CONTEXT).ok_or(bad)?;
        let flags = control[0];
        let octowords = be(&control[4..6]) as usize;
        let fields = be(&control[8..16]);
        let wanted = match wqe.get(CONTEXT..LIST) {
            Some(bytes) => Mkc::read_from_bytes(bytes).map_err(|_| bad)?,
            None => Mkc::ZERO,
        };
        if wanted.pd() != who.pd && fields & mask::PD != 0 && !self.pds.contains(wanted.pd()) {
            return Err(bad);
        }
        log::debug!(
            "QP {qpn:#x} changes memory key {key:#x}: fields {fields:#x}, {octowords} octowords of list"
        );
        let list = self.umr_list(io, who, &wqe, flags, octowords)?;
        let number = key >> 8;
        let mkey = self
            .mkeys
            .get_mut(number)
            .ok_or(Syndrome::LocalProtection)?;
        // 1: the key must be free now, 2: it must not.
        let expected = match flags >> 5 & 3 {
            1 => mkey.free,
            2 => !mkey.free,
            _ => true,
        };
        let own = privileged || mkey.context.pd() == who.pd;
        let bound = mkey.context.qpn();
        let other = flags & CHECK_QP != 0 && bound != ANY_QP && bound != qpn;
        if !mkey.context.umr_en() || !own || !expected || other {
            return Err(Syndrome::MemoryWindowBind);
        }
        let old = mkey.context.pd();
        merge(&mut mkey.context, &wanted, fields);
        if fields & mask::FREE != 0 {
            mkey.free = wanted.free();
        }
        let at = if flags & OFFSET != 0 {
            (be(&control[6..8]) | be(&control[16..20]) << 16) as usize
        } else {
            0
        };
        translate(mkey, at, &list)?;
        let (context, place, new) = (mkey.context, mkey.place, mkey.context.pd());
        if old != new {
            for (pd, add) in [(old, false), (new, true)] {
                if let Some(pd) = self.pds.get_mut(pd) {
                    pd.users = if add {
                        pd.users + 1
                    } else {
                        pd.users.saturating_sub(1)
                    };
                }
            }
        }
        self.restore(io, place, ObjectKind::Mkey, number, &context.0)
            .map_err(|_| bad)
    }

    fn umr_list(
        &self,
        io: &mut Io<'_>,
        who: Accessor,
        wqe: &[u8],
        flags: u8,
        octowords: usize,
    ) -> Result<Vec<u8>, Syndrome> {
        let len = octowords * 16;
        if len == 0 {
            return Ok(Vec::new());
        }
        let rest = wqe.get(LIST..).ok_or(Syndrome::LocalQpOperation)?;
        if flags & INLINE != 0 {
            return Ok(rest.get(..len).ok_or(Syndrome::LocalQpOperation)?.to_vec());
        }
        let segment = rest.get(..16).ok_or(Syndrome::LocalQpOperation)?;
        let (lkey, addr) = (be(&segment[4..8]) as u32, be(&segment[8..]));
        let mut list = vec![0; len];
        self.read_key(io, lkey, who, addr, &mut list, Right::LocalRead)
            .map_err(|_| Syndrome::LocalProtection)?;
        Ok(list)
    }
}

/// Puts a list into a key from octoword `at` on.
fn translate(mkey: &mut Mkey, at: usize, list: &[u8]) -> Result<(), Syndrome> {
    if list.is_empty() {
        return Ok(());
    }
    let room = mkey.context.translations_octword_size() as usize;
    let end = at + list.len() / 16;
    if end > room.next_multiple_of(LIST_UNIT) {
        return Err(Syndrome::MemoryWindowBind);
    }
    match mkey.mode {
        MODE_MTT => {
            let (at, end) = (at * 2, end * 2);
            if mkey.pages.len() < end {
                mkey.pages.resize(end, 0);
            }
            // What a UMR writes carries no page rights of its own.
            mkey.page_rights.clear();
            for (page, entry) in mkey.pages[at..end].iter_mut().zip(list.chunks_exact(8)) {
                *page = be(entry) & !0xfff;
            }
        }
        MODE_KLM | MODE_KSM => {
            if mkey.entries.len() < end {
                mkey.entries.resize(end, Indirect::ZERO);
            }
            let (list, _) = list.as_chunks();
            for (entry, bytes) in mkey.entries[at..end].iter_mut().zip(list) {
                *entry = Indirect::from_bytes(bytes);
            }
        }
        _ => return Err(Syndrome::MemoryWindowBind),
    }
    Ok(())
}
