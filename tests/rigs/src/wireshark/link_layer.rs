//! Frames of models of InfiniBand ports as packets of InfiniBand's link layer: with local route headers, and CRCs over these.

use super::decoder;
use super::expect::{Field, Value, differences, number};
use super::readings::{remarks, script, write};
use super::tshark;
use connectx_model::pcap::{Writer, infiniband};
use std::path::Path;
use std::time::Duration;

/// The verdict on a packet.
pub(super) struct Verdict {
    pub(super) about: String,
    pub(super) checks: Vec<(&'static str, Vec<String>)>,
}

/// Has tshark dissect the packets that frames of a recording stand for: all are seen, whole and unremarkable, with the fields
/// that the frames have, and with the right CRCs. `None` if there are no such frames.
pub(super) fn judge(
    raw: &[&[u8]],
    work: &Path,
    home: &Path,
    explained: &mut [usize],
) -> Result<Option<Verdict>, String> {
    let mut capture = Writer::infiniband(Vec::new()).map_err(|e| e.to_string())?;
    let mut meant = Vec::new();
    for frame in raw {
        let (Ok(Some(fields)), Some(packet)) = (decoder::view(frame), infiniband::packet(frame))
        else {
            continue;
        };
        meant.push(expected(frame, fields));
        capture
            .write(&packet, Duration::ZERO)
            .map_err(|e| e.to_string())?;
    }
    if meant.is_empty() {
        return Ok(None);
    }
    let file = work.join("infiniband.pcap");
    write(&file, &capture.finish().map_err(|e| e.to_string())?)?;
    let seen = tshark::dissect(&file, home)?;
    let verdicts = script(&file)?;

    let mut count = Vec::new();
    if seen.len() != meant.len() || verdicts.len() != meant.len() {
        count.push(format!(
            "{} packets, {} to tshark, {} to icrc.py",
            meant.len(),
            seen.len(),
            verdicts.len()
        ));
    }
    let (mut compared, mut locals) = (0, 0);
    let (mut remarked, mut different, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for ((fields, seen), verdict) in meant.iter().zip(&seen).zip(&verdicts) {
        compared += fields.len();
        locals += usize::from(seen.all("infiniband.grh.sgid").is_empty());
        remarked.extend(remarks(seen, explained));
        let at = seen.summary();
        let lines = differences(seen, fields);
        different.extend(lines.iter().map(|what| format!("{at}: {what}")));
        if verdict != "ok" {
            wrong.push(format!("{at}: {verdict}"));
        }
    }
    Ok(Some(Verdict {
        about: format!(
            "{} packets of InfiniBand's link layer, {locals} without a global header, {compared} fields compared",
            meant.len()
        ),
        checks: vec![
            ("all packets are seen", count),
            ("tshark has no remarks on packets", remarked),
            ("tshark reads the packets' fields", different),
            ("ICRCs and VCRCs of packets", wrong),
        ],
    }))
}

/// The fields that the packet of a frame has, by places in the frame.
fn expected(frame: &[u8], mut fields: Vec<Field>) -> Vec<Field> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let local = frame[22..36] == [0; 14];
    if local {
        fields.retain(|(name, _)| !name.starts_with("infiniband.grh."));
        fields.push(("infiniband.grh.sgid", Value::Absent));
    }
    let management = frame[59..62] == [0; 3];
    fields.extend([
        number("infiniband.lrh.vl", if management { 15u8 } else { 0 }),
        number("infiniband.lrh.lver", 0u8),
        number("infiniband.lrh.sl", frame[3]),
        number("infiniband.lrh.lnh", if local { 2u8 } else { 3 }),
        number("infiniband.lrh.dlid", word(4)),
        number(
            "infiniband.lrh.pktlen",
            (word(18) + if local { 8 } else { 48 }) / 4,
        ),
        number("infiniband.lrh.slid", word(10)),
    ]);
    fields
}
