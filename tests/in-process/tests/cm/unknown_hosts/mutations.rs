//! Connections from REQ to DREP with errors: in a field, in a whole frame, or in the order. The manager may not panic,
//! send to a group, or leak.

use std::net::SocketAddr;

use bareverbs_cm::mad::*;
use bareverbs_cm::rdma::*;

use super::bench::*;

const CASES: u64 = 2000;
/// Cases between two checks for leaks.
const BATCH: u64 = 50;

/// Prints the seed when a test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: BAREVERBS_SEED={0} runs it alone", self.0);
        }
    }
}

/// Where addresses and names are in a REQ and in a frame, and what else is worth a try there.
const GIDS: [usize; 2] = [24 + 56, 24 + 72];
const HEADER: usize = 24 + 140;
const ODD: [[u8; 16]; 10] = {
    const fn mapped(ip: [u8; 4]) -> [u8; 16] {
        [
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ip[0], ip[1], ip[2], ip[3],
        ]
    }
    [
        [0; 16],
        [0xff; 16],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        mapped([0, 0, 0, 0]),
        mapped([127, 0, 0, 1]),
        mapped([224, 0, 0, 1]),
        mapped([10, 255, 255, 255]),
        mapped([10, 0, 0, 1]),
    ]
};

/// The frame of a message, changed in up to three places.
fn mutated(random: &mut Random, host: &Host, mut mad: [u8; MAD_LEN]) -> Vec<u8> {
    let mut host = *host;
    let times = random.below(4);
    let mut frame = None;
    for _ in 0..times {
        match random.below(10) {
            0..3 => mad[24 + random.below(MAD_LEN - 24)] = random.next() as u8,
            3 => mad[random.below(24)] ^= 1 << random.below(8),
            4 | 5 => {
                let at = [GIDS[0], GIDS[1], HEADER + 4, HEADER + 20][random.below(4)];
                mad[at..at + 16].copy_from_slice(&ODD[random.below(ODD.len())]);
            }
            6 => {
                // A whole field of zeros or ones.
                let at = 24 + 4 * random.below(57);
                mad[at..at + 4].fill([0, 0xff][random.below(2)]);
            }
            7 => {
                let odd = std::net::Ipv6Addr::from(ODD[random.below(ODD.len())]).to_canonical();
                if odd.is_ipv4() == host.ip.is_ipv4() {
                    host.ip = odd;
                }
            }
            8 => host.mac[random.below(6)] ^= 1 << random.below(8),
            _ => frame = Some(random.next()),
        }
    }
    let mut bytes = host.datagram(&mad);
    // Frames rather than messages: any byte, or the end missing; the ICRC right or not.
    if let Some(how) = frame {
        let mut how = Random(how);
        for _ in 0..=how.below(3) {
            let at = how.below(bytes.len());
            bytes[at] = how.next() as u8;
        }
        if how.below(4) == 0 {
            bytes.truncate(14 + how.below(bytes.len() - 14));
        }
        if how.below(2) == 0 {
            connectx_model::roce::packet::reseal(&mut bytes);
        }
    }
    bytes
}

/// The peer's side of a connection.
struct Connection {
    host: Host,
    comm_id: u32,
    qpn: u32,
    /// The card's, once it has sent it.
    theirs: u32,
    their_qpn: u32,
}

impl Connection {
    fn message(&self, random: &mut Random, nth: usize) -> [u8; MAD_LEN] {
        let (local_comm_id, remote_comm_id) = (self.comm_id, self.theirs);
        let mut mad = [0; MAD_LEN];
        let message = match nth {
            0 => return self.host.request(self.comm_id, self.qpn),
            1 => Message::Rtu(Rtu {
                local_comm_id,
                remote_comm_id,
                ..Rtu::ZERO
            }),
            2 => Message::Dreq(Dreq {
                local_comm_id,
                remote_comm_id,
                remote_qpn: self.their_qpn,
                ..Dreq::ZERO
            }),
            3 => Message::Drep(Drep {
                local_comm_id,
                remote_comm_id,
                ..Drep::ZERO
            }),
            4 => Message::Rej(Rej {
                local_comm_id,
                remote_comm_id,
                message: random.below(4) as u8,
                reason: random.below(40) as u16,
                info_len: random.below(73) as u8,
                ..Rej::ZERO
            }),
            5 => Message::Mra(Mra {
                local_comm_id,
                remote_comm_id,
                message: random.below(3) as u8,
                service_timeout: random.below(32) as u8,
                ..Mra::ZERO
            }),
            _ => Message::Rep(Rep {
                local_comm_id,
                remote_comm_id,
                local_qpn: self.qpn,
                starting_psn: 5,
                local_ca_guid: 0x5254_0000_0000 + u64::from(self.comm_id),
                responder_resources: 1,
                initiator_depth: 1,
                ..Rep::ZERO
            }),
        };
        let header = Header::send(message.attribute(), u64::from(self.comm_id));
        message.emit(&header, &mut mad).unwrap();
        mad
    }

    /// Reads the card's name of the connection from what it said.
    fn listen(&mut self, bench: &mut Bench) {
        for (_, mad) in bench.mads() {
            let mad = Mad::new(&mad[..]).expect("a message of the CM");
            match mad.message().expect("a message of the CM") {
                Message::Rep(rep) if rep.remote_comm_id == self.comm_id => {
                    (self.theirs, self.their_qpn) = (rep.local_comm_id, rep.local_qpn);
                }
                Message::Req(req) => {
                    (self.theirs, self.their_qpn) = (req.local_comm_id, req.local_qpn);
                }
                _ => {}
            }
        }
    }
}

#[derive(Default)]
struct Seen {
    requests: u32,
    established: u32,
    disconnected: u32,
    rejected: u32,
}

fn events(bench: &mut Bench, random: &mut Random, ids: &mut Vec<CmId>, seen: &mut Seen) {
    while let Some(event) = bench.event() {
        match event.event {
            EventType::ConnectRequest => {
                seen.requests += 1;
                ids.push(event.id);
                // Any of these may fail: the request may make no QP, or be gone.
                let _ = match random.below(8) {
                    0 => bench.cm.reject(event.id, b"no"),
                    1 => Ok(()),
                    _ => bench.accept(event.id),
                };
            }
            EventType::Established => seen.established += 1,
            EventType::Disconnected => seen.disconnected += 1,
            EventType::Rejected => seen.rejected += 1,
            _ => {}
        }
    }
}

fn case(bench: &mut Bench, seed: u64, seen: &mut Seen) {
    let _seed = Seed(seed);
    let mut random = Random(seed);
    let number = seed as u32 % 4;
    let host = [Host::v4(number), Host::v6(number)][random.below(2)];
    let mut connection = Connection {
        host,
        comm_id: seed as u32 + 1,
        qpn: seed as u32 + 0x100,
        theirs: 0,
        their_qpn: 0,
    };
    let mut ids = Vec::new();
    let active = random.below(4) == 0;
    if active {
        let to = SocketAddr::new(host.ip, PORT);
        let id = bench.cm.create_id(Some(bench.channel), 0, PortSpace::Tcp);
        let id = id.expect("a free id");
        ids.push(id);
        bench.cm.resolve_addr(id, None, to, SECOND).unwrap();
        bench
            .cm
            .resolve_route(id, SECOND)
            .expect("a host that is known");
        let mut init = QpInit::default();
        bench.cm.create_qp(id, None, &mut init).unwrap();
        bench.cm.connect(id, None).unwrap();
        bench.run(MS / 2);
        connection.listen(bench);
    }
    // In order, with repetitions and what does not belong there.
    let script: &[usize] = if active { &[6, 2] } else { &[0, 1, 2, 3] };
    for &nth in script {
        let mut nths = vec![nth];
        if random.below(5) == 0 {
            nths.push(random.below(7));
        }
        for nth in nths {
            let mad = connection.message(&mut random, nth);
            let frame = mutated(&mut random, &connection.host, mad);
            if random.below(8) == 0 {
                bench.put(frame.clone());
            }
            bench.say(frame);
            connection.listen(bench);
            events(bench, &mut random, &mut ids, seen);
            bench.run(MS / 4);
            connection.listen(bench);
            if random.below(16) == 0 {
                bench.run(20 * MS);
            }
        }
    }
    events(bench, &mut random, &mut ids, seen);
    for id in ids {
        bench.cm.destroy_id(id).unwrap();
    }
    bench.run(MS / 4);
    // The peer does not answer the last DREQ. The test answers for it, instead of waiting for all repetitions.
    for nth in [3, 4] {
        let mad = connection.message(&mut random, nth);
        bench.say(connection.host.datagram(&mad));
    }
    bench.sent();
}

fn batch(first: u64, cases: u64, seen: &mut Seen) {
    let mut bench = Bench::new(Capacity::default());
    for number in 0..4 {
        bench.say(Host::v4(number).asks());
        bench.say(Host::v6(number).asks());
    }
    for seed in first..first + cases {
        case(&mut bench, seed, seen);
    }
    // The longest series of repetitions.
    for _ in 0..1200 {
        bench.world.advance(100 * MS);
        bench.cm.poll(bench.cm.now()).unwrap();
    }
    bench.sent();
    while bench.event().is_some() {}
    assert_eq!(
        (bench.cm.ids_in_use(), bench.cm.connections_in_use()),
        (1, 0),
        "after seeds from {first}"
    );
    assert_eq!(bench.world.take_faults(0), []);
}

#[test]
fn connections_with_mutated_messages() {
    let mut seen = Seen::default();
    if let Ok(seed) = std::env::var("BAREVERBS_SEED") {
        return batch(seed.parse().expect("a number"), 1, &mut seen);
    }
    for first in (0..CASES).step_by(BATCH as usize) {
        batch(first, BATCH, &mut seen);
    }
    // Most connections have to be established, or nothing was tested.
    let few = CASES as u32 / 8;
    assert!(seen.requests > 3 * few, "{}", seen.requests);
    assert!(seen.established > 2 * few, "{}", seen.established);
    assert!(seen.disconnected > few, "{}", seen.disconnected);
    assert!(seen.rejected > 0);
}
