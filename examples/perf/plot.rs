//! The results as charts in one SVG document, drawn by plotters: a panel for each operation. Over the message size there is a
//! line for each depth; a test of one size has a bar for each depth.

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::report::{Numbers, Row};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Size of a panel, and panels in a row.
const PANEL: (u32, u32) = (460, 330);
const COLUMNS: usize = 3;
/// The colour of each depth, the smallest first (Okabe and Ito's, which colour-blind readers can distinguish).
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];
/// Length of its dashes and of the gaps between them, in pixels; none is a solid line.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((9, 4)), Some((4, 4)), Some((2, 6))];

/// An operation's results.
struct Panel {
    name: String,
    unit: &'static str,
    /// By depth, in ascending order: size and value.
    lines: Vec<(u32, Vec<(u32, f64)>)>,
}

/// A whole SVG document.
pub(crate) fn svg(rows: &[Row]) -> Result<String> {
    let panels = panels(rows);
    let columns = panels.len().clamp(1, COLUMNS);
    let lines = panels.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * columns as u32, PANEL.1 * lines as u32);
    let mut document = String::new();
    {
        let whole = SVGBackend::with_string(&mut document, size).into_drawing_area();
        whole.fill(&WHITE)?;
        for (area, panel) in whole.split_evenly((lines, columns)).iter().zip(&panels) {
            panel.draw(area)?;
        }
        whole.present()?;
    }
    Ok(document)
}

/// The panels, in the order of the tests.
fn panels(rows: &[Row]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in rows {
        let (unit, value) = match row.numbers {
            Numbers::Rate { average, .. } => ("bandwidth, MiB/s", average),
            Numbers::Times { typical, .. } => ("typical latency, µs", typical),
        };
        // The axis is logarithmic.
        if value <= 0.0 {
            continue;
        }
        let name = row.test.name();
        let at = panels.iter().position(|panel| panel.name == name);
        let at = at.unwrap_or_else(|| {
            let lines = Vec::new();
            panels.push(Panel { name, unit, lines });
            panels.len() - 1
        });
        let lines = &mut panels[at].lines;
        let depth = row.test.depth;
        let line = match lines.binary_search_by_key(&depth, |line| line.0) {
            Ok(line) => line,
            Err(line) => {
                lines.insert(line, (depth, Vec::new()));
                line
            }
        };
        lines[line].1.push((row.test.size, value));
    }
    for (_, points) in panels.iter_mut().flat_map(|panel| &mut panel.lines) {
        points.sort_by_key(|point| point.0);
    }
    panels
}

impl Panel {
    fn points(&self) -> impl Iterator<Item = &(u32, f64)> {
        self.lines.iter().flat_map(|(_, points)| points)
    }

    /// From the power of ten below all values to the one above.
    fn values(&self) -> std::ops::Range<f64> {
        let low = self.points().map(|point| point.1).fold(f64::MAX, f64::min);
        let high = self.points().map(|point| point.1).fold(f64::MIN, f64::max);
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        10f64.powf(low)..10f64.powf(high.max(low + 1.0))
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let mut sizes: Vec<u32> = self.points().map(|point| point.0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        match sizes[..] {
            [size] => self.draw_bars(area, size),
            _ => self.draw_lines(area, sizes),
        }
    }

    /// One line for each depth over the sizes.
    fn draw_lines(&self, area: &Area<'_>, sizes: Vec<u32>) -> Result<()> {
        let places: Vec<f64> = sizes.iter().map(|&size| f64::from(size).log2()).collect();
        let values = self.values();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.name, ("sans-serif", 17))
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(Places(places), values.log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("message size")
            .y_desc(self.unit)
            .x_label_formatter(&|place| bytes(place.exp2().round() as u64))
            .y_label_formatter(&number)
            .draw()?;
        for (index, (depth, points)) in self.lines.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let points = points
                .iter()
                .map(|&(size, value)| (f64::from(size).log2(), value));
            let dots = points
                .clone()
                .map(|point| Circle::new(point, 2, color.filled()));
            match DASHES[index % DASHES.len()] {
                None => chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?,
                Some((dash, gap)) => {
                    let line = DashedLineSeries::new(points, dash, gap, color.stroke_width(2));
                    chart.draw_series(line)?
                }
            }
            .label(format!("depth {depth}"))
            .legend(move |(x, y)| {
                let (dash, gap) = DASHES[index % DASHES.len()].unwrap_or((24, 0));
                let key = [(x - 4, y), (x + 20, y)];
                DashedPathElement::new(key, dash, gap, color.stroke_width(2))
            });
            chart.draw_series(dots)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    }

    /// One bar for each depth, of the only size.
    fn draw_bars(&self, area: &Area<'_>, size: u32) -> Result<()> {
        let values = self.values();
        let low = values.start;
        let places: Vec<f64> = (0..self.lines.len()).map(|place| place as f64).collect();
        let mut chart = ChartBuilder::on(area)
            .caption(
                format!("{}, {}", self.name, bytes(size.into())),
                ("sans-serif", 17),
            )
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(Places(places), values.log_scale())?;
        let depth = |place: &f64| match self.lines.get(place.round() as usize) {
            Some((depth, _)) => depth.to_string(),
            None => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("depth")
            .y_desc(self.unit)
            .x_label_formatter(&depth)
            .y_label_formatter(&number)
            .draw()?;
        let bars = self
            .lines
            .iter()
            .enumerate()
            .flat_map(|(index, (_, points))| {
                let place = index as f64;
                let color = COLORS[index % COLORS.len()];
                points.iter().map(move |&(_, value)| {
                    Rectangle::new([(place - 0.3, low), (place + 0.3, value)], color.filled())
                })
            });
        chart.draw_series(bars)?;
        Ok(())
    }
}

/// An axis with labels at these places, in ascending order, and some space beside them.
struct Places(Vec<f64>);

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (begin, end): (i32, i32)) -> i32 {
        let range = self.range();
        let share = (place - range.start) / (range.end - range.start);
        begin + (share * f64::from(end - begin)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.0.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        let end = |place: Option<&f64>| place.copied().unwrap_or_default();
        end(self.0.first()) - 0.6..end(self.0.last()) + 0.6
    }
}

/// Whole numbers of bytes, KiB or MiB where they are that.
fn bytes(size: u64) -> String {
    match size {
        0 => "0".into(),
        size if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        size if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

/// Without digits that say nothing.
fn number(value: &f64) -> String {
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::super::test::{Kind, Test, Verb};
    use super::*;

    fn row(verb: Verb, size: u32, depth: u32) -> Row {
        let (kind, both_ways) = (Kind::Bw, false);
        Row {
            test: Test {
                verb,
                kind,
                size,
                depth,
                both_ways,
            },
            iterations: 10,
            numbers: Numbers::rate(size, 2e6, 1e6),
        }
    }

    #[test]
    fn each_operation_has_a_panel_with_its_depths_in_order() {
        let mut rows = Vec::new();
        for depth in [128, 1, 16] {
            rows.extend([2, 65536].map(|size| row(Verb::Write, size, depth)));
            rows.push(row(Verb::FetchAdd, 8, depth));
        }
        let svg = svg(&rows).expect("a document");
        for text in [
            "write_bw",
            "fetch_add_bw, 8 B",
            "64 KiB",
            "message size",
            "MiB/s",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        let places = ["depth 1\n", "depth 16\n", "depth 128\n"].map(|depth| svg.find(depth));
        assert!(places.iter().all(Option::is_some), "{places:?}");
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn nothing_to_draw_is_an_empty_document() {
        assert!(svg(&[]).expect("a document").ends_with("</svg>\n"));
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
    }
}
