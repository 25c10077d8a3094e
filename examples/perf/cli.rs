//! The command line: perftest's options where it has them.

use std::path::PathBuf;
use std::time::Duration;

use bareverbs_command_line::{
    EMPTY, List, Named, PORTS, all_within, is_path, is_port, listed, within,
};
use bpaf::Bpaf;

use super::flow::Budget;
use super::session::Limits;
use super::test::{ATOMIC_SIZE, Kind, MAX_DEPTH, MAX_SIZE, Test, Verb};
use bareverbs_examples::ends::{Ends, ends};

/// Bandwidth, message rate and latency of RDMA operations, as perftest measures them.
///
/// With neither -s nor -c server and client run in this process: on two ConnectX models that are cabled together, without
/// hardware and without root; or on two cards, the client's named first. With --link the model's port leads out of the
/// process, so that one end runs here. What is measured is up to the client.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(
    options,
    guard(|it| it.plot.is_none() || !it.ends.server, "--plot is for the client, which has the results"),
    guard(|it| it.iters.is_none() || it.duration.is_none(), "--iters and --duration cannot be used together")
)]
pub(crate) struct Options {
    #[bpaf(external)]
    pub(crate) ends: Ends,
    /// Port.
    #[bpaf(
        short('p'),
        argument("PORT"),
        last,
        guard(is_port, PORTS),
        fallback(18515),
        display_fallback
    )]
    pub(crate) port: u16,
    /// Operations to measure, with commas between them: write (RDMA WRITE), read (RDMA READ), send (SEND), fetch_add (ATOMIC
    /// fetch and add), cmp_swap (ATOMIC compare and swap); all of them if not given.
    #[bpaf(long, argument::<List<Verb>>("VERB"), last, map(List::parts), fallback(Vec::new()))]
    pub(crate) verbs: Vec<Verb>,
    /// What to measure of them, with commas between: bw (bandwidth and message rate, with DEPTH messages in flight), lat
    /// (latency of one message alone: half of what there and back take, or until the answer of a READ or an atomic), load
    /// (latency under load: from the call that posts a message to its completion, with DEPTH of them in flight).
    #[bpaf(
        long,
        argument::<List<Kind>>("TEST"),
        last,
        map(List::parts),
        fallback(vec![Kind::Bw, Kind::Lat]),
        format_fallback(listed)
    )]
    pub(crate) tests: Vec<Kind>,
    /// Bytes of a message. Atomics have 8.
    #[bpaf(
        short('S'),
        long,
        argument::<List<u32>>("BYTES"),
        last,
        map(List::parts),
        guard(all_within(1..=MAX_SIZE), "not 1 to 8388608"),
        fallback(vec![2, 8, 64, 512, 4096, 65536]),
        format_fallback(listed)
    )]
    pub(crate) sizes: Vec<u32>,
    /// Messages in flight, for bandwidth and for latency under load.
    #[bpaf(
        short('t'),
        long,
        argument::<List<u32>>("DEPTH"),
        last,
        map(List::parts),
        guard(all_within(1..=MAX_DEPTH), "not 1 to 1024"),
        fallback(vec![1, 16, 128]),
        format_fallback(listed)
    )]
    pub(crate) depth: Vec<u32>,
    /// Messages of each measurement, 1000 if not given.
    #[bpaf(
        short('n'),
        long,
        argument("MESSAGES"), last,
        guard(within(10..=10_000_000), "not 10 to 10000000"),
        optional
    )]
    pub(crate) iters: Option<u32>,
    /// Seconds that each measurement takes, instead of a number of messages.
    #[bpaf(
        short('D'),
        long,
        argument("SECONDS"), last,
        guard(within(1..=86_400), "not 1 to 86400"),
        optional
    )]
    pub(crate) duration: Option<u32>,
    /// Bandwidth with both ends sending at the same time; what is printed is the sum.
    #[bpaf(short('b'), long, switch, last)]
    pub(crate) bidirectional: bool,
    /// Prints JSON.
    #[bpaf(switch, last)]
    pub(crate) json: bool,
    /// Draws the results into this file, which any browser shows (SVG): bandwidth, message rate, and latency with its
    /// percentiles.
    #[bpaf(long, argument("FILE"), last, guard(is_path, EMPTY), optional)]
    pub(crate) plot: Option<PathBuf>,
}

impl Options {
    /// The limits that the two ends have to prepare for.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            largest: self.sizes.iter().copied().fold(ATOMIC_SIZE, u32::max),
            deepest: self.depth.iter().copied().fold(1, u32::max),
        }
    }

    pub(crate) fn budget(&self) -> Budget {
        match self.duration {
            Some(seconds) => Budget::Time(Duration::from_secs(seconds.into())),
            None => Budget::Messages(self.iters.unwrap_or(1000).into()),
        }
    }

    /// All that is to be measured: test by test, depth by depth, size by size.
    pub(crate) fn tests(&self) -> Vec<Test> {
        let mut tests = Vec::new();
        for &(_, kind) in Kind::ALL {
            for &(_, verb) in Verb::ALL {
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
