//! Nodes on the built-in model.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bareverbs_cm::ip;
use bareverbs_cm::rdma::{AddrInfo, PortSpace, QpInit, RdmaError, SendFlags};
use bareverbs_core::{Gid, LinkLayer, Platform, RoceVersion, WcStatus};
use bareverbs_in_process::Builder;

use crate::{
    Address, AnyError, ConnectStep, DeviceName, Error, EthernetSetting, Host, Node, NodeAddress,
    Options, Pair, Result, Unreached,
};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];

fn pair() -> Pair {
    Pair::open("model", SERVER, CLIENT).expect("two models")
}

/// A message over two models with such ports, between nodes with such addresses. What the client's connection goes over.
fn one_message(options: Options, [server, client]: [NodeAddress; 2]) -> Result<LinkLayer> {
    let pair = Pair::open_with(&[DeviceName::Model], [server, client], options)?;
    let (found, here) = std::sync::mpsc::channel();
    let (received, link_layer) = pair.run(
        move |cm, ready| -> Result<_> {
            let port = match server.host() {
                Host::Gid(_) => Host::Gid(cm.device().query_infiniband_gid(0)?),
                ip => ip,
            };
            let here = AddrInfo::listen(server.host().at(PortSpace::Tcp, 7471));
            let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
            cm.listen(listener, 1)?;
            found.send(port)?;
            ready();
            let id = cm.get_request(listener)?;
            let inbox = cm.reg_msgs(id, 4)?;
            cm.post_recv(id, 0, inbox.slice(..4)?)?;
            cm.accept(id, None)?;
            let got = cm.get_recv_comp(id)?;
            assert_eq!((got.wr_id, got.byte_len), (0, 4));
            let mut received = [0; 4];
            inbox.copy_out(0, &mut received)?;
            Ok(received)
        },
        |cm| {
            let to = AddrInfo::connect(here.recv()?.at(PortSpace::Tcp, 7471));
            let id = cm.create_ep(&to, None, Some(&mut QpInit::default()))?;
            let message = cm.reg_msgs(id, 4)?;
            message.copy_in(0, b"ping")?;
            cm.connect(id, None)?;
            cm.post_send(id, 0, message.slice(..4)?, SendFlags::SIGNALED)?;
            let _ = cm.get_send_comp(id)?;
            Ok(cm.port().link_layer)
        },
    )?;
    assert_eq!(&received, b"ping");
    Ok(link_layer)
}

/// On InfiniBand a node is reached by IP addresses of both families, and by its GID.
#[test]
fn infiniband_ports_have_ip_addresses_and_gids() -> Result<()> {
    let ip = |text: &str| NodeAddress::from(text.parse::<Host>().unwrap());
    let pairs = [
        [ip("10.0.0.1"), ip("10.0.0.2")],
        [ip("fd00::1"), ip("fd00::2")],
        [ip("gid"), ip("gid")],
        [ip("gid"), ip("10.0.0.2")],
    ];
    for (number, addresses) in pairs.into_iter().enumerate() {
        let mut options = Options::for_connections(1);
        (options.infiniband, options.interrupts) = (true, number % 2 == 0);
        assert_eq!(one_message(options, addresses)?, LinkLayer::InfiniBand);
    }
    Ok(())
}

/// The time that a node with an IPv6 address takes on its device's clock, which goes on when nothing else is to be done.
fn time_to_begin(is_model: bool) -> Result<Duration> {
    let cards = [1, 2].map(connectx_model::Config::new);
    let builder = cards.into_iter().fold(Builder::new(), Builder::function);
    let world = builder.stepped();
    let platform = world.platform(0);
    let address = NodeAddress::from("fd00::1".parse::<Host>()?);
    let mut node = Node::new(platform.clone(), address, Options::for_connections(1));
    node.is_model = is_model;
    let begun = platform.now();
    node.run(|cm| {
        let gid = Gid::from("fd00::1".parse::<IpAddr>()?);
        let entry = cm.device().find_gid(&gid, RoceVersion::V2, None);
        assert!(entry.is_some());
        Ok(cm.now() - begun)
    })
}

#[test]
fn a_models_address_is_used_while_it_is_probed_for() -> Result<()> {
    let step = ip::Config::new(1).retransmit;
    assert!(time_to_begin(false)? >= step);
    assert!(time_to_begin(true)? < step);
    Ok(())
}

#[test]
fn what_a_port_cannot_have_is_refused() {
    let failure = |options, address: NodeAddress| {
        let other = NodeAddress::from([10, 0, 0, 9]);
        let pair = Pair::open_with(&[DeviceName::Model], [address, other], options).unwrap();
        let refused = pair
            .server
            .run(|_| std::result::Result::<(), Error>::Ok(()));
        refused.expect_err("refused")
    };
    let infiniband = Options {
        infiniband: true,
        ..Options::default()
    };
    let tagged = Address {
        vlan: Some(7),
        ..Address::from([10, 0, 0, 1])
    };
    let with_mac = Options {
        mac: Some([2, 0, 0, 0, 0, 9]),
        ..infiniband
    };
    let with_version = Options {
        roce_version: Some(RoceVersion::V1),
        ..infiniband
    };
    let gid = Gid([7; 16]);
    assert!(matches!(
        failure(with_version, [10, 0, 0, 1].into()),
        Error::EthernetOnly(EthernetSetting::RoceVersion)
    ));
    assert!(matches!(
        failure(infiniband, tagged.into()),
        Error::EthernetOnly(EthernetSetting::Vlan)
    ));
    assert!(matches!(
        failure(with_mac, [10, 0, 0, 1].into()),
        Error::EthernetOnly(EthernetSetting::Mac)
    ));
    assert!(matches!(
        failure(infiniband, gid.into()),
        Error::OtherGid { asked, .. } if asked == gid
    ));
    assert!(matches!(
        failure(Options::default(), gid.into()),
        Error::GidOnEthernet
    ));
}

#[test]
fn hosts_are_read_as_they_are_written() {
    for text in ["10.0.0.1", "fd00::1", "gid", "gid:fe80::2c9:1:1"] {
        assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
    }
    for text in ["", "gid:", "gid:10.0.0.1", "gids", "10.0.0"] {
        assert!(text.parse::<Host>().is_err(), "{text}");
    }
}

/// The error of a connection to an address at which there is no server.
fn refused(server: [u8; 4]) -> Unreached {
    let client = pair().client;
    let error = client.run(|cm| {
        let server = AddrInfo::connect((server, 7471));
        let id = cm
            .create_ep(&server, None, Some(&mut QpInit::default()))
            .map_err(Unreached::resolving(&server))?;
        Ok(cm
            .connect(id, None)
            .map_err(Unreached::connecting(&server))?)
    });
    let error: AnyError = error.expect_err("there is no server");
    *error.downcast_ref().expect("a connection's error")
}

#[test]
fn a_message_goes_from_one_node_to_the_other() -> Result<()> {
    for interrupts in [false, true] {
        let mut options = Options::for_connections(1);
        options.interrupts = interrupts;
        let ends = [SERVER.into(), CLIENT.into()];
        let pair = Pair::open_with(&[DeviceName::Model], ends, options)?;
        let (received, gids) = pair.run(
            |cm, ready| -> Result<_> {
                let here = AddrInfo::listen((SERVER, 7471));
                let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
                cm.listen(listener, 1)?;
                ready();
                let id = cm.get_request(listener)?;
                let inbox = cm.reg_msgs(id, 4)?;
                cm.post_recv(id, 0, inbox.slice(..4)?)?;
                cm.accept(id, None)?;
                let _ = cm.get_recv_comp(id)?;
                let mut received = [0; 4];
                inbox.copy_out(0, &mut received)?;
                Ok(received)
            },
            |cm| {
                let server = AddrInfo::connect((SERVER, 7471));
                let id = cm.create_ep(&server, None, Some(&mut QpInit::default()))?;
                let message = cm.reg_msgs(id, 4)?;
                message.copy_in(0, b"ping")?;
                cm.connect(id, None)?;
                cm.post_send(id, 0, message.slice(..4)?, SendFlags::SIGNALED)?;
                let _ = cm.get_send_comp(id)?;
                Ok(cm.device().gid_table().count())
            },
        )?;
        assert_eq!(&received, b"ping");
        assert!(gids > 0);
    }
    Ok(())
}

/// A message of five bytes, and a receive for three.
#[test]
fn a_message_that_does_not_fit_is_an_error_of_both_ends() {
    let (told, heard) = std::sync::mpsc::channel();
    let outcome = pair().run(
        move |cm, ready| -> Result<()> {
            let here = AddrInfo::listen((SERVER, 7471));
            let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
            cm.listen(listener, 1)?;
            ready();
            let id = cm.get_request(listener)?;
            let inbox = cm.reg_msgs(id, 3)?;
            cm.post_recv(id, 7, inbox.slice(..3)?)?;
            cm.accept(id, None)?;
            told.send(cm.get_recv_comp(id))?;
            Ok(())
        },
        |cm| {
            let to = AddrInfo::connect((SERVER, 7471));
            let id = cm.create_ep(&to, None, Some(&mut QpInit::default()))?;
            cm.connect(id, None)?;
            let message = cm.reg_msgs(id, 5)?;
            cm.post_send(id, 8, message.slice(..5)?, SendFlags::SIGNALED)?;
            Ok(cm.get_send_comp(id).map(|_| ())?)
        },
    );
    let [theirs, ours] = [
        AnyError::from(heard.recv().unwrap().unwrap_err()),
        outcome.unwrap_err(),
    ];
    let of = |error: &AnyError| match error.downcast_ref() {
        Some(RdmaError::Completion(failed)) => (failed.wr_id, failed.status),
        _ => panic!("{error}"),
    };
    assert_eq!(of(&theirs), (7, WcStatus::LocLenErr));
    assert_eq!(of(&ours), (8, WcStatus::RemInvReqErr));
    // As `main` prints it.
    let printed = format!("{theirs:?}");
    assert!(printed.starts_with("local length error ("), "{printed}");
}

/// `main` prints of an error what it says, be it in a box of its own or not.
#[test]
fn errors_print_what_they_say() {
    let absent = Node::open("vfio:ffff:ff:1f.7", SERVER).unwrap_err();
    assert_eq!(format!("{absent:?}"), absent.to_string());
    let boxed = Box::<dyn std::error::Error>::from(absent);
    assert_eq!(format!("{boxed:?}"), boxed.to_string());
    let unreached = Unreached {
        step: ConnectStep::Connecting,
        address: None,
        source: RdmaError::TimedOut,
    };
    assert_eq!(format!("{unreached:?}"), "connecting to: timed out");
    assert_eq!(format!("{:?}", AnyError::from("no disk")), "no disk");
    let parsed: Result<u8> = (|| Ok("x".parse()?))();
    assert_eq!(
        format!("{:?}", parsed.unwrap_err()),
        "invalid digit found in string"
    );
    let cargo_line = "bareverbs-node = { ..., features = [\"model\"] }";
    assert!(Error::NoModel.to_string().contains(cargo_line));
}

/// The program is in one place more, for those who read that first.
#[test]
fn the_program_of_the_readme_is_this_ones() {
    let readme = include_str!("../../README.md");
    let program = include_str!("../examples/message.rs");
    let (_, block) = readme.split_once("```rust\n").expect("a program");
    let (block, _) = block.split_once("```\n").expect("its end");
    assert_eq!(block, program);
}

#[test]
fn an_error_of_a_connection_names_the_step_and_the_address() {
    let nothing_there = refused([10, 0, 0, 99]);
    assert_eq!(nothing_there.step, ConnectStep::Resolving);
    let text = nothing_there.to_string();
    assert!(text.starts_with("resolving 10.0.0.99:7471: "), "{text}");
}

#[test]
fn an_error_of_the_server_comes_before_what_the_client_makes_of_it() {
    let before_ready = pair().run(|_, _| Err::<(), _>(AnyError::from("no disk")), |_| Ok(()));
    assert_eq!(before_ready.unwrap_err().to_string(), "no disk");

    let never_ready = pair().run(|_, _| -> Result<()> { Ok(()) }, |_| Ok(()));
    let never_ready = never_ready.unwrap_err();
    assert!(matches!(
        never_ready.downcast_ref(),
        Some(Error::ServerNotReady)
    ));

    let after_ready = pair().run(
        |cm, ready| {
            let here = AddrInfo::listen((SERVER, 7471));
            let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
            cm.listen(listener, 1)?;
            ready();
            cm.get_request(listener)?;
            Err::<(), AnyError>("no disk".into())
        },
        |cm| {
            let server = AddrInfo::connect((SERVER, 7471));
            let id = cm.create_ep(&server, None, Some(&mut QpInit::default()))?;
            Ok(cm.connect(id, None)?)
        },
    );
    assert_eq!(after_ready.unwrap_err().to_string(), "no disk");
}

/// Its server waits for a client for ever.
#[test]
fn an_error_of_the_client_ends_the_run() {
    let error = pair().run(
        |cm, ready| {
            let here = AddrInfo::listen((SERVER, 7471));
            let listener = cm.create_ep(&here, None, Some(&mut QpInit::default()))?;
            cm.listen(listener, 1)?;
            ready();
            Ok(cm.get_request(listener).map(drop)?)
        },
        |_| Err::<(), AnyError>("refused by the test".into()),
    );
    assert_eq!(error.unwrap_err().to_string(), "refused by the test");
}

#[test]
fn what_cannot_be_opened_is_named() {
    let same = Pair::open("model", SERVER, SERVER).unwrap_err();
    assert!(
        same.to_string().starts_with("10.0.0.1 is the client's"),
        "{same}"
    );
    let three = Pair::open("model,model,model", SERVER, CLIENT).unwrap_err();
    assert!(matches!(three, Error::NotTwoDevices(3)), "{three}");
    let name = Node::open("card", SERVER).unwrap_err();
    assert!(matches!(name, Error::Name(_)), "{name}");
    let absent = Node::open("vfio:ffff:ff:1f.7", SERVER).unwrap_err();
    assert!(matches!(absent, Error::Function { .. }), "{absent}");
    let nowhere = Pair::open("model", [255; 4], CLIENT).unwrap().server;
    let error = nowhere
        .run(|_| -> Result<()> { Ok(()) })
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("claiming the address 255.255.255.255: "),
        "{error}"
    );
}

#[test]
fn an_address_is_that_of_its_network() {
    let of = |ip: &str| Address::from(ip.parse::<IpAddr>().unwrap()).prefix_len();
    assert_eq!([of("10.0.0.1"), of("fd00::1")], [24, 64]);
    let wide = Address {
        prefix: Some(8),
        ..Ipv4Addr::new(10, 0, 0, 1).into()
    };
    assert_eq!(wide.prefix_len(), 8);
}

/// More connections than a device can hold by default.
#[test]
fn storage_is_by_the_number_of_connections() -> Result<()> {
    let mut client = pair().client;
    *client.options_mut() = Options::for_connections(20);
    client.run(|cm| {
        let channel = cm.create_event_channel()?;
        for number in 0..20 {
            cm.create_id(Some(channel), number, bareverbs_cm::rdma::PortSpace::Tcp)?;
        }
        let mut made = 20;
        while cm
            .create_id(Some(channel), made, bareverbs_cm::rdma::PortSpace::Tcp)
            .map_err(|error| assert!(matches!(error, RdmaError::Full { .. }), "{error}"))
            .is_ok()
        {
            made += 1;
        }
        assert!(made < 40, "{made}");
        Ok(())
    })
}

/// The descriptor of a model: what a task or an event loop sleeps for.
#[test]
fn an_event_channel_is_readable_for_each_interrupt() -> Result<()> {
    use crate::{DevicePlatform, EventChannel};
    use bareverbs_core::{Platform, VectorSet};
    use std::os::fd::AsFd;

    let world = bareverbs_in_process::Builder::new()
        .function(connectx_model::Config::new(1))
        .interrupts(1)
        .threaded();
    let platform = DevicePlatform::model(&std::sync::Arc::new(world), 0);
    let mut channel: EventChannel = platform.event_channel(VectorSet::ALL)?;
    for _ in 0..100 {
        assert!(!channel.acknowledge()?);
        assert!(platform.wake());
        // Until it is there.
        let fd = channel.as_fd().try_clone_to_owned()?;
        let socket = std::os::unix::net::UnixStream::from(fd);
        socket.set_nonblocking(false)?;
        let mut byte = [0];
        std::io::Read::read_exact(&mut &socket, &mut byte)?;
        socket.set_nonblocking(true)?;
    }
    drop(channel);

    let polled = Node::open("model", SERVER)?;
    let error = polled.run(|cm| -> Result<_> {
        let channel = cm.device().platform().event_channel(VectorSet::ALL);
        Ok(channel.expect_err("it has no interrupts").kind())
    })?;
    assert_eq!(error, std::io::ErrorKind::Unsupported);
    Ok(())
}
