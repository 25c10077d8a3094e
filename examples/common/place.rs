//! Where a card is, as `--device` and `BAREVERBS_DEVICE` name it.

use std::str::FromStr;

use bareverbs_vfio::{ParsePciAddressError, PciAddress};

/// Where a card is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// `model`: the device model, which is built in.
    Model,
    /// `vfio:ADDRESS`: a PCI function that is bound to vfio-pci.
    Vfio(PciAddress),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "model" => Ok(Self::Model),
            Some(("vfio", address)) => address
                .parse()
                .map(Self::Vfio)
                .map_err(|error: ParsePciAddressError| error.to_string()),
            _ => Err("expected model or vfio:ADDRESS".into()),
        }
    }
}
