//! The relations between messages of a connection: the fields that have to be equal, or different.

use crate::wireshark::tshark::Frame;
use bareverbs_cm::mad::Attribute;

/// Checks that go over several messages at once: what has to be equal in which of them.
pub(in crate::wireshark) struct Relations {
    pub(super) what: String,
    /// Frames of the connection: in them a REP, an RTU and a REJ have the TID of the REQ, a DREP that of the DREQ.
    pub(super) frames: std::ops::Range<usize>,
    pub(super) flow_label: u32,
}
impl Relations {
    /// The relations that do not hold.
    pub(in crate::wireshark) fn problems(&self, frames: &[Frame]) -> Vec<String> {
        let Some(frames) = frames.get(self.frames.clone()) else {
            return vec![format!("{}: frames are missing", self.what)];
        };
        let mut problems = Vec::new();
        let of = |attribute: Attribute| {
            let id = format!("{:#06x}", attribute as u16);
            frames
                .iter()
                .filter(move |frame| frame.first("infiniband.mad.attributeid") == id)
        };
        let tid = |frame: &Frame| frame.first("infiniband.mad.transactionid").to_owned();
        let asked = of(Attribute::Req).next();
        let hung_up = of(Attribute::Dreq).next();
        let mut same = |first: Option<&Frame>, messages: &[Attribute], wanted: bool| {
            let Some(first) = first else { return };
            for frame in messages.iter().flat_map(|message| of(*message)) {
                if (tid(frame) == tid(first)) != wanted {
                    problems.push(format!(
                        "{}: TID {}; {} has {}",
                        frame.summary(),
                        tid(frame),
                        first.summary(),
                        tid(first)
                    ));
                }
            }
        };
        // Answers have the TID of what they answer, and repetitions that of the first time.
        use Attribute::{Drep, Dreq, Mra, Rej, Rep, Req, Rtu};
        same(asked, &[Req, Rep, Rtu, Mra, Rej], true);
        same(hung_up, &[Dreq, Drep], true);
        // A side has one TID for a connection, as with Linux: the DREQ of the side that sent the REQ has the same
        // again.
        if let (Some(asked), Some(hung_up)) = (asked, hung_up) {
            let alike = asked.first("eth.src") == hung_up.first("eth.src");
            same(Some(asked), &[Dreq], alike);
        }
        // tshark misreads these two, so they are taken from the bytes: label in the upper 20 bits, rate in the lower 6.
        for frame in of(Attribute::Req) {
            let word = frame
                .mad_data()
                .and_then(|data| Some(u32::from_be_bytes(data.get(88..92)?.try_into().ok()?)));
            if word != Some(self.flow_label << 12) && self.flow_label != 0 {
                problems.push(format!(
                    "{}: {}: flow label and rate {word:x?}, meant {:#x} and 0",
                    self.what,
                    frame.summary(),
                    self.flow_label
                ));
            }
        }
        problems
    }

    /// The connection that the messages are from.
    pub(in crate::wireshark) fn name(&self) -> &str {
        &self.what
    }
}
