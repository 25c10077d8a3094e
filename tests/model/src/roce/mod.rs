//! RoCE: packets, and the transport of RC, UC, UD, XRC and GSI queue pairs.
//!
//! Sans-I/O: frames, doorbells and time go in, frames and completions come out through [`env::Env`].
//!
//! Where the specification leaves a choice, or real hardware is known not to follow it, this is what is modelled:
//!
//! | situation | here |
//! |---|---|
//! | READ, WRITE or atomic that the QP's access flags forbid | NAK "invalid request", as Linux's rxe |
//! | wrong rkey, range or right | NAK "remote access", both QPs fail, event at the responder |
//! | READ or WRITE of length 0 | the rkey is not looked at |
//! | more READs and atomics than `log_rra_max` allows | NAK "invalid request" |
//! | atomic with a buffer of other than 8 bytes | accepted, as ConnectX: what fits is written |
//! | packet for a QP in error | no answer, as ConnectX: the peer runs into its retry limit |
//! | the answer to a request that failed the QP was lost | as above; the NAK is not repeated |
//! | SEND longer than the receive buffer | NAK "invalid request" for the sender, "local length" for the receiver |
//! | receive buffer that may not be written, IOMMU fault | NAK "remote operational error" |
//! | XRC: XRCETH | in every request, the first of the extended headers; in no response |
//! | XRC: no such shared receive queue, or one of another XRC domain | NAK "remote access", event "access violation" at the target, as Linux's drivers report it |
//! | XRC: rkeys and receive buffers | belong to the protection domain of the shared receive queue, as a target has none |
//! | XRC: request for an initiator, response for a target | dropped silently |
//! | DC: packets | RC's under the transport service 0b110 with a private header, which two models agree upon |
//! | DC: wrong access key | NAK "remote access", counted, event "key violation" if armed; the target goes on |
//! | DC: request that is refused | answered as on RC; that connection is over, the target goes on and has no event |
//! | DC: target that is draining | requests are dropped silently: the initiator runs into its retry limit |
//! | UC: request that is not allowed, or without a receive WQE | dropped silently, the QP stays in its state |
//! | UD: no receive WQE, wrong Q_Key | dropped silently and counted |
//! | UD: receive buffer without space for header and payload | "local length", the QP fails |
//! | P_Key | the low 15 bits agree, at least one side is a full member |
//! | RoCE packet to the own address while the link is down | dropped, as everything that a virtual port is given while it is down; force loopback is not |
//! | source address of RC, UC and XRC packets | must be the peer's; MAC address and UDP port are not looked at |
//! | CNP, ECN marks | counted, nothing slows down |
//! | path migration | the migration bit says on which path a sender is; RC and XRC migrate when their retries are used up, all types when the peer or the driver does |
//! | end-to-end credits unless asked for | not modelled; credits say "unlimited" |

pub mod codes;
mod counter;
mod cqe_scatter;
mod datagram;
mod dynamic;
pub mod env;
pub mod headers;
mod memory;
pub mod opcode;
mod outgoing;
pub mod packet;
mod parse_error;
pub mod psn;
mod requester;
mod responder;
mod target;
mod template;
pub mod transport;
mod wire;
