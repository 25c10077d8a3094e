//! The platform of these tests: its doorbell pages are all uncached. `tests/blue_flame` runs some of them on
//! another.

use bareverbs_in_process::{ModelPlatform, World};
use connectx_model::Config as Card;

pub(crate) type Seam = ModelPlatform;

pub(crate) fn platform(world: &World, node: usize) -> Seam {
    world.platform(node)
}

/// Adds the capabilities that every card has here: none.
pub(crate) fn card(card: Card) -> Card {
    card
}
