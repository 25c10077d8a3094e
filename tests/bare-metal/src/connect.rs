//! Either end of a connection without messages: what the connection manager alone takes.

use core::net::IpAddr;

use bareverbs::cm::rdma::{AddrInfo, IdState, QpInit, RdmaError};

use crate::failure::Failure;
use crate::manager::Cm;
use crate::options::Options;

/// Listens, accepts a connection, and waits until the other end closes it.
pub(crate) fn serve(cm: &mut Cm<'_, '_>, options: &Options) -> Result<(), Failure> {
    let address = AddrInfo {
        src_addr: Some((options.address, options.port).into()),
        ..AddrInfo::hints(true)
    };
    let listener = cm.create_ep(&address, None, Some(&mut QpInit::default()))?;
    cm.listen(listener, 1)?;
    log::info!("listening on {} port {}", options.address, options.port);
    let id = cm.get_request(listener)?;
    cm.accept(id, None)?;
    let end = cm.now().saturating_add(options.silence);
    while cm.state(id)? != IdState::Disconnect {
        if cm.now() >= end {
            return Err(RdmaError::TimedOut.into());
        }
        cm.wait(end)?;
    }
    cm.disconnect(id)?;
    cm.destroy_ep(id)?;
    cm.destroy_ep(listener)?;
    log::info!("a connection came and went");
    Ok(())
}

/// Connects, and disconnects.
pub(crate) fn call(cm: &mut Cm<'_, '_>, options: &Options, server: IpAddr) -> Result<(), Failure> {
    let address = AddrInfo {
        src_addr: Some((options.address, 0).into()),
        dst_addr: Some((server, options.port).into()),
        ..AddrInfo::hints(false)
    };
    let id = cm.create_ep(&address, None, Some(&mut QpInit::default()))?;
    cm.connect(id, None)?;
    log::info!("connected to {server} port {}", options.port);
    cm.disconnect(id)?;
    cm.destroy_ep(id)?;
    Ok(())
}
