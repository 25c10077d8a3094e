//! Replaces what identifies a card or its owner: MAC addresses, GUIDs, serial numbers. The same original has the same
//! replacement everywhere in a report, in text as well as in dumps, and another one in the next report. The maker's part
//! of an address and the form of a GUID stay.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};

use bareverbs::verbs::firmware_cmds::cmdq::{CommandQueueEntry, MailboxBlock, OWNED_BY_DEVICE};

/// Identifiers, each with its replacement.
#[derive(Debug, Default)]
pub(crate) struct Identifiers {
    key: RandomState,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The constant in an EUI-64, between the parts of the address that it was made of.
const EUI64_MIDDLE: [u8; 2] = [0xff, 0xfe];
/// The bytes that this vendor puts into the middle of a MAC address to make a GUID of it.
const GUID_MIDDLE: [u8; 2] = [0x03, 0x00];
/// The bit of an address's first byte that says that no maker gave it.
const LOCAL: u8 = 2;

impl Identifiers {
    /// `N` bytes that depend on these bytes, and on a key that does not leave this process.
    fn noise<const N: usize>(&self, of: &[u8]) -> [u8; N] {
        let mut noise = [0; N];
        for (at, byte) in noise.iter_mut().enumerate() {
            *byte = self.key.hash_one((of, at)) as u8;
        }
        noise
    }

    fn replaced_mac(&self, mac: [u8; 6]) -> [u8; 6] {
        let [a, b, c, ..] = mac;
        let [n0, n1, n2, n3, n4] = self.noise(&mac);
        match a & LOCAL {
            0 => [a, b, c, n2, n3, n4],
            // No part of the address is a maker's.
            _ => [a, n0, n1, n2, n3, n4],
        }
    }

    fn replaced_guid(&self, guid: [u8; 8]) -> [u8; 8] {
        let [a, b, c, middle @ .., f, g, h] = guid;
        let flip = if middle == EUI64_MIDDLE { LOCAL } else { 0 };
        if middle == EUI64_MIDDLE || middle == GUID_MIDDLE {
            let [a, b, c, f, g, h] = self.replaced_mac([a ^ flip, b, c, f, g, h]);
            return [a ^ flip, b, c, middle[0], middle[1], f, g, h];
        }
        let [n0, n1, n2, n3, n4] = self.noise(&guid);
        [a, b, c, n0, n1, n2, n3, n4]
    }

    fn insert(&mut self, original: &[u8], replacement: &[u8]) {
        self.pairs.insert(original.into(), replacement.into());
    }

    /// Adds a MAC address, and the interface identifier that IPv6 makes of it.
    pub(crate) fn mac(&mut self, mac: [u8; 6]) {
        // The address is empty, or one of a group.
        if mac == [0; 6] || mac[0] & 1 != 0 {
            return;
        }
        self.insert(&mac, &self.replaced_mac(mac));
        let [a, b, c, d, e, f] = mac;
        self.guid([a ^ LOCAL, b, c, 0xff, 0xfe, d, e, f]);
    }

    /// Adds a GUID, or the half of a GID or an IPv6 address that may be one.
    pub(crate) fn guid(&mut self, guid: [u8; 8]) {
        if guid != [0; 8] && guid != [0xff; 8] {
            self.insert(&guid, &self.replaced_guid(guid));
        }
    }

    /// Adds a serial number in text, which may be padded.
    pub(crate) fn serial(&mut self, serial: &[u8]) {
        let text = serial.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = text.trim_ascii();
        // Fewer characters identify no card, and would be found by chance elsewhere.
        if text.len() < 4 {
            return;
        }
        let replacement: Vec<u8> = text
            .iter()
            .enumerate()
            .map(|(at, byte)| {
                let noise = self.key.hash_one((text, at, "serial"));
                let among = |first: u8, count: u64| first + (noise % count) as u8;
                match byte {
                    b'0'..=b'9' => among(b'0', 10),
                    b'a'..=b'z' => among(b'a', 26),
                    b'A'..=b'Z' => among(b'A', 26),
                    b'!'..=b'~' => *byte,
                    _ => b'?',
                }
            })
            .collect();
        self.insert(text, &replacement);
    }

    /// The text with replacements for all that is known.
    pub(crate) fn hide(&self, text: &str) -> String {
        let bytes = Replacements::new(self.pairs.iter().flat_map(|(old, new)| {
            let old = orders(old).into_iter();
            old.zip(orders(new))
        }));
        let notations = Replacements::new(self.pairs.iter().flat_map(|(old, new)| {
            let old = notations(old).into_iter().map(String::into_bytes);
            old.zip(notations(new).into_iter().map(String::into_bytes))
        }));
        let mut hidden = String::with_capacity(text.len());
        let mut run = Run::default();
        for line in text.lines() {
            match Row::parse(line) {
                Some(row) => {
                    if !run.is_followed_by(&row) {
                        run.write(&bytes, &mut hidden);
                    }
                    run.bytes.extend(&row.bytes);
                    run.lines.push(RunLine::Row(row));
                }
                // The next row of a command's dump goes on behind it.
                None if line.ends_with("command block:") && !run.lines.is_empty() => {
                    run.lines.push(RunLine::Other(line.into()));
                }
                None => {
                    run.write(&bytes, &mut hidden);
                    hidden.push_str(&notations.in_text(line));
                    hidden.push('\n');
                }
            }
        }
        run.write(&bytes, &mut hidden);
        hidden
    }
}

/// The orders in which an identifier's bytes may lie in a dump.
fn orders(bytes: &[u8]) -> Vec<Vec<u8>> {
    let reversed = |bytes: &[u8]| bytes.iter().rev().copied().collect::<Vec<_>>();
    let mut orders = vec![bytes.to_vec(), reversed(bytes)];
    if let Some((high, low)) = bytes.split_at_checked(4).filter(|_| bytes.len() == 8) {
        // Registers often have the lower dword first.
        let swapped = [low, high].concat();
        orders.push(reversed(&swapped));
        orders.push(swapped);
    }
    orders
}

/// Texts that an identifier may be written as.
fn notations(bytes: &[u8]) -> Vec<String> {
    let joined = |len: usize, between: &str| {
        let chunks: Vec<String> = bytes
            .chunks(len)
            .map(|chunk| chunk.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        chunks.join(between)
    };
    let mut texts = Vec::new();
    if bytes.len() == 6 || bytes.len() == 8 {
        for (len, between) in [(1, ":"), (1, "-"), (1, " "), (2, ":"), (2, "."), (8, "")] {
            texts.push(joined(len, between));
        }
        // Rust prints an array of bytes in this form.
        let decimal: Vec<String> = bytes.iter().map(u8::to_string).collect();
        texts.push(decimal.join(", "));
    }
    if bytes.len() == 8 {
        // These are the forms of a number, and of the end of an IPv6 address.
        texts.push(joined(8, "").trim_start_matches('0').into());
        let number = bytes
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte));
        texts.push(number.to_string());
        let groups: Vec<String> = bytes
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |all, byte| all << 8 | u16::from(*byte)))
            .map(|group| format!("{group:x}"))
            .collect();
        texts.push(groups.join(":"));
    }
    if bytes.is_ascii() {
        texts.push(String::from_utf8_lossy(bytes).to_ascii_lowercase());
    }
    texts
}

/// A pattern and its replacement.
type Replacement = (Vec<u8>, Vec<u8>);

/// Patterns with their replacements, by the first byte and the longest first.
struct Replacements(BTreeMap<u8, Vec<Replacement>>);

impl Replacements {
    fn new(pairs: impl Iterator<Item = Replacement>) -> Self {
        let mut all: BTreeMap<u8, Vec<_>> = BTreeMap::new();
        for (old, new) in pairs {
            if let Some(first) = old.first() {
                all.entry(*first).or_default().push((old, new));
            }
        }
        for pairs in all.values_mut() {
            pairs.sort_by_key(|(old, _)| std::cmp::Reverse(old.len()));
        }
        Self(all)
    }

    fn at(&self, rest: &[u8]) -> Option<(&[u8], &[u8])> {
        let pairs = self.0.get(rest.first()?)?;
        let found = pairs.iter().find(|(old, _)| rest.starts_with(old));
        found.map(|(old, new)| (&**old, &**new))
    }

    /// Replaces in bytes, whose number stays the same. Returns true if there was anything to replace.
    fn in_bytes(&self, bytes: &mut [u8]) -> bool {
        let (mut at, mut any) = (0, false);
        while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let mut step = 1;
            if let Some((old, new)) = self.at(rest) {
                step = old.len();
                rest[..new.len()].copy_from_slice(new);
                any = true;
            }
            at += step;
        }
        any
    }

    /// Replaces in text, in upper and in lower case.
    fn in_text(&self, text: &str) -> String {
        let lower = text.to_ascii_lowercase();
        let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
        while let Some(byte) = text.as_bytes().get(at) {
            match self.at(&lower.as_bytes()[at..]) {
                Some((old, new)) => {
                    let original = &text.as_bytes()[at..at + old.len()];
                    let upper = original.iter().any(u8::is_ascii_uppercase);
                    out.extend(new.iter().map(|byte| match upper {
                        true => byte.to_ascii_uppercase(),
                        false => *byte,
                    }));
                    at += old.len();
                }
                None => {
                    out.push(*byte);
                    at += 1;
                }
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// A line of a dump: an offset, a colon, and dwords or bytes.
struct Row {
    before: String,
    offset: usize,
    bytes: Vec<u8>,
    /// Bytes that are written together.
    group: usize,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let (before, values) = line.rsplit_once(": ")?;
        let offset = before.rsplit(' ').next()?;
        let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
        let offset = Some(offset).filter(|it| it.len() >= 2 && is_hex(it))?;
        let offset = usize::from_str_radix(offset, 16).ok()?;
        let digits = values.split_whitespace().next()?.len();
        let group = Some(digits / 2).filter(|_| digits == 2 || digits == 8)?;
        let mut bytes = Vec::new();
        for value in values.split_whitespace() {
            let value = Some(value).filter(|it| it.len() == digits && is_hex(it))?;
            let number = u32::from_str_radix(value, 16).ok()?;
            bytes.extend_from_slice(&number.to_be_bytes()[4 - group..]);
        }
        Some(Self {
            before: before.into(),
            offset,
            bytes,
            group,
        })
    }
}

enum RunLine {
    Row(Row),
    Other(String),
}

/// Rows that follow one another.
#[derive(Default)]
struct Run {
    lines: Vec<RunLine>,
    bytes: Vec<u8>,
}

impl Run {
    fn first_offset(&self) -> Option<usize> {
        self.lines.iter().find_map(|line| match line {
            RunLine::Row(row) => Some(row.offset),
            RunLine::Other(_) => None,
        })
    }

    fn is_followed_by(&self, row: &Row) -> bool {
        self.first_offset()
            .is_none_or(|first| first + self.bytes.len() == row.offset)
    }

    /// Writes the rows with replacements.
    fn write(&mut self, replacements: &Replacements, to: &mut String) {
        let Self { lines, bytes } = std::mem::take(self);
        let mut new = bytes.clone();
        let is_command =
            matches!(lines.first(), Some(RunLine::Row(row)) if row.before.contains("cmd["));
        if replacements.in_bytes(&mut new) && is_command {
            sign(&bytes, &mut new);
        }
        let mut rest = &new[..];
        for line in lines {
            match line {
                RunLine::Row(row) => {
                    let (now, later) = rest.split_at(row.bytes.len());
                    rest = later;
                    to.push_str(&row.before);
                    to.push(':');
                    for group in now.chunks(row.group) {
                        to.push(' ');
                        for byte in group {
                            // Writing to a String does not fail.
                            let _ = write!(to, "{byte:02x}");
                        }
                    }
                }
                RunLine::Other(line) => to.push_str(&line),
            }
            to.push('\n');
        }
    }
}

/// Computes the signatures of a command again, of the queue entry and of each block, if the old ones were valid.
fn sign(old: &[u8], new: &mut [u8]) {
    const ENTRY: usize = CommandQueueEntry::SIZE;
    let (Some((old_entry, old)), Some((new_entry, new))) = (
        old.split_first_chunk::<ENTRY>(),
        new.split_first_chunk_mut::<ENTRY>(),
    ) else {
        return;
    };
    let (before, mut after) = (CommandQueueEntry(*old_entry), CommandQueueEntry(*new_entry));
    if before.signature_is_valid() {
        after.sign();
    } else if before.answer_signature_is_valid() {
        after.0[ENTRY - 1] |= OWNED_BY_DEVICE;
        after.sign();
        after.0[ENTRY - 1] &= !OWNED_BY_DEVICE;
    }
    *new_entry = after.0;
    let blocks = old.chunks_exact(MailboxBlock::SIZE);
    for (old, new) in blocks.zip(new.chunks_exact_mut(MailboxBlock::SIZE)) {
        let (Some(before), Some(new)) = (old.first_chunk(), new.first_chunk_mut()) else {
            continue;
        };
        if MailboxBlock(*before).signatures_are_valid() {
            let mut after = MailboxBlock(*new);
            after.sign();
            *new = after.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x24, 0x8a, 0x07, 0xb1, 0x23, 0x45];
    const GUID: [u8; 8] = [0x24, 0x8a, 0x07, 0x03, 0x00, 0xb1, 0x23, 0x45];

    fn identifiers() -> Identifiers {
        let mut known = Identifiers::default();
        known.mac(MAC);
        known.guid(GUID);
        known.serial(b"MT2025X12345   \0");
        known
    }

    #[test]
    fn a_guid_stays_that_of_its_address() {
        let known = identifiers();
        let mac = &known.pairs[&MAC[..]];
        assert_eq!(mac[..3], MAC[..3]);
        assert_ne!(mac[3..], MAC[3..]);
        let guid = [&mac[..3], &GUID_MIDDLE, &mac[3..]].concat();
        assert_eq!(known.pairs[&GUID[..]], guid);
        let eui = [&[0x26, 0x8a, 0x07, 0xff, 0xfe][..], &mac[3..]].concat();
        let old = [&[0x26, 0x8a, 0x07, 0xff, 0xfe][..], &MAC[3..]].concat();
        assert_eq!(known.pairs[&old], eui);
        // Another report has other replacements.
        assert_ne!(identifiers().pairs[&MAC[..]], *mac);
    }

    #[test]
    fn all_notations_are_replaced_and_nothing_else() {
        let known = identifiers();
        let text = "mac 24:8a:07:b1:23:45 24-8A-07-B1-23-45 248a07b12345 0x248a07b12345\n\
                    guid 248a:0703:00b1:2345 0x248a070300b12345 24-8a-07-03-00-b1-23-45\n\
                    gid fe80::268a:7ff:feb1:2345 fe80:0000:0000:0000:268a:07ff:feb1:2345\n\
                    SN: MT2025X12345 VUID MT2025X12345MLNXS0D0F0\n\
                    [36, 138, 7, 177, 35, 69] 2632924641629381445\n\
                    other 24:8a:07:b1:23:46 ff:ff:ff:ff:ff:ff\n";
        let hidden = known.hide(text);
        assert_eq!(hidden.lines().count(), 6);
        for original in [
            "b1:23:45",
            "b1-23-45",
            "b12345",
            "b1:2345",
            "2025x12345",
            "177, 35, 69",
            "924641629381445",
        ] {
            assert!(!hidden.to_lowercase().contains(original), "{hidden}");
        }
        assert_eq!(hidden.lines().last(), text.lines().last());
        assert!(hidden.contains("MLNXS0D0F0") && hidden.contains("fe80::268a:7ff:fe"));
    }

    #[test]
    fn dumps_are_searched_across_rows_and_in_each_order() {
        let known = identifiers();
        // The address crosses a row, the GUID is a PCI serial number (reversed), the serial number is text.
        let text = "# a comment\n\
                    ## a dump\n\
                    000: 00000000 00000000 00000000 0000248a\n\
                    010: 07b12345 00000000 00000000 00000000\n\
                    040: 07b12345 00000000 00000000 00000000\n\
                    100: 03 00 01 00 45 23 b1 00 03 07 8a 24 00 00 00 00\n\
                    110: 4d 54 32 30 32 35 58 31 32 33 34 35 20 20 20 00\n";
        let hidden = known.hide(text);
        let (old, new): (Vec<_>, Vec<_>) = (text.lines().collect(), hidden.lines().collect());
        assert_eq!((old.len(), hidden.len()), (new.len(), text.len()));
        for (at, (old, new)) in old.iter().zip(&new).enumerate() {
            // Rows behind a gap do not continue those before it.
            assert_eq!(old == new, [0, 1, 2, 4].contains(&at), "{old} {new}");
        }
        assert!(
            new[5].starts_with("100: 03 00 01 00 ")
                && new[5].ends_with(" 00 03 07 8a 24 00 00 00 00")
        );
        assert_eq!(Identifiers::default().hide(text), text);
    }

    #[test]
    fn commands_are_signed_again() {
        let known = identifiers();
        let mut entry = CommandQueueEntry::ZERO;
        entry.set_output_length(0x110).sign();
        let mut block = MailboxBlock::ZERO;
        block.0[0xf6..0xfc].copy_from_slice(&MAC);
        block.sign();
        let mut text = String::new();
        let mut line = |line: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "[1.000000002] {line}");
        };
        let output = bareverbs::verbs::firmware_cmds::dump::Direction::Output;
        bareverbs::verbs::firmware_cmds::dump::write(
            3,
            0x754,
            output,
            &entry,
            [block].iter(),
            &mut line,
        );
        let hidden = known.hide(&text);
        assert_ne!(hidden, text);
        assert_eq!(hidden.len(), text.len());
        let mut bytes = Vec::new();
        for line in hidden.lines() {
            bytes.extend(Row::parse(line).map_or(Vec::new(), |row| row.bytes));
        }
        let block = MailboxBlock(*bytes[64..].first_chunk().unwrap());
        assert!(block.signatures_are_valid());
        assert_ne!(block.0[0xf6..0xfc], MAC);
    }
}
