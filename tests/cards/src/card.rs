//! A drawn card in the world of the test.

use std::net::IpAddr;

use bareverbs_core::Device;

use bareverbs_in_process::ModelPlatform;

/// A card, as its driver has it.
pub(super) type Card<'s> = Device<'s, ModelPlatform>;

/// Address of a card.
pub(super) fn ip(card: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, card as u8 + 1])
}
