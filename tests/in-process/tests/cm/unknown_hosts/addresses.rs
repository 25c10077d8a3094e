//! Addresses of requests that no host can have: nothing is accepted from there, and nothing is sent there.

use std::net::{IpAddr, Ipv6Addr};

use bareverbs_cm::mad::*;
use bareverbs_core::Gid;

use super::bench::*;

/// Addresses that one host cannot have.
const NO_HOST: [&str; 11] = [
    "0.0.0.0",
    "0.1.2.3",
    "127.0.0.1",
    "224.0.0.1",
    "239.1.2.3",
    "255.255.255.255",
    "240.0.0.1",
    "::",
    "::1",
    "ff02::1",
    "ff0e::1234",
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The reason and additional information with which the server rejects a request of a host.
fn refused(bench: &mut Bench, from: &Host, req: &Req<'_>) -> (u16, Vec<u8>) {
    let mut mad = [0; MAD_LEN];
    req.emit(5, &mut mad).unwrap();
    bench.say(from.datagram(&mad));
    let mads = bench.mads();
    assert_eq!(mads.len(), 1, "{mads:?}");
    let (to, mad) = &mads[0];
    assert_eq!(*to, from.ip);
    let rej = Rej::parse(&Mad::new(&mad[..]).unwrap()).unwrap();
    assert!(bench.event().is_none());
    (rej.reason, rej.additional_info().to_vec())
}

fn bench() -> (Bench, [Host; 2]) {
    let mut bench = Bench::new(Capacity::default());
    let hosts = [Host::v4(0), Host::v6(0)];
    for host in hosts {
        bench.say(host.asks());
    }
    bench.sent();
    (bench, hosts)
}

/// The GID for the QP and for all messages of the connection: of no host, of a group, or of another family.
#[test]
fn a_request_whose_own_gid_is_no_hosts() {
    let of = |text: &&str| Gid::from(ip(text)).0;
    for nth in 0..2 {
        let (mut bench, hosts) = bench();
        let (host, other) = (&hosts[nth], hosts[1 - nth].gid());
        let header = host.header();
        let far = ["10.255.255.255", "192.0.2.9", "2001:db9::1"];
        let gids = NO_HOST.iter().chain(&far).map(of);
        let gids = gids.chain([other, [0; 16]]);
        for (nth, gid) in gids.enumerate() {
            let req = Req {
                primary_local_gid: gid,
                ..host.req(nth as u32 + 1, nth as u32 + 1, &header)
            };
            let ours = Gid::from(host.card()).0.to_vec();
            assert_eq!(refused(&mut bench, host, &req), (12, ours), "{gid:x?}");
        }
        // As it should be.
        let mut mad = [0; MAD_LEN];
        host.req(99, 99, &header).emit(5, &mut mad).unwrap();
        bench.say(host.datagram(&mad));
        let id = bench.event().expect("a request").id;
        bench.accept(id).unwrap();
    }
}

/// The header of the RDMA CM: a source that no host has, or to which there is no way from the destination; a destination that
/// is loopback, or a wildcard.
#[test]
fn a_request_whose_header_names_no_host() {
    let (mut bench, hosts) = bench();
    let mut nth = 0;
    for host in hosts {
        let same = |address: &IpAddr| address.is_ipv4() == host.ip.is_ipv4();
        let far = [ip("192.0.2.9"), ip("10.255.255.255"), ip("2001:db9::1")];
        let sources = NO_HOST.map(ip).into_iter().chain(far).filter(same);
        let sources = sources.map(|source| (source, host.card()));
        let destinations = NO_HOST.map(ip).into_iter().filter(same);
        let destinations = destinations.map(|destination| (host.ip, destination));
        for (source, destination) in sources.chain(destinations) {
            let mut header = [0; CmaHeader::LEN];
            let named = CmaHeader {
                source_port: 4000,
                source,
                destination,
            };
            named.emit(&mut header).unwrap();
            nth += 1;
            let req = host.req(nth, nth, &header);
            let refusal = refused(&mut bench, &host, &req);
            assert_eq!(refusal, (28, vec![]), "{source} to {destination}");
        }
    }
}

/// A source in the frame that no host has: as if the frame had not come.
#[test]
fn a_frame_whose_source_is_no_host() {
    let (mut bench, _) = bench();
    for text in NO_HOST.into_iter().chain(["10.255.255.255", "10.0.0.0"]) {
        let host = Host {
            ip: ip(text),
            ..Host::v4(7)
        };
        let right = Host {
            ip: match host.ip {
                IpAddr::V4(_) => Host::v4(7).ip,
                IpAddr::V6(_) => Host::v6(7).ip,
            },
            ..host
        };
        // It announces its address, and is ignored.
        bench.say(host.asks());
        bench.say(host.datagram(&right.request(3, 3)));
        bench.run(4 * SECOND);
        assert!(bench.event().is_none(), "{text}");
        assert_eq!(bench.mads(), [], "{text}");
    }
    assert_eq!(bench.cm.connections_in_use(), 0);
}

/// A connection to a loopback address goes by the card's own.
#[test]
fn loopback_is_the_cards_own_address_on_the_wire() {
    let (mut bench, _) = bench();
    let id = bench
        .cm
        .create_id(Some(bench.channel), 0, bareverbs_cm::rdma::PortSpace::Tcp)
        .unwrap();
    let to = std::net::SocketAddr::new(Ipv6Addr::LOCALHOST.into(), PORT);
    bench.cm.resolve_addr(id, None, to, SECOND).unwrap();
    bench.cm.resolve_route(id, SECOND).unwrap();
    let param = bareverbs_cm::rdma::ConnParam {
        qp_num: 0x99,
        ..Default::default()
    };
    bench.cm.connect(id, Some(&param)).unwrap();
    bench.run(MS);
    let events: Vec<_> = std::iter::from_fn(|| bench.event()).collect();
    let request = events.iter().find(|event| event.listen_id.is_some());
    let request = request.expect("a request of our own").id;
    let peer = bench
        .cm
        .get_peer_addr(request)
        .unwrap()
        .map(|peer| peer.ip());
    assert_eq!(peer, Some(CARD6.into()));
}
