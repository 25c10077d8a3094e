//! The expected fields of a frame, with tshark's names. Made from the work requests and the parameters that were given,
//! by the rules of the IBTA's specification, and not by any code that made the frame.

use super::tshark::Frame;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::Range;

/// The expected value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    /// A number in this range.
    Within(u64, u64),
    Bytes(Vec<u8>),
    Text(String),
    /// The frame has no such field.
    Absent,
}

/// A field and its value.
pub(super) type Field = (&'static str, Value);

/// A number of any size.
pub(super) fn number(name: &'static str, value: impl Into<u64>) -> Field {
    (name, Value::Number(value.into()))
}

/// Bytes, padded with zeros to `len`.
pub(super) fn bytes(name: &'static str, value: &[u8], len: usize) -> Field {
    let mut value = value.to_vec();
    value.resize(len, 0);
    (name, Value::Bytes(value))
}

/// Anything that tshark shows as text.
pub(super) fn text(name: &'static str, value: impl ToString) -> Field {
    (name, Value::Text(value.to_string()))
}

/// One frame.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// The node that sends it.
    pub(super) from: usize,
    pub(super) fields: Vec<Field>,
}

/// Something that was done, and the frames that it took.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) frames: Range<usize>,
    pub(super) expected: Vec<Expected>,
}

/// The headers in front of the BTH.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) macs: [[u8; 6]; 2],
    /// Number and priority.
    pub(super) vlan: Option<(u16, u8)>,
    pub(super) roce_v1: bool,
    pub(super) addresses: [IpAddr; 2],
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) flow_label: u32,
    /// `None`: any of the dynamic range.
    pub(super) source_port: Option<u16>,
}

/// The UDP source port of a flow label: the upper bits folded into the lower ones, in the dynamic range.
pub(super) fn source_port(label: u32) -> u16 {
    0xc000 | ((label & 0x3fff) ^ (label >> 14)) as u16 & 0x3fff
}

/// The UDP source port of a connection without a flow label: both ends get the same.
pub(super) fn source_port_of(qpns: [u32; 2]) -> u16 {
    let product = u64::from(qpns[0]) * u64::from(qpns[1]);
    let folded = product ^ (product >> 20);
    source_port(((folded ^ (folded >> 40)) & 0xf_ffff) as u32)
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl Path {
    /// The fields of a frame of node `from`.
    pub(super) fn fields(&self, from: usize) -> Vec<Field> {
        let to = 1 - from;
        let mut fields = vec![
            text("eth.src", mac(self.macs[from])),
            text("eth.dst", mac(self.macs[to])),
        ];
        match self.vlan {
            Some((id, priority)) => {
                fields.extend([number("vlan.id", id), number("vlan.priority", priority)])
            }
            None => fields.push(("vlan.id", Value::Absent)),
        }
        let (source, destination) = (self.addresses[from], self.addresses[to]);
        if self.roce_v1 {
            fields.extend([
                text("infiniband.grh.sgid", source),
                text("infiniband.grh.dgid", destination),
                number("infiniband.grh.ipver", 6u8),
                number("infiniband.grh.nxthdr", 0x1bu8),
                number("infiniband.grh.hoplmt", self.hop_limit),
                number("infiniband.grh.tclass", self.traffic_class),
                number("infiniband.grh.flowlabel", self.flow_label),
                ("udp.srcport", Value::Absent),
            ]);
            return fields;
        }
        match source {
            IpAddr::V4(_) => fields.extend([
                text("ip.src", source),
                text("ip.dst", destination),
                number("ip.ttl", self.hop_limit),
                number("ip.dsfield", self.traffic_class),
                number("ip.flags.df", 1u8),
                number("ip.frag_offset", 0u8),
                // 1 is "good": tshark is configured to verify it.
                number("ip.checksum.status", 1u8),
            ]),
            IpAddr::V6(_) => fields.extend([
                text("ipv6.src", source),
                text("ipv6.dst", destination),
                number("ipv6.hlim", self.hop_limit),
                number("ipv6.tclass", self.traffic_class),
                number("ipv6.flow", self.flow_label),
                number("ipv6.nxt", 17u8),
            ]),
        }
        fields.extend([
            number("udp.dstport", 4791u16),
            number("udp.checksum", 0u8),
            (
                "udp.srcport",
                match self.source_port {
                    Some(port) => Value::Number(port.into()),
                    None => Value::Within(0xc000, 0xffff),
                },
            ),
        ]);
        fields
    }
}

/// Why a value is not the one that was meant, if so.
pub(super) fn difference(found: &[&str], wanted: &Value) -> Option<String> {
    let shown = || found.join(" and ");
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut all, byte| {
            let _ = write!(all, "{byte:02x}");
            all
        })
    };
    if let Value::Absent = wanted {
        return (!found.is_empty()).then(|| format!("is there: {}", shown()));
    }
    if found.is_empty() {
        return Some(match wanted {
            Value::Number(value) => format!("is missing, meant {value:#x}"),
            other => format!("is missing, meant {other:?}"),
        });
    }
    // A field that tshark shows twice has to be right twice.
    found.iter().find_map(|found| match wanted {
        Value::Number(value) => {
            (parse(found) != Some(*value)).then(|| format!("{found}, meant {value} = {value:#x}"))
        }
        Value::Within(low, high) => (!parse(found).is_some_and(|n| (*low..=*high).contains(&n)))
            .then(|| format!("{found}, meant {low:#x} to {high:#x}")),
        Value::Bytes(value) => {
            (**found != hex(value)).then(|| format!("{found}, meant {}", hex(value)))
        }
        Value::Text(value) => (found != value).then(|| format!("{found}, meant {value}")),
        Value::Absent => None,
    })
}

fn parse(shown: &str) -> Option<u64> {
    match shown.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => match shown {
            "True" => Some(1),
            "False" => Some(0),
            decimal => decimal.parse().ok(),
        },
    }
}

/// The faults of a frame.
pub(super) fn differences(frame: &Frame, fields: &[Field]) -> Vec<String> {
    fields
        .iter()
        .filter_map(|(name, wanted)| {
            difference(&frame.all(name), wanted).map(|why| format!("{name}: {why}"))
        })
        .collect()
}

impl Step {
    /// The faults of the step's frames: each direction has to be what was meant, frame by frame.
    pub(super) fn problems(&self, frames: &[Frame], macs: &[[u8; 6]; 2]) -> Vec<String> {
        let Some(frames) = frames.get(self.frames.clone()) else {
            return vec!["tshark shows fewer frames than were sent".to_owned()];
        };
        let mut problems = Vec::new();
        for (from, &address) in macs.iter().enumerate() {
            let sent: Vec<_> = frames
                .iter()
                .filter(|frame| frame.all("eth.src") == [mac(address).as_str()])
                .collect();
            let meant: Vec<_> = self.expected.iter().filter(|e| e.from == from).collect();
            if sent.len() != meant.len() {
                let seen: Vec<_> = sent.iter().map(|frame| frame.summary()).collect();
                problems.push(format!(
                    "node {from} sent {} frames, meant {}: {}",
                    sent.len(),
                    meant.len(),
                    seen.join("; ")
                ));
            }
            for (frame, meant) in sent.iter().zip(meant) {
                for difference in differences(frame, &meant.fields) {
                    problems.push(format!("{}: {difference}", frame.summary()));
                }
            }
        }
        problems
    }

    /// Fields that the step compares.
    pub(super) fn compared(&self) -> usize {
        self.expected.iter().map(|frame| frame.fields.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_seen() {
        for (shown, wanted) in [
            (&["0x000011"][..], Value::Number(17)),
            (&["17"], Value::Number(17)),
            (&["0xc123"], Value::Within(0xc000, 0xffff)),
            (&["00ff", "00ff"], Value::Bytes(vec![0, 0xff])),
            (&["fe80::1"], Value::Text("fe80::1".to_owned())),
            (&[], Value::Absent),
        ] {
            assert_eq!(difference(shown, &wanted), None, "{shown:?}");
        }
        for (shown, wanted) in [
            (&["0x000012"][..], Value::Number(17)),
            (&["", "17"], Value::Number(17)),
            (&[], Value::Number(0)),
            (&["0xbfff"], Value::Within(0xc000, 0xffff)),
            (&["00ff", "00fe"], Value::Bytes(vec![0, 0xff])),
            (&["00ff00"], Value::Bytes(vec![0, 0xff])),
            (&["fe80::2"], Value::Text("fe80::1".to_owned())),
            (&["0"], Value::Absent),
        ] {
            assert!(difference(shown, &wanted).is_some(), "{shown:?}");
        }
    }

    /// Ports that Linux's rxe was seen to use.
    #[test]
    fn source_ports() {
        for (label, port) in [
            (0x69818, 55298),
            (0x97392, 62391),
            (0x06f48, 61257),
            (0x7e9f2, 59885),
        ] {
            assert_eq!(source_port(label), port, "{label:#x}");
        }
    }
}
