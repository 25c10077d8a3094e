//! Ours beside theirs.

use super::program::{Count, Doorbell, best};
use super::{rdma_core, ucx};
use crate::outcome::Outcome;
use bareverbs_bench::report::{FIGURES, Figure, read_figures};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A row of our benchmark, by its function there, and what does the same in the peers' programs.
struct Shape {
    ours: &'static str,
    rdma_core: &'static [&'static str],
    ucx: &'static [&'static str],
    doorbell: Doorbell,
}

const fn shape(ours: &'static str, rdma_core: &'static [&'static str]) -> Shape {
    Shape {
        ours,
        rdma_core,
        ucx: &[],
        doorbell: Doorbell::Word,
    }
}

impl Shape {
    const fn in_ucx(self, ucx: &'static [&'static str]) -> Self {
        Self { ucx, ..self }
    }

    const fn by_blue_flame(self) -> Self {
        Self {
            doorbell: Doorbell::BlueFlame,
            ..self
        }
    }
}

/// Rows that are printed without a peer's. libmlx5's poll does not decode compressed CQEs; UCX does
/// (`uct_ib_mlx5_iface_cqe_unzip`), and its program here does not have them yet. Nor does any have sends of dynamic connections,
/// which both peers could. Neither forwards frames, as DPDK's driver does: that needs a card, so `cargo rig drivers dpdk-count`
/// counts it on the model, and `docs/benchmarks.md` has it behind the table.
const NOT_COMPARED: [&str; 4] = ["poll_compressed", "send_dc", "l2fwd", "l2fwd_compressed"];

const SEND: &[&str] = &["send__wr", "send__post_send"];
const SEND_INLINE: &[&str] = &["send_inline__wr", "send_inline__post_send"];
const WRITE_INLINE: &[&str] = &["write_inline__wr", "write_inline__post_send"];

/// A header of 8 bytes and 24 of data, before which UCX puts 4 of its own.
const AM_SHORT: &[&str] = &["send_inline__am_short"];
const PUT_SHORT: &[&str] = &["write_inline__put_short"];
/// Of an operation that its caller does not wait for.
const POLL_TX: &[&str] = &["poll__poll_tx"];

const SHAPES: &[Shape] = &[
    shape("send", SEND),
    shape("post", &["send__post_send"]),
    shape("send_inline_const", SEND_INLINE).in_ucx(AM_SHORT),
    shape("send_inline_dyn", SEND_INLINE).in_ucx(AM_SHORT),
    shape("write_inline", WRITE_INLINE).in_ucx(PUT_SHORT),
    shape("write", &["write__wr", "write__post_send"]).in_ucx(&["write__put_zcopy"]),
    shape("read", &["read__wr", "read__post_send"]).in_ucx(&["read__get_zcopy"]),
    shape("send_ud", &["send_ud__wr", "send_ud__post_send"]),
    shape("send_16", &["send_16__wr", "send_16__post_send"]),
    shape("send_blue_flame", SEND).by_blue_flame(),
    shape("send_inline_blue_flame", SEND_INLINE)
        .by_blue_flame()
        .in_ucx(AM_SHORT),
    shape("write_inline_blue_flame", WRITE_INLINE)
        .by_blue_flame()
        .in_ucx(PUT_SHORT),
    shape("recv", &["recv__post_recv"]),
    shape("recv_16", &["recv_16__post_recv"]),
    shape("poll", &["poll__poll_cq", "poll__start_poll"]).in_ucx(POLL_TX),
    shape(
        "poll_16_req",
        &["poll_16_req__poll_cq", "poll_16_req__start_poll"],
    )
    .in_ucx(POLL_TX),
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
    shape("poll_wcs_req", &["poll_wcs_req__poll_cq"]),
    shape("poll_wcs_resp", &["poll_wcs_resp__poll_cq"]),
    shape(
        "poll_empty",
        &["poll_empty__poll_cq", "poll_empty__start_poll"],
    )
    .in_ucx(&["poll_empty__poll_tx"]),
];

/// A benchmark of ours; its arguments are to follow.
pub(super) fn bench(root: &Path, name: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut bench = Command::new(cargo);
    bench.current_dir(root).args(["bench", "--quiet"]);
    bench.args(["--locked", "--package", "bareverbs-bench"]);
    bench.args(["--bench", name, "--"]);
    bench
}

/// The figures that our benchmark counts now.
pub(super) fn ours(root: &Path) -> Result<Vec<Figure>, String> {
    let mut bench = bench(root, "data_path");
    bench.arg(FIGURES);
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

/// The counts of the peers.
pub(super) struct Peers {
    pub(super) rdma_core: rdma_core::Counts,
    pub(super) ucx: ucx::Counts,
    pub(super) compiler: String,
}

/// The table, and whether ours are below rdma-core's.
pub(super) fn compare(ours: &[Figure], peers: &Peers) -> Result<(String, Outcome), String> {
    let mut outcome = Outcome::default();
    let mut text = format!(
        "{} and {}, compiled by {}. Of rdma-core, what programs get that ask for nothing else (-O2, locks), and \
         the best of its builds and interfaces without locks; of UCX, the best of its release builds.\n\n\
         | operation | ours | rdma-core | rdma-core, best | its build and calls | UCX | ours / best | ours / UCX |\n\
         | --- | --: | --: | --: | --- | --: | --: | --: |\n",
        peers.rdma_core.version, peers.ucx.version, peers.compiler
    );
    for figure in ours {
        let Figure {
            function,
            name,
            ours,
        } = figure;
        if NOT_COMPARED.contains(&function.as_str()) {
            let _ = writeln!(text, "| {name} | {ours:.0} | | | not compared | | | |");
            continue;
        }
        let Some(shape) = SHAPES.iter().find(|shape| shape.ours == function) else {
            outcome.check(false, || {
                format!("{name}: nothing of theirs is compared with {function}")
            });
            continue;
        };
        let take = |counts: &[Count]| best(counts, shape.rdma_core, shape.doorbell);
        let (default, rdma_core) = (take(&peers.rdma_core.default)?, take(&peers.rdma_core.all)?);
        let ratio = ours / rdma_core.cost;
        let (ucx, ratio_ucx) = match shape.ucx {
            [] => (String::new(), String::new()),
            functions => {
                let cost = best(&peers.ucx.all, functions, shape.doorbell)?.cost;
                (format!("{cost:.0}"), format!("{:.2}", ours / cost))
            }
        };
        let _ = writeln!(
            text,
            "| {name} | {ours:.0} | {:.0} | {:.0} | {} | {ucx} | {ratio:.2} | {ratio_ucx} |",
            default.cost, rdma_core.cost, rdma_core.how,
        );
        outcome.check(ratio < 1.0, || {
            let theirs = rdma_core.cost;
            format!("{name}: ours takes {ours:.1}, rdma-core's {theirs:.1}")
        });
    }
    Ok((text, outcome))
}

/// Operations that the README has rows of.
const SHORT: &[&str] = &[
    "RC SEND, 1 SGE",
    "SEND inline 32",
    "WRITE, 1 SGE",
    "SEND x16 per doorbell, each",
    "post_recv",
    "poll 1 (wr_id, status)",
    "poll x16, receives, all fields, each",
];
/// The columns that they have there: the operation, ours, rdma-core's two, UCX.
const COLUMNS: [usize; 5] = [0, 1, 2, 3, 5];

/// These rows of the table.
pub(super) fn short(table: &str) -> Result<String, String> {
    let mut short = String::new();
    let mut row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let kept: Option<Vec<&str>> = COLUMNS
            .map(|at| cells.get(at).copied())
            .into_iter()
            .collect();
        let kept = kept.ok_or_else(|| format!("a row of {} cells: {line}", cells.len()))?;
        short.push_str(&format!("| {} |\n", kept.join(" | ")));
        Ok::<_, String>(())
    };
    let mut lines = table.lines().filter(|line| line.starts_with('|'));
    for head in lines.by_ref().take(2) {
        row(head)?;
    }
    for name in SHORT {
        let cell = format!("| {name} |");
        let line = table.lines().find(|line| line.starts_with(&cell));
        row(line.ok_or_else(|| format!("no row of {name}"))?)?;
    }
    Ok(short)
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
    fn the_readme_has_some_rows() {
        let mut table = "Of these.\n\n| a | b | c | d | e | f | g | h |\n| - | -: | -: | -: | - | -: | -: | -: |\n".to_string();
        for (at, name) in SHORT.iter().rev().chain(&["SEND"]).enumerate() {
            let _ = writeln!(table, "| {name} | {at} | 2 | 3 | how |  | 5 | 6 |");
        }
        let short = short(&table).unwrap();
        let mut lines = short.lines();
        assert_eq!(lines.next(), Some("| a | b | c | d | f |"));
        assert_eq!(lines.next(), Some("| - | -: | -: | -: | -: |"));
        assert_eq!(lines.next(), Some("| RC SEND, 1 SGE | 6 | 2 | 3 |  |"));
        assert_eq!(lines.count(), SHORT.len() - 1);
        super::short("| a |\n").unwrap_err();
    }

    #[test]
    fn the_table_replaces_what_is_between_the_marks() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = format!("a\n{BEGIN}\n| new |\n{END}\nb\n");
        assert_eq!(replaced(&page, "| new |\n"), Some(new));
        assert_eq!(replaced("a\nb\n", "| new |\n"), None);
    }
}
