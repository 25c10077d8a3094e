//! Throughput of the device model itself: messages and bytes from one model to the other, each payload copied once per
//! hop. The driver posts and polls in large batches, so that its own part is small.
//!
//! Instructions per message are counted by callgrind; messages and bytes per second are what this machine makes of them,
//! and only good for a ratio in the same run.

use std::process::ExitCode;
use std::time::Instant;

use bareverbs_bench::callgrind;
use bareverbs_bench::lanes::{self, Lanes, Threads};
use bareverbs_bench::pair::{self, Pair};
use bareverbs_bench::report::verdict;
use bareverbs_cm::rdma::CmId;
use bareverbs_core::WcStatus;
use bareverbs_core::mr::{Access, Buffer};
use bareverbs_core::qp::{Remote, SendData, SendFlags, SendOp, SendWr};
use bareverbs_in_process::ModelPlatform;

/// Messages posted to a doorbell; the last one makes a completion.
const BATCH: usize = 16;
const LARGE: usize = 64 << 10;
/// Instructions that a message may take, headers, doorbell and completion included. The large one allows for the two
/// copies (memory to frame, frame to memory), the check sum at both ends, and nothing else by the byte. A small one took 4,486
/// before the model's tables had pages, whose memory they give
/// back; what made it grow since was not measured by itself.
const SMALL_MUST: f64 = 4_640.0;
const LARGE_MUST: f64 = 2.0 * LARGE as f64;
/// Doorbells in the counted run, and in the timed one.
const COUNTED: u32 = 64;
const TIMED: u32 = 2_000;
/// Times that each rate on the real clock is taken.
const TURNS: usize = 40;

fn main() -> ExitCode {
    if callgrind::is_child() {
        with_pair(|pair, wires| {
            small(pair, wires, COUNTED);
            large(pair, wires, COUNTED);
        });
        return ExitCode::SUCCESS;
    }
    let costs = match callgrind::count() {
        Ok(costs) => costs,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let each = |function: &str| {
        let messages = f64::from(COUNTED) * BATCH as f64;
        costs
            .of(&format!("model::{function}"))
            .map(|cost| cost as f64 / messages)
    };
    let (Some(small_cost), Some(large_cost)) = (each("small"), each("large")) else {
        eprintln!("the measured functions are not in callgrind's output");
        return ExitCode::FAILURE;
    };
    let (mut passed, mut failed) = (0, 0);
    with_pair(|pair, wires| {
        let per_second = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            f64::from(TIMED) * BATCH as f64 / start.elapsed().as_secs_f64()
        };
        let small_rate = per_second(&mut || small(pair, wires, TIMED));
        let large_rate = per_second(&mut || large(pair, wires, TIMED));
        println!(
            "RDMA WRITE from model to model, driver included (instructions by callgrind; rates on this machine)\n"
        );
        println!("| message | instructions | per byte | messages/s | GB/s | must |");
        println!("| --- | --: | --: | --: | --: | --- |");
        for (size, cost, rate, must) in [
            (64, small_cost, small_rate, SMALL_MUST),
            (LARGE, large_cost, large_rate, LARGE_MUST),
        ] {
            let bytes = size as f64;
            let verdict = if cost <= must {
                passed += 1;
                "holds"
            } else {
                failed += 1;
                "**missed**"
            };
            println!(
                "| {size} bytes | {cost:.0} | {:.2} | {rate:.0} | {:.3} | {must:.0}: {verdict} |",
                cost / bytes,
                rate * bytes / 1e9
            );
        }
    });
    println!();
    lanes::with(Threads::One, |one| {
        lanes::with(Threads::Two, |two| print_rates(one, two));
    });
    verdict(passed, failed)
}

/// One thread for both ports beside a thread for each, in turns, and the best turn of each: the machine does other work
/// beside this, and may have one core.
fn print_rates(one: &mut Lanes<'_>, two: &mut Lanes<'_>) {
    println!(
        "Both ports driven by one thread and by two, the best of {TURNS} turns ({} cores; not gated)\n",
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    println!("| messages | one thread/s | two threads/s | ratio | GB/s |");
    println!("| --- | --: | --: | --: | --: |");
    for (what, size, doorbells) in [
        ("64 bytes, one way", 64, [TIMED / 4, 0]),
        (
            "64 bytes, each way: a thread, a device, a QP, a CQ",
            64,
            [TIMED / 4; 2],
        ),
        ("64 KiB, one way", LARGE, [TIMED / 40, 0]),
        ("64 KiB, each way", LARGE, [TIMED / 40; 2]),
    ] {
        let mut best = (0.0_f64, 0.0_f64);
        for _ in 0..TURNS {
            best.0 = best.0.max(one.rate(size, doorbells));
            best.1 = best.1.max(two.rate(size, doorbells));
        }
        println!(
            "| {what} | {:.0} | {:.0} | {:.2} | {:.3} |",
            best.0,
            best.1,
            best.1 / best.0,
            best.1 * size as f64 / 1e9
        );
    }
}

/// A connection, and a buffer at each end.
struct Wires<'d> {
    client: CmId,
    near: Buffer<'d, ModelPlatform>,
    far: Buffer<'d, ModelPlatform>,
}

fn with_pair(work: impl FnOnce(&mut Pair<'_, '_, '_>, &Wires<'_>)) {
    let world = pair::world();
    let mut resources = [pair::resources(), pair::resources()];
    let [first, second] = &mut resources;
    let devices = [
        pair::device(&world, 0, first),
        pair::device(&world, 1, second),
    ];
    let mut storage = [pair::storage(), pair::storage()];
    let mut pair = Pair::new(&world, &devices, &mut storage);
    let (client, server) = pair.connect();
    let near = pair.cms[0]
        .pd(client)
        .expect("PD")
        .alloc_buffer(LARGE, Access::LOCAL_WRITE)
        .expect("memory");
    let far = pair.cms[1].reg_write(server, LARGE).expect("memory");
    let wires = Wires { client, near, far };
    work(&mut pair, &wires);
}

#[inline(never)]
fn small(pair: &mut Pair<'_, '_, '_>, wires: &Wires<'_>, doorbells: u32) {
    write(pair, wires, 64, doorbells);
}

#[inline(never)]
fn large(pair: &mut Pair<'_, '_, '_>, wires: &Wires<'_>, doorbells: u32) {
    write(pair, wires, LARGE, doorbells);
}

/// Writes, and finds at the end that the last message is there.
fn write(pair: &mut Pair<'_, '_, '_>, wires: &Wires<'_>, size: usize, doorbells: u32) {
    let sges = [wires.near.sge(0, size).expect("in range")];
    let remote = Remote {
        addr: wires.far.addr(),
        rkey: wires.far.rkey(),
    };
    for doorbell in 0..doorbells {
        wires
            .near
            .copy_in(size - 4, &doorbell.to_be_bytes())
            .expect("in range");
        let wrs: [SendWr<'_>; BATCH] = std::array::from_fn(|index| SendWr {
            wr_id: index as u64,
            op: SendOp::Write(remote),
            flags: if index + 1 == BATCH {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            },
            data: SendData::Sges(&sges),
        });
        let endpoint = pair.cms[0].endpoint(wires.client).expect("QP");
        endpoint
            .qp
            .send_queue()
            .post_list(&wrs)
            .expect("queue space");
        let wc = loop {
            pair.world.step();
            if let Some(completion) = pair.cqs[0].poll().expect("CQ") {
                break completion.to_wc();
            }
        };
        assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, BATCH as u64 - 1));
    }
    let mut last = [0; 4];
    wires.far.copy_out(size - 4, &mut last).expect("in range");
    assert_eq!(u32::from_be_bytes(last), doorbells - 1);
}
