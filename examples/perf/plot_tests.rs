//! These tests check what is in the picture of drawn results.

use std::time::{Duration, UNIX_EPOCH};

use super::super::test::Test;
use super::*;

fn row(verb: Verb, kind: Kind, size: u32, depth: u32, numbers: Numbers) -> Row {
    let both_ways = false;
    Row {
        test: Test {
            verb,
            kind,
            size,
            depth,
            both_ways,
        },
        iterations: 10,
        numbers,
    }
}

fn rate(verb: Verb, size: u32, depth: u32) -> Row {
    row(verb, Kind::Bw, size, depth, Numbers::rate(size, 2e6, 1e6))
}

fn times(verb: Verb, kind: Kind, size: u32, typical: f64) -> Row {
    let numbers = Numbers::Times {
        min: typical / 2.0,
        max: typical * 9.0,
        typical,
        average: typical,
        deviation: 1.0,
        p99: typical * 2.0,
        p999: typical * 3.0,
    };
    row(verb, kind, size, 1, numbers)
}

fn drawn(rows: &[Row]) -> String {
    let caption = Caption {
        device: "on a model of connectx-5, not on a card".into(),
        port: "firmware 16.35.0".into(),
        each: "1000 messages".into(),
        // As `date -ud @1795786845` has it.
        time: UNIX_EPOCH + Duration::from_secs(1_795_786_845),
    };
    svg(rows, &caption).expect("a document")
}

#[test]
fn bandwidth_rate_and_latency_have_panels_with_the_depths_in_order() {
    let mut rows = Vec::new();
    for depth in [128, 1, 16] {
        rows.extend([2, 65536].map(|size| rate(Verb::Write, size, depth)));
        rows.push(rate(Verb::FetchAdd, 8, depth));
    }
    rows.extend([2, 65536].map(|size| times(Verb::Write, Kind::Lat, size, 3.0)));
    rows.push(times(Verb::FetchAdd, Kind::Lat, 8, 2.0));
    let svg = drawn(&rows);
    for text in [
        "WRITE bandwidth",
        "WRITE message rate",
        "WRITE latency",
        "Atomics (8 B) message rate",
        "Atomics (8 B) latency",
        "64 KiB",
        "message size",
        "messages in flight (logarithmic)",
        "MiB/s",
        "band up to p99",
        "on a model of connectx-5, not on a card",
        "2026-11-27 13:40:45 UTC",
        "1000 messages for each point",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(!svg.contains("Atomics (8 B) bandwidth") && !svg.contains("p99 (logarithmic)"));
    let depths = ["\n1 in flight\n", "\n16 in flight\n", "\n128 in flight\n"];
    let places = depths.map(|depth| svg.find(depth));
    assert!(places.iter().all(Option::is_some), "{places:?}");
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn one_line_has_no_legend() {
    let rows = [2, 64].map(|size| rate(Verb::Read, size, 16));
    let svg = drawn(&rows);
    assert_eq!(svg.matches("16 in flight").count(), 2, "in two titles");
    assert!(svg.contains("READ bandwidth, 16 in flight"));
}

#[test]
fn nothing_to_draw_is_a_caption_alone() {
    assert!(drawn(&[]).ends_with("</svg>\n"));
}

/// A point's height over the axis is its share of the axis, unless that is called logarithmic.
#[test]
fn axes_begin_at_zero_or_say_what_they_are() {
    let rows = [rate(Verb::Write, 2, 1), rate(Verb::Write, 1 << 20, 1)];
    for panel in panels(&rows) {
        let values = panel.values();
        assert_eq!(values.range().start, 0.0);
        let [half, end] =
            [0.5, 1.0].map(|share| values.map(&(values.range().end * share), (1000, 0)));
        assert_eq!([half, end], [500, 0]);
    }
    let latencies = |last| {
        panels(&[
            times(Verb::Write, Kind::Lat, 2, 1.0),
            times(Verb::Write, Kind::Lat, 64, last),
        ])
    };
    assert_eq!(
        latencies(10.0)[0].values(),
        Values::Linear {
            step: 5.0,
            steps: 5
        }
    );
    assert_eq!(
        latencies(1000.0)[0].values(),
        Values::Logarithmic { from: 0, to: 4 }
    );
    let rows = [
        times(Verb::Write, Kind::Lat, 2, 1.0),
        times(Verb::Write, Kind::Lat, 64, 1000.0),
    ];
    assert!(drawn(&rows).contains("p99 (logarithmic)"));
}

#[test]
fn sizes_are_in_the_largest_unit_that_is_whole() {
    for (size, text) in [
        (1, "1 B"),
        (1000, "1000 B"),
        (65536, "64 KiB"),
        (3 << 20, "3 MiB"),
    ] {
        assert_eq!(bytes(size), text);
    }
    for (value, text) in [(1234.5, "1234"), (12.34, "12.3"), (0.012345, "0.0123")] {
        assert_eq!(short(value), text);
    }
}
