//! The results as perftest prints them, and as JSON.

use bareverbs_examples::times::Times;

use super::test::{Kind, Test};

/// Bytes of what perftest counts by.
const MIB: f64 = 1048576.0;

/// A measurement.
pub(crate) struct Row {
    pub(crate) test: Test,
    pub(crate) iterations: u64,
    pub(crate) numbers: Numbers,
}

/// The results: rates in MiB/s and millions of messages a second, times in microseconds.
pub(crate) enum Numbers {
    Rate {
        peak: f64,
        average: f64,
        messages: f64,
    },
    Times {
        min: f64,
        max: f64,
        typical: f64,
        average: f64,
        deviation: f64,
        p99: f64,
        p999: f64,
    },
}

impl Numbers {
    /// From messages a second.
    pub(crate) fn rate(size: u32, peak: f64, average: f64) -> Self {
        let size = f64::from(size);
        Self::Rate {
            peak: peak * size / MIB,
            average: average * size / MIB,
            messages: average / 1e6,
        }
    }

    /// Of at least one time, each divided by `parts`, as perftest's `print_report_lat` has them: all but the two longest ones,
    /// and the second longest as `max`. Its percentiles are one place above those of other programs. Its standard deviation is
    /// of whole microseconds; this one is exact.
    pub(crate) fn times(times: &Times, parts: u32) -> Self {
        let parts = f64::from(parts);
        // `LAT_MEASURE_TAIL`.
        let tail = if times.count() > 2 { 2 } else { 0 };
        let count = times.count() - tail;
        // perftest's index in the sorted times.
        let at = |index: u64| times.at_rank(index + 1).as_secs_f64() * 1e6 / parts;
        let percentile = |share: f64| at((count as f64 * share).ceil() as u64);
        let [average, deviation] = times
            .mean_and_deviation_without(tail as usize)
            .map(|nanos| nanos / 1e3 / parts);
        Self::Times {
            min: at(0),
            max: at(count),
            typical: (at((count - 1) / 2) + at(count / 2)) / 2.0,
            average,
            deviation,
            p99: percentile(0.99),
            p999: percentile(0.999),
        }
    }
}

/// Announces a test, and what its columns are.
pub(crate) fn heading(test: &Test) {
    println!("{}", "-".repeat(87));
    let name = test.name();
    match test.kind {
        Kind::Bw => {
            let both = if test.both_ways { ", both ways" } else { "" };
            println!(" RDMA {name}, queue depth {}{both}", test.depth);
            println!(
                " #bytes     #iterations    BW peak[MiB/sec]   BW average[MiB/sec]  MsgRate[Mpps]"
            );
            return;
        }
        Kind::Load => {
            println!(
                " RDMA {name}, queue depth {}: from posting to completion",
                test.depth
            );
        }
        Kind::Lat => println!(" RDMA {name}"),
    }
    println!(
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
         t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
    );
}

pub(crate) fn line(row: &Row) {
    let Row {
        test: Test { size, .. },
        iterations,
        ..
    } = row;
    match row.numbers {
        Numbers::Rate {
            peak,
            average,
            messages,
        } => println!(" {size:<10} {iterations:<14} {peak:<18.2} {average:<20.2} {messages:.6}"),
        Numbers::Times {
            min,
            max,
            typical,
            average,
            deviation,
            p99,
            p999,
        } => println!(
            " {size:<7} {iterations:<14} {min:<14.2} {max:<12.2} {typical:<18.2} {average:<14.2} {deviation:<15.2} \
             {p99:<22.2} {p999:.2}"
        ),
    }
}

/// All of it, one object a measurement.
pub(crate) fn json(rows: &[Row]) -> String {
    let objects: Vec<String> = rows
        .iter()
        .map(|row| {
            let numbers = match row.numbers {
                Numbers::Rate {
                    peak,
                    average,
                    messages,
                } => format!(
                    r#""bw_peak_mib":{peak:.2},"bw_average_mib":{average:.2},"msg_rate_mpps":{messages:.6}"#
                ),
                Numbers::Times {
                    min,
                    max,
                    typical,
                    average,
                    deviation,
                    p99,
                    p999,
                } => format!(
                    r#""t_min_usec":{min:.2},"t_max_usec":{max:.2},"t_typical_usec":{typical:.2},"t_avg_usec":{average:.2},"t_stdev_usec":{deviation:.2},"p99_usec":{p99:.2},"p99_9_usec":{p999:.2}"#
                ),
            };
            format!(
                r#"{{"test":"{}","depth":{},"bytes":{},"both_ways":{},"iterations":{},{numbers}}}"#,
                row.test.name(), row.test.depth, row.test.size, row.test.both_ways, row.iterations
            )
        })
        .collect();
    format!("[{}]", objects.join(",\n "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use connectx_model::link::rng::Rng;

    use super::*;

    /// Computes of these differences what `print_report_lat` of perftest 26.1 does, in its order and with its names.
    fn perftest(mut delta: Vec<f64>) -> [f64; 7] {
        let mut measure_cnt = delta.len();
        delta.sort_by(f64::total_cmp);
        measure_cnt -= 2;
        let median = if !(measure_cnt - 1).is_multiple_of(2) {
            (delta[measure_cnt / 2] + delta[measure_cnt / 2 - 1]) / 2.0
        } else {
            delta[measure_cnt / 2]
        };
        let average = delta[..measure_cnt].iter().sum::<f64>() / measure_cnt as f64;
        let squares = delta[..measure_cnt].iter().map(|it| (average - it).powi(2));
        let stdev = (squares.sum::<f64>() / measure_cnt as f64).sqrt();
        let iters_99 = (measure_cnt as f64 * 0.99).ceil() as usize;
        let iters_99_9 = (measure_cnt as f64 * 0.999).ceil() as usize;
        let max = delta[measure_cnt];
        [
            delta[0],
            max,
            median,
            average,
            stdev,
            delta[iters_99],
            delta[iters_99_9],
        ]
    }

    #[test]
    fn times_are_what_perftest_reports() {
        for seed in 1..=40 {
            let mut rng = Rng::new(seed);
            let mut times = Times::default();
            let mut delta = Vec::new();
            for _ in 0..3 + rng.below(3000) {
                // With some that took long.
                let nanos =
                    2000 + u64::from(rng.below(500)) * if rng.below(100) == 0 { 400 } else { 1 };
                times.record(Duration::from_nanos(nanos), 1);
                delta.push(nanos as f64 / 2000.0);
            }
            let Numbers::Times {
                min,
                max,
                typical,
                average,
                deviation,
                p99,
                p999,
            } = Numbers::times(&times, 2)
            else {
                panic!("rates");
            };
            let found = [min, max, typical, average, deviation, p99, p999];
            let wanted = perftest(delta);
            for (at, (found, wanted)) in found.into_iter().zip(wanted).enumerate() {
                let error = (found - wanted).abs();
                assert!(
                    error <= wanted * 1.5e-3 + 1e-9,
                    "seed {seed}, column {at}: {found} is {wanted}"
                );
            }
        }
    }
}
