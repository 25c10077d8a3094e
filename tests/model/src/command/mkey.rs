//! CREATE_MKEY, DESTROY_MKEY, QUERY_MKEY, QUERY_SPECIAL_CONTEXTS.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::objects::mkey::{DUMP_FILL_MKEY, Indirect, Mkey, RESERVED_LKEY};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::mkey::{
    CreateMkeyIn, DestroyMkeyIn, QueryMkeyIn, QuerySpecialContextsIn,
};
use bareverbs_firmware_cmds::values::MkeyAccessMode;

/// Marks a key that no index has.
const NULL_MKEY: u32 = 0x0000_0600;
const ANY_QP: u32 = 0xff_ffff;

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateMkeyIn>) -> Result {
    let context = *call.input.memory_key_mkey_entry();
    if !device.has(ObjectKind::Pd, context.pd()) {
        return Err(Syndrome::MkeyPd.into());
    }
    let bound = context.qpn();
    if bound != ANY_QP && bound != 0 && !device.has(ObjectKind::Qp, bound) {
        return Err(Syndrome::MkeyQp.into());
    }
    let mode = MkeyAccessMode::from_parts(context.access_mode_4_2(), context.access_mode_1_0())
        .filter(|mode| *mode != MkeyAccessMode::SwIcm)
        .filter(|mode| *mode != MkeyAccessMode::Memic || device.caps.general.device_memory())
        .ok_or(Syndrome::MkeyMode)?;
    let largest = 1u64.checked_shl(device.caps.general.log_max_mrw_sz().into());
    if !context.length64() && largest.is_some_and(|largest| context.len() > largest) {
        return Err(Syndrome::MkeyLength.into());
    }
    if mode == MkeyAccessMode::Memic {
        let start = context.start_addr();
        let end = start.checked_add(context.len());
        let range = end.map(|end| start..end);
        range
            .filter(|range| device.memic.is_allocated(range))
            .ok_or(Syndrome::MkeyMemic)?;
    }
    let umem = call
        .input
        .mkey_umem_valid()
        .then(|| call.input.mkey_umem_id());
    let (pages, page_rights) = match (mode, umem) {
        (MkeyAccessMode::Mtt, Some(id)) => pages_of_umem(device, &call, id)?,
        (MkeyAccessMode::Mtt, None) => translations(&call)?,
        (_, Some(_)) => return Err(Syndrome::MkeyUmem.into()),
        _ => (Vec::new(), Vec::new()),
    };
    let entries = match mode {
        MkeyAccessMode::Klms | MkeyAccessMode::Ksm => indirections(device, &call)?,
        _ => Vec::new(),
    };
    let number = device.mkeys.next_number().ok_or(Syndrome::MkeyExhausted)?;
    let place = device.store(io, ObjectKind::Mkey, number, &context.0)?;
    device.mkeys.insert(Mkey {
        context,
        mode,
        pages,
        page_rights,
        entries,
        free: context.free(),
        umem,
        place,
    });
    if let Some(pd) = device.pds.get_mut(context.pd()) {
        pd.users += 1;
    }
    call.output.set_mkey_index(number);
    Ok(())
}

/// The list that came with a key, as bytes.
fn list<'a>(call: &Call<'a, CreateMkeyIn>) -> core::result::Result<&'a [u8], Syndrome> {
    let octowords = call.input.translations_octword_actual_size();
    if octowords
        > call
            .input
            .memory_key_mkey_entry()
            .translations_octword_size()
    {
        return Err(Syndrome::MkeySize);
    }
    (octowords as usize)
        .checked_mul(16)
        .and_then(|len| call.tail.get(..len))
        .ok_or(Syndrome::MkeyList)
}

/// The list of an indirect key. Whether the keys in it are of any use shows when it is used.
fn indirections(
    device: &Device,
    call: &Call<'_, CreateMkeyIn>,
) -> core::result::Result<Vec<Indirect>, Syndrome> {
    let context = call.input.memory_key_mkey_entry();
    let largest = 1u64 << device.caps.general.log_max_klm_list_size();
    if u64::from(context.translations_octword_size()) > largest {
        return Err(Syndrome::MkeySize);
    }
    let (entries, _) = list(call)?.as_chunks();
    Ok(entries.iter().map(Indirect::from_bytes).collect())
}

/// The page list of a key, as addresses and, with page access, rights.
fn translations(
    call: &Call<'_, CreateMkeyIn>,
) -> core::result::Result<(Vec<u64>, Vec<u8>), Syndrome> {
    let context = call.input.memory_key_mkey_entry();
    let log_page = context.log_page_size();
    let list = list(call)?;
    // A key that is made free gets its list later; there is nothing to check then.
    if context.free() && list.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    if !(12..=63).contains(&log_page) {
        return Err(Syndrome::MkeyPageSize);
    }
    let page = 1u64 << log_page;
    let needed = if context.length64() {
        0
    } else {
        let start = context.start_addr();
        let end = start
            .checked_add(context.len())
            .ok_or(Syndrome::MkeyWraps)?;
        (end - (start & !(page - 1))).div_ceil(page)
    };
    let entries = list.len() as u64 / 8;
    if entries < needed {
        return Err(Syndrome::MkeyShort);
    }
    // The list is padded to 16 bytes; beyond what the range needs nothing is looked at.
    let used = if context.length64() { entries } else { needed };
    let mut pages = Vec::with_capacity(used as usize);
    let mut rights = Vec::new();
    for entry in list.chunks_exact(8).take(used as usize) {
        let entry = entry
            .iter()
            .fold(0, |all, &byte| all << 8 | u64::from(byte));
        let address = entry & !0xfff;
        if address & (page - 1) != 0 {
            return Err(Syndrome::MkeyUnaligned);
        }
        pages.push(address);
        if call.input.pg_access() {
            rights.push((entry & 3) as u8);
        }
    }
    Ok((pages, rights))
}

/// The pages of a key that lies in user memory from an offset on: the key's first byte is there. Its pages have to lie in
/// the memory's pages one by one.
fn pages_of_umem(
    device: &Device,
    call: &Call<'_, CreateMkeyIn>,
    id: u32,
) -> core::result::Result<(Vec<u64>, Vec<u8>), Syndrome> {
    let context = call.input.memory_key_mkey_entry();
    let umem = device.umem(id).ok_or(Syndrome::MkeyUmem)?;
    let log_page = context.log_page_size();
    if !(12..=umem.log_page).contains(&u32::from(log_page)) {
        return Err(Syndrome::MkeyPageSize);
    }
    let (page, offset) = (1u64 << log_page, call.input.mkey_umem_offset());
    if context.length64() || !umem.has(offset, context.len()) {
        return Err(Syndrome::UmemRange);
    }
    let end = context.start_addr().checked_add(context.len());
    let end = end.ok_or(Syndrome::MkeyWraps)?;
    // Where the first page starts, counted from the start of the user memory's first page.
    let first = (umem.offset + offset)
        .checked_sub(context.start_addr() & (page - 1))
        .filter(|first| first.is_multiple_of(page))
        .ok_or(Syndrome::MkeyUnaligned)?;
    let count = (end - (context.start_addr() & !(page - 1))).div_ceil(page);
    let rights = u8::from(umem.readable) | u8::from(umem.writable) << 1;
    let mut pages = Vec::new();
    for nth in 0..count {
        let at = first + nth * page;
        let base = umem.pages.get((at >> umem.log_page) as usize);
        let base = base.ok_or(Syndrome::UmemRange)?;
        pages.push(base + (at & ((1 << umem.log_page) - 1)));
    }
    let page_rights = vec![rights; pages.len()];
    Ok((pages, page_rights))
}

fn checked(device: &mut Device, io: &mut Io<'_>, number: u32) -> Result {
    let mkey = device.mkeys.get(number).ok_or(Syndrome::MkeyUnknown)?;
    let (place, context) = (mkey.place, mkey.context);
    device.check(io, place, ObjectKind::Mkey, number, &context.0)
}

pub(super) fn destroy(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyMkeyIn>,
) -> Result {
    let number = call.input.mkey_index();
    checked(device, io, number)?;
    if let Some(mkey) = device.mkeys.remove(number) {
        device.pages.release(mkey.place);
        if let Some(pd) = device.pds.get_mut(mkey.context.pd()) {
            pd.users -= 1;
        }
    }
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QueryMkeyIn>) -> Result {
    let number = call.input.mkey_index();
    checked(device, io, number)?;
    let mkey = device.mkeys.get(number).ok_or(Syndrome::MkeyUnknown)?;
    let mut context = mkey.context;
    context.set_free(mkey.free);
    *call.output.memory_key_mkey_entry_mut() = context;
    let mut first = [0; 32];
    for (entry, page) in first.chunks_exact_mut(8).zip(&mkey.pages) {
        entry.copy_from_slice(&page.to_be_bytes());
    }
    for (to, entry) in first.chunks_exact_mut(16).zip(&mkey.entries) {
        to.copy_from_slice(&entry.to_bytes());
    }
    call.output
        .bsf0_klm0_pas_mtt0_1_mut()
        .copy_from_slice(&first[..16]);
    call.output
        .bsf1_klm1_pas_mtt2_3_mut()
        .copy_from_slice(&first[16..]);
    Ok(())
}

pub(super) fn special(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QuerySpecialContextsIn>,
) -> Result {
    call.output
        .set_resd_lkey(RESERVED_LKEY)
        .set_null_mkey(NULL_MKEY)
        .set_dump_fill_mkey(DUMP_FILL_MKEY);
    if device.caps.general.terminate_scatter_list_mkey() {
        let key = device.list_terminator();
        call.output.set_terminate_scatter_list_mkey(key);
    }
    Ok(())
}
