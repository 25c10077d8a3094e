//! The command line, by words:
//!
//! | word | meaning |
//! |---|---|
//! | `server`, `client=ADDRESS` | which end of `rping` runs here; a client needs the server's address |
//! | `address=ADDRESS/PREFIX` | this end's address; a prefix of 24 or 64 bits if none is given |
//! | `gateway=ADDRESS` | the router to hosts elsewhere |
//! | `port=PORT` | 7174 if not given |
//! | `count=COUNT` | pings of a client |
//! | `size=BYTES` | of a message |
//! | `clients=COUNT` | how many clients a server with tasks serves before it ends; 1 if not given. Only there |
//! | `mtu=BYTES` | the largest path MTU to ask for, 1024 if not given |
//! | `silence=SECONDS` | how long a peer may be silent where it has to send: 30 if not given |
//! | `attempts=COUNT` | how often to reset the card and start again when something fails; 1 if not given |
//! | `interrupts` | sleep until the card raises an interrupt, instead of polling it |
//! | `log=LEVEL` | what goes to the console: `info` if not given |

use core::net::IpAddr;
use core::time::Duration;

use bareverbs::verbs::Mtu;
use log::LevelFilter;

use crate::channel::SILENCE;
use crate::failure::Failure;

/// The longest message.
pub(crate) const SIZE_MAX: u32 = 1 << 20;

/// Options of the command line.
#[cfg_attr(
    not(feature = "rping"),
    expect(dead_code, reason = "the words are the same in all images")
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Where the server is; `None` for the server itself.
    pub(crate) server: Option<IpAddr>,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) count: u32,
    pub(crate) size: u32,
    #[cfg(feature = "tasks")]
    pub(crate) clients: u32,
    pub(crate) mtu: Mtu,
    pub(crate) silence: Duration,
    pub(crate) attempts: u32,
    pub(crate) interrupts: bool,
    pub(crate) log: LevelFilter,
}

impl Options {
    pub(crate) fn parse(line: &'static str) -> Result<Self, Failure> {
        let mut role: Option<Option<IpAddr>> = None;
        let mut address = None;
        let mut prefix = None;
        let mut gateway = None;
        let (mut port, mut count, mut size) = (7174, 100, 4096);
        #[cfg(feature = "tasks")]
        let mut clients = 1;
        let mut mtu = Mtu::B1024;
        let (mut silence, mut attempts) = (SILENCE.as_secs(), 1);
        let mut interrupts = false;
        let mut log = LevelFilter::Info;
        for word in line.split_ascii_whitespace() {
            let wrong = || Failure::Option(word);
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "server" if value.is_empty() => role = Some(None),
                "client" => role = Some(Some(parse(value).ok_or_else(wrong)?)),
                "address" => {
                    let (host, bits) = match value.split_once('/') {
                        Some((host, bits)) => (host, Some(parse(bits).ok_or_else(wrong)?)),
                        None => (value, None),
                    };
                    address = Some(parse::<IpAddr>(host).ok_or_else(wrong)?);
                    prefix = bits;
                }
                "gateway" => gateway = Some(parse(value).ok_or_else(wrong)?),
                "port" => port = parse(value).filter(|port| *port != 0).ok_or_else(wrong)?,
                "count" => count = parse(value).ok_or_else(wrong)?,
                "size" => {
                    let fits = |size: &u32| (26..=SIZE_MAX).contains(size);
                    size = parse(value).filter(fits).ok_or_else(wrong)?;
                }
                #[cfg(feature = "tasks")]
                "clients" => {
                    clients = parse(value).filter(|count| *count != 0).ok_or_else(wrong)?;
                }
                "mtu" => mtu = parse(value).and_then(mtu_of).ok_or_else(wrong)?,
                "silence" => silence = parse(value).ok_or_else(wrong)?,
                "attempts" => {
                    attempts = parse(value).filter(|count| *count != 0).ok_or_else(wrong)?;
                }
                "interrupts" if value.is_empty() => interrupts = true,
                "log" => log = parse(value).ok_or_else(wrong)?,
                _ => return Err(wrong()),
            }
        }
        let server = role.ok_or(Failure::Missing("server or client="))?;
        let address = address.ok_or(Failure::Missing("address="))?;
        if let Some(server) = server
            && server.is_ipv4() != address.is_ipv4()
        {
            return Err(Failure::Families(address, server));
        }
        Ok(Self {
            server,
            address,
            prefix: prefix.unwrap_or(if address.is_ipv4() { 24 } else { 64 }),
            gateway,
            port,
            count,
            size,
            #[cfg(feature = "tasks")]
            clients,
            mtu,
            silence: Duration::from_secs(silence),
            attempts,
            interrupts,
            log,
        })
    }
}

fn parse<T: core::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn mtu_of(bytes: u32) -> Option<Mtu> {
    (1..=5)
        .filter_map(Mtu::from_number)
        .find(|mtu| mtu.bytes() == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_nothing_but_an_address() {
        let options = Options::parse("server address=10.0.0.2").unwrap();
        assert_eq!(options.server, None);
        assert_eq!(options.address, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((options.prefix, options.port), (24, 7174));
        assert_eq!((options.count, options.size), (100, 4096));
        assert_eq!((options.mtu, options.attempts), (Mtu::B1024, 1));
        assert_eq!(options.silence, Duration::from_secs(30));
        assert!(!options.interrupts && options.gateway.is_none());
    }

    #[test]
    fn a_client_with_everything() {
        let line = "client=fd00::1 address=fd00::2/48 gateway=fd00::3 port=1 count=7 size=26 mtu=4096 silence=2 \
                    attempts=3 interrupts log=debug";
        let options = Options::parse(line).unwrap();
        assert_eq!(options.server, Some("fd00::1".parse().unwrap()));
        assert_eq!(options.address, "fd00::2".parse::<IpAddr>().unwrap());
        assert_eq!(options.gateway, Some("fd00::3".parse().unwrap()));
        assert_eq!((options.prefix, options.port, options.count), (48, 1, 7));
        assert_eq!((options.size, options.mtu), (26, Mtu::B4096));
        assert_eq!((options.silence.as_secs(), options.attempts), (2, 3));
        assert!(options.interrupts);
        assert_eq!(options.log, LevelFilter::Debug);
    }

    #[cfg(feature = "tasks")]
    #[test]
    fn a_server_with_tasks() {
        let options = Options::parse("server address=10.0.0.2").unwrap();
        assert_eq!(options.clients, 1);
        let options = Options::parse("server address=10.0.0.2 clients=9").unwrap();
        assert_eq!(options.clients, 9);
        for word in ["clients=0", "clients=-1", "clients"] {
            let found = Options::parse(word).unwrap_err();
            assert!(matches!(found, Failure::Option(said) if said == word));
        }
    }

    #[test]
    fn words_that_mean_nothing() {
        for word in [
            "serve",
            "server=10.0.0.1",
            "client=",
            "client=host",
            "address=10.0.0.2/x",
            "address=10.0.0.256",
            "gateway",
            "port=0",
            "port=65536",
            "count=-1",
            "size=25",
            "size=1048577",
            "mtu=1500",
            "silence=soon",
            "attempts=0",
            "interrupts=no",
            "log=loud",
            "=",
        ] {
            let found = Options::parse(word).unwrap_err();
            assert!(
                matches!(found, Failure::Option(said) if said == word),
                "{word}: {found}"
            );
        }
    }

    #[test]
    fn words_that_are_missing_or_do_not_go_together() {
        for (line, said) in [
            ("", "the command line has no server or client="),
            ("server", "the command line has no address="),
            (
                "client=10.0.0.1 address=fd00::2",
                "fd00::2 and 10.0.0.1 are of two families",
            ),
        ] {
            assert_eq!(Options::parse(line).unwrap_err().to_string(), said);
        }
    }
}
