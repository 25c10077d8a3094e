//! An event of a context, and the object of C that it is about.

// UNSAFETY: raw pointers of C, which other threads compare.
#![expect(unsafe_code)]

use std::ffi::c_int;

use crate::abi::objects::{ibv_cq, ibv_qp, ibv_srq};
use crate::abi::requests::ibv_wq;

/// The subject of an event of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Cq(*const ibv_cq),
    Qp(*const ibv_qp),
    Srq(*const ibv_srq),
    Wq(*const ibv_wq),
    Port(u8),
}

/// An event of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AsyncItem {
    pub(crate) event_type: c_int,
    pub(crate) subject: Subject,
}

// SAFETY: the pointers are only looked at by threads that hold what keeps their objects there.
unsafe impl Send for AsyncItem {}
