//! The cards that the model can be, as data: one text file per card beside this module, and files of the same form that are
//! read when a program runs ([`Profile`]).
//!
//! A file names its sources first, then gives values by section, each with its source:
//!
//! ```text
//! source log = recorded: a command log of a driver on that card
//!
//! [function]
//! device_id = 0x1015 (log)
//!
//! [general]
//! log_max_qp = 17 (log)
//! ```
//!
//! The kinds of sources are [`Source`]'s. `[function]` has what is not a capability (PCI identity, init segment, pages, first
//! numbers; the keys are the fields of [`Config`], which describe them); the other sections are capability groups, whose
//! keys are the fields of `mlx5_ifc`'s structures (`part.field` for one inside a part, `@0x44.27` for a bit of a dword that
//! has no name here, bytes as hex digits). A group can start with `hex (log)` and lines of dwords, `OFFSET: DWORD...`, which
//! are the image byte for byte. `[general max]` and `[roce max]` are what SET_HCA_CAP can ask for: the current values, but for
//! what stands there. What a file does not mention is zero. `[general modelled]` and the like take back what a recorded card
//! offers and the model does not do, or what the vendor's driver was not run with, for drivers that take up every offer
//! ([`Config::modelled`]).

mod parse;
mod profile;
mod recorded;
mod report;
mod value;

pub use profile::{Profile, ProfileError};
pub use report::{Report, ReportError};
pub use value::{Source, Value};

use crate::config::Config;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

macro_rules! cards {
    ($($(#[$doc:meta])* $Card:ident = $name:literal;)*) => {
        /// A card that the model can be. Each has a name for command lines, as in `connectx-4-lx`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Card { $($(#[$doc])* $Card,)* }

        impl Card {
            /// Every card.
            pub const ALL: &'static [Self] = &[$(Self::$Card),*];

            /// The card's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Card => $name,)* }
            }

            const fn text(self) -> &'static str {
                match self { $(Self::$Card => include_str!(concat!($name, ".txt")),)* }
            }
        }
    };
}

cards! {
    /// ConnectX-4 Lx: the capabilities of a card with firmware 14.12.1220, byte for byte.
    ConnectX4Lx = "connectx-4-lx";
    /// ConnectX-4, assumed to be as the ConnectX-4 Lx.
    ConnectX4 = "connectx-4";
    /// ConnectX-5, the model's default.
    ConnectX5 = "connectx-5";
    /// ConnectX-6 Dx.
    ConnectX6Dx = "connectx-6-dx";
    /// ConnectX-7, which requires the port's number with its addresses.
    ConnectX7 = "connectx-7";
    /// BlueField-2, as its host has it.
    BlueField = "bluefield";
    /// BlueField-2, as its own cores have it.
    BlueFieldEcpf = "bluefield-ecpf";
    /// BlueField-2, a virtual function.
    BlueFieldVf = "bluefield-vf";
}

impl Card {
    /// The card's profile.
    fn profile(self) -> &'static Profile {
        static CARDS: [OnceLock<Profile>; Card::ALL.len()] =
            [const { OnceLock::new() }; Card::ALL.len()];
        CARDS[self as usize].get_or_init(|| match Profile::parse(self.name(), self.text()) {
            Ok(profile) => profile,
            // The files are part of the program, and a test reads them all.
            Err(error) => panic!("{error}"),
        })
    }

    /// The same as a configuration, with addresses of all zeros.
    fn config(self) -> &'static Config {
        self.profile().plain()
    }

    /// Every value of the card's file, with its source.
    #[must_use]
    pub fn values(self) -> &'static [Value] {
        self.profile().values()
    }
}

impl Config {
    /// The model's own card, which is a ConnectX-5. Its addresses are all derived from `unit`, so that two cards on one cable
    /// differ.
    #[must_use]
    pub fn new(unit: u8) -> Self {
        Self::card(Card::ConnectX5, unit)
    }

    /// A card of this kind whose addresses are all derived from `unit`, so that two cards on one cable differ.
    #[must_use]
    pub fn card(card: Card, unit: u8) -> Self {
        card.profile().config(unit)
    }

    /// The same without what the card offers and the model does not do. Linux's driver takes up every offer: switching
    /// between virtual ports, tunnels, compression.
    #[must_use]
    pub fn modelled(card: Card, unit: u8) -> Self {
        card.profile().modelled(unit)
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name is that of no [`Card`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCard;

impl fmt::Display for UnknownCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such card; there are")?;
        for (nth, card) in Card::ALL.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma} {card}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownCard {}

impl FromStr for Card {
    type Err = UnknownCard;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.iter();
        all.find(|card| card.name() == name)
            .copied()
            .ok_or(UnknownCard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_is_read_and_found_by_its_name() {
        for &card in Card::ALL {
            let config = Config::card(card, 3);
            assert_eq!(card.name().parse(), Ok(card));
            assert_eq!(config.mac, [2, 0xc9, 0, 0, 0, 3], "{card}");
            assert_eq!(config.vendor_id, 0x15b3, "{card}");
            assert_eq!(config.general.cqe_version(), 1, "{card}");
            assert_eq!(
                config.general.uar_sz(),
                if card == Card::ConnectX5 { 0 } else { 5 }
            );
            for value in card.values() {
                assert!(!value.document.is_empty(), "{card}: {value:?}");
            }
        }
        let error = "connectx-3".parse::<Card>().unwrap_err().to_string();
        assert!(error.contains("are connectx-4-lx, connectx-4,"), "{error}");
    }

    #[test]
    fn a_modelled_card_is_the_same_without_what_the_model_does_not_do() {
        let [recorded, modelled] =
            [Config::card, Config::modelled].map(|of| of(Card::ConnectX4Lx, 1));
        assert!(recorded.general.eswitch_manager() && recorded.ethernet.tunnel_stateless_vxlan());
        assert!(!modelled.general.eswitch_manager() && !modelled.general_max.eswitch_manager());
        assert!(!modelled.ethernet.tunnel_stateless_vxlan());
        assert_eq!(modelled.general.log_max_qp(), recorded.general.log_max_qp());
        assert_eq!(modelled.init_pages, recorded.init_pages);
    }

    #[test]
    fn the_recorded_card_is_recorded_where_it_counts() {
        let sources = |card: Card, section: &str| -> Vec<Source> {
            let values = card.values().iter();
            let values = values.filter(|value| value.section == section);
            values.map(|value| value.source).collect()
        };
        for section in [
            "general",
            "general max",
            "roce",
            "roce max",
            "atomic",
            "ethernet",
            "flow",
        ] {
            let only = [Source::Recorded];
            assert_eq!(sources(Card::ConnectX4Lx, section), only, "{section}");
        }
        assert!(!sources(Card::ConnectX4, "general").contains(&Source::Recorded));
        assert!(sources(Card::ConnectX7, "general").contains(&Source::Public));
        assert!(sources(Card::ConnectX7, "general").contains(&Source::Withheld));
    }
}
