//! Memory of the program, registered as a region.

// UNSAFETY: registers memory of the program's.
#![expect(unsafe_code)]

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::{Access, Mr, Pd};
use libc::c_int;

use crate::abi::{
    ADVISE_MR_ADVICE, ADVISE_MR_FLAGS, ADVISE_MR_PD, ADVISE_MR_SGES, CORE_IN, CORE_OUT, RegMrIn,
    RegMrOut, ReregMrIn, ReregMrOut, Sge,
};
use crate::attrs::{Args, Result, place, region, unregistered};
use crate::objects::Object;
use crate::program_memory;
use crate::server::Server;
use crate::umr::{Umr, can_change};

/// `IB_ACCESS_ON_DEMAND`: the memory's pages are looked for when work uses them.
const ON_DEMAND: u32 = 1 << 6;
/// Rights of `enum ib_access_flags` that ask for what the device does not do: `FLUSH_GLOBAL` and `FLUSH_PERSISTENT`.
const UNSUPPORTED: u32 = 1 << 8 | 1 << 9;
const PAGE: u64 = 4096;
/// Addresses that a program can have.
const ADDRESSES: u64 = match cfg!(target_arch = "x86_64") {
    true => 1 << 47,
    false => 1 << 48,
};
/// The longest region whose pages are looked for on demand: the device has an entry for each.
const MOST_ON_DEMAND: u64 = 1 << 30;
/// Rights that there are: those up to `FLUSH_PERSISTENT`, and `IB_ACCESS_OPTIONAL`, which a device may ignore.
const RIGHTS: u32 = 0x3ff | OPTIONAL;
const OPTIONAL: u32 = 0x3ff0_0000;

/// The rights that a program asks for, with errors as `ib_check_mr_access` has them.
pub(crate) fn rights(flags: u32, on_demand: bool) -> Result<Access> {
    if flags & !RIGHTS != 0 {
        return Err(libc::EINVAL);
    }
    let unsupported = match on_demand {
        true => UNSUPPORTED,
        false => UNSUPPORTED | ON_DEMAND,
    };
    match flags & unsupported {
        // The pages are the server's affair.
        0 => Ok(Access::from_bits_truncate(flags & !ON_DEMAND)),
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// Returns `true` if the device may write to memory with these rights: remote writes and atomics, and windows
/// (`ib_access_writable`).
const fn is_writable(flags: u32) -> bool {
    flags & (1 << 0 | 1 << 1 | 1 << 3 | 1 << 4) != 0
}

/// Registers memory. With `on_demand` the device finds pages by the program's addresses at the time of the access, as a model
/// does: then memory may be registered that is not there yet.
pub(crate) fn register<'d>(pd: &Pd<'d, P>, asked: &RegMrIn, on_demand: bool) -> Result<Mr<'d, P>> {
    let access = rights(asked.access_flags, on_demand)?;
    let RegMrIn {
        start,
        length,
        hca_va,
        access_flags,
        ..
    } = *asked;
    let (region, iova) = match access_flags & ON_DEMAND {
        0 => (region(start, length, is_writable(access_flags))?, hca_va),
        // All addresses at once (`IB_ODP_SUPPORT_IMPLICIT`), but those of the first page, where nothing lies.
        _ if (start, length, hca_va) == (0, u64::MAX, 0) => (place(PAGE, ADDRESSES - PAGE)?, PAGE),
        _ if (start, length) == (0, u64::MAX) => return Err(libc::EINVAL),
        _ if length > MOST_ON_DEMAND => return Err(libc::ENOMEM),
        _ => (place(start, length)?, hca_va),
    };
    // SAFETY: the program says that this is its memory, for the device to use until it deregisters it.
    let registered = unsafe { pd.reg_mr_iova(region, iova, access) };
    registered.map_err(unregistered)
}

impl Server<'_, '_, '_> {
    /// `REG_MR`.
    pub(crate) fn reg_mr(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let asked: RegMrIn = args.input(CORE_IN)?;
        let on_demand = self.on_demand;
        let context = self.context(fd)?;
        let pd = context.pd(asked.pd_handle)?;
        let mr = register(pd, &asked, on_demand)?;
        let out = RegMrOut {
            handle: 0,
            lkey: mr.lkey().0,
            rkey: mr.rkey().0,
        };
        let handle = context.add(Object::Mr(mr, asked));
        args.output(CORE_OUT, &RegMrOut { handle, ..out });
        Ok(())
    }

    /// `REREG_MR`: other memory makes another region take the place of one, with what is given of its domain and rights. Domain
    /// and rights alone change under the same keys, where the device's UMRs change all of that.
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
        let (device, on_demand) = (self.device, self.on_demand);
        let context = self.context(fd)?;
        let Some(Object::Mr(mr, before)) = context.objects.get(&asked.handle) else {
            return Err(libc::EINVAL);
        };
        let (key, before_flags) = (mr.lkey().0, before.access_flags);
        let before_rights = rights(before_flags, on_demand)?;
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
        let pd = context.pd(now.pd_handle)?;
        let (from, to) = (before_rights, rights(now.access_flags, on_demand)?);
        let same_pages = !given(MEMORY) && (before_flags ^ now.access_flags) & ON_DEMAND == 0;
        if same_pages && can_change(&device.capabilities().hca, from, to) {
            let len = usize::try_from(now.length).unwrap_or(usize::MAX);
            let most = device.capabilities().max_mr_size();
            let len = len.min(usize::try_from(most).unwrap_or(usize::MAX));
            pd.check_region(len, to).map_err(unregistered)?;
            let pdn = pd.pdn().number();
            self.change_key(key, to, pdn)?;
            let context = self.context(fd)?;
            if let Some(Object::Mr(_, asked)) = context.objects.get_mut(&asked.handle) {
                *asked = now;
            }
            args.output(
                CORE_OUT,
                &ReregMrOut {
                    lkey: key,
                    rkey: key,
                },
            );
            return Ok(());
        }
        let mr = register(pd, &now, on_demand)?;
        let (lkey, rkey) = (mr.lkey().0, mr.rkey().0);
        // One that the firmware does not take back has its memory still.
        context.remove(asked.handle, |it| matches!(it, Object::Mr(..)))?;
        context.objects.insert(asked.handle, Object::Mr(mr, now));
        args.output(CORE_OUT, &ReregMrOut { lkey, rkey });
        Ok(())
    }

    /// Gives a key other rights and a domain, by a queue pair that is made for the first one.
    fn change_key(&mut self, key: u32, access: Access, pdn: u32) -> Result<()> {
        let mut umr = match self.umr.take() {
            Some(umr) => umr,
            None => Umr::new(self.device, self.events.eqn.0.into())?,
        };
        umr.change(key, access, pdn)?;
        self.umr = Some(umr);
        Ok(())
    }

    /// `ADVISE_MR`: has pages of regions on demand there before work uses them, with errors as `mlx5_ib_advise_mr` has them.
    pub(crate) fn advise_mr(&mut self, fd: c_int, args: &Args) -> Result<()> {
        /// `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`: the program waits for the outcome.
        const FLUSH: u64 = 1 << 0;
        let pd = args.number(ADVISE_MR_PD)? as u32;
        let advice = args.number(ADVISE_MR_ADVICE)?;
        let flush = args.flags(ADVISE_MR_FLAGS, FLUSH)? == FLUSH;
        let list = args.bytes(ADVISE_MR_SGES)?;
        let context = self.context(fd)?;
        context.is_there(pd)?;
        context.pd(pd)?;
        let (sges, []) = list.as_chunks::<{ size_of::<Sge>() }>() else {
            return Err(libc::EINVAL);
        };
        if sges.is_empty() {
            return Err(libc::EINVAL);
        }
        // `PREFETCH`, `PREFETCH_WRITE` and `PREFETCH_NO_FAULT`.
        let (writes, faults) = match advice {
            0 => (false, true),
            1 => (true, true),
            2 => (false, false),
            _ => return Err(libc::EOPNOTSUPP),
        };
        let mut outcome = Ok(());
        for sge in sges {
            let sge: Sge = zerocopy::transmute!(*sge);
            let region = context.objects.values().find_map(|object| match object {
                Object::Mr(mr, asked) if mr.lkey().0 == sge.lkey => Some(asked),
                _ => None,
            });
            let region = region.filter(|asked| asked.access_flags & ON_DEMAND != 0);
            let region = region.ok_or(libc::ENOENT)?;
            if region.pd_handle != pd || writes && !is_writable(region.access_flags) {
                return Err(libc::EPERM);
            }
            let offset = sge.addr.wrapping_sub(region.hca_va);
            let end = offset.checked_add(sge.length.into());
            let done = match end.is_some_and(|end| end <= region.length) {
                false => Err(libc::EFAULT),
                // What is there already needs nothing.
                true if !faults => Ok(()),
                true => {
                    let start = region.start.wrapping_add(offset);
                    program_memory::check(start, sge.length as usize, writes)
                }
            };
            outcome = outcome.and(done);
        }
        match flush {
            true => outcome,
            false => Ok(()),
        }
    }
}
