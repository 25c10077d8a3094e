//! Memory of the program, registered as a region.

// UNSAFETY: registers memory of the program's.
#![expect(unsafe_code)]

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::{Access, Mr, MrError, Pd};
use libc::c_int;

use crate::abi::{CORE_IN, CORE_OUT, RegMrIn, RegMrOut, ReregMrIn, ReregMrOut};
use crate::attrs::{Args, Result, region};
use crate::objects::Object;
use crate::server::Server;

/// Rights of `enum ib_access_flags` that ask for what the device does not do: `ON_DEMAND`, `FLUSH_GLOBAL` and
/// `FLUSH_PERSISTENT`.
const UNSUPPORTED: u32 = 1 << 6 | 1 << 8 | 1 << 9;
/// Rights that there are: those up to `FLUSH_PERSISTENT`, and `IB_ACCESS_OPTIONAL`, which a device may ignore.
const RIGHTS: u32 = 0x3ff | OPTIONAL;
const OPTIONAL: u32 = 0x3ff0_0000;

/// The rights that a program asks for, with errors as `ib_check_mr_access` has them.
fn rights(flags: u32) -> Result<Access> {
    if flags & !RIGHTS != 0 {
        return Err(libc::EINVAL);
    }
    match flags & UNSUPPORTED {
        0 => Ok(Access::from_bits_truncate(flags)),
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// Registers memory.
pub(crate) fn register<'d>(pd: &Pd<'d, P>, asked: &RegMrIn) -> Result<Mr<'d, P>> {
    let access = rights(asked.access_flags)?;
    // `ib_access_writable`: remote writes and atomics, and windows.
    let writable = asked.access_flags & (1 << 0 | 1 << 1 | 1 << 3 | 1 << 4) != 0;
    let region = region(asked.start, asked.length, writable)?;
    // SAFETY: the program says that this is its memory, for the device to use until it deregisters it.
    let registered = unsafe { pd.reg_mr_iova(region, asked.hca_va, access) };
    registered.map_err(unregistered)
}

/// An error number for a region or window that was not made.
pub(crate) fn unregistered(error: MrError) -> i32 {
    log::warn!("{error}");
    match error {
        MrError::Memory(_) => libc::ENOMEM,
        MrError::Command(error) => error.errno().abs(),
        MrError::Unsupported { .. } => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    }
}

impl Server<'_, '_, '_> {
    /// `REG_MR`.
    pub(crate) fn reg_mr(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let asked: RegMrIn = args.input(CORE_IN)?;
        let context = self.context(fd)?;
        let pd = context.pd(asked.pd_handle)?;
        let mr = register(pd, &asked)?;
        let out = RegMrOut {
            handle: 0,
            lkey: mr.lkey().0,
            rkey: mr.rkey().0,
        };
        let handle = context.add(Object::Mr(mr, asked));
        args.output(CORE_OUT, &RegMrOut { handle, ..out });
        Ok(())
    }

    /// `REREG_MR`: another region takes the place of one, with what is given of its memory, domain and rights.
    pub(crate) fn rereg_mr(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        /// `enum ib_mr_rereg_flags`.
        const MEMORY: u32 = 1 << 0;
        const DOMAIN: u32 = 1 << 1;
        const ACCESS: u32 = 1 << 2;
        let asked: ReregMrIn = args.input(CORE_IN)?;
        let given = |flag| asked.flags & flag != 0;
        if asked.flags == 0 {
            return Err(libc::EINVAL);
        }
        if asked.flags & !(MEMORY | DOMAIN | ACCESS) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if given(MEMORY) && !(asked.start ^ asked.hca_va).is_multiple_of(4096) {
            return Err(libc::EINVAL);
        }
        // Keys stay with new rights alone, which takes a work request of the kernel's (`umr_rereg_access`).
        if asked.flags == ACCESS {
            return Err(libc::EOPNOTSUPP);
        }
        let context = self.context(fd)?;
        let Some(Object::Mr(_, before)) = context.objects.get(&asked.handle) else {
            return Err(libc::EINVAL);
        };
        let mut now = *before;
        if given(MEMORY) {
            (now.start, now.length, now.hca_va) = (asked.start, asked.length, asked.hca_va);
        }
        if given(DOMAIN) {
            now.pd_handle = asked.pd_handle;
        }
        if given(ACCESS) {
            now.access_flags = asked.access_flags;
        }
        let mr = register(context.pd(now.pd_handle)?, &now)?;
        let (lkey, rkey) = (mr.lkey().0, mr.rkey().0);
        // One that the firmware does not take back has its memory still.
        context.remove(asked.handle, |it| matches!(it, Object::Mr(..)))?;
        context.objects.insert(asked.handle, Object::Mr(mr, now));
        args.output(CORE_OUT, &ReregMrOut { lkey, rkey });
        Ok(())
    }
}
