//! Judges recordings of traffic between this project and other implementations.

use super::readings::{EXPLAINED, difference, frames, remarks, script, write};
use super::sample::sample;
use super::tshark::Frame;
use super::{decoder, link_layer, tshark};
use std::path::Path;

/// The only remark of tshark that counts for frames of other implementations: checksums have to be right, while
/// unusual addresses and streams are no error.
const MATTERS: &str = "checksum";

/// The check of the invariant CRCs.
pub(super) const ICRCS: &str = "ICRCs";

/// A recording, and what is expected of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recording<'a> {
    pub(crate) file: &'a Path,
    /// Each of these filters of tshark's has to let some frame pass.
    pub(crate) filters: &'a [&'a str],
    /// There has to be RoCE in it.
    pub(crate) roce: bool,
    /// Frames were damaged on purpose; a checksum of those is wrong.
    pub(crate) damaged: bool,
}

/// The result for one recording.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The recording's name.
    pub(crate) about: String,
    /// The number of frames.
    pub(super) shown: usize,
    /// The checks, and the faults that each found.
    pub(crate) checks: Vec<(&'static str, Vec<String>)>,
}

/// Has tshark dissect a recording in which there is RoCE among other traffic. Packets of all ends have to be whole,
/// mean the same to tshark and to our decoders, and have the right ICRC. Of a long recording, the first frames of every
/// kind.
pub(crate) fn judge(recording: Recording<'_>, work: &Path) -> Result<Verdict, String> {
    tshark::need("tshark", "tshark", "--version")?;
    tshark::need("python3", "python3", "--version")?;
    let home = work.join("home");
    std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    let all =
        std::fs::read(recording.file).map_err(|e| format!("{}: {e}", recording.file.display()))?;
    let (sampled, [kept, of]) = sample(&all)?;
    drop(all);
    let file = work.join("sample.pcap");
    write(&file, &sampled)?;
    let raw = frames(&sampled)?;
    let seen = tshark::dissect(&file, &home)?;
    let icrcs = script(&file)?;

    let mut findings = Findings::default();
    for ((raw, seen), icrc) in raw.iter().zip(&seen).zip(&icrcs) {
        findings.frame(raw, seen, icrc, recording.damaged);
    }
    let Findings {
        roce,
        bad,
        mut explained,
        remarked,
        different,
        wrong,
    } = findings;
    let mut count = Vec::new();
    if seen.len() != kept || icrcs.len() != kept || (recording.roce && roce == 0) {
        count.push(format!(
            "{kept} frames, {} to tshark, {} to icrc.py, {roce} of them RoCE",
            seen.len(),
            icrcs.len()
        ));
    }
    let mut missing = Vec::new();
    for filter in recording.filters {
        if !tshark::passes(recording.file, filter, &home)? {
            missing.push((*filter).to_owned());
        }
    }
    let packets = link_layer::judge(&raw, work, &home, &mut explained)?;
    let name = recording.file.file_name().unwrap_or_default();
    let mut about = format!(
        "{}: {of} frames, {kept} shown to tshark, {roce} of them RoCE",
        name.display()
    );
    for ((text, _), times) in EXPLAINED.iter().zip(explained) {
        if times > 0 {
            about.push_str(&format!("; explained, {times} times: {text}"));
        }
    }
    if recording.damaged {
        about.push_str(&format!("; damaged: {bad}"));
    }
    let mut checks = vec![
        ("all are seen", count),
        ("tshark has no remarks", remarked),
        ("tshark reads what our decoders read", different),
        (ICRCS, wrong),
        ("what has to be among them", missing),
    ];
    if let Some(packets) = packets {
        about.push_str("; ");
        about.push_str(&packets.about);
        checks.extend(packets.checks);
    }
    Ok(Verdict {
        about,
        shown: kept,
        checks,
    })
}

/// The findings so far.
struct Findings {
    roce: usize,
    bad: usize,
    explained: Vec<usize>,
    remarked: Vec<String>,
    different: Vec<String>,
    wrong: Vec<String>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            roce: 0,
            bad: 0,
            explained: vec![0; EXPLAINED.len()],
            remarked: Vec::new(),
            different: Vec::new(),
            wrong: Vec::new(),
        }
    }
}

impl Findings {
    fn frame(&mut self, raw: &[u8], seen: &Frame, icrc: &str, damaged: bool) {
        // The ICRC leaves out what routers change, which other checksums cover.
        if icrc == "bad" || damaged && decoder::view(raw).is_err() {
            self.bad += 1;
            if !damaged {
                self.wrong.push(seen.summary());
            }
            return;
        }
        let Some((_, different)) = difference(raw, seen) else {
            // A bit that was turned may have made it something else.
            if !damaged {
                self.remarked.extend(remarks_on_others(seen));
            }
            return;
        };
        self.roce += 1;
        if icrc != "ok" {
            self.wrong.push(format!("{}: {icrc}", seen.summary()));
        }
        self.remarked.extend(remarks(seen, &mut self.explained));
        let at = seen.summary();
        let lines = different.iter().map(|what| format!("{at}: {what}"));
        self.different.extend(lines);
    }
}

/// The faults of a frame that is not RoCE.
fn remarks_on_others(frame: &Frame) -> Vec<String> {
    let whole = frame.all("_ws.malformed").is_empty();
    let printed = frame.all("_ws.expert.message").into_iter();
    let wrong = printed.filter(|message| message.to_lowercase().contains(MATTERS));
    let at = |what: &str| {
        let (number, protocols) = (frame.first("frame.number"), frame.first("frame.protocols"));
        format!("frame {number}, {protocols}: {what}")
    };
    let mut problems: Vec<String> = wrong.map(at).collect();
    if !whole {
        problems.push(at("malformed"));
    }
    problems
}
