//! Both ends on two device models.

use std::net::IpAddr;
use std::time::Duration;

use bareverbs::verbs::Platform;
use clap::{CommandFactory, Parser};

use super::node::{About, Cm};
use super::program::Program;
use super::report::{Step, Times};
use super::{Options, Result};

#[test]
fn the_command_line_is_sound() {
    Options::command().debug_assert();
}

#[test]
fn every_connection_is_timed_in_every_step() {
    let options = Options::parse_from(["cmtime", "-c", "40"]);
    let times = options.addresses.run(&options).unwrap().unwrap();
    assert_eq!(times.connections(), 40);
    for step in Step::ALL {
        let [total, max, min] = times.step(step);
        assert!(Duration::ZERO < min, "{step:?}");
        assert!(min <= max && max <= total, "{step:?}");
    }
}

#[test]
fn both_ends_keep_in_step() {
    let options = Options::parse_from(["cmtime", "-c", "20", "--in-step"]);
    let times = options.addresses.run(&options).unwrap().unwrap();
    assert_eq!(times.connections(), 20);
}

/// The program, with a server to which every half-open connection is an old one, as if it were slow.
struct Slow(Options);

impl Program for Slow {
    type Served = usize;
    type Found = Times;

    const NAME: &'static str = "cmtime";
    const CLIENT: usize = 1;

    fn connections(&self) -> usize {
        Program::connections(&self.0)
    }

    fn serve<P: Platform>(
        &self,
        cm: &mut Cm<'_, '_, P>,
        address: IpAddr,
        listening: &mut dyn FnMut(),
    ) -> Result<usize> {
        cm.engine_config_mut().half_open_age = Duration::ZERO;
        self.0.serve(cm, address, listening)
    }

    fn work<P: Platform>(
        &self,
        cm: &mut Cm<'_, '_, P>,
        about: &About,
        ends: [IpAddr; 2],
        both: bool,
    ) -> Result<Times> {
        self.0.work(cm, about, ends, both)
    }

    fn announce(&self, address: IpAddr) {
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
    let options = Options::parse_from(["cmtime", "-c", "100"]);
    let times = options.addresses.clone().run(&Slow(options));
    assert_eq!(times.unwrap().unwrap().connections(), 100);
}

#[test]
fn the_table_is_that_of_rdma_core() {
    let mut times = Times::new(2);
    for (number, took) in [3000, 5000]
        .map(Duration::from_micros)
        .into_iter()
        .enumerate()
    {
        times.begin(Step::Connect, Duration::from_secs(1));
        times.start(Step::Connect, number, Duration::from_secs(1));
        times.stop(Step::Connect, number, Duration::from_secs(1) + took);
        times.end(Step::Connect, Duration::from_millis(1010));
    }
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
