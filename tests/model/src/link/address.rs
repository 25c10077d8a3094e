//! The ends of a [wire out of the process](super::datagram), as text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `unix:LOCAL,REMOTE`, `udp:LOCAL,REMOTE` or `switch:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Paths of sockets.
    Unix {
        /// This end, which is bound.
        local: PathBuf,
        /// The other end, which frames are sent to.
        remote: PathBuf,
    },
    /// Hosts and ports, `HOST:PORT` or `[IPv6]:PORT`.
    Udp {
        /// This end, which is bound.
        local: String,
        /// The other end, which frames are sent to.
        remote: String,
    },
    /// The path of a [virtual switch](super::vswitch)'s socket.
    Switch(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (family, ends) = text.split_once(':').unwrap_or_default();
        if family == "switch" && !ends.is_empty() {
            return Ok(Self::Switch(ends.into()));
        }
        let Some((local, remote)) = ends
            .split_once(',')
            .filter(|(local, remote)| !local.is_empty() && !remote.is_empty())
        else {
            return Err(
                "none of unix:LOCAL,REMOTE, udp:HOST:PORT,HOST:PORT and switch:PATH".into(),
            );
        };
        match family {
            "unix" if local == remote => Err("both ends are the same path".into()),
            "unix" => Ok(Self::Unix {
                local: local.into(),
                remote: remote.into(),
            }),
            "udp" => Ok(Self::Udp {
                local: local.into(),
                remote: remote.into(),
            }),
            _ => Err(format!("{family:?} is neither unix nor udp")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { local, remote } => {
                write!(f, "unix:{},{}", local.display(), remote.display())
            }
            Self::Udp { local, remote } => write!(f, "udp:{local},{remote}"),
            Self::Switch(path) => write!(f, "switch:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let unix: Address = "unix:/run/a,/run/b".parse().unwrap();
        assert_eq!(
            unix,
            Address::Unix {
                local: "/run/a".into(),
                remote: "/run/b".into()
            }
        );
        for text in [
            "unix:/run/a,/run/b",
            "udp:[::1]:7000,[::1]:7001",
            "switch:/run/a",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "unix",
            "unix:",
            "unix:/a",
            "unix:/a,",
            "unix:,/b",
            "unix:/a,/a",
            "switch:",
            "tcp:a:1,b:2",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
