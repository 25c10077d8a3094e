//! The platform of these tests: its doorbell page for QPs is write-combining, and its cards take WQEs there.

use bareverbs_in_process::{World, WriteCombining};
use connectx_model::Config as Card;

pub(crate) type Seam = WriteCombining;

pub(crate) fn platform(world: &World, node: usize) -> Seam {
    WriteCombining::new(world.platform(node))
}

/// Adds the capabilities that every card has here.
pub(crate) fn card(card: Card) -> Card {
    card.with_blue_flame()
}
