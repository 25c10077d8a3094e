//! UMR work requests: changing a memory key from the send queue. Fast registration and local invalidation are made of it.

use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::objects::mkey::{Accessor, Indirect, Mkey, Right, patterns_agree};
use crate::objects::qp::service;
use crate::roce::env::Syndrome;
use bareverbs_firmware_cmds::caps::HcaCap;
use bareverbs_firmware_cmds::mkey::Mkc;
use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::values::MkeyAccessMode;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::umr::{
    LIST_ALIGN, LIST_UNIT, MUST_BE_FREE, MUST_NOT_BE_FREE, mask,
};
use bareverbs_firmware_cmds::wqe::{
    ControlFlags, DataAddressWord, DataWord, SEGMENT_UNIT, UmrMaskWord, UmrOffsetWord, UmrWord,
};
use zerocopy::FromBytes;

/// Where the UMR control segment, the new context and the translation list start.
const CONTROL: usize = 16;
const CONTEXT: usize = 64;
const LIST: usize = 128;

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
    if has(mask::START_ADDR) {
        to.set_start_addr(from.start_addr());
    }
    if has(mask::PD) {
        to.set_pd(from.pd());
    }
    if has(mask::EN_RINVAL) {
        to.set_en_rinval(from.en_rinval());
    }
    if has(mask::KEY) {
        to.set_mkey_7_0(from.mkey_7_0());
    }
    if has(mask::QPN) {
        to.set_qpn(from.qpn());
    }
    if has(mask::LR) {
        to.set_lr(from.lr());
    }
    if has(mask::LW) {
        to.set_lw(from.lw());
    }
    if has(mask::RR) {
        to.set_rr(from.rr());
    }
    if has(mask::RW) {
        to.set_rw(from.rw());
    }
    if has(mask::A) {
        to.set_a(from.a());
    }
    if has(mask::SMALL_FENCE) {
        to.set_small_fence_on_rdma_read_response(from.small_fence_on_rdma_read_response());
    }
    if has(mask::RELAXED_ORDERING_WRITE) {
        to.set_relaxed_ordering_write(from.relaxed_ordering_write());
    }
    if has(mask::RELAXED_ORDERING_READ) {
        to.set_relaxed_ordering_read(from.relaxed_ordering_read());
    }
}

/// Returns `true` if a device with these capabilities changes these fields: `umr_check_mkey_mask` of mlx5_ib.
fn may_change(caps: &HcaCap, fields: u64) -> bool {
    let lacks = [
        (mask::PAGE_SIZE, caps.umr_modify_entity_size_disabled()),
        (mask::A, caps.umr_modify_atomic_disabled()),
        (
            mask::RELAXED_ORDERING_WRITE,
            !caps.relaxed_ordering_write_umr(),
        ),
        (
            mask::RELAXED_ORDERING_READ,
            !caps.relaxed_ordering_read_umr(),
        ),
    ];
    lacks
        .iter()
        .all(|&(field, lacks)| fields & field == 0 || !lacks)
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
        self.apply_umr(io, who, privileged, &wqe)
    }

    /// Executes a UMR of an Ethernet send queue.
    pub(crate) fn umr_of_sq(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        wqe: &[u8],
    ) -> Result<(), Syndrome> {
        let bad = Syndrome::LocalQpOperation;
        let sq = self.nic.sqs.get(number).ok_or(bad)?;
        if !sq.context.reg_umr() {
            log::warn!("SQ {number:#x}: a UMR in a queue that was not made for it");
            return Err(bad);
        }
        let who = sq.accessor(number);
        self.apply_umr(io, who, false, wqe)
    }

    fn apply_umr(
        &mut self,
        io: &mut Io<'_>,
        who: Accessor,
        privileged: bool,
        wqe: &[u8],
    ) -> Result<(), Syndrome> {
        let bad = Syndrome::LocalQpOperation;
        let qpn = who.qpn;
        let head = wqe.first_chunk::<CONTROL>().ok_or(bad)?;
        let key = ControlFlags::read(head).imm();
        let control: &[u8; CONTEXT - CONTROL] = wqe
            .get(CONTROL..)
            .and_then(<[u8]>::first_chunk)
            .ok_or(bad)?;
        let umr = UmrWord::read(control);
        let octowords = usize::from(umr.xlt_octowords());
        let fields = UmrMaskWord::read(control).mkey_mask();
        let wanted = match wqe.get(CONTEXT..LIST) {
            Some(bytes) => Mkc::read_from_bytes(bytes).map_err(|_| bad)?,
            None => Mkc::ZERO,
        };
        if wanted.pd() != who.pd && fields & mask::PD != 0 && !self.pds.contains(wanted.pd()) {
            return Err(bad);
        }
        log::debug!(
            "queue {qpn:#x} changes memory key {key:#x}: fields {fields:#x}, {octowords} octowords of list"
        );
        let caps = &self.caps.general;
        let high = UmrOffsetWord::read(control).xlt_offset_47_16();
        if !may_change(caps, fields)
            || !octowords.is_multiple_of(LIST_UNIT)
            || umr.translation_offset() && high != 0 && !caps.umr_extended_translation_offset()
        {
            return Err(bad);
        }
        let no_indirect = caps.umr_indirect_mkey_disabled();
        let list = self.umr_list(io, who, wqe, umr.inline(), octowords)?;
        let number = key >> 8;
        let mkey = self
            .mkeys
            .get_mut(number)
            .ok_or(Syndrome::LocalProtection)?;
        let expected = match umr.check() {
            MUST_BE_FREE => mkey.free,
            MUST_NOT_BE_FREE => !mkey.free,
            _ => true,
        };
        let own = privileged || mkey.context.pd() == who.pd;
        let bound = mkey.context.qpn();
        let other = umr.check_qpn() && bound != Qpn::ANY.number() && bound != qpn;
        let disabled = no_indirect && mkey.indirect();
        if !mkey.context.umr_en() || !own || !expected || other || disabled {
            return Err(Syndrome::MemoryWindowBind);
        }
        let old = mkey.context.pd();
        merge(&mut mkey.context, &wanted, fields);
        if fields & mask::FREE != 0 {
            mkey.free = wanted.free();
        }
        let at = if umr.translation_offset() {
            (u64::from(high) << 16 | u64::from(umr.xlt_offset())) as usize
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
        inline: bool,
        octowords: usize,
    ) -> Result<Vec<u8>, Syndrome> {
        let len = octowords * 16;
        if len == 0 {
            return Ok(Vec::new());
        }
        let rest = wqe.get(LIST..).ok_or(Syndrome::LocalQpOperation)?;
        if inline {
            return Ok(rest.get(..len).ok_or(Syndrome::LocalQpOperation)?.to_vec());
        }
        let segment = rest
            .first_chunk::<SEGMENT_UNIT>()
            .ok_or(Syndrome::LocalQpOperation)?;
        let lkey = DataWord::read(segment).lkey();
        let addr = DataAddressWord::read(segment).addr();
        if self.config.strict && !addr.is_multiple_of(LIST_ALIGN as u64) {
            log::warn!("a list of translations at {addr:#x}, which is not aligned");
            return Err(Syndrome::LocalQpOperation);
        }
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
    let space = mkey.context.translations_octword_size() as usize;
    let end = at + list.len() / 16;
    if end > space.next_multiple_of(LIST_UNIT) {
        return Err(Syndrome::MemoryWindowBind);
    }
    match mkey.mode {
        MkeyAccessMode::Mtt => {
            let (at, end) = (at * 2, end * 2);
            if mkey.pages.len() < end {
                mkey.pages.resize(end, 0);
            }
            // Translations written by a UMR carry no page access rights.
            mkey.page_rights.clear();
            for (page, entry) in mkey.pages[at..end].iter_mut().zip(list.chunks_exact(8)) {
                *page = be(entry) & !0xfff;
            }
        }
        MkeyAccessMode::Klms | MkeyAccessMode::Ksm => {
            if mkey.entries.len() < end {
                mkey.entries.resize(end, Indirect::ZERO);
            }
            let (list, _) = list.as_chunks();
            for (entry, bytes) in mkey.entries[at..end].iter_mut().zip(list) {
                *entry = Indirect::from_bytes(bytes);
            }
            if mkey.mode == MkeyAccessMode::Klms && !patterns_agree(&mkey.entries) {
                return Err(Syndrome::MemoryWindowBind);
            }
        }
        _ => return Err(Syndrome::MemoryWindowBind),
    }
    Ok(())
}
