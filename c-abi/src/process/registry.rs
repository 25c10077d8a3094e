//! The objects of C that a device's events are for: contexts, CQs with channels, and QPs and SRQs by number.
//!
//! They are here as C has them, so that objects know the registry, and the registry none of their types.

// UNSAFETY: keeps raw pointers to objects of C, which their owners take out before they free them.
#![expect(unsafe_code)]

use std::collections::HashMap;
use std::sync::Mutex;

use bareverbs_node::cm::rdma::CmId;

use crate::abi::objects::{ibv_context, ibv_cq, ibv_qp, ibv_srq};
use crate::abi::requests::ibv_wq;
use crate::process::failure::lock;

/// Pointers to objects, each valid for as long as it is in here.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Objects>);

/// The objects behind the lock. An object may be used while the lock is held.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) contexts: Vec<*mut ibv_context>,
    pub(crate) cqs: HashMap<u32, *const ibv_cq>,
    pub(crate) qps: HashMap<u32, *const ibv_qp>,
    pub(crate) srqs: HashMap<u32, *const ibv_srq>,
    pub(crate) wqs: HashMap<u32, *const ibv_wq>,
    /// Raw packet QPs by the number of their own receive queue, which the device's events have.
    pub(crate) receiving: HashMap<u32, *const ibv_qp>,
    /// Ids of the connection manager by the QP of their connection.
    pub(crate) cm_ids: HashMap<u32, CmId>,
}

// SAFETY: the objects are shared between threads anyway: C calls with them from any thread.
unsafe impl Send for Objects {}

impl Registry {
    /// Looks at the objects, or changes which there are. An object that is taken out is in no other thread's hands after this.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Objects) -> R) -> R {
        work(&mut lock(&self.0))
    }
}

/// Takes an object out of one of the maps. Its number may have been given to another one since; and where the number comes from
/// memory that the program can write, it may be wrong.
pub(crate) fn take_out<T, O>(map: &mut HashMap<u32, *const T>, number: u32, object: *const O) {
    let object = object.cast::<T>();
    if map.get(&number) == Some(&object) {
        map.remove(&number);
    } else {
        map.retain(|_, other| *other != object);
    }
}
