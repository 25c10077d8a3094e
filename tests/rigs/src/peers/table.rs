//! Ours beside theirs.

use super::rdma_core::{Counts, Doorbell};
use crate::outcome::Outcome;
use bareverbs_bench::report::{FIGURES, Figure, read_figures};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A row of our benchmark, by its function there, and what does the same in the peer's program.
struct Shape {
    ours: &'static str,
    theirs: &'static [&'static str],
    doorbell: Doorbell,
}

const fn shape(ours: &'static str, theirs: &'static [&'static str]) -> Shape {
    Shape {
        ours,
        theirs,
        doorbell: Doorbell::Word,
    }
}

const fn blue_flame(ours: &'static str, theirs: &'static [&'static str]) -> Shape {
    Shape {
        ours,
        theirs,
        doorbell: Doorbell::BlueFlame,
    }
}

const SEND: &[&str] = &["send__wr", "send__post_send"];
const SEND_INLINE: &[&str] = &["send_inline__wr", "send_inline__post_send"];
const WRITE_INLINE: &[&str] = &["write_inline__wr", "write_inline__post_send"];

const SHAPES: &[Shape] = &[
    shape("send", SEND),
    shape("post", &["send__post_send"]),
    shape("send_inline_const", SEND_INLINE),
    shape("send_inline_dyn", SEND_INLINE),
    shape("write_inline", WRITE_INLINE),
    shape("write", &["write__wr", "write__post_send"]),
    shape("read", &["read__wr", "read__post_send"]),
    shape("send_ud", &["send_ud__wr", "send_ud__post_send"]),
    shape("send_16", &["send_16__wr", "send_16__post_send"]),
    blue_flame("send_blue_flame", SEND),
    blue_flame("send_inline_blue_flame", SEND_INLINE),
    blue_flame("write_inline_blue_flame", WRITE_INLINE),
    shape("recv", &["recv__post_recv"]),
    shape("recv_16", &["recv_16__post_recv"]),
    shape("poll", &["poll__poll_cq", "poll__start_poll"]),
    shape(
        "poll_16_req",
        &["poll_16_req__poll_cq", "poll_16_req__start_poll"],
    ),
    shape(
        "poll_16_resp",
        &["poll_16_resp__poll_cq", "poll_16_resp__start_poll"],
    ),
    shape(
        "poll_16_req_full",
        &["poll_16_req_full__poll_cq", "poll_16_req_full__start_poll"],
    ),
    shape(
        "poll_16_resp_full",
        &[
            "poll_16_resp_full__poll_cq",
            "poll_16_resp_full__start_poll",
        ],
    ),
    shape(
        "poll_empty",
        &["poll_empty__poll_cq", "poll_empty__start_poll"],
    ),
];

/// What our benchmark counts now.
pub(super) fn ours(root: &Path) -> Result<Vec<Figure>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut bench = Command::new(cargo);
    bench.current_dir(root).args(["bench", "--quiet"]);
    bench.args(["--locked", "--package", "bareverbs-bench"]);
    bench.args(["--bench", "data_path", "--", FIGURES]);
    // It fails if a gate does not hold, which is for `cargo bench` to say.
    let done = bench
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{bench:?}: {error}"))?;
    let text = String::from_utf8_lossy(&done.stdout);
    match read_figures(&text) {
        Some(figures) if !figures.is_empty() => Ok(figures),
        _ => Err(format!(
            "{bench:?}: {}, no figures in:\n{text}",
            done.status
        )),
    }
}

/// The table, and whether ours are below theirs.
pub(super) fn compare(ours: &[Figure], theirs: &Counts) -> Result<(String, Outcome), String> {
    let mut outcome = Outcome::default();
    let mut text = format!(
        "Instructions of an operation. Theirs: {}, compiled by {}: as programs get it that ask for nothing else \
         (-O2, locks), and the best of its builds and interfaces without locks.\n\n\
         | operation | ours | theirs, default | theirs, best | which | ours/best |\n\
         | --- | --: | --: | --: | --- | --: |\n",
        theirs.version, theirs.compiler
    );
    for figure in ours {
        let Figure {
            function,
            name,
            ours,
        } = figure;
        let Some(shape) = SHAPES.iter().find(|shape| shape.ours == function) else {
            let _ = writeln!(text, "| {name} | {ours:.0} | | | | |");
            continue;
        };
        let best = theirs.best(shape.theirs, shape.doorbell)?;
        let default = theirs.default(shape.theirs, shape.doorbell)?;
        let ratio = ours / best.cost;
        let _ = writeln!(
            text,
            "| {name} | {ours:.0} | {default:.0} | {:.0} | {} | {ratio:.2} |",
            best.cost, best.how,
        );
        outcome.check(ratio < 1.0, || {
            format!("{name}: ours take {ours:.1}, theirs {:.1}", best.cost)
        });
    }
    for shape in SHAPES {
        let is_there = ours.iter().any(|figure| figure.function == shape.ours);
        outcome.check(is_there, || format!("no row of ours for {}", shape.ours));
    }
    Ok((text, outcome))
}

/// The lines between which a page has the table.
const BEGIN: &str = "<!-- peers:begin -->";
const END: &str = "<!-- peers:end -->";

/// Puts the table into the page.
pub(super) fn write(page: &Path, text: &str) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", page.display());
    let old = fs::read_to_string(page).map_err(fail)?;
    let new =
        replaced(&old, text).ok_or_else(|| format!("{}: no {BEGIN} and {END}", page.display()))?;
    fs::write(page, new).map_err(fail)
}

fn replaced(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!(
        "{before}{BEGIN}\n{}\n{END}{after}",
        text.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_replaces_what_is_between_the_marks() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = format!("a\n{BEGIN}\n| new |\n{END}\nb\n");
        assert_eq!(replaced(&page, "| new |\n"), Some(new));
        assert_eq!(replaced("a\nb\n", "| new |\n"), None);
    }
}
