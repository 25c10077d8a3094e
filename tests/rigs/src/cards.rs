//! Cards drawn from seeds, in thousands: what `cargo test` does with a few hundred.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bareverbs_cards::{KEPT, PairDraw, Refusal, Report, check};

use crate::outcome::Outcome;

pub(crate) const ABOUT: &str = "cards and behaviours drawn from seeds: --count CARDS (10000), --from SEED (0), or one pair: --seed SEED";

/// Each seed is a pair.
const CARDS: u64 = 2;

struct Options {
    count: u64,
    from: u64,
    seed: Option<u64>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            count: 10_000,
            from: 0,
            seed: None,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let value = rest
                .next()
                .ok_or_else(|| format!("{name} without a value"))?;
            let value = value
                .parse()
                .map_err(|_| format!("{name} {value}: not a number"))?;
            match name.as_str() {
                "--count" => options.count = value,
                "--from" => options.from = value,
                "--seed" => options.seed = Some(value),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let options = Options::parse(arguments)?;
    let seeds: Vec<u64> = match options.seed {
        Some(seed) => {
            println!("seed {seed}: {}", PairDraw::new(seed));
            vec![seed]
        }
        None => {
            let last = options.from + options.count.div_ceil(CARDS);
            KEPT.iter().copied().chain(options.from..last).collect()
        }
    };
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let sum = Mutex::new((Outcome::default(), Report::default()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(&seed) = seeds.get(index) else {
                return;
            };
            let result = check(seed);
            let Ok(mut sum) = sum.lock() else {
                return;
            };
            match result {
                Ok(report) => {
                    sum.0.passed += CARDS as usize;
                    sum.1 += report;
                }
                Err(why) => {
                    sum.0.failed += CARDS as usize;
                    println!("FAILED: {why}");
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let took = started.elapsed();
    let (outcome, report) = sum.into_inner().map_err(|_| "a thread died")?;
    let cards = outcome.passed + outcome.failed;
    println!(
        "{cards} cards in {took:.1?}, {:.2?} each on {threads} threads: {} came up, {} self tests, {} connections, {} of them on InfiniBand",
        took / u32::try_from(cards.max(1)).unwrap_or(u32::MAX),
        report.up,
        report.self_tests,
        report.connections,
        report.infiniband_connections
    );
    for (refusal, count) in Refusal::ALL.iter().zip(report.refused) {
        println!("  refused, as drawn: {refusal:?} {count}");
    }
    Ok(outcome)
}
