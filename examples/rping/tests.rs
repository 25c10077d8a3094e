//! A server with faulty clients: it reports each failure, and serves the next.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;
use std::time::Duration;

use bareverbs::cm::rdma::{AddrInfo, CmId, ConnParam, IdState, SendFlags};
use bareverbs::verbs::firmware_cmds::caps::HcaCap;
use bareverbs_command_line::parse_line;
use bareverbs_in_process::{Builder, ModelPlatform};
use connectx_model::Config as Card;

use super::cli::{MemoryKind, options};
use super::ping::{self, Clients, Step, Wanted};
use bareverbs_examples::Result;
use bareverbs_examples::channel::SILENCE;
use bareverbs_node::{Node, Options as NodeOptions};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 7174;
const SIZE: u32 = 1000;

type Cm<'s, 'd> = bareverbs_node::Cm<'s, 'd, ModelPlatform>;
type Channel<'d> = bareverbs_examples::channel::Channel<'d, ModelPlatform, 16>;
/// A client, which does with the server what its name says.
type Client = fn(&mut Cm<'_, '_>) -> Result<()>;

fn node(platform: ModelPlatform, address: IpAddr, seed: u64) -> Node<ModelPlatform> {
    let mut options = NodeOptions::for_connections(16);
    options.seed = Some(seed);
    Node::new(platform, address, options)
}

fn to_server() -> AddrInfo {
    AddrInfo {
        src_addr: Some((CLIENT, 0).into()),
        dst_addr: Some((SERVER, PORT).into()),
        ..AddrInfo::hints(false)
    }
}

/// Runs a server, and the clients of each list one after the other on a device that was brought up for them. The
/// server's reports of those that failed, and how many pings it served.
fn serve(lists: &[&[Client]], between: Duration) -> (Vec<String>, u32) {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    let [theirs, ours] = [world.platform(0), world.platform(1)];
    let (listening, may_connect) = mpsc::channel();
    let times = lists.iter().map(|clients| clients.len() as u32).sum();
    let serve = move || {
        let (mut failed, mut pings) = (Vec::new(), 0);
        node(theirs, SERVER, 1)
            .run(|cm| {
                let address = AddrInfo {
                    src_addr: Some((SERVER, PORT).into()),
                    ..AddrInfo::hints(true)
                };
                let clients = Clients {
                    times: Some(times),
                    reject: None,
                    size: SIZE,
                    silence: [SILENCE, between],
                };
                let done = ping::serve(cm, &address, clients, |step| match step {
                    Step::Listening => listening.send(()).expect("clients wait"),
                    Step::Read => {}
                    Step::Served(number) => pings = number,
                    Step::Failed(error) => failed.push(error.to_string()),
                });
                // The last failure is the call's.
                assert_eq!(
                    done.err().map(|error| error.to_string()).as_ref(),
                    failed.last()
                );
                Result::Ok(())
            })
            .expect("the server's device");
        (failed, pings)
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(serve);
        may_connect.recv().expect("the server listens");
        for (number, clients) in lists.iter().enumerate() {
            let seed = 2 + number as u64;
            let done = node(ours.clone(), CLIENT, seed)
                .run(|cm| clients.iter().try_for_each(|client| client(cm)));
            done.unwrap_or_else(|error| panic!("a client of list {number}: {error}"));
        }
        server.join().expect("no panic")
    })
}

fn good(cm: &mut Cm<'_, '_>) -> Result<()> {
    let wanted = Wanted {
        size: SIZE as usize,
        count: 3,
        validate: true,
        private_data: &[],
        silence: SILENCE,
    };
    ping::ping(cm, &to_server(), wanted, |_, _| {}, |_, _| {})?;
    Ok(())
}

/// An advertisement.
fn advert(addr: u64, rkey: u32, size: u32) -> [u8; 16] {
    (u128::from(addr) << 64 | u128::from(rkey) << 32 | u128::from(size)).to_be_bytes()
}

/// Waits until the server hangs up.
fn wait_for_the_end(cm: &mut Cm<'_, '_>, id: CmId) -> Result<()> {
    let deadline = cm.now() + SILENCE;
    while cm.state(id)? != IdState::Disconnect {
        if cm.now() >= deadline {
            return Err("the server does not hang up".into());
        }
        cm.wait(deadline)?;
    }
    Ok(())
}

/// Says something, and goes when the server has hung up.
fn say(cm: &mut Cm<'_, '_>, words: &[u8]) -> Result<()> {
    let id = cm.create_ep(&to_server(), None, Some(&mut Channel::queues()))?;
    let memory = cm.reg_msgs(id, words.len())?;
    memory.copy_in(0, words)?;
    cm.connect(id, None)?;
    cm.post_send(id, 0, memory.slice(..words.len())?, SendFlags::SIGNALED)?;
    wait_for_the_end(cm, id)?;
    cm.disconnect(id)?;
    drop(memory);
    Ok(cm.destroy_ep(id)?)
}

fn rejects_instead_of_confirming(cm: &mut Cm<'_, '_>) -> Result<()> {
    let id = cm.create_ep(&to_server(), None, None)?;
    let param = ConnParam {
        qp_num: 77,
        ..ConnParam::default()
    };
    cm.connect(id, Some(&param))?;
    cm.reject(id, b"not like that")?;
    Ok(cm.destroy_ep(id)?)
}

fn says_too_little(cm: &mut Cm<'_, '_>) -> Result<()> {
    say(cm, &[1; 8])
}

fn says_too_much(cm: &mut Cm<'_, '_>) -> Result<()> {
    say(cm, &[1; 100])
}

fn has_a_bad_rkey(cm: &mut Cm<'_, '_>) -> Result<()> {
    say(cm, &advert(0, 0x00ba_d000, SIZE))
}

fn requests_too_much(cm: &mut Cm<'_, '_>) -> Result<()> {
    say(cm, &advert(0, 0, SIZE + 1))
}

/// Advertises memory that the server may read, and has no receive for what the server says then.
fn does_not_listen(cm: &mut Cm<'_, '_>, rnr_retry_count: u8) -> Result<()> {
    let id = cm.create_ep(&to_server(), None, Some(&mut Channel::queues()))?;
    let memory = cm.reg_read(id, SIZE as usize)?;
    let param = ConnParam {
        rnr_retry_count,
        ..ConnParam::default()
    };
    cm.connect(id, Some(&param))?;
    let words = advert(memory.addr(), memory.rkey().0, SIZE);
    cm.post_send_inline(id, 0, &words, SendFlags::SIGNALED)?;
    let _ = cm.get_send_comp(id)?;
    if rnr_retry_count == 0 {
        wait_for_the_end(cm, id)?;
    }
    cm.disconnect(id)?;
    drop(memory);
    Ok(cm.destroy_ep(id)?)
}

fn answers_with_a_nak(cm: &mut Cm<'_, '_>) -> Result<()> {
    does_not_listen(cm, 0)
}

/// The server's READ, or its SEND, which is repeated for ever, is under way then.
fn disconnects_in_the_middle(cm: &mut Cm<'_, '_>) -> Result<()> {
    does_not_listen(cm, 7)
}

/// It ends without notice: the manager's DREQ does not get through.
fn vanishes(cm: &mut Cm<'_, '_>) -> Result<()> {
    let id = cm.create_ep(&to_server(), None, Some(&mut Channel::queues()))?;
    cm.connect(id, None)?;
    Ok(cm.device().set_link(false)?)
}

#[test]
fn the_command_line_is_sound() {
    options().check_invariants(true);
}

/// Options in all their spellings, as `getopt`'s programs have them.
#[test]
fn letters_go_together_with_each_other_and_with_their_values() {
    let parsed = |line| format!("{:?}", parse_line(&options(), line).expect(line));
    let ours = "-c -v -V -C 10 -p 7471 -a 10.0.0.1 -I fd00::1 --vlan 7 -m 1024";
    for line in [
        "-cvVC10 -p7471 -a10.0.0.1 -Ifd00::1 --vlan=7 --mtu=1024",
        "-Vcv -p=7471 -C=10 --mtu 1024 --vlan 7 -I=fd00::1 -a=10.0.0.1",
        "-cvVC 10 -p +7471 -m1024 -a 10.0.0.1 -I fd00::1 --vlan 7",
    ] {
        assert_eq!(parsed(line), parsed(ours), "{line}");
    }
    let [default, given] = ["", "-p 7174 -C 10000 -S 4096 --device model"].map(parsed);
    assert_eq!(default, given);
    let options = |line| parse_line(&options(), line).expect(line);
    assert_eq!((options("").times(), options("--times 3").times()), (1, 3));
    assert!(options("-sP -a ::1").persistent);
    assert_eq!(options("-s --reject=-x").reject.as_deref(), Some("-x"));
    assert_eq!(
        options("-c --private-data a=b").private_data.as_deref(),
        Some("a=b")
    );
}

/// As with getopt.
#[test]
fn the_last_of_repeated_options_counts() {
    for line in ["-p 1 -C 1 -C 2 -v -v -p 3", "-p1 -vv -p 4 -C 7 -p=3 -C2"] {
        let options = parse_line(&options(), line).expect(line);
        assert_eq!(
            (options.port, options.count, options.verbose),
            (3, 2, true),
            "{line}"
        );
        assert!(!options.validate);
    }
    for line in ["--interrupts --interrupts", "-m 256 --mtu 512 -m 1024"] {
        parse_line(&options(), line).expect(line);
    }
}

#[test]
fn lines_that_make_no_sense_are_refused() {
    let link = "--link unix:/a,/b";
    for line in [
        "--memory",
        "--memory card",
        "-s --memory window",
        "-p",
        "-p 0",
        "-p 65536",
        "-p -1",
        "-p x",
        "-p= -v",
        "-v=1",
        "-sc",
        "-c -s",
        "-P",
        "-c -P",
        "-sP --times 1",
        "--times 0",
        "--reject no",
        "-s --reject",
        "--private-data x",
        "-s --private-data x",
        "-S 25",
        "-S 67108865",
        "-C 4294967296",
        "-a",
        "-a name",
        "-a 10.0.0.256",
        "-I [::1]",
        "word",
        "-- word",
        "--bogus",
        "-Z",
        "--time 2",
        "--json=1",
        "--version",
        "--device",
        "--device=",
        "--device model,",
        "--device x",
        "--card connectx-3",
        "--link unix:/a",
        "--pcap file",
        "--fault-seed 1",
        "--fault command=CREATE_QP",
        "--fault command=CREATE_QP,dropped --fault-seed 1",
        "--device vfio:0:0.0 --fault command=CREATE_QP,dropped",
        "--vlan 0",
        "--vlan 4095",
        "--prefix 256",
        "--gateway host",
        "--mac 02:00:00:00:00",
        "--mac 02:00:00:00:00:00:00",
        "-m 257",
    ] {
        parse_line(&options(), line).expect_err(line);
    }
    for more in [
        "--pcap=",
        "--fault-seed 1",
        "--fault loss=2",
        "--fault loss=0.1,",
    ] {
        let line = format!("{link} {more}");
        parse_line(&options(), &line).expect_err(&line);
    }
    let line =
        "--fault loss=0.1 --fault command=CREATE_QP,nth=3,status=BAD_PARAM,syndrome=0x3c5a71";
    parse_line(&options(), line).expect(line);
    let line =
        format!("{link} --pcap file --fault loss=0.1,delay=0.1 --fault corrupt=0 --fault-seed 1");
    parse_line(&options(), &line).expect(&line);
}

/// The first of them ended it.
#[test]
fn a_server_outlives_bad_clients() {
    let clients: [(Client, &str); 9] = [
        (
            rejects_instead_of_confirming,
            "the other end refused: reason ",
        ),
        (says_too_little, "a message of 8 bytes where 16 are due"),
        (says_too_much, "receive failed: local length error"),
        (good, ""),
        (has_a_bad_rkey, "RDMA READ failed: remote access error"),
        (
            requests_too_much,
            "the client requests 1001 bytes, the buffer has 1000",
        ),
        (answers_with_a_nak, "SEND failed: "),
        (
            disconnects_in_the_middle,
            "the other end disconnected during this end's ",
        ),
        (good, ""),
    ];
    let (failed, pings) = serve(&[&clients.map(|(client, _)| client)], SILENCE);
    let due: Vec<&str> = clients
        .iter()
        .map(|(_, why)| *why)
        .filter(|why| !why.is_empty())
        .collect();
    assert_eq!(failed.len(), due.len(), "{failed:#?}");
    for (why, due) in failed.iter().zip(due) {
        assert!(why.starts_with(due), "{why}, not {due}");
    }
    assert_eq!(pings, 6);
}

/// It said "timed out", not of what.
#[test]
fn a_dead_address_is_named_with_the_step() {
    let dead = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99));
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .threaded();
    let reported: Result<String> = node(world.platform(0), CLIENT, 1).run(|cm| {
        let address = AddrInfo {
            dst_addr: Some((dead, PORT).into()),
            ..to_server()
        };
        let wanted = Wanted {
            size: SIZE as usize,
            count: 1,
            validate: true,
            private_data: &[],
            silence: SILENCE,
        };
        let error = ping::ping(cm, &address, wanted, |_, _| {}, |_, _| {}).err();
        Ok(error.expect("there is nothing").to_string())
    });
    let reported = reported.expect("the device is well");
    assert!(
        reported.starts_with("resolving 10.0.0.99:7174: "),
        "{reported}"
    );
}

/// A client on a card that has the server's address got REJ 8 from itself.
#[test]
fn both_ends_with_one_address_are_refused() {
    for line in [
        "-a 10.0.0.1 -I 10.0.0.1",
        "-c -a 10.0.0.1 -I 10.0.0.1 --link udp:127.0.0.1:0,127.0.0.1:9",
    ] {
        let options = parse_line(&options(), line).expect(line);
        let error = super::run(&options).expect_err(line).to_string();
        assert!(
            error.starts_with("10.0.0.1 is the client's address and the server's"),
            "{error}"
        );
    }
}

#[test]
fn a_server_outlives_a_client_that_vanishes() {
    let (failed, pings) = serve(&[&[good, vanishes], &[good]], Duration::from_secs(5));
    assert_eq!(failed, ["the other end has said nothing for 5s"]);
    assert_eq!(pings, 6);
}

/// Lengths with a rest that is no word, within a packet, and over several pages.
#[test]
fn messages_come_back_from_each_kind_of_memory() {
    for memory in ["region", "window", "indirect", "device"] {
        for size in [26, 4099, 50_001] {
            let line = format!("--memory {memory} -C 10 -S {size} --times 2 --json");
            let options = parse_line(&options(), &line).expect(&line);
            super::run(&options).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}

/// A client's error on a card that was changed so.
fn refusal(memory: MemoryKind, change: fn(&mut Card)) -> String {
    let mut card = Card::new(1);
    change(&mut card);
    let world = Builder::new().function(card).threaded();
    let reported: Result<String> = node(world.platform(0), CLIENT, 1).run(|cm| {
        // No answer is needed: to this end's own address there is a way without.
        let address = AddrInfo {
            dst_addr: Some((CLIENT, PORT).into()),
            ..to_server()
        };
        let wanted = Wanted {
            size: SIZE as usize,
            count: 1,
            validate: true,
            private_data: &[],
            silence: SILENCE,
        };
        let error = super::ping_in(memory, cm, &address, wanted, |_, _| {}, |_, _| {}).err();
        Ok(error.expect("the card has none").to_string())
    });
    reported.expect("the device is well")
}

#[test]
fn a_card_without_such_memory_is_named_with_what_it_lacks() {
    fn both(card: &mut Card, change: fn(&mut HcaCap)) {
        change(&mut card.general);
        change(&mut card.general_max);
    }
    type Change = fn(&mut Card);
    let cases: [(MemoryKind, Change, &str); 3] = [
        (
            MemoryKind::Window,
            |card| {
                both(card, |caps| {
                    caps.set_imaicl(false);
                });
            },
            "the device has no memory windows",
        ),
        (
            MemoryKind::Indirect,
            |card| {
                both(card, |caps| {
                    caps.set_umr_indirect_mkey_disabled(true);
                });
            },
            "cmd_hca_cap.umr_indirect_mkey_disabled",
        ),
        (
            MemoryKind::Device,
            |card| {
                both(card, |caps| {
                    caps.set_device_memory(false);
                });
            },
            "cmd_hca_cap.device_memory",
        ),
    ];
    for (memory, change, why) in cases {
        let refusal = refusal(memory, change);
        assert!(refusal.contains(why), "{memory:?}: {refusal}");
    }
}
