//! Regions that change under their keys.

use libc::c_int;
use zerocopy::FromZeros;

use super::program::{Ring, alloc_pd, plain};
use crate::abi::*;

/// Rights of `enum ib_access_flags`.
const LOCAL_WRITE: u32 = 1 << 0;
const REMOTE_WRITE: u32 = 1 << 1;
/// `enum ib_mr_rereg_flags`.
const DOMAIN: u32 = 1 << 1;
const ACCESS: u32 = 1 << 2;

fn register(fd: c_int, pd: u32, memory: &Ring, access_flags: u32) -> RegMrOut {
    let start = memory.addresses().0;
    let asked = RegMrIn {
        start,
        length: 4096,
        hca_va: start,
        pd_handle: pd,
        access_flags,
        ..FromZeros::new_zeroed()
    };
    plain(fd, command::REG_MR, &asked).unwrap()
}

pub(super) fn change_under_their_keys(fd: c_int, pd: u32) {
    let memory = Ring::new();
    let region = register(fd, pd, &memory, LOCAL_WRITE);
    let (other, _) = alloc_pd(fd);
    let change = |flags: u32, access_flags: u32, pd_handle: u32| {
        let asked = ReregMrIn {
            handle: region.handle,
            flags,
            pd_handle,
            access_flags,
            ..FromZeros::new_zeroed()
        };
        let changed = plain::<ReregMrOut>(fd, command::REREG_MR, &asked);
        changed.map(|keys| (keys.lkey, keys.rkey))
    };
    let same = Ok((region.lkey, region.lkey));
    // More of them than the send ring and the completions have room for.
    for round in 0..70 {
        let (rights, domain) = [(LOCAL_WRITE, pd), (LOCAL_WRITE | REMOTE_WRITE, other)][round % 2];
        assert_eq!(change(ACCESS | DOMAIN, rights, domain), same, "{round}");
    }
    let removed = |handle| plain::<u32>(fd, command::DEALLOC_PD, &HandleOnly { handle });
    assert_eq!(change(ACCESS, 0, 0), same);
    // The domain that it is in is in use, and that one alone.
    assert!(removed(other).is_err());
    assert_eq!(change(DOMAIN, 0, pd), same);
    assert_eq!(change(ACCESS, REMOTE_WRITE, 0), Err(libc::EINVAL));
    assert_eq!(change(ACCESS, 1 << 30, 0), Err(libc::EINVAL));
    assert_eq!(change(DOMAIN, 0, pd + 1000), Err(libc::EINVAL));
    assert_eq!(change(0, 0, 0), Err(libc::EINVAL));
    assert_eq!(removed(other), Ok(0));
    let handle = region.handle;
    plain::<u32>(fd, command::DEREG_MR, &HandleOnly { handle }).unwrap();
}
