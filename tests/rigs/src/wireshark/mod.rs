//! Checks what goes over the wire with an independent dissector: tshark.
//!
//! A whole run of driver and CM over two device models is recorded, in virtual time, and with each step what was meant by
//! it: addresses and numbers as the application gave them and as the driver's own queries return them, packets as the
//! IBTA's rules cut them. tshark dissects the recording, and every field of every frame has to be what was meant.
//! Beside that our own decoders read the same frames, and frames of Linux's; both readings have to agree. The ICRC,
//! which tshark does not verify, is recomputed by a few lines of Python.
//!
//! What the other rigs record is judged by both readings and the ICRCs as well: `judge.rs`.

mod connections;
mod decoder;
mod expect;
mod judge;
mod link_layer;
mod packets;
mod page;
mod readings;
mod sample;
mod scene;
mod subnet;
mod traffic;
mod tshark;

use crate::outcome::Outcome;
use readings::{EXPLAINED, difference, frames, remarks, report, script, write};
use scene::Scene;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tshark::Frame;

use judge::{ICRCS, Verdict};
pub(crate) use judge::{Recording, judge};

/// One line for the list of rigs.
pub(crate) const ABOUT: &str = "what driver, CM and model put on the wire, as tshark reads it (--keep FILE copies the capture, --judge FILE reads another)";

/// Frames of Linux 6.1.
const GOLDEN: &str = "tests/model/tests/data/rxe61-guest-guest.pcap";
/// Records, has it dissected, and compares.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let mut keep = None;
    let mut others = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--keep" => keep = arguments.next().map(PathBuf::from),
            "--judge" => others.extend(arguments.next().map(PathBuf::from)),
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    println!("{}", tshark::need("tshark", "tshark", "--version")?);
    println!("{}", tshark::need("python3", "python3", "--version")?);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let work = root.join("target/rigs/wireshark");
    let home = work.join("home");
    std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;

    let mut outcome = Outcome::default();
    if !others.is_empty() {
        for file in &others {
            let recording = Recording {
                file,
                filters: &[],
                roce: true,
                damaged: false,
            };
            print_verdict(&mut outcome, &judge(recording, &work)?);
        }
        return Ok(outcome);
    }
    let started = Instant::now();
    let mut scene = Scene::new()?;
    let relations = connections::run(&mut scene)?;
    traffic::run(&mut scene)?;
    let capture = scene.file();
    let file = work.join("capture.pcap");
    write(&file, &capture)?;
    if let Some(keep) = keep {
        write(&keep, &capture)?;
    }
    println!(
        "recorded {} frames in {} steps, {:.1} s",
        scene.frames(),
        scene.steps.len(),
        started.elapsed().as_secs_f64()
    );
    let raw = frames(&capture)?;
    let seen = tshark::dissect(&file, &home)?;
    outcome.check(seen.len() == raw.len(), || {
        format!("tshark shows {} frames of {}", seen.len(), raw.len())
    });
    every_frame_is_roce(&mut outcome, &seen);
    let covered: usize = scene.steps.iter().map(|step| step.frames.len()).sum();
    outcome.check(covered == raw.len(), || {
        format!("{covered} frames belong to a step, of {}", raw.len())
    });
    let mut compared = 0;
    for step in &scene.steps {
        compared += step.compared();
        report(&mut outcome, &step.name, &step.problems(&seen, &scene.macs));
    }
    println!("compared {compared} fields with what was meant");
    for relation in &relations {
        report(&mut outcome, relation.name(), &relation.problems(&seen));
    }
    two_readings(&mut outcome, "capture", &raw, &seen);
    icrcs(&mut outcome, &file, &raw)?;
    let damaged = work.join("damaged.pcap");
    icrcs_of_damaged(&mut outcome, &damaged, &capture)?;
    judged(&mut outcome, &work, &file, &damaged)?;
    page::run(&mut outcome, &work, raw.len())?;
    subnet::run(&mut outcome, &work, &home)?;

    println!("frames of Linux: {GOLDEN}");
    let golden = root.join(GOLDEN);
    let bytes = std::fs::read(&golden).map_err(|e| format!("{}: {e}", golden.display()))?;
    let raw = frames(&bytes)?;
    let seen = tshark::dissect(&golden, &home)?;
    outcome.check(seen.len() == raw.len(), || {
        format!("tshark shows {} frames of {}", seen.len(), raw.len())
    });
    two_readings(&mut outcome, "golden", &raw, &seen);
    icrcs(&mut outcome, &golden, &raw)?;

    println!("not compared:");
    for (what, why) in tshark::NOT_ASKED {
        println!("  {what}: {why}");
    }
    println!("{:.1} s in all", started.elapsed().as_secs_f64());
    Ok(outcome)
}

/// No frame is anything else, none is malformed, and each remark has an explanation.
fn every_frame_is_roce(outcome: &mut Outcome, seen: &[Frame]) {
    let mut explained = vec![0usize; EXPLAINED.len()];
    let mut problems = Vec::new();
    for frame in seen {
        let protocols = frame.first("frame.protocols");
        if !protocols.split(':').any(|name| name == "infiniband") {
            problems.push(format!("{}: {protocols}", frame.summary()));
        }
        problems.extend(remarks(frame, &mut explained));
    }
    for ((text, why), count) in EXPLAINED.iter().zip(explained) {
        println!("tshark remarks {count} times: {text} ({why})");
    }
    report(
        outcome,
        "every frame is RoCE, whole and unremarkable",
        &problems,
    );
}

/// Our decoders beside tshark, a check for each RoCE frame.
fn two_readings(outcome: &mut Outcome, name: &str, raw: &[&[u8]], seen: &[Frame]) {
    let (mut roce, mut compared) = (0, 0);
    for (index, (raw, seen)) in raw.iter().zip(seen).enumerate() {
        let Some((fields, problems)) = difference(raw, seen) else {
            continue;
        };
        compared += fields;
        roce += 1;
        report(
            outcome,
            &format!("{name}, frame {}, two readings", index + 1),
            &problems,
        );
    }
    println!("{name}: {roce} RoCE frames read twice, {compared} fields");
    outcome.check(roce > 0, || format!("{name}: no RoCE frames"));
}

/// Every ICRC is right.
fn icrcs(outcome: &mut Outcome, file: &Path, raw: &[&[u8]]) -> Result<(), String> {
    let (right, problems) = wrong_icrcs(file, raw)?;
    println!("{right} ICRCs right by zlib");
    report(outcome, "ICRCs", &problems);
    Ok(())
}

/// The number of ICRCs that are right, and the frames with others.
fn wrong_icrcs(file: &Path, raw: &[&[u8]]) -> Result<(usize, Vec<String>), String> {
    let verdicts = script(file)?;
    let mut problems = Vec::new();
    if verdicts.len() != raw.len() {
        problems.push(format!(
            "{} verdicts on {} frames",
            verdicts.len(),
            raw.len()
        ));
    }
    for (index, (verdict, raw)) in verdicts.iter().zip(raw).enumerate() {
        let roce = !matches!(decoder::view(raw), Ok(None));
        if verdict != if roce { "ok" } else { "other" } {
            problems.push(format!("frame {}: {verdict}", index + 1));
        }
    }
    let right = verdicts.iter().filter(|verdict| *verdict == "ok").count();
    Ok((right, problems))
}

fn print_verdict(outcome: &mut Outcome, verdict: &Verdict) {
    println!("{}", verdict.about);
    for (what, problems) in &verdict.checks {
        report(outcome, what, problems);
    }
}

/// The check of other rigs' recordings accepts this one, and finds every frame of the damaged one.
fn judged(outcome: &mut Outcome, work: &Path, whole: &Path, damaged: &Path) -> Result<(), String> {
    let recording = |file, roce| Recording {
        file,
        filters: &[],
        roce,
        damaged: false,
    };
    print_verdict(outcome, &judge(recording(whole, true), work)?);
    let verdict = judge(recording(damaged, false), work)?;
    let wrong = verdict.checks.iter().find(|(what, _)| *what == ICRCS);
    let found = wrong.map_or(0, |(_, problems)| problems.len());
    outcome.check(found == verdict.shown, || {
        format!("{found} of {} damaged frames were found", verdict.shown)
    });
    Ok(())
}

/// The script detects errors: the same capture with one bit of each frame turned, in front of the ICRC.
fn icrcs_of_damaged(outcome: &mut Outcome, file: &Path, capture: &[u8]) -> Result<(), String> {
    let mut damaged = capture.to_vec();
    let mut at = 24;
    let mut count = 0;
    while let Some(len) = capture.get(at + 8..at + 12) {
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        at += 16 + len;
        damaged[at - 5] ^= 1 << (count % 8);
        count += 1;
    }
    write(file, &damaged)?;
    let verdicts = script(file)?;
    let missed = verdicts.iter().filter(|verdict| *verdict != "bad").count();
    outcome.check(missed == 0 && verdicts.len() == count, || {
        format!("{missed} of {count} damaged frames have a right ICRC for the script")
    });
    Ok(())
}
