//! `ibv_bind_mw`: a work request that opens a memory window of type 1.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use crate::abi::numbers::{IBV_MW_TYPE_1, IBV_WR_BIND_MW};
use crate::abi::objects::{ibv_mw, ibv_qp};
use crate::abi::requests::{bind_operation, ibv_mw_bind, ibv_send_wr};
use crate::data::post::post_send;
use crate::process::failure::{Errno, as_errno};

/// The key that follows a key.
fn next(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// `ibv_bind_mw`, from the table of functions: of a window of type 1, whose key changes.
///
/// # Safety
/// QP and window were created here, and `bind` is a structure of the headers.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that QP and window were created here, and `bind` is a structure of the headers.
        unsafe {
            let (window, bind) = (
                mw.as_mut().ok_or(Errno::EINVAL)?,
                bind.as_ref().ok_or(Errno::EINVAL)?,
            );
            if window.mw_type != IBV_MW_TYPE_1 {
                return Err(Errno::EINVAL);
            }
            let rkey = next(window.rkey);
            let mut wr: ibv_send_wr = std::mem::zeroed();
            wr.wr_id = bind.wr_id;
            wr.opcode = IBV_WR_BIND_MW;
            wr.send_flags = bind.send_flags;
            wr.bind_mw = bind_operation {
                mw,
                rkey,
                bind_info: bind.bind_info,
            };
            let mut bad = ptr::null_mut();
            match post_send(qp, &raw mut wr, &raw mut bad) {
                0 => {
                    window.rkey = rkey;
                    Ok(())
                }
                errno => Err(Errno(errno)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_byte_of_a_key_goes_round() {
        assert_eq!(next(0x1234_5601), 0x1234_5602);
        assert_eq!(next(0x1234_56ff), 0x1234_5600);
    }
}
