//! Memory on the device: errors and order of checks as `mlx5_ib` has them, and its pages.

// UNSAFETY: pages of it are mapped.
#![expect(unsafe_code)]

use libc::c_int;

use super::program::{alloc_pd, attr, method, plain};
use crate::abi::dm::*;
use crate::abi::*;
use crate::interposed;

/// `IB_ACCESS_LOCAL_WRITE`, `IB_ACCESS_REMOTE_WRITE`, `IB_ZERO_BASED`.
const LOCAL_WRITE: u64 = 1 << 0;
const REMOTE_WRITE: u64 = 1 << 1;
const ZERO_BASED: u64 = 1 << 5;
/// `MLX5_IB_MMAP_DEVICE_MEM`.
const DEVICE_MEMORY: i64 = 8;
const PAGE: usize = 4096;

/// Allocates memory: its handle, its first page, and where it begins there.
fn alloc(fd: c_int, length: u64, log_align: u64, kind: u64) -> Result<(u32, u16, u64), c_int> {
    let (mut offset, mut page) = (0_u64, 0_u16);
    let attrs = [
        attr(ALLOC_HANDLE, 0, 0),
        attr(ALLOC_LENGTH, 8, length),
        attr(ALLOC_ALIGNMENT, 4, log_align),
        attr(ALLOC_START_OFFSET, 8, (&raw mut offset) as u64),
        attr(ALLOC_PAGE_INDEX, 2, (&raw mut page) as u64),
        attr(ALLOC_TYPE, 8, kind),
    ];
    let [handle, ..] = method(fd, (OBJECT, ALLOC), attrs)?;
    Ok((handle.data as u32, page, offset))
}

fn free(fd: c_int, handle: u32) -> Result<(), c_int> {
    let attrs = [attr(FREE_HANDLE, 0, handle.into())];
    method(fd, (OBJECT, FREE), attrs).map(drop)
}

/// Registers a part: its handle and its key.
fn register(
    fd: c_int,
    (pd, dm): (u32, u32),
    part: (u64, u64),
    access: u64,
) -> Result<(u32, u32), c_int> {
    let mut keys = [0_u32; 2];
    let [lkey, rkey] = keys.each_mut().map(|key| std::ptr::from_mut(key) as u64);
    let attrs = [
        attr(REG_HANDLE, 0, 0),
        attr(REG_OFFSET, 8, part.0),
        attr(REG_LENGTH, 8, part.1),
        attr(REG_PD, 0, pd.into()),
        attr(REG_ACCESS, 4, access),
        attr(REG_DM, 0, dm.into()),
        attr(REG_LKEY, 4, lkey),
        attr(REG_RKEY, 4, rkey),
    ];
    let [handle, ..] = method(fd, (OBJECT_MR, REG), attrs)?;
    assert_eq!(keys[0], keys[1]);
    Ok((handle.data as u32, keys[0]))
}

/// Maps a page of the memory.
fn map(fd: c_int, page: u16, len: usize) -> Result<*mut u8, c_int> {
    let index = i64::from(page);
    let offset = (index >> 8 << 16 | DEVICE_MEMORY << 8 | index & 0xff) * PAGE as i64;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let none = std::ptr::null_mut();
    // SAFETY: a new mapping, anywhere.
    let place = unsafe { interposed::mmap(none, len, access, libc::MAP_SHARED, fd, offset) };
    match place == libc::MAP_FAILED {
        true => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        false => Ok(place.cast()),
    }
}

pub(super) fn memory_on_the_device(fd: c_int, pd: u32) {
    assert_eq!(alloc(fd, 0, 0, 0), Err(libc::EINVAL));
    assert_eq!(alloc(fd, 64, 60, 0), Err(libc::EINVAL));
    assert_eq!(alloc(fd, 64, 300, 0), Err(libc::EINVAL));
    assert_eq!(alloc(fd, 64, 0, 1), Err(libc::EOPNOTSUPP));
    let (dm, page, offset) = alloc(fd, 100, 0, 0).unwrap();
    let (other, other_page, _) = alloc(fd, 5000, 0, 0).unwrap();
    assert_ne!(page, other_page);

    // Pages are mapped by the context that has something in them, and by one only.
    let mapped = map(fd, page, PAGE).unwrap();
    let again = map(fd, page, PAGE).unwrap();
    // SAFETY: two mappings of one page, in which the memory begins at the offset.
    unsafe {
        mapped.add(offset as usize).write(7);
        assert_eq!(again.add(offset as usize).read(), 7);
    }
    assert!(map(fd, other_page, 2 * PAGE).is_ok());
    assert_eq!(map(fd, other_page, 3 * PAGE), Err(libc::EINVAL));
    assert_eq!(map(fd, 300, PAGE), Err(libc::EINVAL));
    for place in [mapped, again] {
        // SAFETY: it is not used any more.
        unsafe { interposed::munmap(place.cast(), PAGE) };
    }

    // Regions count their addresses from 0, lie inside, and keep the memory.
    let all = (0, 100);
    let rights = LOCAL_WRITE | ZERO_BASED;
    let refused = |ids, part, access| register(fd, ids, part, access).err();
    assert_eq!(refused((pd, dm), all, LOCAL_WRITE), Some(libc::EINVAL));
    let remote = REMOTE_WRITE | ZERO_BASED;
    assert_eq!(refused((pd, dm), all, remote), Some(libc::EINVAL));
    assert_eq!(refused((pd, dm), (0, 104), rights), Some(libc::EINVAL));
    assert_eq!(refused((pd, dm), (u64::MAX, 2), rights), Some(libc::EINVAL));
    assert_eq!(refused((pd, dm + 1000), all, rights), Some(libc::ENOENT));
    assert_eq!(refused((pd, pd), all, rights), Some(libc::EINVAL));
    let (region, key) = register(fd, (pd, dm), (4, 96), rights).unwrap();
    let (second, second_key) = register(fd, (pd, dm), all, rights).unwrap();
    assert_ne!(key, second_key);
    assert_eq!(free(fd, dm), Err(libc::EBUSY));
    for handle in [region, second] {
        plain::<u32>(fd, command::DEREG_MR, &HandleOnly { handle }).unwrap();
    }
    assert_eq!(free(fd, pd), Err(libc::EINVAL));
    assert_eq!(free(fd, dm), Ok(()));
    assert_eq!(free(fd, dm), Err(libc::ENOENT));
    assert_eq!(map(fd, page, PAGE), Err(libc::EINVAL));
    assert_eq!(free(fd, other), Ok(()));

    // What is left goes with the context.
    let (kept_pd, _) = alloc_pd(fd);
    let (kept, ..) = alloc(fd, 64, 0, 0).unwrap();
    register(fd, (kept_pd, kept), (0, 64), rights).unwrap();
}
