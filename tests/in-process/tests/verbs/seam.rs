//! What these tests run on: a platform whose doorbell pages are all uncached. `tests/blue_flame` runs some of them on
//! another.

use bareverbs_in_process::{ModelPlatform, World};
use connectx_model::Config as Card;

pub(crate) type Seam = ModelPlatform;

pub(crate) fn platform(world: &World, node: usize) -> Seam {
    world.platform(node)
}

/// What every card has beyond the usual.
pub(crate) fn card(card: Card) -> Card {
    card
}
