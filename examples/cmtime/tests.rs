//! Both ends on two device models.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bareverbs::cm::rdma::{ChannelId, EventType, PortSpace};
use bareverbs::verbs::Platform;
use bareverbs_command_line::parse_line;

use super::client::{Client, Plan};
use super::queues::{completions, queues};
use super::report::{Step, Times};
use super::{Options, options};
use bareverbs_examples::Result;
use bareverbs_examples::dead_address;
use bareverbs_examples::program::Program;
use bareverbs_node::{About, Cm, Host};

#[test]
fn the_command_line_is_sound() {
    options().check_invariants(true);
}

#[test]
fn what_is_out_of_range_is_refused() {
    for line in ["-c 0", "-c 10001", "-p 0", "-r 256", "-t 0", "--in-step=1"] {
        parse_line(&options(), line).expect_err(line);
    }
}

#[test]
fn every_connection_is_timed_in_every_step() {
    let options = parse_line(&options(), "-c 40").unwrap();
    let times = options.addresses.run(&options).unwrap().unwrap();
    assert_eq!(times.connections(), 40);
    for step in Step::ALL {
        let [total, max, min] = times.step(step);
        assert!(Duration::ZERO < min, "{step:?}");
        assert!(min <= max && max <= total, "{step:?}");
        assert_eq!(times.count(step), 40, "{step:?}");
        // To three digits: what a percentile stands for may be rounded up.
        let [p50, p99] = times.percentiles(step);
        assert!(
            min <= p50 && p50 <= p99 && p99 <= max.mul_f64(1.001),
            "{step:?}"
        );
    }
}

#[test]
fn connections_on_infiniband_are_timed() {
    for line in ["-c 20", "-c 20 -s gid --interrupts"] {
        let line = format!("{line} --model-port infiniband");
        let options = parse_line(&options(), &line).unwrap();
        let times = options.addresses.run(&options).unwrap().unwrap();
        assert_eq!(times.connections(), 20, "{line}");
    }
}

#[test]
fn a_dead_address_is_named_with_the_step() {
    let message = dead_address::message(|cm, [here, server]| {
        let plan = Plan {
            connections: 2,
            here: here.at(PortSpace::Tcp, 0),
            server: server.at(PortSpace::Tcp, 7471),
            retries: 0,
            timeout: Duration::from_secs(2),
        };
        Client::new(cm, &plan, None)?.run()
    });
    // Either may be the first.
    let due = "2 of 2 connections failed; connection ";
    assert!(message.starts_with(due), "{message}");
    assert!(
        message.contains(": resolving 10.0.0.99:7471: "),
        "{message}"
    );
}

#[test]
fn both_ends_keep_in_step() {
    for line in [
        "-c 20 --in-step",
        "-c 20 --in-step --model-port infiniband",
        "-c 20 --in-step -s fd00::1 --model-port infiniband",
    ] {
        let options = parse_line(&options(), line).unwrap();
        let times = options.addresses.run(&options).unwrap().unwrap();
        assert_eq!(times.connections(), 20, "{line}");
    }
}

/// The program, with a server to which every half-open connection is an old one, as if it were slow.
struct Slow(Options);

impl Program for Slow {
    type Served = usize;
    type Found = Times;

    fn name(&self) -> &'static str {
        "cmtime"
    }
    const CLIENT: usize = 1;

    fn connections(&self) -> usize {
        Program::connections(&self.0)
    }

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<usize> {
        cm.engine_config_mut().half_open_age = Duration::ZERO;
        self.0.serve(cm, address, listening)
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        about: &About,
        ends: [Host; 2],
        both: bool,
    ) -> Result<Times> {
        self.0.work(cm, about, ends, both)
    }

    fn announce(&self, address: Host) {
        self.0.announce(address);
    }

    fn compare(&self, served: &usize, times: &Times) -> Result<()> {
        self.0.compare(served, times)
    }
}

/// The last eighth of the ids is not for a client that has as many half-open connections, some of them old: of a hundred at
/// once, a server that was slow refused some.
#[test]
fn a_slow_server_has_room_for_all_connections_of_its_client() {
    let options = parse_line(&options(), "-c 100").unwrap();
    let times = options.addresses.clone().run(&Slow(options));
    assert_eq!(times.unwrap().unwrap().connections(), 100);
}

/// The program, with a server that does not have its client's address when the requests come.
struct UnknownClient {
    options: Options,
    /// The client has asked for the server, and the server may forget that.
    asked: AtomicBool,
    /// It has.
    forgotten: AtomicBool,
    /// All requests are there.
    sent: AtomicBool,
    repeated: AtomicU64,
}

/// Takes part in what goes on until the other end is so far.
fn until<P: Platform>(cm: &mut Cm<'_, '_, P>, flag: &AtomicBool) -> Result<()> {
    while !flag.load(Ordering::Acquire) {
        cm.wait(cm.now() + Duration::from_millis(1))?;
    }
    Ok(())
}

/// Waits for so many events of a kind.
fn all<P: Platform>(
    cm: &mut Cm<'_, '_, P>,
    channel: ChannelId,
    kind: EventType,
    mut count: usize,
) -> Result<()> {
    while count > 0 {
        let event = cm.get_cm_event(channel)?;
        if event.event == kind {
            count -= 1;
        } else if event.event != EventType::TimewaitExit {
            return Err(format!("{} instead of {kind}", event.event).into());
        }
    }
    Ok(())
}

impl Program for UnknownClient {
    type Served = usize;
    type Found = Times;

    fn name(&self) -> &'static str {
        "cmtime"
    }
    const CLIENT: usize = 1;

    fn connections(&self) -> usize {
        Program::connections(&self.options)
    }

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<usize> {
        listening();
        until(cm, &self.asked)?;
        let host = cm.resolver_mut().host().expect("a host");
        let clients: Vec<IpAddr> = host.neighbours().map(|(address, ..)| address).collect();
        for client in clients {
            host.forget(client, None);
        }
        self.options.serve(cm, address, &mut || {
            self.forgotten.store(true, Ordering::Release);
            // The server does nothing until then, so that it finds them all at once.
            while !self.sent.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        })
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        _: &About,
        [here, server]: [Host; 2],
        _: bool,
    ) -> Result<Times> {
        let here = here.at(PortSpace::Tcp, 0);
        let server = server.at(PortSpace::Tcp, self.options.port);
        let (connections, timeout) = (Program::connections(self), Duration::from_secs(30));
        let channel = cm.create_event_channel()?;
        let cq = completions(cm)?;
        let mut ids = Vec::new();
        for number in 0..connections {
            let id = cm.create_id(Some(channel), number as u64, PortSpace::Tcp)?;
            cm.resolve_addr(id, Some(here), server, timeout)?;
            ids.push(id);
        }
        all(cm, channel, EventType::AddrResolved, connections)?;
        for &id in &ids {
            cm.resolve_route(id, timeout)?;
            cm.create_qp(id, None, &mut queues(&cq))?;
        }
        all(cm, channel, EventType::RouteResolved, connections)?;
        self.asked.store(true, Ordering::Release);
        until(cm, &self.forgotten)?;
        for &id in &ids {
            cm.connect(id, None)?;
        }
        self.sent.store(true, Ordering::Release);
        all(cm, channel, EventType::Established, connections)?;
        self.repeated.store(cm.stats().repeated, Ordering::Release);
        for &id in &ids {
            cm.disconnect(id)?;
        }
        all(cm, channel, EventType::Disconnected, connections)?;
        for id in ids {
            cm.destroy_id(id)?;
        }
        cm.destroy_event_channel(channel)?;
        Ok(Times::new(connections))
    }

    fn announce(&self, address: Host) {
        self.options.announce(address);
    }

    fn compare(&self, served: &usize, times: &Times) -> Result<()> {
        self.options.compare(served, times)
    }
}

/// A client that has its server's address from an announcement does not ask for it, and the server does not have the
/// client's. Of a hundred requests at once, the server kept 51 while it asked, and the others came again after a
/// quarter of a second. The client is a patient one, which repeats nothing for seconds: what is late is no matter here.
#[test]
fn a_server_that_has_to_ask_for_its_client_loses_no_request() {
    let program = UnknownClient {
        options: parse_line(&options(), "-c 100 --patient").unwrap(),
        asked: AtomicBool::new(false),
        forgotten: AtomicBool::new(false),
        sent: AtomicBool::new(false),
        repeated: AtomicU64::new(0),
    };
    let times = program.options.addresses.run(&program).unwrap().unwrap();
    assert_eq!(times.connections(), 100);
    assert_eq!(program.repeated.load(Ordering::Acquire), 0);
}

#[test]
fn the_table_is_that_of_rdma_core() {
    let mut times = Times::new(2);
    times.begin(Step::Connect, Duration::from_secs(1));
    for took in [3000, 5000].map(Duration::from_micros) {
        times.record(Step::Connect, took);
    }
    times.end(Step::Connect, Duration::from_millis(1010));
    let table = times.to_string();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[0],
        "step              total ms     max ms     min us  us / conn"
    );
    assert_eq!(
        lines[6],
        "connect      :       10.00       5.00    3000.00    5000.00"
    );
    assert_eq!(
        lines[9],
        "2 connections: 200/s from connect to established, 200/s from create id on, 200/s in all steps"
    );
}

/// The table that was printed when each connection's times were kept equals the one that is printed now.
#[test]
fn ten_thousand_connections_are_summed_up_to_three_digits() {
    let mut times = Times::new(10_000);
    let mut exact = Vec::new();
    // A linear congruential generator (Knuth's MMIX), so that all runs see the same.
    let mut random = 42_u64;
    for _ in 0..10_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let took = Duration::from_nanos(1_000 + (random >> 40) * 7);
        times.record(Step::Connect, took);
        exact.push(took);
    }
    exact.sort_unstable();
    let [_, max, min] = times.step(Step::Connect);
    assert_eq!([min, max], [exact[0], exact[9_999]]);
    for (found, at) in times
        .percentiles(Step::Connect)
        .into_iter()
        .zip([4_999, 9_899])
    {
        let ratio = found.as_secs_f64() / exact[at].as_secs_f64();
        assert!((ratio - 1.0).abs() < 1e-3, "{found:?} for {:?}", exact[at]);
    }
}
