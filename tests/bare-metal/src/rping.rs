//! Either end of `rping`: the very same code as the example on Linux.

use core::net::IpAddr;
use core::time::Duration;

use bareverbs::cm::rdma::AddrInfo;
use kernel::clock;

use crate::failure::Failure;
use crate::manager::Cm;
use crate::options::Options;
use crate::ping::{self, Message, Pinged, Wanted};
#[cfg(not(feature = "tasks"))]
use crate::ping::{Clients, Step};

/// Says when the first RDMA READ was done; a client detects it by its first ping.
pub(crate) fn first_operation() {
    let micros = clock::since_boot().as_micros();
    log::info!("boot to first RDMA operation: {micros} us");
}

/// Listens, and serves one client until it disconnects.
#[cfg(not(feature = "tasks"))]
pub(crate) fn serve(cm: &mut Cm<'_, '_>, options: &Options) -> Result<(), Failure> {
    let address = AddrInfo {
        src_addr: Some((options.address, options.port).into()),
        ..AddrInfo::hints(true)
    };
    let clients = Clients {
        times: Some(1),
        reject: None,
        size: options.size,
        silence: [options.silence; 2],
    };
    let mut served = 0;
    let pings = ping::serve(cm, &address, clients, |step| match step {
        Step::Listening => {
            log::info!("listening on {} port {}", options.address, options.port);
        }
        Step::Read if served == 0 => first_operation(),
        Step::Read => {}
        Step::Served(number) => served = number,
        // The error of the only client is the call's as well, and printed there.
        Step::Failed(error) => log::debug!("a client: {error}"),
    })?;
    log::info!("rping server: {pings} pings");
    Ok(())
}

/// Connects, pings, verifies every byte, and disconnects.
pub(crate) fn ping(cm: &mut Cm<'_, '_>, options: &Options, server: IpAddr) -> Result<(), Failure> {
    let address = AddrInfo {
        src_addr: Some((options.address, 0).into()),
        dst_addr: Some((server, options.port).into()),
        ..AddrInfo::hints(false)
    };
    let wanted = Wanted {
        size: options.size as usize,
        count: options.count,
        validate: true,
        private_data: &[],
        silence: options.silence,
    };
    let done = |message: &Message, _: Duration| {
        if message.number == 0 {
            first_operation();
        }
    };
    let connected = |so_far: &Pinged| {
        let took = so_far.connect;
        log::info!("connected to {server} port {} after {took:?}", options.port);
    };
    let pinged = ping::ping(cm, &address, wanted, |_, so_far| connected(so_far), done)?;
    log::info!(
        "rping client: {} pings, {} bytes verified, {:?}",
        pinged.pings,
        pinged.verified,
        pinged.elapsed
    );
    Ok(())
}
