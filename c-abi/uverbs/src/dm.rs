//! Memory on the device for programs: `UVERBS_OBJECT_DM`, regions of it, and its pages, which programs map.
//!
//! On a card the pages are those of BAR 0. A model keeps the memory in a file, which stands for them.

// UNSAFETY: a file without a name.
#![expect(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use bareverbs_in_process::keep_device_memory_in;
use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
use bareverbs_node::verbs::firmware_cmds::values::MkeyAccessMode;
use bareverbs_node::verbs::{Access, CommandError, Device, TailIn};
use libc::c_int;

use crate::attrs::{Result, refused};
use crate::raw::Made;

pub(crate) const PAGE: u64 = 4096;
/// The most pages that there are: `MLX5_MAX_MEMIC_PAGES`.
const PAGES: usize = 256;

/// The file that has the memory; 0 without one.
static FILE: AtomicI32 = AtomicI32::new(0);
/// The descriptor of the context that has allocated something in a page, and 1 more; 0 for pages that are free.
static OWNERS: [AtomicI32; PAGES] = [const { AtomicI32::new(0) }; PAGES];

/// Has the memory of the model, which is made after this, in a file.
pub(crate) fn start() {
    // SAFETY: the name is C's text.
    let file = unsafe { libc::memfd_create(c"device memory".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return;
    }
    // SAFETY: the descriptor is the one that was made.
    let file = unsafe { File::from_raw_fd(file) };
    if let Ok(shared) = file.try_clone() {
        keep_device_memory_in(shared);
        FILE.store(file.into_raw_fd(), Ordering::Release);
    }
}

/// The file that a program maps at a page of the memory, and the place in it. EINVAL for pages in which it has nothing.
pub(crate) fn file(fd: c_int, index: i64, len: usize) -> Result<(c_int, i64)> {
    let first = usize::try_from(index).map_err(|_| libc::EINVAL)?;
    let count = len.div_ceil(PAGE as usize);
    let pages = first
        .checked_add(count)
        .and_then(|end| OWNERS.get(first..end));
    let pages = pages.ok_or(libc::EINVAL)?;
    let own = |page: &AtomicI32| page.load(Ordering::Acquire) == fd + 1;
    match FILE.load(Ordering::Acquire) {
        file if file > 0 && count > 0 && pages.iter().all(own) => Ok((file, index * PAGE as i64)),
        _ => Err(libc::EINVAL),
    }
}

/// Allocated memory.
pub(crate) struct Dm<'d> {
    pub(crate) dm: bareverbs_node::verbs::Dm<'d, P>,
    /// Its pages, from the first one of the memory on.
    pub(crate) pages: Range<usize>,
}

impl Dm<'_> {
    /// Frees it, or gives it back if the firmware refuses.
    pub(crate) fn free(self) -> std::result::Result<(), (Self, CommandError)> {
        let Self { dm, pages } = self;
        match dm.free() {
            Ok(()) => {
                own(&pages, 0);
                Ok(())
            }
            Err((dm, error)) => Err((Self { dm, pages }, error)),
        }
    }
}

pub(crate) fn own(pages: &Range<usize>, owner: c_int) {
    for page in OWNERS.get(pages.clone()).unwrap_or_default() {
        page.store(owner, Ordering::Release);
    }
}

/// A region of it: its key, and the handle of the memory.
pub(crate) struct Region<'d> {
    pub(crate) key: Made<'d>,
    pub(crate) dm: u32,
}

/// The longest memory on the device that can be allocated at once; 0 without any that programs can map.
pub(crate) fn longest(device: &Device<'_, P>) -> Result<u64> {
    if FILE.load(Ordering::Acquire) == 0 {
        return Ok(0);
    }
    let caps = device.query_device_memory().map_err(refused)?;
    Ok(caps.map_or(0, |caps| caps.max_memic_size().into()))
}

/// A key for a part of the memory, whose addresses are those from 0 on.
pub(crate) fn key<'d>(
    device: &'d Device<'d, P>,
    (pdn, uid): (u32, u16),
    access: Access,
    place: u64,
    len: u64,
) -> Result<(Made<'d>, u32)> {
    /// Keys of one index differ, so that a stale one is not another's.
    static VARIANT: AtomicU8 = AtomicU8::new(0);
    let variant = VARIANT.fetch_add(1, Ordering::Relaxed);
    let mut command = CreateMkeyIn::new();
    command.set_uid(uid);
    command
        .memory_key_mkey_entry_mut()
        .set_access_mode_1_0(MkeyAccessMode::Memic.low())
        .set_access_mode_4_2(MkeyAccessMode::Memic.high())
        .set_lr(true)
        .set_lw(access.contains(Access::LOCAL_WRITE))
        .set_rr(access.contains(Access::REMOTE_READ))
        .set_rw(access.contains(Access::REMOTE_WRITE))
        .set_a(access.contains(Access::REMOTE_ATOMIC))
        .set_qpn(0xff_ffff)
        .set_mkey_7_0(variant)
        .set_pd(pdn)
        .set_start_addr(place)
        .set_len(len);
    let made = device.execute_with(&command, TailIn::Qwords(0, &mut |_| 0), &mut []);
    let index = made.map_err(refused)?.mkey_index();
    let made = Made::new(device, Opcode::DestroyMkey, uid, index);
    Ok((made, index << 8 | u32::from(variant)))
}
