//! The command line: perftest's options where it has them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use super::flow::Budget;
use super::session::Limits;
use super::test::{ATOMIC_SIZE, Kind, MAX_DEPTH, MAX_SIZE, Test, Verb};
use bareverbs_examples::ends::Ends;

/// Bandwidth, message rate and latency of RDMA operations, as perftest measures them.
///
/// With neither -s nor -c server and client run in this process: on two ConnectX models that are cabled together, without
/// hardware and without root; or on two cards, the client's named first. With --link the model's port leads out of the
/// process, so that one end runs here. What is measured is up to the client.
#[derive(Parser, Debug, Clone)]
#[command(name = "perf")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) ends: Ends,
    /// Port.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Operations to measure; all of them if not given.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "VERB")]
    pub(crate) verbs: Vec<Verb>,
    /// What to measure of them.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "TEST",
        default_values = ["bw", "lat"]
    )]
    pub(crate) tests: Vec<Kind>,
    /// Bytes of a message. Atomics have 8.
    #[arg(short = 'S', long, value_delimiter = ',', value_name = "BYTES", default_values_t = [2, 8, 64, 512, 4096, 65536],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    pub(crate) sizes: Vec<u32>,
    /// Messages in flight, for bandwidth and for latency under load.
    #[arg(short = 't', long, value_delimiter = ',', value_name = "DEPTH", default_values_t = [1, 16, 128],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEPTH)))]
    pub(crate) depth: Vec<u32>,
    /// Messages of each measurement.
    #[arg(short = 'n', long, default_value_t = 1000, value_name = "MESSAGES",
          value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub(crate) iters: u32,
    /// Seconds that each measurement takes, instead of a number of messages.
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) duration: Option<u32>,
    /// Bandwidth with both ends sending at the same time; what is printed is the sum.
    #[arg(short = 'b', long)]
    pub(crate) bidirectional: bool,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draws the results into this file (SVG).
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

impl Options {
    /// What the two ends have to prepare for.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            largest: self.sizes.iter().copied().fold(ATOMIC_SIZE, u32::max),
            deepest: self.depth.iter().copied().fold(1, u32::max),
        }
    }

    pub(crate) fn budget(&self) -> Budget {
        match self.duration {
            Some(seconds) => Budget::Time(Duration::from_secs(seconds.into())),
            None => Budget::Messages(self.iters.into()),
        }
    }

    /// All that is to be measured: test by test, depth by depth, size by size.
    pub(crate) fn tests(&self) -> Vec<Test> {
        let mut tests = Vec::new();
        for &kind in Kind::value_variants() {
            for &verb in Verb::value_variants() {
                let wanted = self.verbs.is_empty() || self.verbs.contains(&verb);
                if !wanted || !self.tests.contains(&kind) {
                    continue;
                }
                let depths = if kind == Kind::Lat {
                    &[1]
                } else {
                    &self.depth[..]
                };
                let sizes = if verb.is_atomic() {
                    &[ATOMIC_SIZE]
                } else {
                    &self.sizes[..]
                };
                for &depth in depths {
                    tests.extend(sizes.iter().map(|&size| Test {
                        verb,
                        kind,
                        size,
                        depth,
                        both_ways: self.bidirectional && kind == Kind::Bw,
                    }));
                }
            }
        }
        tests
    }
}
