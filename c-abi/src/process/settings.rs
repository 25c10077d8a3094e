//! Settings in the environment: the devices, the network of the models, and the addresses of the ports.

use std::env;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use bareverbs_node::{Address, DEFAULT_PKEY, DeviceName};

use crate::process::failure::{Errno, Result};

/// The devices, with commas between them ([`DeviceName`]); `model` if it is not set.
pub const DEVICE: &str = bareverbs_node::DEVICE_VARIABLE;
/// The wire that joins the models' network to other processes: `unix:LOCAL,REMOTE` (paths), `udp:LOCAL,REMOTE`, or
/// `switch:PATH`.
pub const LINK: &str = bareverbs_node::LINK_VARIABLE;
/// The number of the first model, which decides MAC address and GUID. If it is not set, it is the process's rank ([`RANKS`])
/// plus one; without a rank the switch gives one, and without a switch it is 1.
pub const UNIT: &str = bareverbs_node::UNIT_VARIABLE;
/// Variables with a process's rank in a parallel program, by launcher: Open MPI, PMIx, MPICH (Hydra), Slurm.
pub const RANKS: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];
/// The addresses of the ports: those of a port with commas between them, as in `10.0.0.1/24,fd00::1`, those of the next
/// device after a semicolon. `{unit}` in it stands for the number of the model. `10.0.0.UNIT` and `fd00::UNIT` if it is not set;
/// InfiniBand ports have none then.
pub const ADDRESS: &str = "BAREVERBS_ADDRESS";
/// The models' ports: `ethernet`, which they are if it is not set, or `infiniband`.
pub const PORT: &str = bareverbs_node::PORT_VARIABLE;
/// The partition that the addresses of InfiniBand ports are in, as in `0x8001`; the default one if it is not set.
pub const PKEY: &str = "BAREVERBS_PKEY";
/// The router to hosts elsewhere.
pub const GATEWAY: &str = "BAREVERBS_GATEWAY";
/// Filter for the library's messages on standard error, in `env_logger`'s words; errors only if it is not set.
pub const LOG: &str = "BAREVERBS_LOG";
/// The faults of the models, in the form of the examples' `--fault`, with semicolons between several:
/// `loss=0.01,latency=50us;command=CREATE_QP,nth=3,status=BAD_PARAM`.
pub const FAULT: &str = bareverbs_node::FAULT_VARIABLE;
/// Decides which frames.
pub const FAULT_SEED: &str = "BAREVERBS_FAULT_SEED";
/// When the cables of the models are pulled out, as in `5s`, counted from the first device that is opened.
pub const CABLE_OUT_AFTER: &str = "BAREVERBS_CABLE_OUT_AFTER";
/// The time for which they stay out; until the process ends if it is not set.
pub const CABLE_OUT_FOR: &str = "BAREVERBS_CABLE_OUT_FOR";
/// The file to which the frames on the models' network are recorded (pcap).
pub const PCAP: &str = "BAREVERBS_PCAP";

/// After how many milliseconds calls that wait on a stream of rsockets ask the other end for a sign of life; 0: never, and a
/// call does not end if the other end has gone without a word. 1000 if it is not set.
pub const RSOCKET_PROBE: &str = "BAREVERBS_RSOCKET_PROBE";

/// The devices in their order.
pub(crate) fn devices() -> Result<Vec<DeviceName>> {
    DeviceName::from_env().map_err(|error| {
        log::error!("{DEVICE}: {error}");
        Errno::EINVAL
    })
}

/// A variable's value, if it is set and not empty.
pub(crate) fn value(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// A variable's value, read by `parse`.
pub(crate) fn parsed<T>(
    name: &str,
    parse: impl FnOnce(&str) -> std::result::Result<T, String>,
) -> Result<Option<T>> {
    let Some(text) = value(name) else {
        return Ok(None);
    };
    match parse(&text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            log::error!("{name}={text}: {error}");
            Err(Errno::EINVAL)
        }
    }
}

/// The number of the first model, if it is given.
pub(crate) fn unit() -> Result<Option<u8>> {
    parsed(UNIT, |text| match text.parse() {
        Ok(unit @ 1..=254) => Ok(unit),
        _ => Err("expected a number from 1 to 254".into()),
    })
}

/// Returns `true` if the models' ports are InfiniBand ports.
#[cfg(feature = "model")]
pub(crate) fn infiniband() -> Result<bool> {
    let found = parsed(PORT, |text| match text {
        "infiniband" => Ok(true),
        "ethernet" => Ok(false),
        _ => Err("expected ethernet or infiniband".into()),
    })?;
    Ok(found.unwrap_or(false))
}

/// The number of the first model by the process's rank, if it has one for which there is a number.
#[cfg(feature = "model")]
pub(crate) fn unit_of_rank() -> Option<u8> {
    rank_unit(RANKS.iter().find_map(|name| value(name))?.as_str())
}

#[cfg(feature = "model")]
fn rank_unit(rank: &str) -> Option<u8> {
    let unit = rank.parse::<u8>().ok()?.checked_add(1)?;
    (unit <= 254).then_some(unit)
}

/// When rsockets ask for signs of life, if ever. Read once.
pub(crate) fn rsocket_probe() -> Option<Duration> {
    static PROBE: OnceLock<Duration> = OnceLock::new();
    let probe = PROBE.get_or_init(|| {
        let asked = parsed(RSOCKET_PROBE, |text| {
            text.parse::<u32>().map_err(|error| error.to_string())
        });
        Duration::from_millis(asked.ok().flatten().unwrap_or(1000).into())
    });
    (!probe.is_zero()).then_some(*probe)
}

/// The partition that the addresses of InfiniBand ports are in.
pub(crate) fn pkey() -> Result<u16> {
    Ok(parsed(PKEY, partition)?.unwrap_or(DEFAULT_PKEY))
}

/// A partition as its full members have it; there is none of number 0.
fn partition(text: &str) -> std::result::Result<u16, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match number {
        Ok(number) if number & 0x7fff != 0 => Ok(number | 0x8000),
        _ => Err("expected a P_Key, as in 0x8001".into()),
    }
}

/// Returns `true` if the ports' addresses are given.
pub(crate) fn has_addresses() -> bool {
    value(ADDRESS).is_some()
}

/// The addresses of the port of device `index`, of which `unit` is the number.
pub(crate) fn addresses(index: usize, unit: u8) -> Result<Vec<Address>> {
    let gateway = parsed(GATEWAY, |text| {
        text.parse::<IpAddr>().map_err(|error| error.to_string())
    })?;
    let mut addresses = match parsed(ADDRESS, |text| address_list(&with_unit(text, unit), index))? {
        Some(addresses) => addresses,
        None => vec![
            IpAddr::from([10, 0, 0, unit]).into(),
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(unit)]).into(),
        ],
    };
    for address in &mut addresses {
        let same = |gateway: &IpAddr| gateway.is_ipv4() == address.ip.is_ipv4();
        address.gateway = gateway.filter(same);
    }
    Ok(addresses)
}

/// Puts the number in for `{unit}`, so that one list does for all processes of a program.
fn with_unit(text: &str, unit: u8) -> String {
    text.replace("{unit}", &unit.to_string())
}

fn address_list(text: &str, index: usize) -> std::result::Result<Vec<Address>, String> {
    let Some(list) = text.split(';').nth(index) else {
        return Err(format!("there are no addresses for device {index}"));
    };
    list.split(',').map(address).collect()
}

fn address(text: &str) -> std::result::Result<Address, String> {
    let (ip, prefix) = match text.split_once('/') {
        Some((ip, prefix)) => (ip, Some(prefix)),
        None => (text, None),
    };
    let ip: IpAddr = ip.parse().map_err(|error| format!("{text:?}: {error}"))?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix.map(str::parse::<u8>) {
        None => None,
        Some(Ok(bits)) if bits <= most => Some(bits),
        Some(_) => return Err(format!("{text:?}: the prefix has 0 to {most} bits")),
    };
    Ok(Address {
        prefix,
        ..ip.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_device() {
        let text = "10.1.0.1/16,fd00::5;192.168.0.9";
        let first = address_list(text, 0).unwrap();
        assert_eq!(first.len(), 2);
        assert_eq!(first[0].ip, IpAddr::from([10, 1, 0, 1]));
        assert_eq!((first[0].prefix_len(), first[1].prefix_len()), (16, 64));
        let second = address_list(text, 1).unwrap();
        assert_eq!(second[0].ip, IpAddr::from([192, 168, 0, 9]));
        assert!(address_list(text, 2).is_err());
        let of_unit = address_list(&with_unit("10.1.0.{unit}/16", 7), 0).unwrap();
        assert_eq!(of_unit[0].ip, IpAddr::from([10, 1, 0, 7]));
    }

    #[test]
    fn partitions_have_numbers() {
        let read = |text| partition(text).ok();
        assert_eq!(read("0x8001"), Some(0x8001));
        assert_eq!(read("0x1"), Some(0x8001));
        assert_eq!(read("0xffff"), Some(DEFAULT_PKEY));
        assert_eq!(read("32767"), Some(DEFAULT_PKEY));
        for text in ["", "0x", "0", "0x8000", "0x18001", "-1", "blue"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[cfg(feature = "model")]
    #[test]
    fn ranks_count_from_zero() {
        let units = ["0", "253", "254", "255", "1000", "-1", "x"].map(rank_unit);
        assert_eq!(units, [Some(1), Some(254), None, None, None, None, None]);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "10.0.0.1/33",
            "10.0.0.1/",
            "host",
            "fd00::/129",
            "10.0.0.1,",
        ] {
            assert!(address_list(text, 0).is_err(), "{text:?}");
        }
    }
}
