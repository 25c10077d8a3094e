//! Names of numbers: `ibv_*_str`, and rates.

// UNSAFETY: functions that C calls by name.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};

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

/// Rates of `enum ibv_rate`: the number, the multiple of 2.5 Gb/s, and Mb/s.
const RATES: [(c_int, c_int, c_int); 22] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 0, 14_062),
    (12, 0, 56_250),
    (13, 0, 112_500),
    (14, 0, 168_750),
    (15, 0, 25_781),
    (16, 0, 103_125),
    (17, 0, 206_250),
    (18, 0, 309_375),
    (19, 20, 53_125),
    (20, 40, 106_250),
    (21, 160, 425_000),
    (22, 80, 212_500),
    (23, 320, 850_000),
];

/// A rate as a multiple of 2.5 Gb/s, -1 if it is none: `ibv_rate_to_mult`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    let found = RATES.iter().find(|entry| entry.0 == rate && entry.1 > 0);
    found.map_or(-1, |entry| entry.1)
}

/// The rate of a multiple of 2.5 Gb/s, 0 (the port's own) if there is none: `mult_to_ibv_rate`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    let found = RATES.iter().find(|entry| mult > 0 && entry.1 == mult);
    found.map_or(0, |entry| entry.0)
}

/// A rate in Mb/s, -1 if it is none: `ibv_rate_to_mbps`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    let found = RATES.iter().find(|entry| entry.0 == rate);
    found.map_or(-1, |entry| entry.2)
}

/// The rate of so many Mb/s, 0 (the port's own) if there is none: `mbps_to_ibv_rate`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    let found = RATES.iter().find(|entry| entry.2 == mbps);
    found.map_or(0, |entry| entry.0)
}
