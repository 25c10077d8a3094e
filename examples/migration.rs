//! A connection by GID with an alternate path, which keeps data moving while the path in use is cut. The other end is
//! rdma-core's `ucmatose -f gid`, whose manager is Linux's.
//!
//! ```text
//! cargo run --example migration -- --device vfio:0000:3b:00.0 fe80::2:c903:0:101 4 0011 /run/cut /run/mended
//! ```
//!
//! on an InfiniBand port of a subnet whose ports have several identifiers each: the other end's GID and its first LID; the low
//! bits of the other LID and of the own one on the path and on the alternate path; and two files. When the first appears the
//! path has been cut, and when the second does it can be used again, and is to be the alternate path.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bareverbs_examples::devices::function;
use bareverbs_examples::function::with_function;
use bareverbs_examples::{Result, program};
use bareverbs_node::cm::engine::{AlternateSlot, Timers};
use bareverbs_node::cm::mad::sa::PathRecord;
use bareverbs_node::cm::rdma::{
    self, ChannelId, CmEvent, CmId, EventType, IdOption, Members, Paths, PortSpace, QpInit,
    Questions, RdmaCm, SendFlags, SockaddrIb, SubnetAdministration, SubnetResources,
};
use bareverbs_node::cm::sa;
use bareverbs_node::verbs::qp::QpCap;
use bareverbs_node::verbs::{Device, Gid, Platform, PortAttr};
use bareverbs_node::vfio::PciAddress;
use bareverbs_node::{DevicePlatform, ManagerStorage};
use bpaf::Bpaf;

/// The port that `ucmatose` has by default.
const PORT: u16 = 7471;
const MESSAGES: u64 = 10;
const LEN: usize = 100;

const PATIENCE: Duration = Duration::from_secs(60);
/// For a LAP, which Linux's manager hands to a user that does not answer.
const IMPATIENT: Timers = Timers {
    remote_response: 16,
    local_response: 16,
    max_retries: 3,
    early: None,
};

type Cm<'s, 'd> = RdmaCm<'s, 'd, DevicePlatform, SubnetAdministration<'s>>;

/// A connection by GID with an alternate path, which keeps data moving while the path in use is cut. The other end is
/// rdma-core's ucmatose -f gid.
#[derive(Bpaf, Debug)]
#[bpaf(options)]
struct Arguments {
    #[bpaf(external)]
    function: PciAddress,
    /// The other end's GID.
    #[bpaf(positional("GID"))]
    gid: Ipv6Addr,
    /// Its port's first LID.
    #[bpaf(positional("LID"))]
    lid: u16,
    /// The lowest bits, 0 or 1 each, of its LID and of this end's on the path, and of both on the alternate path, as in 0011.
    #[bpaf(positional::<String>("BITS"), parse(parse_bits))]
    bits: [u16; 4],
    /// The path has been cut when this file appears.
    #[bpaf(positional("CUT"))]
    cut: PathBuf,
    /// It can be used again when this one does.
    #[bpaf(positional("MENDED"))]
    mended: PathBuf,
}

fn parse_bits(text: String) -> std::result::Result<[u16; 4], &'static str> {
    let bits = text.bytes().map(|bit| match bit {
        b'0' | b'1' => Some(u16::from(bit & 1)),
        _ => None,
    });
    let bits: Option<Vec<u16>> = bits.collect();
    let bits = bits.and_then(|bits| bits.try_into().ok());
    bits.ok_or("not four digits of 0 and 1")
}

fn main() -> ExitCode {
    program::main("migration", &arguments(), |arguments| {
        with_function(arguments.function, PATIENCE, |device, port| {
            on_device(device, &port, arguments)
        })
    })
}

fn on_device(
    device: &Device<'_, DevicePlatform>,
    port: &PortAttr,
    arguments: &Arguments,
) -> Result<()> {
    let seed = u64::from(std::process::id()) << 32;
    let mut paths = SubnetResources::<Questions<1>, Paths<1>, Members<1>>::new();
    let resolver = SubnetAdministration::new(sa::Config::new(seed), paths.storage());
    let mut slots = [AlternateSlot::EMPTY];
    let mut memory = ManagerStorage::for_connections(4);
    let mut cm = RdmaCm::new(device, resolver, rdma::Config::new(seed), memory.storage())?;
    cm.set_alternate_slots(&mut slots)?;
    let [there, here, other_there, other_here] = arguments.bits;
    let sgid = device.query_infiniband_gid(0)?.0;
    let path = |there, here| PathRecord {
        sgid,
        dgid: arguments.gid.octets(),
        slid: port.lid & !1 | here,
        dlid: arguments.lid & !1 | there,
        mtu: 4,
        rate: 16,
        packet_life_time: 12,
        pkey: 0xffff,
        ..PathRecord::ZERO
    };
    exchange(
        &mut cm,
        arguments,
        &[path(there, here), path(other_there, other_here)],
    )
}

fn exchange(cm: &mut Cm<'_, '_>, arguments: &Arguments, paths: &[PathRecord; 2]) -> Result<()> {
    let channel = cm.create_event_channel()?;
    let id = cm.create_id(Some(channel), 0, PortSpace::Tcp)?;
    let gid = Gid(arguments.gid.octets());
    let there = SockaddrIb::new(gid, PortSpace::Tcp, PORT);
    cm.resolve_addr(id, None, there, PATIENCE)?;
    expect(cm, channel, EventType::AddrResolved)?;
    // 17 ms, so that the path is given up within a second.
    cm.set_option(id, IdOption::AckTimeout(12))?;
    cm.set_option(id, IdOption::IbPath(paths[0]))?;
    expect(cm, channel, EventType::RouteResolved)?;
    cm.load_alternate_path(id, &paths[1])?;
    let mut init = QpInit {
        cap: QpCap {
            max_send_wr: 4,
            max_recv_wr: MESSAGES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        ..QpInit::default()
    };
    cm.create_qp(id, None, &mut init)?;
    let inbox = cm.reg_msgs(id, LEN)?;
    for number in 0..MESSAGES {
        cm.post_recv(id, number, inbox.slice(..LEN)?)?;
    }
    cm.connect(id, None)?;
    expect(cm, channel, EventType::Established)?;
    if cm.alternate_path(id)?.is_none() {
        return Err("the other end refused the alternate path".into());
    }
    send(cm, id, 5)?;
    let attr = cm.endpoint(id)?.qp.query()?.attr;
    println!("path {:?}", attr.path_mig_state);

    until(cm, |_| Ok(arguments.cut.exists().then_some(())))?;
    send(cm, id, 4)?;
    expect(cm, channel, EventType::PathMigrated)?;
    let attr = cm.endpoint(id)?.qp.query()?.attr;
    println!("path {:?}, LID {}", attr.path_mig_state, attr.ah_attr.dlid);

    until(cm, |_| Ok(arguments.mended.exists().then_some(())))?;
    cm.set_option(id, IdOption::CmTimers(IMPATIENT))?;
    cm.load_alternate_path(id, &paths[0])?;
    let answer = next(cm, channel)?;
    println!("LAP {} {}", answer.event, answer.status);

    send(cm, id, 1)?;
    for _ in 0..MESSAGES {
        let completion = cm.get_recv_comp(id)?;
        if completion.byte_len as usize != LEN {
            return Err(format!("a reply of {} bytes", completion.byte_len).into());
        }
    }
    println!("{MESSAGES} replies");
    expect(cm, channel, EventType::Disconnected)?;
    cm.disconnect(id)?;
    cm.destroy_id(id)?;
    println!("left");
    Ok(())
}

fn send(cm: &mut Cm<'_, '_>, id: CmId, count: u64) -> Result<()> {
    let message = cm.reg_msgs(id, LEN)?;
    for number in 0..count {
        cm.post_send(id, number, message.slice(..LEN)?, SendFlags::SIGNALED)?;
        let _ = cm.get_send_comp(id)?;
    }
    Ok(())
}

fn expect(cm: &mut Cm<'_, '_>, channel: ChannelId, wanted: EventType) -> Result<()> {
    let event = next(cm, channel)?;
    if event.event == wanted {
        Ok(())
    } else {
        Err(format!("{} {} instead of {wanted}", event.event, event.status).into())
    }
}

fn next(cm: &mut Cm<'_, '_>, channel: ChannelId) -> Result<CmEvent> {
    until(cm, |cm| Ok(cm.try_get_cm_event(channel)?))
}

/// Polls until there is something.
fn until<'s, 'd, T>(
    cm: &mut Cm<'s, 'd>,
    mut there: impl FnMut(&mut Cm<'s, 'd>) -> Result<Option<T>>,
) -> Result<T> {
    let end = cm.now().saturating_add(PATIENCE);
    loop {
        cm.poll(cm.now())?;
        while let Some(event) = cm.device().next_async_event() {
            cm.handle_async_event(&event);
        }
        if let Some(found) = there(cm)? {
            return Ok(found);
        }
        if cm.now() >= end {
            return Err("nothing happens".into());
        }
        cm.device().platform().relax();
    }
}
