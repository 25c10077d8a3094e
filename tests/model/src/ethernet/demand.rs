//! The demands on a send request: the headers that it must carry, and the offloads that it may ask for.
//!
//! How a card answers a request that does not conform is not known. It needs the inline headers to decide whether a frame
//! goes round to another function, and the authors of Linux's driver say that a frame without them goes out to the port
//! ("minimum inline header mode", 2016); those of DPDK's say that the card may not send it (`txq_inline_min`). Here such a
//! request fails, which a driver detects.

use super::checksum::Wanted;
use super::frame::{self, Transport};
use crate::device::Device;
use crate::roce::env::Syndrome;
use bareverbs_firmware_cmds::sq::Sqc;
use bareverbs_firmware_cmds::values::InlineMode;

/// `wqe_inline_mode` of the capabilities.
const BY_L2: u8 = 0;
const BY_VPORT: u8 = 1;

/// An Ethernet header with one VLAN tag, which is demanded of frames without a tag too: `MLX5E_MIN_INLINE` in Linux,
/// `MLX5_ETH_L2_INLINE_HEADER_SIZE` in rdma-core.
const MIN_L2: usize = frame::HEADER + frame::TAG;

/// The offloads that a request asks for.
pub(super) struct Asked {
    pub(super) checksums: Wanted,
    pub(super) insert_tag: bool,
    pub(super) large: bool,
}

impl Device {
    /// The number of headers that a queue's requests carry inline.
    pub(super) fn inline_mode(&self, sq: &Sqc) -> InlineMode {
        match self.caps.ethernet.wqe_inline_mode() {
            BY_L2 => InlineMode::L2,
            BY_VPORT => {
                let vport = self.vport.context.min_wqe_inline_mode();
                let mode = vport.max(sq.min_wqe_inline_mode());
                InlineMode::from_number(mode).unwrap_or(InlineMode::TcpUdp)
            }
            _ => InlineMode::None,
        }
    }

    /// Fails requests for what the capabilities do not offer.
    pub(super) fn check_offer(&mut self, number: u32, asked: &Asked) -> Result<(), Syndrome> {
        let caps = &self.caps.ethernet;
        let lacks = [
            (asked.checksums.any() && !caps.csum_cap(), "csum_cap"),
            (
                asked.checksums.inner() && !self.nic.tunnels.any(),
                "tunnel_stateless_vxlan or tunnel_stateless_gre",
            ),
            (
                asked.insert_tag && !caps.wqe_vlan_insert(),
                "wqe_vlan_insert",
            ),
            (asked.large && caps.max_lso_cap() == 0, "max_lso_cap"),
        ];
        for (lack, capability) in lacks {
            if lack {
                self.answer_unknown(format_args!("SQ {number:#x}: a WQE without {capability}"));
                return Err(Syndrome::LocalQpOperation);
            }
        }
        Ok(())
    }

    /// Fails requests that carry fewer headers of a frame inline than the queue's mode demands.
    pub(super) fn check_inline(
        &mut self,
        number: u32,
        mode: InlineMode,
        frame: &[u8],
        inline: usize,
    ) -> Result<(), Syndrome> {
        let demanded = demanded(mode, frame);
        if inline >= demanded {
            return Ok(());
        }
        self.answer_unknown(format_args!(
            "SQ {number:#x}: a WQE with {inline} of {demanded} bytes of headers inline"
        ));
        Err(Syndrome::LocalQpOperation)
    }
}

/// Bytes from a frame's start that a mode demands: what Linux copies (`mlx5e_calc_min_inline`), tags included however many
/// there are.
fn demanded(mode: InlineMode, frame: &[u8]) -> usize {
    let parsed = frame::parse(frame);
    let link = parsed.network_at.max(MIN_L2);
    let network = parsed.network.map_or(link, |network| network.transport);
    let headers = match mode {
        InlineMode::None => 0,
        InlineMode::L2 => link,
        InlineMode::Ip => network,
        InlineMode::TcpUdp => match parsed.transport {
            Some(Transport::Tcp { at, header, .. }) => at + header,
            Some(Transport::Udp { at }) => at + 8,
            None => network,
        },
    };
    headers.min(frame.len())
}
