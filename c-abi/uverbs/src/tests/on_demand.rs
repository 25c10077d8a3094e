//! Regions whose pages are looked for on demand, and advice about them: errors and order of checks as `mlx5_ib` has them.

use libc::c_int;
use zerocopy::{FromZeros, IntoBytes};

use super::program::{Ring, alloc_pd, attr, method, plain};
use crate::abi::*;

/// `IB_ACCESS_LOCAL_WRITE` and `IB_ACCESS_ON_DEMAND`.
const LOCAL_WRITE: u32 = 1 << 0;
const ON_DEMAND: u32 = 1 << 6;
/// Advice: `PREFETCH`, `PREFETCH_WRITE`, `PREFETCH_NO_FAULT`.
const READ: u64 = 0;
const WRITE: u64 = 1;
const NO_FAULT: u64 = 2;
/// `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`.
const FLUSH: u64 = 1;

pub(super) fn regions(fd: c_int, pd: u32) {
    let register = |start: u64, length: u64, access_flags: u32| {
        let asked = RegMrIn {
            start,
            length,
            hca_va: start,
            pd_handle: pd,
            access_flags,
            ..FromZeros::new_zeroed()
        };
        plain::<RegMrOut>(fd, command::REG_MR, &asked).map(|made| made.lkey)
    };
    let memory = Ring::new();
    let start = memory.addresses().0;
    // The memory may not be there yet; more of it than the device keeps is refused, unless it is all.
    let gone = register(1 << 20, 1 << 20, ON_DEMAND | LOCAL_WRITE).unwrap();
    let readable = register(start, 4096, ON_DEMAND).unwrap();
    let plain_key = register(start, 4096, LOCAL_WRITE).unwrap();
    let everything = register(0, u64::MAX, ON_DEMAND | LOCAL_WRITE).unwrap();
    assert_eq!(register(1 << 20, 1 << 40, ON_DEMAND), Err(libc::ENOMEM));

    let advise = |pd: u32, advice: u64, flags: u64, sges: &[Sge]| {
        let list = sges.as_bytes();
        let attrs = [
            attr(ADVISE_MR_PD, 0, pd.into()),
            attr(ADVISE_MR_ADVICE, 8, advice),
            attr(ADVISE_MR_FLAGS, 4, flags),
            attr(ADVISE_MR_SGES, list.len(), list.as_ptr() as u64),
        ];
        method(fd, (OBJECT_MR, ADVISE_MR), attrs).map(drop)
    };
    let part = |lkey, addr, length| Sge { addr, length, lkey };
    let all = [part(readable, start, 4096)];
    assert_eq!(advise(pd, READ, FLUSH, &all), Ok(()));
    assert_eq!(advise(pd, WRITE, FLUSH, &all), Err(libc::EPERM));
    assert_eq!(advise(pd, 3, FLUSH, &all), Err(libc::EOPNOTSUPP));
    assert_eq!(advise(pd, READ, 2, &all), Err(libc::EINVAL));
    assert_eq!(advise(pd, READ, FLUSH, &[]), Err(libc::EINVAL));
    let (other, _) = alloc_pd(fd);
    assert_eq!(advise(other, READ, FLUSH, &all), Err(libc::EPERM));
    assert_eq!(advise(pd + 1000, READ, FLUSH, &all), Err(libc::ENOENT));
    // The key is one of a region on demand, and the part lies in the region.
    let with = |sge| advise(pd, READ, FLUSH, &[sge]);
    assert_eq!(with(part(plain_key, start, 4096)), Err(libc::ENOENT));
    assert_eq!(with(part(readable, start + 1, 4096)), Err(libc::EFAULT));
    assert_eq!(with(part(readable, start - 1, 1)), Err(libc::EFAULT));
    assert_eq!(with(part(everything, start + 64, 4096)), Ok(()));
    // Without the flag the call does not wait for the outcome, and without faults it looks for no page.
    let missing = [part(gone, 1 << 20, 4096)];
    assert_eq!(advise(pd, WRITE, FLUSH, &missing), Err(libc::EFAULT));
    assert_eq!(advise(pd, WRITE, 0, &missing), Ok(()));
    assert_eq!(advise(pd, NO_FAULT, FLUSH, &missing), Ok(()));
}
