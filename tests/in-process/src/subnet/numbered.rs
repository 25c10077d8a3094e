//! The subnet of models that have numbers: what subnet administration says follows from the numbers alone.

use connectx_model::Config;

use super::{Group, Path, Port, Subnet};

/// The LID of the subnet manager, which no model has.
const SM_LID: u16 = 0xbfff;
/// The default subnet prefix.
const LINK_LOCAL: u128 = 0xfe80_0000_0000_0000;

/// A model with an InfiniBand port as a subnet manager has set it up: its LID is its number.
#[must_use]
pub fn infiniband_port(card: Config, number: u8) -> Config {
    let mut card = card.infiniband();
    card.lid = number.into();
    card.sm_lid = SM_LID;
    card
}

impl Subnet {
    /// The subnet of such models, with the group of IP over InfiniBand. Each process that has some of them can have an
    /// administration of its own, and all of them say the same: they know every port that there can be, and no port that is
    /// there has to be made known to others.
    #[must_use]
    pub fn of_numbered() -> Self {
        let subnet = Self::default();
        subnet.with(|state| {
            let administration = &mut state.administration;
            administration.lid = SM_LID;
            administration.path = Path {
                mtu: 5,
                rate: 16,
                packet_lifetime: 12,
                service_level: 0,
                hop_limit: 0,
            };
            administration.ports = (1..=254)
                .map(|number| infiniband_port(Config::new(number), number))
                .map(|card| Port {
                    gid: (LINK_LOCAL << 64 | u128::from(card.port_guid)).to_be_bytes(),
                    lid: card.lid,
                })
                .collect();
            administration.groups.push(Group::all_interfaces());
        });
        subnet
    }
}
