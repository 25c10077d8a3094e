//! Instructions per data path operation. With the argument `--figures`, for programs.
//!
//! The device is a script that answers commands, a BAR of plain memory, and completions written ahead; WQEs are compared
//! with what they have to be before anything is counted. Each operation is a function that is not inlined, called in a
//! loop; the same loop around an empty function is subtracted. What is counted includes the doorbell: the store to
//! the register itself costs what the machine's bus takes, on both sides of the comparison.

#[path = "data_path/measured.rs"]
mod measured;
#[path = "data_path/platform.rs"]
mod platform;
#[path = "../../../core/tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

use bareverbs_bench::callgrind;
use bareverbs_bench::limit::{self, Limit};
use bareverbs_bench::report::{Row, print, verdict};
use bareverbs_core::{QpSlot, Rc, RecvQueue, SendQueue};
use platform::{Bench, Setup, blue_flame};

/// Operations of a measured batch; a queue holds four times as many.
pub(crate) const BATCH: usize = 256;
/// Batches of each operation.
pub(crate) const ROUNDS: usize = 4;

const ROWS: &[(&str, &str, Limit)] = &[
    ("RC SEND, 1 SGE, doorbell", "send", limit::SEND),
    ("RC SEND, 1 SGE, as `ibv_post_send`", "post", limit::SEND),
    (
        "SEND inline 32, constant length",
        "send_inline_const",
        limit::SEND_INLINE_CONST,
    ),
    ("SEND inline 32", "send_inline_dyn", limit::SEND_INLINE_DYN),
    ("WRITE inline 64", "write_inline", limit::WRITE_INLINE),
    ("WRITE, 1 SGE", "write", limit::WRITE),
    ("READ, 1 SGE", "read", limit::READ),
    ("UD SEND, 1 SGE", "send_ud", limit::SEND_UD),
    ("SEND x16 per doorbell, each", "send_16", limit::SEND_16),
    (
        "RC SEND, 1 SGE, BlueFlame",
        "send_blue_flame",
        limit::SEND_BLUE_FLAME,
    ),
    (
        "SEND inline 32, BlueFlame",
        "send_inline_blue_flame",
        limit::SEND_INLINE_BLUE_FLAME,
    ),
    (
        "WRITE inline 64, BlueFlame",
        "write_inline_blue_flame",
        limit::WRITE_INLINE_BLUE_FLAME,
    ),
    ("post_recv", "recv", limit::RECV),
    ("post_recv x16, each", "recv_16", limit::RECV_16),
    ("poll 1 (wr_id, status)", "poll", limit::POLL),
    (
        "poll x16 send (wr_id, status), each",
        "poll_16_req",
        limit::POLL_16_REQ,
    ),
    (
        "poll x16 receive (wr_id, status), each",
        "poll_16_resp",
        limit::POLL_16_RESP,
    ),
    (
        "poll x16 send, all fields, each",
        "poll_16_req_full",
        limit::POLL_16_REQ_FULL,
    ),
    (
        "poll x16 receive, all fields, each",
        "poll_16_resp_full",
        limit::POLL_16_RESP_FULL,
    ),
    ("poll, nothing there", "poll_empty", limit::POLL_EMPTY),
];

fn main() -> ExitCode {
    if callgrind::is_child() {
        run();
        return ExitCode::SUCCESS;
    }
    let costs = match callgrind::count() {
        Ok(costs) => costs,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let operations = (BATCH * ROUNDS) as f64;
    let cost = |name: &str| {
        costs
            .of(&format!("measured::{name}"))
            .map(|cost| cost as f64 / operations)
    };
    let Some(empty) = cost("nothing") else {
        eprintln!("the measured functions are not in callgrind's output");
        return ExitCode::FAILURE;
    };
    let mut rows = Vec::new();
    for &(name, function, limit) in ROWS {
        let Some(cost) = cost(function) else {
            eprintln!("{name}: not in callgrind's output");
            return ExitCode::FAILURE;
        };
        // A list of sixteen goes round the loop once.
        let times = if function.contains("_16") { 16.0 } else { 1.0 };
        rows.push(Row {
            name,
            function,
            ours: cost - empty / times,
            limit,
        });
    }
    println!(
        "Instructions per operation (callgrind, out-of-line call, release LTO, baseline x86-64)\n"
    );
    let missed = print(&rows);
    println!();
    memory();
    verdict(rows.len() - missed, missed)
}

/// Runs every operation; callgrind watches.
fn run() {
    let setup = Setup::new();
    let mut bench = Bench::new(&setup);
    bench.check_bytes();
    let combining = Setup::new();
    for _ in 0..ROUNDS {
        bench.round();
        blue_flame(&combining);
    }
}

/// What a QP and its side of a connection take.
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
