//! The engine alone: time per connection, both ends, from REQ to the end of timewait, and whether the cost stays flat while
//! many others are established, and when many are made, held and taken down.
//!
//! `engine count ROUNDS OTHERS` and `engine hold COUNT` run just that, for a tool that counts instructions: the difference
//! of two runs with different rounds is the price of the rounds. The workspace's benchmark `connection` does so.

mod cycle;

use std::time::{Duration, Instant};

fn run(rounds: u32, others: u32) -> Duration {
    let [mut client, mut server] = cycle::engines(others as usize + 16);
    let mut mad = [0; bareverbs_cm::mad::MAD_LEN];
    let mut now = Duration::from_secs(1);
    for qpn in 0..others {
        cycle::connect(now, &mut client, &mut server, 0x1000 + qpn, &mut mad);
    }
    let start = Instant::now();
    for _ in 0..rounds {
        let pair = cycle::connect(now, &mut client, &mut server, 0x11, &mut mad);
        cycle::disconnect(now, &mut client, &mut server, pair, &mut mad);
        now += Duration::from_secs(3);
    }
    start.elapsed()
}

/// Nothing is left of them.
fn hold(count: u32) -> Duration {
    let [mut client, mut server] = cycle::engines(count as usize);
    let mut mad = [0; bareverbs_cm::mad::MAD_LEN];
    let start = Instant::now();
    let now = Duration::from_secs(1);
    cycle::hold(now, &mut client, &mut server, count, &mut mad);
    let took = start.elapsed();
    assert_eq!((client.in_use(), server.in_use()), (0, 0));
    took
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, command, count] = &args[..]
        && command == "hold"
    {
        hold(count.parse().expect("how many"));
        return;
    }
    if let [_, command, rounds, others] = &args[..]
        && command == "count"
    {
        run(
            rounds.parse().expect("rounds"),
            others.parse().expect("others"),
        );
        return;
    }
    let rounds = 20_000;
    for others in [0, 1_000, 100_000] {
        let each = run(rounds, others).as_nanos() / u128::from(rounds);
        println!(
            "{others:>7} others established: {each:>5} ns per connection and disconnection, both ends"
        );
    }
    for count in [10, 1_000, 100_000] {
        let each = hold(count).as_nanos() / u128::from(count);
        println!("{count:>7} made, held and taken down: {each:>5} ns each, both ends");
    }
    println!(
        "{:>7} bytes per connection",
        size_of::<bareverbs_cm::engine::Slot>()
    );
}
