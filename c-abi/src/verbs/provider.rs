//! The functions of rdma-core's mlx5 provider itself that programs call: `mlx5dv_query_device`. All its other functions refuse.

// UNSAFETY: writes a structure of C.
#![expect(unsafe_code)]

use std::ffi::c_int;

use crate::abi::objects::ibv_context;
use crate::process::failure::as_errno;
use crate::verbs::context::context;

/// Completions name their queue by an index of the program's: `MLX5DV_CONTEXT_FLAGS_CQE_V1`.
const CQE_V1: u64 = 1 << 0;
/// The device has registers for WQEs: `MLX5DV_CONTEXT_FLAGS_BLUEFLAME`.
const BLUEFLAME: u64 = 1 << 8;

/// The beginning of `struct mlx5dv_context`. What comes after it belongs to bits of `comp_mask`, of which none is answered.
#[repr(C)]
pub struct mlx5dv_context {
    version: u8,
    flags: u64,
    comp_mask: u64,
}

/// The device as mlx5 has it: `mlx5dv_query_device`. Flags that hold, and nothing of what `comp_mask` asks for.
///
/// # Safety
/// The context is open, and `attrs_out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5dv_query_device(
    ctx_in: *mut ibv_context,
    attrs_out: *mut mlx5dv_context,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the context is open, and `attrs_out` can be written.
        let context = unsafe { self::context(ctx_in) }?;
        let caps = &context.hca.device.capabilities().hca;
        let mut flags = 0;
        for (bit, holds) in [(CQE_V1, caps.cqe_version() == 1), (BLUEFLAME, caps.bf())] {
            if holds {
                flags |= bit;
            }
        }
        // SAFETY: the caller promises that the context is open, and `attrs_out` can be written.
        unsafe {
            attrs_out.write(mlx5dv_context {
                version: 0,
                flags,
                comp_mask: 0,
            });
        }
        Ok(())
    })
}
