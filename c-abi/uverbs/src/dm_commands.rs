//! The calls of memory on the device: `DM_ALLOC`, `DM_FREE` and `DM_MR_REG`.

use bareverbs_node::verbs::{Access, AllocDmAttr};
use libc::c_int;

use crate::abi::dm::*;
use crate::attrs::{Args, Result, refused, unregistered};
use crate::dm::{Dm, PAGE, Region, key, longest, own};
use crate::memory::rights;
use crate::objects::Object;
use crate::server::Server;

impl<'d> Server<'_, '_, 'd> {
    /// `DM_ALLOC`, with errors as `mlx5_ib_alloc_dm` has them.
    pub(crate) fn alloc_dm(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let length = args.number(ALLOC_LENGTH)?;
        let log_align = args.number(ALLOC_ALIGNMENT)? as u32;
        // `MLX5_IB_UAPI_DM_TYPE_MEMIC`; the others are for steering.
        if args.number(ALLOC_TYPE).unwrap_or(0) != 0 || longest(self.device)? == 0 {
            return Err(libc::EOPNOTSUPP);
        }
        self.context(fd)?;
        let attr = AllocDmAttr {
            length: usize::try_from(length).map_err(|_| libc::EINVAL)?,
            log_align_req: u8::try_from(log_align).map_err(|_| libc::EINVAL)?,
        };
        let dm = self.device.alloc_dm(attr).map_err(unregistered)?;
        let caps = self.device.query_device_memory().map_err(refused)?;
        let start = caps.map_or(0, |caps| caps.memic_bar_start_addr());
        let at = dm.place().checked_sub(start).ok_or(libc::EIO)?;
        let first = (at / PAGE) as usize;
        let pages = first..(at + length).div_ceil(PAGE) as usize;
        own(&pages, fd + 1);
        let object = Object::Dm(Box::new(Dm { dm, pages }));
        let handle = self.context(fd)?.add(object);
        args.output(ALLOC_START_OFFSET, &(at % PAGE));
        args.output(ALLOC_PAGE_INDEX, &(first as u16));
        args.set_number(ALLOC_HANDLE, handle.into())
    }

    /// `DM_FREE`.
    pub(crate) fn free_dm(&mut self, fd: c_int, args: &Args) -> Result<()> {
        let handle = args.number(FREE_HANDLE)? as u32;
        let context = self.context(fd)?;
        context.is_there(handle)?;
        let of = |object: &Object<'_>| matches!(object, Object::Region(it) if it.dm == handle);
        if context.objects.values().any(of) {
            return Err(libc::EBUSY);
        }
        let is = |object: &Object<'_>| matches!(object, Object::Dm(_));
        context.remove(handle, is).map(drop)
    }

    /// `DM_MR_REG`, with errors as `mlx5_ib_reg_dm_mr` and its caller have them.
    pub(crate) fn reg_dm_mr(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let (offset, length) = (args.number(REG_OFFSET)?, args.number(REG_LENGTH)?);
        let handle = |id| args.number(id).map(|number| number as u32);
        let (pd, dm) = (handle(REG_PD)?, handle(REG_DM)?);
        let device = self.device;
        let context = self.context(fd)?;
        context.is_there(pd)?;
        context.is_there(dm)?;
        let uid = context.uid;
        let pdn = context.pd(pd)?.pdn().number();
        let Some(Object::Dm(memory)) = context.objects.get(&dm) else {
            return Err(libc::EINVAL);
        };
        let flags = args.flags(REG_ACCESS, u32::MAX.into())? as u32;
        let access = rights(flags, false)?;
        let known = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC
            | Access::ZERO_BASED;
        let remote = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if !access.contains(Access::ZERO_BASED)
            || !known.contains(access)
            || remote && !access.contains(Access::LOCAL_WRITE)
        {
            return Err(libc::EINVAL);
        }
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > memory.dm.len() as u64) {
            return Err(libc::EINVAL);
        }
        let place = memory.dm.place() + offset;
        let (made, key) = key(device, (pdn, uid), access, place, length)?;
        let object = Object::Region(Box::new(Region { key: made, dm }));
        let handle = context.add(object);
        args.output(REG_LKEY, &key);
        args.output(REG_RKEY, &key);
        args.set_number(REG_HANDLE, handle.into())
    }
}
