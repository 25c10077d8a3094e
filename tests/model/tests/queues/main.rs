//! Queues: arming, overrun, resize, isolation of doorbells, shared receive queues, asynchronous events, life times.

#[path = "../common/mod.rs"]
mod common;

mod completion_queues;
mod compression;
mod counters;
mod cqe_scatter;
mod dynamic;
mod extended_reliable;
mod force_loopback;
mod life_times;
mod management;
mod queue_pairs;
mod rdma_changes;
mod rdma_tables;
mod registration;
mod shared_receives;
mod windows;

use common::queues::*;
use common::{Failure, Node};
use connectx_model::Syndrome;

const SEND: u8 = 0x0a;
const WRITE: u8 = 0x08;

const COMP: u8 = 0x00;
const COMM_EST: u8 = 0x02;
const CQ_ERROR: u8 = 0x04;
const WQ_CATAS: u8 = 0x05;
const WQ_ACCESS: u8 = 0x11;
const SRQ_LAST_WQE: u8 = 0x13;
const SRQ_LIMIT: u8 = 0x14;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

fn events(node: &mut Node, at: usize) -> Vec<(u8, u32)> {
    std::iter::from_fn(|| {
        let (kind, _, data) = node.next_event(at)?;
        Some((
            kind,
            u32::from_be_bytes(data[24..].try_into().unwrap()) & 0xff_ffff,
        ))
    })
    .collect()
}

/// An RC pair with memory at the receiver.
fn connected() -> (Pair, (Qp, Cq), (Qp, Cq), u32) {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    (pair, a, b, key)
}

fn send(pair: &mut Pair, from: &mut Qp, to: &mut Qp, key: u32, flags: u8) {
    pair.b.post_receive(to, &[(key, 0, 64)]);
    pair.a
        .post_send(from, SEND, flags, 0, &inline_segment(&[1; 20]));
    pair.a.ring_send(from);
    pair.run();
}
