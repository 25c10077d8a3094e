//! Both ends on two device models, and ends that do not keep to what was agreed.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;

use bareverbs::cm::rdma::{ConnParam, PortSpace, SockAddr};
use bareverbs::verbs::{Mtu, RKey, Remote};
use bareverbs_command_line::{Named, parse_line};
use bareverbs_in_process::{Builder, ModelPlatform};
use connectx_model::Config as Card;

use super::cli::{self, Options};
use super::protocol::{Answer, Ask, Hello, MESSAGE, Tally, Welcome};
use super::report::{Numbers, Row};
use super::session::{Limits, Session};
use super::test::{Kind, Test, Verb};
use super::{report, route, serve, work};
use bareverbs_examples::Result;
use bareverbs_examples::channel::Channel;
use bareverbs_examples::dead_address;
use bareverbs_node::{Host, Node, Options as NodeOptions, PortResolver};

const SERVER: Host = Host::Ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
const CLIENT: Host = Host::Ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

type Cm<'s, 'd> = bareverbs_node::Cm<'s, 'd, ModelPlatform>;

fn address() -> SockAddr {
    SERVER.at(PortSpace::Tcp, 18515)
}

/// Runs a server, and a client once that listens. What came of each.
fn pair<S: Send, C>(
    server: impl FnOnce(&mut Cm<'_, '_>, &mut dyn FnMut()) -> Result<S> + Send,
    client: impl FnOnce(&mut Cm<'_, '_>) -> Result<C>,
) -> (Result<S>, Result<C>) {
    pair_on([Card::new(1), Card::new(2)], server, client)
}

/// The same on these cards, the server's first.
fn pair_on<S: Send, C>(
    [theirs, ours]: [Card; 2],
    server: impl FnOnce(&mut Cm<'_, '_>, &mut dyn FnMut()) -> Result<S> + Send,
    client: impl FnOnce(&mut Cm<'_, '_>) -> Result<C>,
) -> (Result<S>, Result<C>) {
    let world = Builder::new().function(theirs).function(ours).threaded();
    let platforms = [world.platform(0), world.platform(1)];
    let node = |platform: ModelPlatform, address: Host, seed| {
        let mut options = NodeOptions::for_connections(8);
        options.max_path_mtu = Some(Mtu::B4096);
        options.seed = Some(seed);
        Node::new(platform, address, options)
    };
    let (listening, may_connect) = mpsc::channel();
    let [theirs, ours] = platforms;
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            node(theirs, SERVER, 1).run(|cm| server(cm, &mut || listening.send(()).unwrap()))
        });
        let found = node(ours, CLIENT, 2).run(|cm| {
            may_connect.recv()?;
            client(cm)
        });
        (server.join().unwrap(), found)
    })
}

/// Our server, and a client of the test's.
fn with_server<C>(client: impl FnOnce(&mut Cm<'_, '_>) -> Result<C>) -> (Result<u64>, Result<C>) {
    pair(|cm, listening| serve(cm, address(), listening), client)
}

fn options(line: &str) -> Options {
    parse_line(&cli::options(), line).expect(line)
}

/// Our client and our server.
fn run(line: &str) -> (Vec<Test>, Vec<Row>) {
    let options = options(line);
    let (served, rows) = with_server(|cm| work(cm, CLIENT, address(), &options));
    let (served, rows) = (served.unwrap(), rows.unwrap());
    assert_eq!(served, rows.len() as u64);
    (options.tests(), rows)
}

fn error<T>(result: Result<T>) -> String {
    result.err().expect("an error").to_string()
}

const LIMITS: Limits = Limits {
    largest: 4096,
    deepest: 16,
};

fn connect<'c, 's, 'd>(
    cm: &'c mut Cm<'s, 'd>,
) -> Result<Session<'c, 's, 'd, ModelPlatform, PortResolver<'s, 'd, ModelPlatform>>> {
    Session::connect(cm, &route(CLIENT, address()), LIMITS)
}

const TEST: Test = Test {
    verb: Verb::Send,
    kind: Kind::Bw,
    size: 64,
    depth: 16,
    both_ways: false,
};

#[test]
fn the_command_line_is_sound() {
    cli::options().check_invariants(true);
}

#[test]
fn lists_have_commas_and_the_last_one_counts() {
    assert_eq!(options("").sizes, [2, 8, 64, 512, 4096, 65536]);
    assert_eq!(options("").depth, [1, 16, 128]);
    assert_eq!(options("").tests, [Kind::Bw, Kind::Lat]);
    assert_eq!(options("-S 64 --sizes 2,8388608").sizes, [2, 8_388_608]);
    assert_eq!(options("-t 1 -t=1,1024").depth, [1, 1024]);
    assert_eq!(
        options("--verbs write,cmp_swap").verbs,
        [Verb::Write, Verb::CmpSwap]
    );
    assert_eq!(options("--tests lat,load").tests, [Kind::Lat, Kind::Load]);
    for line in [
        "-S 0",
        "-S 2,0",
        "-S 2,",
        "-S 8388609",
        "-t 1025",
        "-t 0",
        "-n 9",
        "-n 10000001",
        "-D 0",
        "-D 86401",
        "-n 10 -D 5",
        "--verbs Write",
        "--verbs write,",
        "--tests x",
        "--plot=",
        "--plot p -s -a 10.0.0.1",
        "-sc",
    ] {
        parse_line(&cli::options(), line).expect_err(line);
    }
}

#[test]
fn everything_is_measured_with_as_many_messages_as_were_asked_for() {
    let (tests, rows) = run("-n 100 -S 1,100,5000 -t 1,7,64 --tests bw,lat,load");
    // Three operations of three sizes and two of one; once alone, and at three depths for two kinds.
    assert_eq!(tests.len(), (3 * 3 + 2) * (1 + 2 * 3));
    assert_eq!(rows.iter().map(|row| row.test).collect::<Vec<_>>(), tests);
    for row in &rows {
        assert_eq!(row.iterations, 100, "{:?}", row.test);
        match row.numbers {
            Numbers::Rate {
                peak,
                average,
                messages,
            } => {
                assert!(row.test.kind == Kind::Bw);
                assert!(average > 0.0 && peak >= average);
                let mib = messages * 1e6 * f64::from(row.test.size) / 1_048_576.0;
                assert!((mib - average).abs() <= average * 1e-9);
            }
            Numbers::Times {
                min,
                max,
                typical,
                average,
                p99,
                p999,
                ..
            } => {
                assert!(row.test.kind != Kind::Bw);
                assert!(
                    0.0 < min && min <= typical && typical <= p99 && p99 <= p999 && p999 <= max
                );
                assert!(min <= average && average <= max);
            }
        }
    }
    assert!(report::json(&rows).starts_with(r#"[{"test":"write_bw","depth":1,"bytes":1,"#));
}

/// A card whose results of atomics are big-endian (`atomic_req_8B_endianness_mode` 0), or which has no such operations.
fn without_atomics(unit: u8) -> Card {
    let mut card = Card::new(unit);
    card.atomic
        .set_supported_atomic_req_8B_endianness_mode_1(false);
    card
}

/// Sums came with their bytes in the wrong order.
#[test]
fn atomics_in_the_wrong_byte_order_are_skipped_with_the_reason() {
    let cards = [
        (without_atomics(1), Card::new(2), "the server's device has"),
        (Card::new(1), without_atomics(2), "this device has"),
        (without_atomics(1), without_atomics(2), "this device has"),
    ];
    for (theirs, ours, whose) in cards {
        let all = options("-n 20 -S 8 -t 4 -b --tests bw,lat,load");
        let (served, rows) = pair_on(
            [theirs.clone(), ours.clone()],
            |cm, listening| serve(cm, address(), listening),
            |cm| work(cm, CLIENT, address(), &all),
        );
        let (served, rows) = (served.unwrap(), rows.unwrap());
        assert_eq!(served, rows.len() as u64);
        // Three operations that are no atomics, at one size and depth, in three ways.
        assert_eq!(rows.len(), 9);
        assert!(rows.iter().all(|row| !row.test.verb.is_atomic()));

        let atomics = options("-n 20 -t 4 --verbs fetch_add --tests bw");
        let (_, rows) = pair_on(
            [theirs.clone(), ours.clone()],
            |cm, listening| serve(cm, address(), listening),
            |cm| work(cm, CLIENT, address(), &atomics),
        );
        let reported = error(rows);
        assert!(
            reported.starts_with(&format!("fetch_add_bw: {whose} no 8-byte atomics")),
            "{reported}"
        );

        // A client that asks all the same.
        let (served, answer) = pair_on(
            [theirs, ours],
            |cm, listening| serve(cm, address(), listening),
            |cm| {
                let mut session = connect(cm)?;
                let test = Test {
                    verb: Verb::FetchAdd,
                    size: 8,
                    ..TEST
                };
                let answer = session.ask(&Ask::Start(test));
                session.close(answer)
            },
        );
        if whose.starts_with("the server") {
            let (served, reported) = (error(served), error(answer));
            assert!(
                served.starts_with("fetch_add_bw: this device has no"),
                "{served}"
            );
            assert!(
                reported.starts_with("the server: fetch_add_bw: this device"),
                "{reported}"
            );
        }
    }
}

#[test]
fn both_ends_send_at_once() {
    // Many more messages than receives, so that permissions pass in both directions. Receives are never missed: the
    // connection does not forgive that.
    let (_, rows) = run("-b -n 5000 -S 8,2000 -t 1,50 --tests bw");
    assert!(
        rows.iter()
            .all(|row| row.test.both_ways && row.iterations == 5000)
    );
}

#[test]
fn a_duration_is_kept() {
    let started = std::time::Instant::now();
    let (tests, rows) = run("-D 1 -S 8 -t 16 --verbs send --tests bw,lat");
    assert!(started.elapsed().as_secs() >= tests.len() as u64);
    assert!(rows.iter().all(|row| row.iterations > 0));
}

#[test]
fn a_client_that_vanishes_ends_the_server() {
    for start in [
        None,
        Some(TEST),
        Some(Test {
            kind: Kind::Lat,
            depth: 1,
            ..TEST
        }),
        Some(Test {
            verb: Verb::Read,
            ..TEST
        }),
    ] {
        let (served, gone) = with_server(|cm| {
            let mut session = connect(&mut *cm)?;
            if let Some(test) = start {
                assert_eq!(session.ask(&Ask::Start(test))?, Answer::Ready);
            }
            // Without a word: what the manager says at its end does not get through.
            cm.device().set_link(false)?;
            Err::<(), _>("gone".into())
        });
        assert_eq!(error(gone), "gone");
        let error = error(served);
        assert!(
            error.contains("the client does not answer: RDMA WRITE of nothing failed"),
            "{start:?}: {error}"
        );
    }
}

#[test]
fn a_server_that_vanishes_ends_the_client() {
    let (_, worked) = pair(
        |cm, listening| {
            let address = bareverbs::cm::rdma::AddrInfo {
                passive: true,
                src_addr: Some(address()),
                dst_addr: None,
                ..route(CLIENT, address())
            };
            let listener = cm.create_ep(&address, None, None)?;
            cm.listen(listener, 1)?;
            listening();
            let mut session = Session::accept(cm, listener)?;
            let Ask::Start(_) = session.asked()? else {
                return Ok(());
            };
            session.answer(&Answer::Ready)?;
            Err("gone".into())
        },
        |cm| {
            work(
                cm,
                CLIENT,
                address(),
                &options("--verbs send --tests lat -S 8"),
            )
        },
    );
    let error = error(worked);
    assert!(error.starts_with("send_lat, 8 bytes: "), "{error}");
}

#[test]
fn a_client_that_leaves_early_is_distinguished_from_one_that_is_done() {
    let (served, left) = with_server(|cm| {
        let mut session = connect(cm)?;
        session.ask(&Ask::Start(TEST))?;
        session.close(Err::<(), _>("the user has had enough".into()))
    });
    assert_eq!(error(left), "the user has had enough");
    assert_eq!(
        error(served),
        "send_bw: the client: the user has had enough"
    );
}

#[test]
fn a_client_with_an_impossible_request_gets_the_reason() {
    let test = |verb, kind, size, depth, both_ways| {
        Ask::Start(Test {
            verb,
            kind,
            size,
            depth,
            both_ways,
        })
    };
    let stop = Ask::Stop(Tally::default());
    for (ask, why) in [
        (
            test(Verb::Send, Kind::Bw, 4097, 1, false),
            "send_bw: 4097 bytes",
        ),
        (
            test(Verb::Write, Kind::Bw, 0, 1, false),
            "write_bw: 0 bytes",
        ),
        (
            test(Verb::FetchAdd, Kind::Load, 16, 1, false),
            "fetch_add_load: 16 bytes",
        ),
        (
            test(Verb::Read, Kind::Bw, 8, 17, false),
            "read_bw: 17 messages in flight",
        ),
        (
            test(Verb::Read, Kind::Bw, 8, 0, false),
            "read_bw: 0 messages in flight",
        ),
        (
            test(Verb::Send, Kind::Lat, 8, 2, false),
            "send_lat: 2 messages in flight",
        ),
        (
            test(Verb::Send, Kind::Lat, 8, 1, true),
            "send_lat: both ways",
        ),
        (stop, "out of turn"),
    ] {
        let (served, reported) = with_server(|cm| {
            let mut session = connect(cm)?;
            let answer = session.ask(&ask);
            session.close(answer)
        });
        let (served, reported) = (error(served), error(reported));
        assert!(served.contains(why), "{ask:?}: {served}");
        // As much of it as a message holds.
        let reported = reported.strip_prefix("the server: ").expect(&reported);
        assert!(served.starts_with(reported), "{ask:?}: {reported}");
    }
}

#[test]
fn a_client_that_claims_more_messages_than_it_sent_is_refused() {
    let (served, reported) = with_server(|cm| {
        let mut session = connect(cm)?;
        let test = Test {
            kind: Kind::Lat,
            depth: 1,
            ..TEST
        };
        session.ask(&Ask::Start(test))?;
        let claim = Tally {
            sent: u64::MAX,
            ..Tally::default()
        };
        let answer = session.ask(&Ask::Stop(claim));
        session.close(answer)
    });
    assert!(error(served).contains("0 messages came, 18446744073709551615 were sent"));
    assert!(error(reported).starts_with("the server: send_lat: 0 messages came"));
}

#[test]
fn who_is_not_perf_is_refused_and_the_next_one_served() {
    let (served, rows) = with_server(|cm| {
        let data = Hello::Data { session: 0 }.to_bytes();
        let mut newer = data;
        newer[7] = 2;
        let huge = Hello::Session {
            largest: u32::MAX,
            deepest: 1,
            memory: Remote {
                addr: 0,
                rkey: RKey(0),
            },
        };
        for (words, why) in [
            (&b"GET / HTTP/1.1"[..], "not perf"),
            (&newer[..], "another version of perf"),
            (&data[..], "no such session"),
            (&huge.to_bytes()[..], "larger messages"),
        ] {
            let mut queues = Channel::<ModelPlatform, MESSAGE>::queues();
            let id = cm.create_ep(&route(CLIENT, address()), None, Some(&mut queues))?;
            let param = ConnParam {
                private_data: words,
                ..ConnParam::default()
            };
            cm.connect(id, Some(&param)).expect_err("refused");
            let event = cm.event(id)?.expect("a rejection");
            let reported = String::from_utf8_lossy(event.private_data()).into_owned();
            assert!(reported.starts_with(why), "{reported}");
            cm.destroy_ep(id)?;
        }
        work(
            cm,
            CLIENT,
            address(),
            &options("-n 10 --verbs write --tests bw -S 8 -t 1"),
        )
    });
    assert_eq!(served.unwrap(), 1);
    assert_eq!(rows.unwrap().len(), 1);
}

#[test]
fn messages_come_back_from_their_bytes() {
    let mut tests = Vec::new();
    for &(_, verb) in Verb::ALL {
        for &(_, kind) in Kind::ALL {
            tests.push(Test {
                verb,
                kind,
                size: 0x0102_0304,
                depth: 0x0506_0708,
                both_ways: kind == Kind::Bw,
            });
        }
    }
    let tally = Tally {
        sent: 1 << 40,
        grants: 2 << 40,
        nanos: 3 << 40,
        peak: 4 << 40,
    };
    let failed = "so it is".to_owned();
    let asks = tests.into_iter().map(Ask::Start).chain([
        Ask::Stop(tally),
        Ask::Bye,
        Ask::Failed(failed.clone()),
    ]);
    for ask in asks {
        assert_eq!(Ask::from_bytes(&ask.to_bytes()), Some(ask));
    }
    for answer in [Answer::Ready, Answer::Done(tally), Answer::Failed(failed)] {
        assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer));
    }
    let memory = Remote {
        addr: 1 << 60,
        rkey: RKey(77),
    };
    for hello in [
        Hello::Session {
            largest: 8,
            deepest: 1024,
            memory,
        },
        Hello::Data { session: u64::MAX },
    ] {
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Ok(hello));
    }
    for atomics in [false, true] {
        let welcome = Welcome {
            session: 1 << 50,
            memory,
            atomics,
        };
        assert_eq!(Welcome::from_bytes(&welcome.to_bytes()), Ok(welcome));
    }
}

#[test]
fn nonsense_is_no_message() {
    let mut bytes = [0; MESSAGE];
    for first in [0, 5, 6, 255] {
        bytes[0] = first;
        assert_eq!(Ask::from_bytes(&bytes), None);
    }
    // No such operation, no such test.
    for at in [1, 2] {
        let mut bytes = Ask::Start(TEST).to_bytes();
        bytes[at] = 99;
        assert_eq!(Ask::from_bytes(&bytes), None);
    }
    // Words for a terminal are only words, and cut off where there is no more space.
    let Some(Answer::Failed(why)) =
        Answer::from_bytes(&Answer::Failed("\x1b[2J".repeat(99)).to_bytes())
    else {
        panic!("a failure");
    };
    assert!(why.starts_with("?[2J?[2J") && why.len() < MESSAGE);
    for len in 0..32 {
        let hello = Hello::Data { session: 1 }.to_bytes();
        // What is missing of a private data field is not made up.
        assert!(Hello::from_bytes(&hello[..len.min(27)]).is_err());
        assert!(Welcome::from_bytes(&hello[..len.min(27)]).is_err());
    }
}

#[test]
fn a_dead_address_is_named_with_the_step() {
    let reported = dead_address::message(|cm, [here, server]| {
        Session::connect(cm, &route(here, server.at(PortSpace::Tcp, 18515)), LIMITS).map(drop)
    });
    assert!(
        reported.starts_with("resolving 10.0.0.99:18515: "),
        "{reported}"
    );
}
