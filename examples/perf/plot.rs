//! The results as charts in one SVG document, drawn by plotters: a row of panels for each operation, and one for the atomics;
//! in it bandwidth, message rate, latency, and latency under load, as far as they were measured.

use std::ops::Range;
use std::time::SystemTime;

use bareverbs_command_line::Named;
use bareverbs_examples::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Numbers, Row};
use super::test::{Kind, Verb};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Size of a panel, height of what stands above all, and the least width of the whole, so that this has room.
const PANEL: (u32, u32) = (430, 300);
const HEADER: u32 = 84;
const WIDTH: u32 = 2 * PANEL.0;
/// The colour of each line (Okabe and Ito's, which colour-blind readers can distinguish).
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
/// The largest value on a linear axis is so many times the smallest one.
const LINEAR: f64 = 30.0;

/// The caption says what was measured where and when.
pub(crate) struct Caption {
    pub(crate) device: String,
    pub(crate) port: String,
    /// This says how much each point measured.
    pub(crate) each: String,
    pub(crate) time: SystemTime,
}

/// A panel shows one of these, which are in the order of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Metric {
    Bandwidth,
    Rate,
    Latency,
    Load,
}

/// A row of panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Of(Verb),
    Atomics,
}

/// A point: its place, its value, and its 99th percentile if it is a time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    place: f64,
    value: f64,
    p99: Option<f64>,
}

#[derive(Debug)]
struct Line {
    name: String,
    /// Lines are in this order.
    order: u32,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Panel {
    group: Group,
    metric: Metric,
    /// `x` says what the places are, and `labels` has the label of each.
    x: &'static str,
    labels: Vec<(f64, String)>,
    lines: Vec<Line>,
}

/// A whole SVG document.
pub(crate) fn svg(rows: &[Row], caption: &Caption) -> Result<String> {
    let panels = panels(rows);
    let (mut groups, mut metrics) = (Vec::new(), Vec::new());
    for panel in &panels {
        if !groups.contains(&panel.group) {
            groups.push(panel.group);
        }
        metrics.push(panel.metric);
    }
    metrics.sort_unstable();
    metrics.dedup();
    let size = (
        WIDTH.max(PANEL.0 * metrics.len() as u32),
        HEADER + PANEL.1 * groups.len() as u32,
    );
    let mut document = String::new();
    {
        let whole = SVGBackend::with_string(&mut document, size).into_drawing_area();
        whole.fill(&WHITE)?;
        let (header, body) = whole.split_vertically(HEADER);
        caption.draw(&header)?;
        let (body, _) = body.split_horizontally(PANEL.0 * metrics.len().max(1) as u32);
        let cells = body.split_evenly((groups.len().max(1), metrics.len().max(1)));
        for panel in &panels {
            let row = groups.iter().position(|group| *group == panel.group);
            let column = metrics.iter().position(|metric| *metric == panel.metric);
            let cell = row
                .zip(column)
                .map(|(row, column)| row * metrics.len() + column);
            if let Some(cell) = cell.and_then(|cell| cells.get(cell)) {
                panel.draw(cell)?;
            }
        }
        whole.present()?;
    }
    Ok(document)
}

impl Caption {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let Self {
            device, port, each, ..
        } = self;
        let time = humantime::format_rfc3339_seconds(self.time).to_string();
        let time = time.replace('T', " ").replace('Z', " UTC");
        let title = ("sans-serif", 20).into_font().style(FontStyle::Bold);
        area.draw(&Text::new(
            "RDMA over reliable connections",
            (14, 12),
            title,
        ))?;
        let lines = [
            format!("Measured {device}; {port}"),
            format!(
                "{time}; {each} for each point; perf of bareverbs {}",
                env!("CARGO_PKG_VERSION")
            ),
        ];
        for (at, line) in lines.into_iter().enumerate() {
            let style = ("sans-serif", 14).into_font().color(&BLACK.mix(0.8));
            area.draw(&Text::new(line, (14, 40 + 19 * at as i32), style))?;
        }
        Ok(())
    }
}

/// The panels, in the order of the tests.
fn panels(rows: &[Row]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    let one_size = |verb: Verb| {
        let mut sizes = rows
            .iter()
            .filter(|row| row.test.verb == verb)
            .map(|row| row.test.size);
        let first = sizes.next();
        sizes.all(|size| Some(size) == first)
    };
    for row in rows {
        let test = &row.test;
        let group = if test.verb.is_atomic() {
            Group::Atomics
        } else {
            Group::Of(test.verb)
        };
        let (depth, size) = (format!("{}", test.depth), bytes(test.size.into()));
        let over_depth = one_size(test.verb) && test.kind != Kind::Lat;
        let (x, place, label) = match (group, test.kind) {
            (Group::Atomics, Kind::Lat) => ("", verb_place(test.verb), test.verb.name().into()),
            _ if over_depth => (
                "messages in flight",
                f64::from(test.depth).log2(),
                depth.clone(),
            ),
            _ => ("message size", f64::from(test.size).log2(), size.clone()),
        };
        let (name, order) = match (group, test.kind) {
            (_, Kind::Lat) => (String::new(), 0),
            (Group::Atomics, _) => (test.verb.name().into(), verb_place(test.verb) as u32),
            _ if over_depth => (size, 0),
            _ => (format!("{depth} in flight"), test.depth),
        };
        let mut add = |metric, value, p99| {
            let same = |panel: &Panel| panel.group == group && panel.metric == metric;
            let at = panels.iter().position(same).unwrap_or_else(|| {
                panels.push(Panel {
                    group,
                    metric,
                    x,
                    labels: Vec::new(),
                    lines: Vec::new(),
                });
                panels.len() - 1
            });
            panels[at].add(&name, order, label.clone(), Point { place, value, p99 });
        };
        match row.numbers {
            Numbers::Rate {
                average, messages, ..
            } => {
                // Atomics have one size: their bandwidth is their rate.
                if group != Group::Atomics {
                    add(Metric::Bandwidth, average, None);
                }
                add(Metric::Rate, messages, None);
            }
            Numbers::Times { typical, p99, .. } => {
                let metric = if test.kind == Kind::Lat {
                    Metric::Latency
                } else {
                    Metric::Load
                };
                add(metric, typical, Some(p99));
            }
        }
    }
    panels
}

/// Atomics beside each other.
fn verb_place(verb: Verb) -> f64 {
    if verb == Verb::FetchAdd { 0.0 } else { 1.0 }
}

impl Metric {
    /// Its name, and the unit.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Bandwidth => ["bandwidth", "MiB/s"],
            Self::Rate => ["message rate", "million messages/s"],
            Self::Latency => ["latency", "µs: median, band up to p99"],
            Self::Load => ["latency under load", "µs: median, band up to p99"],
        }
    }

    /// Returns a corner where lines seldom are.
    fn legend(self) -> SeriesLabelPosition {
        match self {
            Self::Rate => SeriesLabelPosition::UpperRight,
            Self::Load => SeriesLabelPosition::LowerRight,
            _ => SeriesLabelPosition::UpperLeft,
        }
    }
}

impl Panel {
    fn add(&mut self, name: &str, order: u32, label: String, point: Point) {
        let label = (point.place, label);
        if !self.labels.contains(&label) {
            self.labels.push(label);
            self.labels.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        let lines = &mut self.lines;
        let at = lines
            .iter()
            .position(|line| line.name == name)
            .unwrap_or_else(|| {
                let at = lines.partition_point(|line| line.order < order);
                lines.insert(
                    at,
                    Line {
                        name: name.into(),
                        order,
                        points: Vec::new(),
                    },
                );
                at
            });
        let points = &mut lines[at].points;
        let at = points.partition_point(|other| other.place < point.place);
        points.insert(at, point);
    }

    fn title(&self) -> String {
        let [name, _] = self.metric.names();
        let verb = match self.group {
            Group::Of(verb) => verb.name().to_uppercase(),
            Group::Atomics => "Atomics (8 B)".into(),
        };
        match &self.lines[..] {
            // What it is of needs no legend.
            [Line { name: only, .. }] if !only.is_empty() && self.group != Group::Atomics => {
                format!("{verb} {name}, {only}")
            }
            _ => format!("{verb} {name}"),
        }
    }

    /// Rates begin at zero; times do unless they differ too much.
    fn values(&self) -> Values {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let high = points().map(|point| point.p99.unwrap_or(point.value).max(point.value));
        let high = high.fold(0.0, f64::max);
        let low = points().map(|point| point.value).fold(f64::MAX, f64::min);
        if self.metric < Metric::Latency || high <= low * LINEAR || low <= 0.0 {
            Values::linear(high)
        } else {
            Values::logarithmic(low, high)
        }
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let places: Vec<f64> = self.labels.iter().map(|(place, _)| *place).collect();
        let label = |place: &f64| {
            let found = self.labels.iter().find(|(at, _)| at == place);
            found.map_or_else(String::new, |(_, label)| label.clone())
        };
        let values = self.values();
        let [_, unit] = self.metric.names();
        let unit = match values {
            Values::Linear { .. } => unit.to_owned(),
            Values::Logarithmic { .. } => format!("{unit} (logarithmic)"),
        };
        // Places are by their logarithms, and each has its label.
        let x = match self.connects() && places.len() > 1 {
            true => format!("{} (logarithmic)", self.x),
            false => self.x.to_owned(),
        };
        let small = ("sans-serif", 12).into_font();
        let mut chart = ChartBuilder::on(area)
            .caption(self.title(), ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(66)
            .build_cartesian_2d(Places(places), values)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.15))
            .label_style(small.clone())
            .axis_desc_style(small.clone())
            .x_desc(x)
            .y_desc(unit)
            .x_label_formatter(&label)
            .y_label_formatter(&number)
            .draw()?;
        for (index, line) in self.lines.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let dashes = DASHES[index % DASHES.len()];
            let middle = || line.points.iter().map(|point| (point.place, point.value));
            let upper = || {
                line.points
                    .iter()
                    .filter_map(|point| Some((point.place, point.p99?)))
            };
            let band: Vec<_> = middle()
                .chain(upper().collect::<Vec<_>>().into_iter().rev())
                .collect();
            // One line has the room that several would share.
            let alone = !self.connects() || line.points.len() == 1;
            if alone {
                let whiskers = middle().zip(upper()).map(|(from, to)| {
                    PathElement::new([from, to], color.mix(0.35).stroke_width(7))
                });
                chart.draw_series(whiskers)?;
            } else {
                if upper().next().is_some() {
                    chart.draw_series([Polygon::new(band, color.mix(0.15).filled())])?;
                }
                match dashes {
                    None => chart.draw_series(LineSeries::new(middle(), color.stroke_width(2)))?,
                    Some((dash, gap)) => chart.draw_series(DashedLineSeries::new(
                        middle(),
                        dash,
                        gap,
                        color.stroke_width(2),
                    ))?,
                };
            }
            let dots = middle().map(|point| Circle::new(point, 3, color.filled()));
            chart
                .draw_series(dots)?
                .label(line.name.clone())
                .legend(move |(x, y)| {
                    let (dash, gap) = dashes.unwrap_or((24, 0));
                    let key = [(x - 4, y), (x + 20, y)];
                    DashedPathElement::new(key, dash, gap, color.stroke_width(2))
                });
            if alone {
                let right = Pos::new(HPos::Left, VPos::Center);
                let style = TextStyle::from(small.clone()).pos(right);
                let texts = middle().map(|(place, value)| {
                    EmptyElement::at((place, value))
                        + Text::new(short(value), (9, 0), style.clone())
                });
                chart.draw_series(texts)?;
            }
        }
        if self.lines.len() > 1 {
            chart
                .configure_series_labels()
                .position(self.metric.legend())
                .label_font(small)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.2))
                .draw()?;
        }
        Ok(())
    }

    /// Returns true if there is something between two places.
    fn connects(&self) -> bool {
        !self.x.is_empty()
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

    fn range(&self) -> Range<f64> {
        let end = |place: Option<&f64>| place.copied().unwrap_or_default();
        end(self.0.first()) - 0.6..end(self.0.last()) + 0.6
    }
}

/// An axis with round numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Values {
    /// From 0, with a number at each step.
    Linear { step: f64, steps: u32 },
    /// From one power of ten to another.
    Logarithmic { from: i32, to: i32 },
}

impl Values {
    fn linear(high: f64) -> Self {
        let least = (high / 6.0).max(1e-9);
        let power = 10f64.powf(least.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= least);
        let step = step.unwrap_or(10.0 * power);
        // Room above the highest point.
        let steps = ((high * 1.05 / step).ceil() as u32).max(1);
        Self::Linear { step, steps }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        Self::Logarithmic {
            from,
            to: to.max(from + 1),
        }
    }
}

impl Ranged for Values {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (begin, end): (i32, i32)) -> i32 {
        let share = match *self {
            Self::Linear { step, steps } => value / (step * f64::from(steps)),
            Self::Logarithmic { from, to } => {
                (value.log10() - f64::from(from)) / f64::from(to - from)
            }
        };
        begin + (share * f64::from(end - begin)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        match *self {
            Self::Linear { step, steps } => (0..=steps).map(|at| step * f64::from(at)).collect(),
            Self::Logarithmic { from, to } => (from..=to).map(|power| 10f64.powi(power)).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        match *self {
            Self::Linear { step, steps } => 0.0..step * f64::from(steps),
            Self::Logarithmic { from, to } => 10f64.powi(from)..10f64.powi(to),
        }
    }
}

/// Whole numbers of bytes, KiB or MiB where they are that.
fn bytes(size: u64) -> String {
    match size {
        size if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        size if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

/// Without digits that say nothing.
fn number(value: &f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Three digits, or all before the point.
fn short(value: f64) -> String {
    let digits = 2 - value.abs().max(1e-6).log10().floor() as i32;
    format!("{value:.*}", digits.max(0) as usize)
}

#[cfg(test)]
#[path = "plot_tests.rs"]
mod tests;
