//! Device models as devices.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use bareverbs_in_process::Builder;
use bareverbs_in_process::subnet::{Subnet, infiniband_port};
use connectx_model::Config;
use connectx_model::fault::setting as fault;
use connectx_model::link::datagram::{self, Wire};
use connectx_model::link::stream::{Connection, Wish};

use crate::address::{Host, NodeAddress};
use crate::error::Error;
use crate::node::{FAULT_VARIABLE, LINK_VARIABLE, Options, UNIT_VARIABLE};
use crate::platform::DevicePlatform;

/// Models with these numbers, at the ends of a cable, or on InfiniBand in a subnet.
pub(crate) fn models<const N: usize>(
    options: Options,
    numbers: [u8; N],
) -> Result<[DevicePlatform; N], Error> {
    platforms(options, numbers, None)
}

/// A model alone, on the wire that the environment names, if it names one.
pub(crate) fn model(options: Options, address: NodeAddress) -> Result<DevicePlatform, Error> {
    let unit = variable(UNIT_VARIABLE, |text| match text.parse() {
        Ok(unit @ 1..=254) => Ok(unit),
        _ => Err("expected a number from 1 to 254"),
    })?;
    let own = unit.unwrap_or_else(|| number_of(address));
    let plugged = variable(LINK_VARIABLE, |link| {
        let open = || match link.parse()? {
            datagram::Address::Switch(path) => {
                let (first, count) = (own, 1);
                let wish = match unit {
                    Some(_) => Wish::Exactly { first, count },
                    None => Wish::Preferably { first, count },
                };
                let connection =
                    Connection::open(&path, wish).map_err(|error| error.to_string())?;
                let number = connection.first_unit();
                let wire = Wire::on_switch(0, connection).map_err(|error| error.to_string())?;
                Ok((number, wire))
            }
            ends => {
                let wire = Wire::open(0, &ends).map_err(|error| error.to_string())?;
                Ok::<_, String>((own, wire))
            }
        };
        open()
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
