//! Both ends on two device models.

use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::Options;
use super::report::{Step, Times};

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
