//! What these tests run on: a platform whose doorbell page for QPs is write-combining, and cards that take WQEs there.

use bareverbs_in_process::{World, WriteCombining};
use connectx_model::Config as Card;

pub(crate) type Seam = WriteCombining;

pub(crate) fn platform(world: &World, node: usize) -> Seam {
    WriteCombining::new(world.platform(node))
}

/// What every card has beyond the usual.
pub(crate) fn card(card: Card) -> Card {
    card.with_blue_flame()
}
