//! Output of benchmarks.

/// The argument of a benchmark that prints its rows for programs.
pub const FIGURES: &str = "--figures";
/// The first word of a row for programs.
const FIGURE: &str = "figure";

/// Prints a row for programs: [`read_figures`] takes it from what is printed.
pub fn print_figure(function: &str, name: &str, ours: f64) {
    println!("{FIGURE}\t{function}\t{name}\t{ours:.2}");
}

/// A row as another program read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The function.
    pub function: String,
    /// Name of the measurement.
    pub name: String,
    /// Instructions per operation.
    pub ours: f64,
}

/// The rows in what a benchmark printed that had [`FIGURES`] as an argument. `None` if one of them cannot be read.
#[must_use]
pub fn read_figures(text: &str) -> Option<Vec<Figure>> {
    let lines = text
        .lines()
        .filter(|line| line.split('\t').next() == Some(FIGURE));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [_, function, name, ours] = fields[..] else {
                return None;
            };
            Some(Figure {
                function: function.to_owned(),
                name: name.to_owned(),
                ours: ours.parse().ok()?,
            })
        })
        .collect()
}

/// Ends a benchmark: says how many gates hold, and fails if any does not.
#[must_use]
pub fn verdict(passed: usize, failed: usize) -> std::process::ExitCode {
    println!("\n{passed} passed, {failed} failed");
    match failed {
        0 => std::process::ExitCode::SUCCESS,
        _ => std::process::ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_among_other_lines() {
        let text = "Instructions\nfigure\tsend\tRC SEND, 1 SGE\t80.25\n\n3 passed, 0 failed\n";
        let figure = Figure {
            function: "send".to_owned(),
            name: "RC SEND, 1 SGE".to_owned(),
            ours: 80.25,
        };
        assert_eq!(read_figures(text), Some(vec![figure]));
        assert_eq!(read_figures("figure\tsend\tname\tmany\n"), None);
        assert_eq!(read_figures("figure\tsend\n"), None);
    }
}
