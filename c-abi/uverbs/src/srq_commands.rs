//! The commands about SRQs and XRC domains.

// UNSAFETY: the file behind a descriptor of the program's is looked up.
#![expect(unsafe_code)]

use std::rc::Rc;

use bareverbs_node::verbs::firmware_cmds::domain::AllocXrcdIn;
use libc::c_int;

use crate::abi::{
    CORE_IN, CORE_OUT, CreateSrqIn, CreateSrqOut, CreateXsrqIn, DestroyIn, DestroyQpOut,
    HandleOnly, Mlx5CreateSrqIn, Mlx5CreateSrqOut, ModifySrqIn, OpenXrcdIn, QuerySrqOut, UHW_IN,
    UHW_OUT,
};
use crate::attrs::{Args, Result, refused};
use crate::objects::Object;
use crate::server::Server;
use crate::srq::{Opened, Srq, Xrcd};

/// `enum ib_srq_type`.
const BASIC: u32 = 0;
const XRC: u32 = 1;
/// `enum ib_srq_attr_mask`.
const MAX_WR: u32 = 1 << 0;
const LIMIT: u32 = 1 << 1;

impl Server<'_, '_, '_> {
    /// `CREATE_SRQ` and `CREATE_XSRQ`.
    pub(crate) fn create_srq(&mut self, fd: c_int, args: &mut Args, xrc: bool) -> Result<()> {
        let wanted = match xrc {
            true => args.input(CORE_IN)?,
            false => {
                let old: CreateSrqIn = args.input(CORE_IN)?;
                CreateXsrqIn {
                    response: 0,
                    user_handle: old.user_handle,
                    srq_type: BASIC,
                    pd_handle: old.pd_handle,
                    max_wr: old.max_wr,
                    max_sge: old.max_sge,
                    srq_limit: old.srq_limit,
                    max_num_tags: 0,
                    xrcd_handle: 0,
                    cq_handle: 0,
                }
            }
        };
        let provided: Mlx5CreateSrqIn = args.input(UHW_IN)?;
        if provided.reserved0 != 0 || provided.reserved1 != 0 {
            return Err(libc::EINVAL);
        }
        let device = self.device;
        let context = self.context(fd)?;
        let pdn = context.pd(wanted.pd_handle)?.pdn().number();
        let (xrcd, cqn) = match wanted.srq_type {
            BASIC => (None, 0),
            XRC => {
                let xrcd = context.xrcd(wanted.xrcd_handle)?.clone();
                (Some(xrcd), context.cqn(wanted.cq_handle)?)
            }
            _ => return Err(libc::EOPNOTSUPP),
        };
        let srq = Srq::create(device, (pdn, cqn, context.uid), xrcd, &wanted, &provided)?;
        let (srqn, max_wr) = (srq.srqn, srq.entries - 1);
        let out = CreateSrqOut {
            handle: context.add(Object::Srq(Box::new(srq))),
            max_wr,
            max_sge: wanted.max_sge,
            srqn,
        };
        args.output(CORE_OUT, &out);
        args.output(UHW_OUT, &Mlx5CreateSrqOut { srqn, reserved: 0 });
        Ok(())
    }

    pub(crate) fn modify_srq(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let modify: ModifySrqIn = args.input(CORE_IN)?;
        let srq = self.context(fd)?.srq(modify.handle)?;
        // The device does not resize them.
        if modify.attr_mask & MAX_WR != 0 {
            return Err(libc::EINVAL);
        }
        if modify.attr_mask & LIMIT != 0 {
            if modify.srq_limit >= srq.entries {
                return Err(libc::EINVAL);
            }
            srq.arm(modify.srq_limit as u16).map_err(refused)?;
        }
        Ok(())
    }

    pub(crate) fn query_srq(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let DestroyIn { handle, .. } = args.input(CORE_IN)?;
        let srq = self.context(fd)?.srq(handle)?;
        let out = QuerySrqOut {
            max_wr: srq.entries - 1,
            max_sge: srq.max_sge,
            srq_limit: srq.limit().map_err(refused)?.into(),
            reserved: 0,
        };
        args.output(CORE_OUT, &out);
        Ok(())
    }

    pub(crate) fn destroy_srq(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let DestroyIn { handle, .. } = args.input(CORE_IN)?;
        let context = self.context(fd)?;
        let object = context.remove(handle, |object| matches!(object, Object::Srq(_)))?;
        if let Object::Srq(srq) = object {
            let events_reported = context.read_events(srq.user_handle, srq.events);
            args.output(CORE_OUT, &DestroyQpOut { events_reported });
        }
        Ok(())
    }

    /// `OPEN_XRCD`: a domain of its own, or that of a file.
    pub(crate) fn open_xrcd(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let asked: OpenXrcdIn = args.input(CORE_IN)?;
        let flags = asked.oflags as c_int;
        let file = match asked.fd {
            -1 => None,
            file => Some(inode(file)?),
        };
        let known = file.and_then(|file| self.domains.0.get(&file)?.upgrade());
        if file.is_some() && known.is_none() && flags & libc::O_CREAT == 0 {
            return Err(libc::EAGAIN);
        }
        if known.is_some() && flags & libc::O_EXCL != 0 {
            return Err(libc::EINVAL);
        }
        let xrcd = match known {
            Some(known) => known,
            None => {
                let device = self.device;
                let allocated = device.execute(&AllocXrcdIn::new()).map_err(refused)?;
                Rc::new(Xrcd {
                    device,
                    number: allocated.xrcd(),
                })
            }
        };
        if let Some(file) = file {
            self.domains.0.insert(file, Rc::downgrade(&xrcd));
        }
        let handle = self.context(fd)?.add(Object::Xrcd(Rc::new(Opened(xrcd))));
        args.output(CORE_OUT, &HandleOnly { handle });
        Ok(())
    }
}

fn inode(file: c_int) -> Result<(u64, u64)> {
    // SAFETY: numbers may be zero, and the structure can be written.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        match libc::fstat(file, &mut found) {
            0 => Ok((found.st_dev, found.st_ino)),
            _ => Err(libc::EBADF),
        }
    }
}
