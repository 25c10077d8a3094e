//! Buffers that the library allocates, and registration by a structure.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::abi::numbers::*;
use crate::abi::objects::{ibv_mr, ibv_mr_init_attr, ibv_pd};
use crate::process::failure::{Errno, Result, as_nothing, as_pointer, as_status};
use crate::verbs::mr;
use crate::verbs::pd::pd;

/// A buffer (`struct ibv_buf`), whose fields programs do not see.
struct Buffer {
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: usize,
}

/// Allocates memory that begins at a page: `ibv_alloc_buf`.
///
/// # Safety
/// The domain is allocated, and `buf` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut c_void,
) -> *mut c_void {
    as_pointer(|| {
        // SAFETY: the caller promises that the domain is allocated, and `buf` can be written.
        unsafe { self::pd(pd) }?;
        let mut addr = ptr::null_mut();
        // SAFETY: asks for a number; the pointer can be written.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: the same.
        match unsafe { libc::posix_memalign(&mut addr, page, size) } {
            0 => {}
            errno => return Err(Errno(errno)),
        }
        let made = Box::into_raw(Box::new(Buffer { pd, addr, size }));
        // SAFETY: the caller promises that the domain is allocated, and `buf` can be written.
        unsafe { buf.write(made.cast()) };
        Ok(addr)
    })
}

/// Frees such a buffer: `ibv_free_buf`.
///
/// # Safety
/// It is from `ibv_alloc_buf`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_buf(buf: *mut c_void) {
    as_nothing(|| {
        if !buf.is_null() {
            // SAFETY: the caller promises that it is from `ibv_alloc_buf`, and is not used again.
            unsafe { libc::free(Box::from_raw(buf.cast::<Buffer>()).addr) };
        }
        Ok(())
    });
}

/// The descriptor of the dma-buf that is behind a buffer: `ibv_export_buf_dmabuf_fd`. There is none behind any.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(_buf: *mut c_void) -> c_int {
    as_status(|| Err(Errno(libc::ENODATA)))
}

/// Registers a part of a buffer: `ibv_reg_buf_mr`.
///
/// # Safety
/// The domain is allocated, the buffer is from `ibv_alloc_buf`, and stays until the region is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut c_void,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let attr = ibv_mr_init_attr {
        length,
        access,
        comp_mask: IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR,
        iova: 0,
        addr,
        fd: -1,
        fd_offset: 0,
        dmah: ptr::null_mut(),
        buf,
    };
    // SAFETY: the caller promises that the domain is allocated, the buffer is from `ibv_alloc_buf`, and stays until the region
    // is deregistered.
    as_pointer(|| unsafe { register(pd, &attr) })
}

/// Registers what a structure says: `ibv_reg_mr_ex`.
///
/// # Safety
/// The domain is allocated, the structure can be read, and the memory that it names stays until it is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    mr_init_attr: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    // SAFETY: the caller promises that the domain is allocated, the structure can be read, and the memory that it names stays
    // until it is deregistered.
    as_pointer(|| unsafe { register(pd, mr_init_attr.as_ref().ok_or(Errno::EINVAL)?) })
}

/// Registers, in the order of checks that rdma-core has, so that the errors are the same.
///
/// # Safety
/// As `ibv_reg_mr_ex`.
unsafe fn register(pd: *mut ibv_pd, attr: &ibv_mr_init_attr) -> Result<*mut ibv_mr> {
    let has = |flag: u64| attr.comp_mask & flag != 0;
    let (by_fd, by_addr) = (has(IBV_REG_MR_MASK_FD), has(IBV_REG_MR_MASK_ADDR));
    let has_offset = has(IBV_REG_MR_MASK_FD_OFFSET);
    if has(IBV_REG_MR_MASK_BUF) {
        // SAFETY: the caller promises the same as for `ibv_reg_mr_ex`.
        let buffer = unsafe { attr.buf.cast::<Buffer>().as_ref() }.ok_or(Errno::EINVAL)?;
        let offset = attr.addr.addr().checked_sub(buffer.addr.addr());
        let fits = offset
            .and_then(|offset| buffer.size.checked_sub(offset))
            .is_some_and(|rest| attr.length <= rest);
        if pd != buffer.pd || !by_addr || !fits || by_fd || has_offset {
            return Err(Errno::EINVAL);
        }
    }
    // There are no DMA handles. Bits that rdma-core does not know it does not look at.
    if has(IBV_REG_MR_MASK_DMAH) {
        return Err(Errno::EOPNOTSUPP);
    }
    let has_iova = has(IBV_REG_MR_MASK_IOVA);
    if by_fd {
        return Err(match !by_addr && has_offset && has_iova {
            // As `ibv_reg_dmabuf_mr`.
            true => Errno::EOPNOTSUPP,
            false => Errno::EINVAL,
        });
    }
    if !by_addr || has_offset {
        return Err(Errno::EINVAL);
    }
    let iova = match has_iova {
        true => attr.iova,
        false => attr.addr as u64,
    };
    // SAFETY: the caller promises the same as for `ibv_reg_mr_ex`.
    unsafe { mr::create(pd, attr.addr, attr.length, iova, attr.access as c_uint) }
}
