//! The output for people, and for programs.

use std::time::Duration;

use bareverbs::cm::rdma::TraceEntry;
use bareverbs::verbs::RoceVersion;

use bareverbs_examples::times::Times;

use crate::ping::Pinged;
use bareverbs_node::About;

/// Describes a node's device.
pub(crate) fn device(name: &str, about: &About) {
    println!("{name}");
    println!("  firmware  {}", about.firmware);
    println!("  port      {}", about.port);
    for (index, entry) in &about.gids {
        let version = match entry.version {
            RoceVersion::V1 => "RoCE v1",
            RoceVersion::V2 => "RoCE v2",
        };
        println!("  GID {index:<3}   {} ({version})", entry.gid);
    }
    println!(
        "  bring-up  {} firmware commands, {}",
        about.commands,
        time(about.bring_up)
    );
}

/// Lists the messages of a connection, with their times since `start`.
pub(crate) fn messages(heading: &str, start: Duration, trace: &[TraceEntry]) {
    println!("{heading}");
    for entry in trace {
        let arrow = if entry.sent { "-->" } else { "<--" };
        let again = if entry.repeated { "  (again)" } else { "" };
        let at = time(entry.time.saturating_sub(start));
        println!(
            "  {at:>10}  {arrow} {:<5} {}{again}",
            format!("{:?}", entry.message).to_uppercase(),
            entry.peer
        );
    }
}

/// The numbers of a run.
pub(crate) struct Summary<'a> {
    pub(crate) pinged: &'a Pinged,
    /// Round trip of each ping.
    pub(crate) times: &'a Times,
    pub(crate) size: u32,
    pub(crate) bring_up_commands: u64,
}

impl Summary<'_> {
    /// READ, WRITE, and the four SENDs of each ping.
    fn operations(&self) -> u64 {
        u64::from(self.pinged.pings) * 6
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.pinged.elapsed.as_secs_f64().max(1e-9)
    }

    fn latencies(&self) -> [Duration; 3] {
        [0.0, 0.5, 0.99].map(|share| self.times.at(share))
    }

    /// For people.
    pub(crate) fn print(&self) {
        let [min, p50, p99] = self.latencies();
        let pings = self.pinged.pings;
        println!("Results");
        println!(
            "  pings       {pings} of {} bytes, each read, written back, and announced by 4 messages",
            self.size
        );
        if self.pinged.verified == u64::from(pings) * u64::from(self.size) {
            println!("  verified    {} bytes, every one", self.pinged.verified);
        } else {
            println!("  verified    nothing (-V verifies)");
        }
        println!(
            "  rate        {:.0} operations/s, {:.1} MB/s each way",
            self.per_second(self.operations()),
            self.per_second(u64::from(pings) * u64::from(self.size)) / 1e6
        );
        println!(
            "  latency     of a ping: min {}, p50 {}, p99 {}",
            time(min),
            time(p50),
            time(p99)
        );
        println!(
            "  connection  {} from connect to established",
            time(self.pinged.connect)
        );
        println!(
            "  commands    {} for bring-up, {} for the connection (CQs, QP and its transitions)",
            self.bring_up_commands, self.pinged.commands
        );
    }

    /// For programs. Times are in nanoseconds.
    pub(crate) fn print_json(&self) {
        let [min, p50, p99] = self.latencies().map(|time| time.as_nanos());
        println!(
            concat!(
                r#"{{"pings":{},"size":{},"verified_bytes":{},"operations_per_second":{:.0},"#,
                r#""latency_ns":{{"min":{},"p50":{},"p99":{}}},"connect_ns":{},"#,
                r#""commands":{{"bring_up":{},"connection":{}}}}}"#
            ),
            self.pinged.pings,
            self.size,
            self.pinged.verified,
            self.per_second(self.operations()),
            min,
            p50,
            p99,
            self.pinged.connect.as_nanos(),
            self.bring_up_commands,
            self.pinged.commands,
        );
    }
}

fn time(time: Duration) -> String {
    match time.as_nanos() {
        nanos @ 0..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        nanos @ 1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        nanos => format!("{:.2} s", nanos as f64 / 1e9),
    }
}
