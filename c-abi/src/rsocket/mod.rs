//! rsockets: sockets over RDMA, as rsocket(7) and `rdma/rsocket.h` have them.
//!
//! A stream is an RC QP. Each end has a ring for what it receives, of which it lends the halves to the other end in turns; the
//! other end writes there, and says so by immediate data. Credits keep it from saying more than this end has receives for.
//! The formats ([`wire`]) are librdmacm's, so that the other end may be Debian's library.
//!
//! An rsocket's number is a descriptor of the kernel's that nothing is done with, so that it is no other descriptor's. Threads
//! that wait sleep in the kernel's `poll` ([`wait`]), for rsockets and ordinary descriptors alike, and signals interrupt them.
//! The thread that drives the device wakes them, and makes connections ([`events`]).
//!
//! A datagram rsocket is a UD QP, which others find by its address and port ([`datagram`]).
//!
//! While a call waits on a stream the other end is asked for a sign of life once in a while, so that the call ends if the
//! other end is gone and cannot say so.

mod connection;
mod control;
mod data;
mod datagram;
mod epoll;
mod events;
mod flow;
mod ids;
mod iomap;
mod options;
mod poll;
mod port;
mod remaining;
mod set_options;
mod socket;
mod stream;
mod table;
mod task;
mod wait;
mod wire;
