//! Device models as devices.

use std::sync::Arc;

use bareverbs_in_process::Builder;
use bareverbs_in_process::subnet::{Subnet, infiniband_port};
use connectx_model::Config;

use crate::node::Options;
use crate::platform::DevicePlatform;

/// Models with these numbers, at the ends of a cable, or on InfiniBand in a subnet.
pub(crate) fn models<const N: usize>(options: Options, numbers: [u8; N]) -> [DevicePlatform; N] {
    let mut builder = match options.infiniband {
        false => Builder::new(),
        true => Builder::with_link(Subnet::of_numbered().link(N), 0),
    };
    for number in numbers {
        let card = Config::new(number);
        builder = builder.function(match options.infiniband {
            false => card,
            true => infiniband_port(card, number),
        });
    }
    let world = Arc::new(builder.interrupts(options.interrupts.into()).threaded());
    std::array::from_fn(|index| DevicePlatform::model(&world, index))
}
