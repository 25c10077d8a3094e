//! `libibverbs.so.1` and `librdmacm.so.1` on bareverbs.
//!
//! RDMA programs in C are linked to these two libraries. Built from here, they run unmodified with no kernel driver: on a card
//! through VFIO, or on the device model, which needs neither a card nor root.
//!
//! The crate is built as a static library, which the C compiler links with a version script (see the `bundle` tool). It is not
//! used from Rust, where `bareverbs-core` and `bareverbs-cm` are at hand.
//!
//! # Which device
//!
//! The environment says, since programs have no option for it: see [`settings`].
//!
//! # How it is made
//!
//! * Modules: `abi` has C's structures, `process` the devices, settings and the thread of a device, `verbs` the objects of
//!   libibverbs from creating to destroying, `data` posting and polling, `ethernet` raw packet QPs, `rdmacm` and `rsocket`
//!   librdmacm. Calls on an object that need objects which name it are in a file of their own: `context` and `open`, `qp` and
//!   `create_qp`, `rdmacm::id` and `rdmacm::create`.
//! * Objects of C (`struct ibv_qp` …) are the first field of the Rust object behind them, in one allocation; a context of C is
//!   inside `struct verbs_context`, as `verbs.h` wants it.
//! * A device is brought up when it is first opened, and stays up until the process ends. A thread for each device drives it:
//!   it sleeps until there is an interrupt or a deadline, hands completion and asynchronous events to the channels, and runs the
//!   connection manager.
//! * Channels are descriptors of the kernel's (`eventfd`) with a count for each event, so that they work with `poll`, `epoll`,
//!   and `read` whether it blocks or not.
//! * The data path takes the lock of its queue only: send queue, receive queue, SRQ or CQ.
//! * `librdmacm`'s own part of synchronous calls is done here; `RdmaCm` plays the part of the kernel's `rdma_ucm`, and moves the
//!   QPs of connections while the program goes on.
//! * Calls that wait can be cancelled (`pthread_cancel`): see the module `process::cancel`.
//! * A panic does not cross into C: it is EIO. The usual way through the data path has none of its own, and is not guarded: one of
//!   the platform's ends the process there.
//!
//! What is not done is refused with EOPNOTSUPP.

#![expect(
    unreachable_pub,
    reason = "C finds functions by their names, wherever they are"
)]

pub mod abi;
mod data;
mod ethernet;
mod process;
mod rdmacm;
mod rsocket;
mod verbs;

pub use process::settings;
