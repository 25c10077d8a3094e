//! Why no connection came about: which step failed, and with which address.

#![allow(dead_code, reason = "each program uses its part")]

use std::fmt::Display;

use bareverbs::cm::rdma::{AddrInfo, CmEvent, EventType, RdmaError};
use bareverbs::verbs::Platform;

use crate::node::Cm;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What is done first with an address.
pub(crate) const RESOLVING: &str = "resolving";
/// What is done then.
pub(crate) const CONNECTING: &str = "connecting to";

/// The error of a step with the address that it was about.
pub(crate) fn unreached(step: &str, address: Option<impl Display>, error: impl Display) -> Error {
    match address {
        Some(address) => format!("{step} {address}: {error}").into(),
        None => format!("{step}: {error}").into(),
    }
}

/// The same for synchronous calls with the destination of `address`.
pub(crate) fn step_to(step: &str, address: &AddrInfo) -> impl Fn(RdmaError) -> Error {
    move |error| unreached(step, address.dst_addr, error)
}

/// The same for an event that tells of a failure.
pub(crate) fn failure<P: Platform>(cm: &Cm<'_, '_, P>, event: &CmEvent) -> Error {
    let error = match cm.last_error(event.id) {
        Ok(Some(error)) => error.to_string(),
        _ => format!("{}, {}", event.event, event.status),
    };
    let step = match event.event {
        EventType::AddrError | EventType::RouteError => RESOLVING,
        EventType::ConnectError | EventType::Unreachable | EventType::Rejected => CONNECTING,
        other => return format!("{other}: {error}").into(),
    };
    unreached(step, cm.get_peer_addr(event.id).ok().flatten(), error)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use bareverbs::verbs::Mtu;
    use bareverbs_in_process::{Builder, ModelPlatform};

    use super::Error;
    use crate::node::{self, Cm, Settings};

    /// What a client at the first address says of a server at the second one, where there is nothing.
    pub(crate) fn told_of_a_dead_address<T>(
        client: impl FnOnce(&mut Cm<'_, '_, ModelPlatform>, [IpAddr; 2]) -> Result<T, Error>,
    ) -> String {
        let ends = [2, 99].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let card = connectx_model::Config::new;
        let world = Builder::new()
            .function(card(1))
            .function(card(2))
            .threaded();
        let settings = Settings {
            interrupts: false,
            mtu: Mtu::B1024,
            mac: None,
            patient: false,
            connections: 4,
        };
        let told = node::run(world.platform(0), ends[0].into(), settings, 1, |cm, _| {
            let error = client(cm, ends).err();
            Ok(error.expect("there is nothing").to_string())
        });
        told.expect("the device is well")
    }
}
