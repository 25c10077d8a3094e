//! A model of a ConnectX network card: the behaviour that a driver and a peer can observe.
//!
//! [`Model`] is one PCI function. It is sans-I/O: accesses to its BAR, frames and time go in; DMA, interrupts and frames go
//! out through [`Host`]. It is independent of any driver: it behaves as the vendor's own driver for Linux demands,
//! checks its input, and refuses the rest with a separate [`Syndrome`] for every place that refuses.
//!
//! * [`Config`] is what the card is, [`Faults`] what is to go wrong with it.
//! * [`link`] is the cable between two models, with what can happen on it, and [`pcap`] a recording of it.
//! * [`roce`] is the wire protocol, which stands alone.
//!
//! # Modules
//!
//! State comes first: `objects` (what commands make), `memory` (the firmware's pages and queues in the host's memory),
//! `steering` and [`roce`] do not use the device. `device` holds all of it. What the device does is implemented above
//! it, as `impl Device` by subject: `bus` (BAR, doorbells, DMA), `command`, `events` (completions and events), `rdma`
//! (queue pairs at work), `ethernet`, `port` (frames in and out), [`quirks`]. A subject's own state is in a file that
//! does not name the device: `port/vport.rs`, `command/slots.rs`, `bus/front.rs`, `ethernet/queue.rs`,
//! `quirks/state.rs`.
//!
//! # What is there, and what is not
//!
//! | part | modelled | not modelled |
//! |---|---|---|
//! | PCI | BAR 0 with 1-, 2-, 4- and 8-byte accesses, PCI Express with function reset, MSI-X with masks and pending bits, bus master and memory enables | SR-IOV, ROM, the card's registers behind the vendor-specific capability |
//! | virtual functions | as their own drivers see them: identity, no pages of their own, no say in the card's port, registers and addresses | what the physical function does for them: switching them on, their pages, rules and rates of the e-switch |
//! | command interface | slots in parallel, chains of any length, tokens, delivery status, signatures in both directions, completion polled or by event | user contexts (`uid`) |
//! | pages | boot, init and runtime requests both ways, "cannot give", contexts that really lie in the pages | translation tables (they stay inside) |
//! | events | every queue with its own mask, arming, overrun; commands, pages, port, QP, CQ and SRQ events, temperature | modules plugged and the like |
//! | completion queues | 64 and 128 bytes, both entry versions, arming, overrun, resize, moderation, compression (title and arrays) | enhanced compression |
//! | queue pairs | RC, UC, UD, XRC, QP0 and QP1 with all transitions, flushing, error states; the kernel's REG_UMR; queue counters; dynamic connections and their streams; alternate paths of RC, UC and XRC on InfiniBand ports | congestion control by address, scheduling elements |
//! | shared receive queues | SRQ, RMP, XRC SRQ, linked and cyclic, limits | tag matching |
//! | memory keys | bus address, page list, lists of pieces of other keys (KLM, KSM), page rights, bindings, memory windows of both types, UMR, invalidation by the peer | on-demand paging, signatures |
//! | port | RoCE v1 and v2 with VLANs, multicast, loopback, counters, address lists, settings of pauses, priorities and congestion control that are kept and have no effect, a cable with its memory, sensors; InfiniBand's packets between models and over [switches](link::subnet), ports and switches that a subnet manager configures, performance management | InfiniBand's own link layer, scheduling by virtual lanes, traps that are repeated |
//! | Ethernet | send and receive queues, checksums, large sends and hashes (these also of packets in VXLAN and GRE), VLAN tags, tables of queues, striding queues, several packets in one request | large receives, other tunnels than VXLAN and GRE, encryption, pacing |
//! | flow steering | frames received and frames sent by Ethernet queues: tables with levels, roots and misses, groups, entries, counters alone and in bulk, changes to headers by setting and adding; headers with two VLAN tags, IPv6 extension headers, fragments, and those inside VXLAN and GRE; RoCE's packets, received and sent, by headers, opcode and queue pair, without changes to them | changes to RDMA's packets, packets of InfiniBand ports, fields copied into others, registers between tables |
//! | quirks ([`Quirks`]) | commands late and out of order, pages asked for and offered at any moment, late events, late and repeated interrupts, rests between bursts of work, turns of any length | |
//! | requests that no driver in the field makes | counted ([`Stats::unknown_answers`]), logged, fatal if configured so | what cards answer, which is not known |
//! | faults | commands failed, delayed, dropped, corrupted, half answered, their events lost; pages wanted without end; health errors and vanishing, at any time or at a command | |

mod bus;
mod caps;
pub mod card;
mod command;
pub mod config;
pub mod counters;
mod device;
mod ethernet;
mod events;
pub mod fault;
pub mod health;
pub mod host;
pub mod link;
mod memory;
mod model;
mod objects;
pub mod pcap;
mod port;
pub mod quirks;
mod rdma;
pub mod replay;
pub mod roce;
mod steering;
mod subnet;
mod sync_reset;
pub mod syndrome;
pub mod trace;
mod unknown;

pub use card::{Card, Profile, Report};
pub use config::{Config, FunctionKind, MsixMode, PortType};
pub use counters::{Counts, Stats};
pub use fault::{CommandFault, CommandRule, Faults};
pub use host::{Host, IommuFault};
pub use model::{Model, Objects};
pub use objects::{Leak, ObjectKind};
pub use port::module::{Module, Sensor};
pub use port::settings::{Pauses, Settings, TrafficClass};
pub use quirks::Quirks;
pub use replay::Recording;
pub use syndrome::{Status, Syndrome};
