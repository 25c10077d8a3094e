//! Ethernet queues: whole frames in and out of the port, beside RDMA.
//!
//! An [`EthernetQueue`] is a send queue and a receive queue with everything that the device requires around them: a
//! transport domain with a TIS and a TIR, completion queues, frame buffers with keys, and flow steering that says which
//! frames come here. It takes two of the device's CQ slots, and no memory of the caller's.
//!
//! ```no_run
//! use bareverbs_core::{Device, EthernetError, EthernetInit, EthernetSendFlags, Platform};
//!
//! fn echo<P: Platform>(device: &Device<'_, P>) -> Result<(), Box<dyn core::error::Error>> {
//!     let pd = device.alloc_pd()?;
//!     let mut queue = pd.create_ethernet_queue(&EthernetInit::default())?;
//!     queue.join([0x33, 0x33, 0, 0, 0, 1])?;
//!     let mut frame = [0; 1518];
//!     loop {
//!         device.poll()?;
//!         let (send, receive) = queue.split();
//!         let Some(received) = receive.receive()? else {
//!             continue;
//!         };
//!         let length = received.copy_to(&mut frame);
//!         drop(received);
//!         frame.swap(0, 6);
//!         send.send(&frame[..length], EthernetSendFlags::empty())?;
//!     }
//! }
//! ```
//!
//! # Which frames
//!
//! Those to the port's own address, to the broadcast address and to the multicast addresses that were
//! [joined](EthernetQueue::join), with any VLAN tags: tags are not matched and stay in the frame, since a host with
//! interfaces on several VLANs answers ARP on each, and distinguishes them by the tag. Everything else is dropped by
//! the device unless the queue is promiscuous. What RDMA is for never comes here: the device takes packets of RoCE out
//! before flow steering, without regard to this queue.
//!
//! A function has one root of its receive steering, hence one Ethernet queue at a time, or one [`FlowTable`] with rules
//! that spread frames over as many queues as wanted.
//!
//! # Several queues
//!
//! An [`EthernetDomain`] makes pairs of a send and a receive queue. An [`EthernetTarget`] is one of them, or hashes
//! headers (RSS) into an [`IndirectionTable`] of them, which can change at any time. A [`FlowTable`] has rules by fields of
//! layers 2 to 4 with priorities; a [`FlowCounter`] counts their frames. The halves of the queues are `Send` and share
//! nothing: each thread works on its own without a lock.
//!
//! A target of tunnels ([`EthernetDomain::create_tunnel_target`]) has the device verify the checksums of packets in VXLAN and
//! GRE, and can [hash](EthernetDomain::create_hashed_tunnel_target) their headers.
//!
//! Two more kinds of queues do more with one request: a [`StridingReceive`] has room for many frames in each, and a
//! [`MultiSend`] sends many. A frame of the former can be sent by the latter from where it lies.
//!
//! The device can compress the completions of what it receives ([`FrameCompression`]), which are up to eight to 64 bytes
//! then. Frames come as without, but for what is not kept of each: hash or checksum, and the time.
//!
//! # Memory
//!
//! Frames are copied in and out of the device's buffers, as the device can write there at any time whatever it should
//! do, and Rust must hold no reference to such memory. Data of a [`Buffer`](crate::Buffer) goes out without a copy:
//! [`EthernetSend::send_gather`].

mod compression;
mod counter;
mod domain;
mod error;
mod flow;
mod flow_attr;
mod flow_table;
mod forward;
mod forward_compressed;
mod forward_types;
mod limits;
mod mtu;
mod multi;
mod objects;
mod offload;
#[cfg(feature = "smoltcp")]
pub mod phy;
mod queue;
pub mod raw;
mod recv;
mod rss;
mod send;
mod steering;
mod strided;
mod strided_burst;
mod tunnel;
mod vport;
mod work_queues;

pub use compression::{FrameCompression, StrideCompression};
pub use counter::{FlowCounter, FlowCounterId, FlowTraffic};
pub use domain::{EthernetDomain, EthernetHalves, EthernetTarget, IndirectionTable};
pub use error::{
    EthernetError, EthernetReceiveError, EthernetSendError, QueueFailure, StrideFault,
};
pub use flow::FlowMatch;
pub use flow_attr::{
    EthFilter, FlowAttr, FlowFlags, FlowSpec, FlowType, Ipv4Filter, Ipv6Filter, PortFilter,
};
pub use flow_table::{FlowAction, FlowError, FlowRule, FlowRuleInit, FlowSlot, FlowTable};
pub use forward::{BURST, Forwarder};
pub use forward_compressed::CompressedForwarder;
pub use forward_types::{ForwardCounters, ForwardError, ForwardInit};
pub use mtu::EthernetMtu;
pub use multi::{MultiBurst, MultiSend, MultiSendInit};
pub use offload::{EthernetOffload, EthernetSendFlags};
pub use queue::{EthernetInit, EthernetQueue};
pub use raw::{RawPacketError, RawPacketQp};
pub use recv::{EthernetReceive, ReceiveCounters, ReceivedFrame};
pub use rss::{FrameHash, HashFields, HashFunction, HashedPackets, RssError, RssHash};
pub use send::{EthernetSend, SentFrame};
pub use strided::{StridedFrame, StridingCounters, StridingInit, StridingReceive};
pub use strided_burst::StridedBurst;
pub use tunnel::{HashedHeaders, Tunnels, VXLAN_PORT};

/// Bytes of an Ethernet header without tags, which is the least that a frame has.
pub const HEADER_LEN: usize = 14;
/// Bytes of a frame beside its payload: the header and one VLAN tag. The check sequence is the device's business.
pub const FRAME_OVERHEAD: usize = HEADER_LEN + 4;
