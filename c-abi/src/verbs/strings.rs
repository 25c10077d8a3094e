//! Names of numbers: `ibv_*_str`, and rates.

// UNSAFETY: functions that C calls by name.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr;

use bareverbs_node::verbs::StaticRate;

/// A completion's status as text: `ibv_wc_status_str`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    let text = match status {
        0 => c"success",
        1 => c"local length error",
        2 => c"local QP operation error",
        3 => c"local EE context operation error",
        4 => c"local protection error",
        5 => c"Work Request Flushed Error",
        6 => c"memory management operation error",
        7 => c"bad response error",
        8 => c"local access error",
        9 => c"remote invalid request error",
        10 => c"remote access error",
        11 => c"remote operation error",
        12 => c"transport retry counter exceeded",
        13 => c"RNR retry counter exceeded",
        14 => c"local RDD violation error",
        15 => c"remote invalid RD request",
        16 => c"aborted error",
        17 => c"invalid EE context number",
        18 => c"invalid EE context state",
        19 => c"fatal error",
        20 => c"response timeout error",
        21 => c"general error",
        22 => c"TM error",
        23 => c"TM software rendezvous",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// A port's state as text: `ibv_port_state_str`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    let text = match state {
        0 => c"no state change (NOP)",
        1 => c"down",
        2 => c"init",
        3 => c"armed",
        4 => c"active",
        5 => c"active defer",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// A work request's kind as text, NULL for numbers between them that are none: `ibv_wr_opcode_str`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    let text = match opcode {
        0 => c"rdma-write",
        1 => c"rdma-write-with-imm",
        2 => c"send",
        3 => c"send-with-imm",
        4 => c"rdma-read",
        5 => c"atomic-cmp-and-swp",
        6 => c"atomic-fetch-and-add",
        7 => c"local-inv",
        8 => c"bind-mw",
        9 => c"send-with-inv",
        10 => c"tso",
        11 => c"driver1",
        12 | 13 => return ptr::null(),
        14 => c"flush",
        15 => c"atomic-write",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// The last of `enum ibv_rate`.
const LAST_RATE: u8 = 24;

/// Rates of `enum ibv_rate` that have a multiple of 2.5 Gb/s: the number, and the multiple.
const MULTIPLES: [(c_int, c_int); 15] = [
    (2, 1),
    (5, 2),
    (3, 4),
    (6, 8),
    (4, 12),
    (7, 16),
    (8, 24),
    (9, 32),
    (10, 48),
    (19, 11),
    (20, 20),
    (21, 160),
    (22, 240),
    (23, 320),
    (24, 480),
];

/// Rates of `enum ibv_rate`: the number, and Mb/s.
fn rates() -> impl Iterator<Item = (c_int, c_int)> {
    (0..=LAST_RATE).filter_map(|number| {
        let mbps = StaticRate::from_number(number)?.mbps()?;
        Some((number.into(), mbps as c_int))
    })
}

/// A rate as a multiple of 2.5 Gb/s, -1 if it is none: `ibv_rate_to_mult`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    let found = MULTIPLES.iter().find(|entry| entry.0 == rate);
    found.map_or(-1, |entry| entry.1)
}

/// The rate of a multiple of 2.5 Gb/s, 0 (the port's own) if there is none: `mult_to_ibv_rate`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    let found = MULTIPLES.iter().find(|entry| entry.1 == mult);
    found.map_or(0, |entry| entry.0)
}

/// A rate in Mb/s, -1 if it is none: `ibv_rate_to_mbps`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    rates()
        .find(|entry| entry.0 == rate)
        .map_or(-1, |entry| entry.1)
}

/// The rate of so many Mb/s, 0 (the port's own) if there is none: `mbps_to_ibv_rate`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    rates()
        .find(|entry| entry.1 == mbps)
        .map_or(0, |entry| entry.0)
}
