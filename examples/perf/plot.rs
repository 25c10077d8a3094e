//! The results as two charts over the message size, both axes logarithmic: bandwidth, and typical latency.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::report::{Numbers, Row};
use super::test::Kind;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 40.0;
/// Room for the names of the lines.
const RIGHT: f64 = 200.0;
const BOTTOM: f64 = 50.0;
const COLORS: [&str; 8] = [
    "#1b6ca8", "#c0392b", "#27804b", "#8e44ad", "#d68910", "#16a085", "#7f8c8d", "#2c3e50",
];

/// By name, the points of each line.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

/// A whole SVG document.
pub(crate) fn svg(rows: &[Row]) -> String {
    let (mut rates, mut times) = (Lines::new(), Lines::new());
    for row in rows {
        let size = f64::from(row.test.size);
        match row.numbers {
            Numbers::Rate { average, .. } => {
                let name = format!("{}, depth {}", row.test.name(), row.test.depth);
                rates.entry(name).or_default().push((size, average));
            }
            Numbers::Times { typical, .. } => {
                let name = match row.test.kind {
                    Kind::Load => format!("{}, depth {}", row.test.name(), row.test.depth),
                    _ => row.test.name(),
                };
                times.entry(name).or_default().push((size, typical));
            }
        }
    }
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        2.0 * HEIGHT
    );
    chart(&mut out, 0.0, "Bandwidth, MiB/s", &rates);
    chart(&mut out, HEIGHT, "Typical latency, µs", &times);
    out.push_str("</svg>\n");
    out
}

/// One chart, `down` from the top. Writing to a string cannot fail.
fn chart(out: &mut String, down: f64, title: &str, lines: &Lines) {
    let points = || lines.values().flatten().filter(|(_, y)| *y > 0.0);
    if points().next().is_none() {
        return;
    }
    let range = |of: fn(&(f64, f64)) -> f64, base: f64| {
        let low = points().map(of).fold(f64::MAX, f64::min).log(base).floor();
        let high = points().map(of).fold(f64::MIN, f64::max).log(base).ceil();
        (low, high.max(low + 1.0))
    };
    let (x0, x1) = range(|point| point.0, 2.0);
    let (y0, y1) = range(|point| point.1, 10.0);
    let x = |size: f64| LEFT + (size.log2() - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        down + HEIGHT - BOTTOM - (value.log10() - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)
    };
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" font-size=\"15\">{title}</text>",
        down + TOP - 14.0
    );
    for power in y0 as i32..=y1 as i32 {
        let value = 10f64.powi(power);
        let at = y(value);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0
        );
    }
    let mut sizes: Vec<f64> = points().map(|point| point.0).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    for size in sizes {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{size}</text>",
            x(size),
            down + HEIGHT - BOTTOM + 18.0
        );
    }
    for (number, (name, points)) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let dash = if number < COLORS.len() { "" } else { "5 3" };
        let mut path = String::new();
        for &(size, value) in points.iter().filter(|(_, value)| *value > 0.0) {
            let (x, y) = (x(size), y(value));
            let _ = write!(path, "{x:.1},{y:.1} ");
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>"
            );
        }
        let _ = writeln!(
            out,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" stroke-dasharray=\"{dash}\"/>\
             <text x=\"{}\" y=\"{}\" fill=\"{color}\">{name}</text>",
            WIDTH - RIGHT + 14.0,
            down + TOP + 10.0 + 18.0 * number as f64
        );
    }
}
