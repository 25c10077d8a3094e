//! Device models as devices.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_in_process::Builder;
use bareverbs_in_process::subnet::{Subnet, infiniband_port};
use connectx_model::Config;
use connectx_model::fault::setting as fault;
use connectx_model::link::datagram::{self, Wire};
use connectx_model::link::stream::{Connection, Wish};

use crate::address::{Host, NodeAddress};
use crate::error::Error;
#[cfg(feature = "last-messages")]
use crate::last_messages::End;
use crate::node::{FAULT_VARIABLE, LINK_VARIABLE, Options, UNIT_VARIABLE};
use crate::patience::when_free;
use crate::platform::DevicePlatform;

/// Models with these numbers, at the ends of a cable, or on InfiniBand in a subnet.
pub(crate) fn models<const N: usize>(
    options: Options,
    numbers: [u8; N],
) -> Result<[DevicePlatform; N], Error> {
    platforms(options, numbers, None)
}

/// The number that a model alone is to have, if the environment names one.
fn unit() -> Result<Option<u8>, Error> {
    variable(UNIT_VARIABLE, |text| match text.parse() {
        Ok(unit @ 1..=254) => Ok(unit),
        _ => Err("expected a number from 1 to 254"),
    })
}

/// `true` if another process may open the device when this one is gone, with the same number.
fn is_left_to_another(options: Options) -> bool {
    #[cfg(feature = "last-messages")]
    return options.disconnect_on_exit;
    #[cfg(not(feature = "last-messages"))]
    {
        let _ = options;
        false
    }
}

/// The end of a network that a model alone has, if the environment names one.
#[cfg(feature = "last-messages")]
pub(crate) fn end(address: NodeAddress) -> Result<Option<End>, Error> {
    let own = unit()?.unwrap_or_else(|| number_of(address));
    variable(LINK_VARIABLE, |link| {
        let link = link.parse::<datagram::Address>()?;
        End::of_link(&link, own).map_err(|error| error.to_string())
    })
}

/// A model alone, on the wire that the environment names, if it names one. It is waited for as long as `patience` if another
/// process has it.
pub(crate) fn model(
    options: Options,
    address: NodeAddress,
    patience: Duration,
) -> Result<DevicePlatform, Error> {
    let unit = unit()?;
    let own = unit.unwrap_or_else(|| number_of(address));
    let is_in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    let plugged = variable(LINK_VARIABLE, |link| {
        let link = link.parse::<datagram::Address>()?;
        let open = || match &link {
            datagram::Address::Switch(path) => {
                let (first, count) = (own, 1);
                let wish = match unit.is_some() || is_left_to_another(options) {
                    true => Wish::Exactly { first, count },
                    false => Wish::Preferably { first, count },
                };
                let connection = Connection::open(path, wish)?;
                let number = connection.first_unit();
                Ok((number, Wire::on_switch(0, connection)?))
            }
            ends => Ok((own, Wire::open(0, ends)?)),
        };
        when_free(patience, is_in_use, open).map_err(|error| error.to_string())
    })?;
    let [model] = match plugged {
        Some((number, wire)) => platforms(options, [number], Some(wire))?,
        None => platforms(options, [own], None)?,
    };
    Ok(model)
}

fn platforms<const N: usize>(
    options: Options,
    numbers: [u8; N],
    wire: Option<Wire>,
) -> Result<[DevicePlatform; N], Error> {
    let faults = variable(FAULT_VARIABLE, fault::list)?.unwrap_or_default();
    let mut builder = match options.infiniband {
        false => Builder::new(),
        true => Builder::with_link(
            Subnet::of_numbered().link(N + usize::from(wire.is_some())),
            0,
        ),
    };
    for number in numbers {
        let card = Config::new(number);
        builder = builder.function(match options.infiniband {
            false => card,
            true => infiniband_port(card, number),
        });
    }
    if let Some(wire) = wire {
        builder = builder.exit(wire);
    }
    let world = Arc::new(builder.interrupts(options.interrupts.into()).threaded());
    world.with_wire(|wire| wire.set_rates(fault::rates(&faults)));
    Ok(std::array::from_fn(|index| {
        world.with_model(index, |model| {
            fault::arm(&faults, index, model.faults_mut());
        });
        DevicePlatform::model(&world, index)
    }))
}

/// The number of a model by its node's address: the last byte, so that the models of two processes differ.
fn number_of(address: NodeAddress) -> u8 {
    let last = match address.host() {
        Host::Ip(IpAddr::V4(ip)) => ip.octets()[3],
        Host::Ip(IpAddr::V6(ip)) => ip.octets()[15],
        Host::Gid(_) => 1,
    };
    last.clamp(1, 254)
}

/// Returns what a variable's value is read as; `None` if it is not set or empty.
fn variable<T, E: Display>(
    name: &'static str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, Error> {
    let value = std::env::var_os(name).unwrap_or_default();
    let value = value.to_string_lossy();
    if value.is_empty() {
        return Ok(None);
    }
    match read(&value) {
        Ok(found) => Ok(Some(found)),
        Err(why) => Err(Error::Variable {
            name,
            value: value.into_owned(),
            why: why.to_string(),
        }),
    }
}
