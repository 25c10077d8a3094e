//! Tables of names and numbers: the same program, with every value, on Debian's libraries and on ours.

use super::run::Place;
use crate::outcome::Outcome;
use crate::process::quiet_output;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

pub(super) const NAME: &str = "names";

/// Values that the libraries of Debian 12 do not have: what the table of rdma-core 65 (`libibverbs/enum_strs.c`,
/// `librdmacm/cma.c`) says, which has no package that runs here.
const NEWER: &[(&str, &str)] = &[
    ("ibv_event_type_str(20)", "Device link speed change"),
    // Debian 12 does not have this function at all.
    ("ibv_wr_opcode_str(0)", "rdma-write"),
    ("ibv_wr_opcode_str(1)", "rdma-write-with-imm"),
    ("ibv_wr_opcode_str(2)", "send"),
    ("ibv_wr_opcode_str(3)", "send-with-imm"),
    ("ibv_wr_opcode_str(4)", "rdma-read"),
    ("ibv_wr_opcode_str(5)", "atomic-cmp-and-swp"),
    ("ibv_wr_opcode_str(6)", "atomic-fetch-and-add"),
    ("ibv_wr_opcode_str(7)", "local-inv"),
    ("ibv_wr_opcode_str(8)", "bind-mw"),
    ("ibv_wr_opcode_str(9)", "send-with-inv"),
    ("ibv_wr_opcode_str(10)", "tso"),
    ("ibv_wr_opcode_str(11)", "driver1"),
    ("ibv_wr_opcode_str(12)", "NULL"),
    ("ibv_wr_opcode_str(13)", "NULL"),
    ("ibv_wr_opcode_str(14)", "flush"),
    ("ibv_wr_opcode_str(15)", "atomic-write"),
    ("rdma_event_str(16)", "RDMA_CM_EVENT_ADDRINFO_RESOLVED"),
    ("rdma_event_str(17)", "RDMA_CM_EVENT_ADDRINFO_ERROR"),
];

/// The program prints this where there is no such function.
const MISSING: &str = "missing";

/// Values of a table that have another than that of the numbers outside are so many at least: a program that prints
/// nothing of a table would compare well.
const FEWEST: usize = 100;

/// Prints both, and compares line by line.
pub(super) fn run(place: &Place<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    match both(place) {
        Ok([theirs, ours]) => {
            compare(&mut outcome, &theirs, &ours);
            println!("{NAME}: {} values compared", theirs.len());
        }
        Err(why) => outcome.check(false, || format!("{NAME}: {why}")),
    }
    outcome
}

fn compare(
    outcome: &mut Outcome,
    theirs: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
) {
    outcome.check(theirs.keys().eq(ours.keys()), || {
        format!("{NAME}: the program printed other calls on ours")
    });
    let known = |value: &&String| {
        !["-1", "unknown", "UNKNOWN EVENT", "NULL", MISSING].contains(&value.as_str())
    };
    let many = theirs.values().filter(known).count();
    outcome.check(many >= FEWEST, || {
        format!("{NAME}: only {many} values of Debian's library have a name or a number")
    });
    for (call, of_debian) in theirs {
        let newer = NEWER.iter().find(|(newer, _)| newer == call);
        let expected = match (newer, of_debian.as_str()) {
            (Some((_, value)), _) => value,
            (None, MISSING) => "unknown",
            (None, value) => value,
        };
        let found = ours.get(call).map_or("", String::as_str);
        outcome.check(found == expected, || {
            format!("{NAME}: {call} is {found:?}, and {expected:?} in rdma-core")
        });
        outcome.check(newer.is_none() || !known(&of_debian), || {
            format!("{NAME}: Debian's library has {call} by itself: {of_debian:?}")
        });
    }
}

/// Returns what the program prints on Debian's libraries, and on ours.
fn both(place: &Place<'_>) -> Result<[BTreeMap<String, String>; 2], String> {
    let debian = place.packages.libraries.first().ok_or("no libraries")?;
    let theirs = [debian.folder.as_path(), debian.others.as_path()];
    let ours = [place.bundle.folder.as_path()];
    Ok([printed(place, &theirs)?, printed(place, &ours)?])
}

fn printed(place: &Place<'_>, folders: &[&Path]) -> Result<BTreeMap<String, String>, String> {
    let mut path = OsString::new();
    for folder in folders {
        path.push(folder);
        path.push(":");
    }
    let program = place.in_c.join(NAME);
    let text = quiet_output(Command::new(program).env("LD_LIBRARY_PATH", path))?;
    let lines = text.lines().map(|line| {
        let (call, value) = line
            .split_once('\t')
            .ok_or_else(|| format!("not a call and a value: {line:?}"))?;
        Ok((call.to_owned(), value.to_owned()))
    });
    lines.collect()
}
