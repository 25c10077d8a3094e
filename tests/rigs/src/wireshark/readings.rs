//! The readings of frames by tshark, our decoders and the script for ICRCs, and the report on them.

use super::tshark::Frame;
use super::{decoder, expect};
use crate::outcome::Outcome;
use connectx_model::pcap::Reader;
use std::path::Path;
use std::process::Command;

const ICRC: &str = include_str!("icrc.py");

/// The remarks of tshark on frames that are right, and the reasons.
pub(super) const EXPLAINED: &[(&str, &str)] = &[
    (
        "Illegal checksum value (0)",
        "UDP over IPv6 requires a checksum; annex A17 of RoCE v2 and Linux leave it 0, as the ICRC covers more",
    ),
    (
        r#""Time To Live" only 1"#,
        "rdma-core's ibv_ud_pingpong asks for one hop, and its peer is no farther",
    ),
    (
        "Trailing stray characters",
        "a table of records from OpenSM in several segments (RMPP): tshark takes each for the beginning of a record, and its text for padding",
    ),
];

/// Writes a file.
pub(super) fn write(file: &Path, data: &[u8]) -> Result<(), String> {
    std::fs::write(file, data).map_err(|e| format!("{}: {e}", file.display()))
}

/// The frames of a capture.
pub(super) fn frames(capture: &[u8]) -> Result<Vec<&[u8]>, String> {
    Reader::new(capture)
        .map_err(|e| e.to_string())?
        .map(|record| record.map(|record| record.data).map_err(|e| e.to_string()))
        .collect()
}

/// One check; of many problems the first ones are printed.
pub(super) fn report(outcome: &mut Outcome, name: &str, problems: &[String]) {
    const SHOWN: usize = 12;
    outcome.check(problems.is_empty(), || {
        let mut all = name.to_owned();
        for problem in problems.iter().take(SHOWN) {
            all.push_str("\n    ");
            all.push_str(problem);
        }
        if problems.len() > SHOWN {
            all.push_str(&format!("\n    and {} more", problems.len() - SHOWN));
        }
        all
    });
}

/// The remarks of tshark on a frame, beside what is explained, which is counted.
pub(super) fn remarks(frame: &Frame, explained: &mut [usize]) -> Vec<String> {
    let mut problems = Vec::new();
    if !frame.all("_ws.malformed").is_empty() {
        problems.push(format!("{}: malformed", frame.summary()));
    }
    for message in frame.all("_ws.expert.message") {
        match EXPLAINED.iter().position(|(text, _)| *text == message) {
            Some(index) => explained[index] += 1,
            None => problems.push(format!("{}: {message}", frame.summary())),
        }
    }
    problems
}

/// Where our decoders and tshark differ, and how many fields were compared; `None` if the frame is not RoCE to either.
pub(super) fn difference(raw: &[u8], seen: &Frame) -> Option<(usize, Vec<String>)> {
    let theirs = !seen.all("infiniband.bth.opcode").is_empty();
    Some(match decoder::view(raw) {
        Ok(None) if !theirs => return None,
        Ok(None) => (0, vec!["not RoCE to us, but to tshark".to_owned()]),
        Ok(Some(_)) if !theirs => (0, vec!["RoCE to us, but not to tshark".to_owned()]),
        Ok(Some(fields)) => (fields.len(), expect::differences(seen, &fields)),
        Err(error) => (0, vec![error]),
    })
}

/// The result of the Python script for each frame.
pub(super) fn script(file: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("python3")
        .args(["-I", "-c", ICRC])
        .arg(file)
        .output()
        .map_err(|e| format!("python3: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "icrc.py: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    Ok(printed.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use connectx_model::pcap::Writer;
    use std::time::Duration;

    /// The first fragment of a datagram to RoCE's port, and the second, which has bytes of the payload there.
    #[test]
    fn fragments_are_not_roce() {
        let fragment = |place: u16| {
            const LEN: u16 = 20 + 8 + 64;
            let mut frame = vec![0; 14 + usize::from(LEN)];
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[14] = 0x45;
            frame[16..18].copy_from_slice(&LEN.to_be_bytes());
            frame[20..22].copy_from_slice(&place.to_be_bytes());
            frame[23] = 17;
            frame[36..38].copy_from_slice(&4791u16.to_be_bytes());
            frame
        };
        let mut recording = Writer::new(Vec::new()).unwrap();
        for place in [0x2000, 9] {
            let frame = fragment(place);
            assert!(decoder::view(&frame).unwrap().is_none());
            recording.write(&frame, Duration::ZERO).unwrap();
        }
        // A whole one is taken for RoCE, and is none.
        assert!(decoder::view(&fragment(0)).is_err());
        recording.write(&fragment(0), Duration::ZERO).unwrap();
        let name = format!("fragments-{}.pcap", std::process::id());
        let file = std::env::temp_dir().join(name);
        write(&file, &recording.finish().unwrap()).unwrap();
        let read = script(&file);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read.unwrap(), ["other", "other", "bad"]);
    }
}
