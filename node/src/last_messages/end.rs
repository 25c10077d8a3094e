//! A device or an end of a network that one process has at a time, and the name by which the next one waits.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
#[cfg(feature = "model")]
use std::path::absolute;
use std::time::Duration;

use bareverbs_vfio::PciAddress;
#[cfg(feature = "model")]
use connectx_model::link::datagram;

use crate::patience::when_free;

/// The time that a process waits for one that may hang up for another one.
const PATIENCE: Duration = Duration::from_secs(1);

/// A card, or an end of a network of models: one process has it at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// A function on VFIO.
    Function(PciAddress),
    /// A wire's end, by its path or address, or a switch's path and the number that a process has there.
    Network(PathBuf, u8),
}

impl End {
    /// The end of a network that a model has, `unit` being its number.
    ///
    /// # Errors
    ///
    /// The operating system's error, if the path cannot be made absolute.
    #[cfg(feature = "model")]
    pub fn of_link(link: &datagram::Address, unit: u8) -> io::Result<Self> {
        Ok(match link {
            datagram::Address::Switch(path) => Self::Network(absolute(path)?, unit),
            datagram::Address::Unix { local, .. } => Self::Network(absolute(local)?, 0),
            datagram::Address::Udp { local, .. } => Self::Network(local.into(), 0),
        })
    }

    /// The name, in the abstract namespace of Unix sockets, that a process holds as long as it may hang up for another one which
    /// has this end. It is the FNV-1a hash of the address's text, or of the path and the number: programs of different compilers
    /// and releases agree on it.
    #[must_use]
    pub fn name(&self) -> String {
        let bytes = match self {
            Self::Function(address) => address.to_string().into_bytes(),
            Self::Network(path, unit) => [path.as_os_str().as_bytes(), &[*unit]].concat(),
        };
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        format!("bareverbs-hang-up-{hash:x}")
    }

    /// Returns `true` unless a process may hang up for another one that has, or had, this end.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.hold().is_ok()
    }

    /// Waits until no process may hang up for another one that had this end; for a second at most, as that process may be there
    /// for one that has the end and works.
    pub fn wait(&self) {
        if let Err(error) = self.hold_when_free() {
            log::debug!("another process may hang up: {error}");
        }
    }

    /// Has the name for as long as the socket is open. Another process has it for a moment when it looks whether it is free.
    pub(super) fn hold_when_free(&self) -> io::Result<UnixDatagram> {
        let is_in_use = |error: &io::Error| error.kind() == ErrorKind::AddrInUse;
        when_free(PATIENCE, is_in_use, || self.hold())
    }

    fn hold(&self) -> io::Result<UnixDatagram> {
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(self.name())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_by_end_and_are_held_once() {
        let end = |path: &str, unit| End::Network(path.into(), unit);
        let function = |text: &str| End::Function(text.parse().expect("an address"));
        let mine = format!("/tmp/{}", std::process::id());
        let all = [
            end(&mine, 1),
            end(&mine, 2),
            end("/tmp/b", 1),
            function("0000:01:00.0"),
            function("0000:01:00.1"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert_eq!(one.name(), one.clone().name());
            assert!(all[..index].iter().all(|other| other.name() != one.name()));
        }
        assert_eq!(all[3].name(), "bareverbs-hang-up-481ca71e8603896");
        assert_eq!(all[2].name(), "bareverbs-hang-up-40c90822fbd7f161");
        let held = all[0].hold().expect("a name of this length");
        assert!(!all[0].is_free() && all[1].is_free());
        let again = all[0].hold().expect_err("it is held");
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        drop(held);
        all[0].wait();
        all[0].hold().expect("nothing holds it");
    }
}
