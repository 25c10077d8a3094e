//! Instructions per data path operation. With the argument `--figures`, for programs.
//!
//! The device is a script that answers commands, a BAR of plain memory, and completions written ahead; WQEs are compared
//! with what they have to be before anything is counted. Each operation is a function that is not inlined, called in a
//! loop; the loop itself is subtracted, as from the peers' counts. What differs from one work request to the next, also
//! flags, is known only at run time, and in a list by element. What is counted includes the doorbell: the store to the
//! register itself costs what the machine's bus takes, on both sides of the comparison.
//!
//! Before that the linked code is searched: no operation contains a check that panics, or any other call out of the driver,
//! but in functions for what is not usual.
//!
//! Twice: built with link-time optimization in one piece, and as `cargo build --release` does it. `--write` puts the table
//! into `docs/benchmarks.md`.

#[path = "data_path/doorbells.rs"]
mod doorbells;
#[path = "data_path/forwarding.rs"]
mod forwarding;
#[path = "data_path/measured.rs"]
mod measured;
#[path = "data_path/platform.rs"]
mod platform;
#[path = "../../../core/tests/support/mod.rs"]
mod support;
#[path = "data_path/table.rs"]
mod table;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, io};

use bareverbs_bench::callgrind;
use bareverbs_bench::linked::Program;
use bareverbs_core::{FrameCompression, QpSlot, Rc, RecvQueue, SendQueue};
use forwarding::Lane;
use platform::{Bench, Setup, blue_flame};
use table::Line;

/// Operations of a measured batch; a queue holds four times as many.
pub(crate) const BATCH: usize = 256;
/// Batches of each operation.
pub(crate) const ROUNDS: usize = 4;

/// A measured operation.
struct Operation {
    name: &'static str,
    function: &'static str,
    goal: f64,
    /// The last count.
    last: f64,
}

impl Operation {
    /// The most that passes: 5 % above a goal that is reached, or else 2 % above what was.
    fn gate(&self) -> f64 {
        let most = self.goal * 1.05;
        if self.last <= most {
            most
        } else {
            self.last * 1.02
        }
    }
}

const fn row(name: &'static str, function: &'static str, goal: f64, last: f64) -> Operation {
    Operation {
        name,
        function,
        goal,
        last,
    }
}

/// Largest ratio of an operation's cost in a build without link-time optimization to that with it.
const PLAIN: f64 = 1.15;

#[rustfmt::skip]
const ROWS: &[Operation] = &[
    row("RC SEND, 1 SGE", "send", 58.0, 59.2),
    row("`post` of a work request made at run time: SEND, 1 SGE", "post", 90.0, 88.0),
    row("SEND inline 32, length known when compiled", "send_inline_const", 60.0, 58.1),
    row("SEND inline 32", "send_inline_dyn", 85.0, 83.6),
    row("WRITE inline 64", "write_inline", 95.0, 98.2),
    row("WRITE, 1 SGE", "write", 68.0, 71.2),
    row("READ, 1 SGE", "read", 68.0, 71.2),
    row("UD SEND, 1 SGE", "send_ud", 92.0, 78.1),
    // The goal is a fifth more than RC's.
    row("DC SEND, 1 SGE", "send_dc", 71.0, 68.1),
    row("SEND x16 per doorbell, each", "send_16", 30.0, 41.2),
    row("RC SEND, 1 SGE, BlueFlame", "send_blue_flame", 95.0, 91.1),
    row("SEND inline 32, BlueFlame", "send_inline_blue_flame", 110.0, 116.1),
    row("WRITE inline 64, BlueFlame", "write_inline_blue_flame", 150.0, 143.1),
    row("post_recv", "recv", 40.0, 39.0),
    row("post_recv x16, each", "recv_16", 18.0, 29.8),
    row("poll 1 (wr_id, status)", "poll", 48.0, 59.1),
    row("poll x16, sends (wr_id, status), each", "poll_16_req", 34.0, 42.8),
    row("poll x16, receives (wr_id, status), each", "poll_16_resp", 34.0, 42.8),
    row("poll x16, sends, all fields, each", "poll_16_req_full", 42.0, 52.2),
    row("poll x16, receives, all fields, each", "poll_16_resp_full", 50.0, 68.2),
    row("`poll_wcs` x16, sends, each", "poll_wcs_req", 55.0, 59.4),
    row("`poll_wcs` x16, receives, each", "poll_wcs_resp", 60.0, 84.3),
    row("compressed receives x64 per session (wr_id, length), each", "poll_compressed", 15.0, 14.8),
    row("poll, nothing there", "poll_empty", 12.0, 19.0),
    row("`examples/l2fwd`, x32 a burst, each frame", "l2fwd", 50.0, 50.0),
    row("the same, x32 a session of compressed completions, each", "l2fwd_compressed", 55.0, 55.0),
];

fn main() -> ExitCode {
    if callgrind::is_child() {
        run();
        return ExitCode::SUCCESS;
    }
    let counted = builds().and_then(|[best, plain]| {
        no_panics(&best)?;
        no_panics(&plain)?;
        counted(&best, &plain)
    });
    match counted {
        Ok(lines) => table::show(&lines, memory),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// This build, and one as `cargo build --release` makes it.
fn builds() -> io::Result<[PathBuf; 2]> {
    Ok([env::current_exe()?, table::plain_build()?])
}

/// Functions of the driver in which a work request or a completion may end that is not usual: without space, with an error,
/// of an object that is gone.
const COLD: &[&str] = &[
    "post_late",
    "post_alone",
    "next_slow",
    "poll_slow",
    "process_pending_flags",
    // A lane's: what is no frame that can go out as it is, no request that is done, and headers that some cards require inline.
    "take_unusual",
    "refuse",
    "sent_unusual",
    "put_headers",
    // What these may do to the batch that called them.
    "_Unwind_Resume@plt",
];

/// Shows that no operation has a check that panics, or any other call out of the driver, but in what is [`COLD`].
fn no_panics(program: &Path) -> io::Result<()> {
    let program = Program::read(program)?;
    let reached = |function: &str| {
        let missing = || io::Error::other(format!("{function} is not in the program"));
        let found = program.reaches(function, "bareverbs_core", COLD);
        found.ok_or_else(missing)
    };
    // A search that finds nothing anywhere shows nothing.
    if reached("checked")?.is_empty() {
        return Err(io::Error::other("a check of an index was not found"));
    }
    for operation in ROWS {
        // The linker makes one function of operations that are the same code.
        let function = format!("measured::{}", operation.function);
        let called = program.called_by(&function, "::op_");
        let found = reached(called.unwrap_or(&function))?;
        if !found.is_empty() {
            let name = operation.name;
            return Err(io::Error::other(format!("{name} calls {found:?}")));
        }
    }
    Ok(())
}

/// Counts every operation in both builds.
fn counted(best: &Path, plain: &Path) -> io::Result<Vec<Line>> {
    let (best, plain) = (costs_of(best)?, costs_of(plain)?);
    let lines = ROWS.iter().zip(best).zip(plain);
    Ok(lines
        .map(|((operation, ours), plain)| Line {
            name: operation.name,
            function: operation.function,
            ours,
            plain,
            plain_gate: ours * PLAIN,
            goal: operation.goal,
            gate: operation.gate(),
        })
        .collect())
}

/// Instructions of each operation in a build of this benchmark.
fn costs_of(program: &Path) -> io::Result<Vec<f64>> {
    let costs = callgrind::count_build(program)?;
    let each = |function: &str| {
        let missing = || io::Error::other(format!("{function} is not in callgrind's output"));
        let cost = costs
            .of(&format!("measured::{function}"))
            .ok_or_else(missing)?;
        io::Result::Ok(cost as f64 / (BATCH * ROUNDS) as f64)
    };
    let nothing = each("nothing")?;
    ROWS.iter()
        .map(|operation| {
            // A list of sixteen, a burst, or a session goes round the loop once.
            let times = match operation.name {
                name if name.contains("x16") => 16.0,
                name if name.contains("x32") => 32.0,
                name if name.contains("x64") => 64.0,
                _ => 1.0,
            };
            io::Result::Ok(each(operation.function)? - nothing / times)
        })
        .collect()
}

/// Runs every operation; callgrind watches.
fn run() {
    black_box(measured::checked(black_box(&[0]), black_box(0)));
    let setup = Setup::new();
    let mut bench = Bench::new(&setup);
    bench.check_bytes();
    let combining = Setup::new();
    let compressions = [FrameCompression::OFF, FrameCompression::HASH];
    let mut lanes = compressions.map(|compression| Lane::new(&setup, compression));
    for _ in 0..ROUNDS {
        bench.round();
        for lane in &mut lanes {
            lane.round(BATCH);
        }
        blue_flame(&combining);
    }
}

/// Prints the memory of a QP and of its side of a connection.
fn memory() {
    let setup = Setup::new();
    let bench = Bench::new(&setup);
    println!("Memory");
    for (name, asked, bytes) in bench.memory() {
        println!(
            "  QP with {} sends of {} SGE and {} receives ({name}): {bytes} bytes of DMA memory",
            asked.max_send_wr, asked.max_send_sge, asked.max_recv_wr
        );
    }
    println!(
        "  hot state: {} bytes to send, {} to receive, {} for its completions (slot of {})",
        size_of::<SendQueue<'_, platform::Counting, Rc>>(),
        size_of::<RecvQueue<'_>>(),
        64,
        size_of::<QpSlot>(),
    );
}
