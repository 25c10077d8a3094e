//! The names of devices: `model`, or the PCI address of a card.

use std::fmt;
use std::str::FromStr;

use bareverbs_vfio::{ParsePciAddressError, PciAddress};

/// The environment variable that names the device: [`DeviceName::from_env`].
pub const DEVICE_VARIABLE: &str = "BAREVERBS_DEVICE";

/// A device, as programs name it on their command lines and in [`DEVICE_VARIABLE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceName {
    /// `model`: the device model, which is built in with the feature `model`.
    Model,
    /// `vfio:ADDRESS`: a PCI function that is bound to vfio-pci, as in `vfio:0000:3b:00.0`.
    Vfio(PciAddress),
}

impl DeviceName {
    /// The devices that [`DEVICE_VARIABLE`] names, with commas between them; `model` if it is not set.
    pub fn from_env() -> Result<Vec<Self>, DeviceNameError> {
        match std::env::var(DEVICE_VARIABLE) {
            Ok(names) => Self::list(&names),
            Err(std::env::VarError::NotPresent) => Ok(vec![Self::Model]),
            Err(std::env::VarError::NotUnicode(name)) => Err(DeviceNameError {
                name: name.to_string_lossy().into_owned(),
                address: None,
            }),
        }
    }

    /// The devices of a list with commas between them.
    pub fn list(names: &str) -> Result<Vec<Self>, DeviceNameError> {
        names.split(',').map(str::parse).collect()
    }
}

/// Not the name of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNameError {
    /// The name that was given.
    pub name: String,
    /// Why it is not a PCI address, if it should be one.
    pub address: Option<ParsePciAddressError>,
}

impl fmt::Display for DeviceNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(error) => error.fmt(f),
            None => write!(f, "{:?}: expected model or vfio:ADDRESS", self.name),
        }
    }
}

impl std::error::Error for DeviceNameError {}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failure = |address| DeviceNameError {
            name: text.into(),
            address,
        };
        match text.split_once(':') {
            None if text == "model" => Ok(Self::Model),
            Some(("vfio", address)) => match address.parse() {
                Ok(address) => Ok(Self::Vfio(address)),
                Err(error) => Err(failure(Some(error))),
            },
            _ => Err(failure(None)),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model => f.write_str("model"),
            Self::Vfio(address) => write!(f, "vfio:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["model", "vfio:0000:3b:00.0"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        let two = DeviceName::list("vfio:0000:3b:00.0,vfio:0000:3b:00.1").unwrap();
        assert_eq!(two.len(), 2);
    }

    #[test]
    fn other_words_are_refused_with_what_was_expected() {
        for name in ["", "card", "model:1", "mlx5:0000:3b:00.0"] {
            let error = name.parse::<DeviceName>().unwrap_err();
            assert_eq!(error.address, None, "{name}");
            assert!(
                error
                    .to_string()
                    .ends_with("expected model or vfio:ADDRESS")
            );
        }
        let error = "vfio:3b".parse::<DeviceName>().unwrap_err();
        assert!(error.address.is_some(), "{error}");
        assert!(DeviceName::list("model,,model").is_err());
    }
}
